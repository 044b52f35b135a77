"""Mark, approve, run, restore, purge: reclaiming storage, with a record of every step."""

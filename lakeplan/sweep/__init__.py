"""Sweeps: mark, approve, run, restore, purge; and lakeFS's own collector."""

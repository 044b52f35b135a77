"""Help of ``lakeplan sweep mark|approve|run|restore|purge|report``."""

MARK = """Write down what a sweep would take. Deletes nothing.

\b
Examples:
  lakeplan sweep mark
  lakeplan sweep mark --target analytics --min-age 7d
"""
APPROVE = """Say yes to a mark, for the record. Deletes nothing.

\b
Examples:
  lakeplan sweep approve 20260331T120000-1a2b3c4d --reason "ticket 42"
"""
RUN = """Delete what an approved mark names, or go on with it. A run that was killed is run again.

With --close it deletes nothing, and also works when the state was lost.

\b
Examples:
  lakeplan sweep run 20260331T120000-1a2b3c4d
  lakeplan sweep run 20260331T120000-1a2b3c4d --format json --out sweep.json
  lakeplan sweep run 20260331T120000-1a2b3c4d --close
"""
RESTORE = """Bring objects back out of quarantine, also when the state was lost.

\b
Examples:
  lakeplan sweep restore 20260331T120000-1a2b3c4d
  lakeplan sweep restore 20260331T120000-1a2b3c4d --path raw/2026/
"""
PURGE = """Delete copies in quarantine that are old enough and that nothing needs. This cannot be undone.

\b
Examples:
  lakeplan sweep purge --older-than 14d
  lakeplan sweep purge --older-than 14d --target analytics --auto-approve
"""
REPORT = """List marks, or show one and what became of it.

\b
Examples:
  lakeplan sweep report
  lakeplan sweep report 20260331T120000-1a2b3c4d
  lakeplan sweep report --collector-runs --format json
"""

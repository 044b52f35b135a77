"""Sweeps: mark, approve, run, restore, purge. Also runs lakeFS's own collector."""

__all__ = [
    "check",
    "contents",
    "documents",
    "finish",
    "hold_records",
    "judge",
    "official",
    "ports",
    "records",
    "restore",
    "rounds",
    "rules",
    "run",
    "service",
    "spark_submit",
]

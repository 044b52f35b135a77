"""Branch policies on open-source servers: observations, verdicts, deletion, undo."""

__all__ = [
    "announce",
    "deleting",
    "deletion_records",
    "documents",
    "keepers",
    "notices",
    "pin_records",
    "pins",
    "plan",
    "recall",
    "run",
    "survey",
    "verdicts",
]

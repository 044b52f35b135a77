"""Branch policies on open-source servers: observations, verdicts, deletion, undo."""

__all__ = [
    "announce",
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
    "undo",
    "verdicts",
]

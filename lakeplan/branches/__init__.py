"""Branch policies on open-source servers: observations, verdicts, deletion, undo."""

__all__ = [
    "announce",
    "documents",
    "fates",
    "memory",
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

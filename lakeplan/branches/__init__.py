"""Branch policies on open-source servers: observations, verdicts, deletion, undo."""

__all__ = [
    "consequences",
    "documents",
    "fates",
    "memory",
    "plan",
    "recall",
    "run",
    "survey",
    "undo",
    "verdicts",
]

"""The common parts of plans, branch runs and sweeps: selection, gates, overrides, ceiling, strictness,
notify."""

__all__ = [
    "base",
    "ceiling",
    "checks",
    "claims",
    "differences",
    "gates",
    "history",
    "notify",
    "run",
    "selection",
    "strictness",
    "webhook",
]

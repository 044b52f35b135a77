"""What plans, branches and sweeps share: selection, gates, overrides, ceiling, strictness, notify."""

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

"""The parts that plans, branch runs and sweeps share: selection, gates, overrides, ceiling, strictness,
notify."""

__all__ = [
    "base",
    "ceiling",
    "claims",
    "differences",
    "gates",
    "history",
    "notify",
    "run",
    "selection",
    "strictness",
]

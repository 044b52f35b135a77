"""Plans and applies: gather, judge, impact, gates, writing; drift, import, rollback."""

__all__ = [
    "apply",
    "baselines",
    "documents",
    "drift",
    "drift_compare",
    "drift_write",
    "gather",
    "page",
    "pin_sync",
    "planning",
]

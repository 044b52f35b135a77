"""Plans and applies: gather, judge, impact, gates, writing; drift, import, rollback."""

__all__ = [
    "apply",
    "baselines",
    "documents",
    "drift",
    "drift_compare",
    "gather",
    "page",
    "pin_sync",
    "planning",
    "tree_edits",
]

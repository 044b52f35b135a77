"""What plans, branches and sweeps share: selection, gates, overrides, ceiling, strictness."""

__all__ = ["base", "ceiling", "differences", "gates", "history", "run", "selection", "strictness"]

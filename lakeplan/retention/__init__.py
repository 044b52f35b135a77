"""Which commits are kept, by which rule, why and until when. Pure."""

__all__ = ["drawing", "graph", "keep", "patterns", "rules"]

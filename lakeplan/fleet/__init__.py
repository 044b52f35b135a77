"""All repositories of a server at once: audit."""

__all__ = [
    "audit",
    "documents",
]

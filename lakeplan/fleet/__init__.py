"""All repositories of a server at once: audit and storage."""

__all__ = ["audit", "judging", "storage"]

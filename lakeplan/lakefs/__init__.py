"""One client of a lakeFS server: readers, writers, credentials, errors."""

__all__ = ["client", "credentials", "protocols", "transport", "writers"]

"""One client of a lakeFS server: readers, writers, credentials, errors."""

__all__ = ["branches", "client", "collection", "credentials", "protocols", "transport", "writers"]

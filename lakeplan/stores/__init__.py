"""Object stores by URL: list, read, delete, copy, and documents that are written on a condition."""

__all__ = ["faults", "folder", "open", "s3_client"]

"""One client of a lakeFS server: readers, writers, credentials, errors."""

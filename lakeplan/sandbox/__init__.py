"""An embedded lakeFS server with a namespace on disk."""

__all__ = ["seed", "seed_document", "server", "service"]

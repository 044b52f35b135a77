"""An embedded lakeFS server with a namespace on disk."""

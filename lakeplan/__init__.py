"""lakeplan: retention of lakeFS repositories as reviewed code."""

__version__ = "0.1.0"

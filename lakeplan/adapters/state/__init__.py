"""The state store behind one port: a folder, S3 or Azure blob, always with conditional writes."""

from lakeplan.adapters.state.open import open_state

__all__ = ["open_state"]

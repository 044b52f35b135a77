"""Checks of permissions and set-up."""

__all__ = ["doctor", "repositories"]

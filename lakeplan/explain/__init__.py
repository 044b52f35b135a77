"""Explains why something is kept or not, and runs policy tests."""

__all__ = ["documents", "explain", "policy_test", "search"]

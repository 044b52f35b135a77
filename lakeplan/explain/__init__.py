"""Why something is kept or not, and policy tests."""

__all__ = ["documents", "explain", "policy_test", "search"]

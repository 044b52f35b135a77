"""YAML of a tree becomes the desired configuration of repositories."""

__all__ = ["editing", "files", "policy_tests", "schemas", "structure", "tree", "yaml"]

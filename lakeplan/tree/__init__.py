"""Turns the YAML of a tree into the desired configuration of repositories."""

__all__ = ["editing", "files", "schemas", "structure", "tree", "yaml"]

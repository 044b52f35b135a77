"""Turns the YAML of a tree into the desired configuration of repositories."""

__all__ = ["editing", "files", "schemas", "servers", "structure", "tree", "yaml"]

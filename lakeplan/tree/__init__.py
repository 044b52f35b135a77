"""YAML of a tree becomes the desired configuration of repositories."""

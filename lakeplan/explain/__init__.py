"""Why something is kept or not, and policy tests."""

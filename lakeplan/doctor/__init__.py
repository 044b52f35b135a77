"""Checks of permissions and set-up."""

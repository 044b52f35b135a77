"""Ports in memory."""

from tests.memory import server, state  # noqa: F401  # fixtures

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power cuts have tests of their own; thousands of small files are quicker without the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)

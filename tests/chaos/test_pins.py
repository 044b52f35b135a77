"""Pins in random lives; ``make chaos CHAOS_ARGS="--pins 200"`` runs many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.pins import live


@pytest.mark.parametrize("seed", range(3))
def test_no_write_for_pins_ever_keeps_less(tmp_path: Path, seed: int) -> None:
    life = live(tmp_path, seed, steps=40)
    assert life.watcher.seen["POST branch"] > 3, life.ends
    assert life.watcher.seen["DELETE branch"] > 0, life.ends
    assert life.watcher.seen["PUT rules"] > 3, life.ends

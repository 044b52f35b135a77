"""Short runs of the chaos suite: a minute of one core. ``make chaos`` is the long one."""

from __future__ import annotations

import pytest

from tests.chaos.campaign import campaign
from tests.chaos.mirrors import STORES


@pytest.mark.parametrize(
    ("store", "seed", "steps"),
    [
        ("folder", 22, 50),
        pytest.param("folder", 22, 120, marks=pytest.mark.extended),
        pytest.param("s3", 21, 8, marks=pytest.mark.extended),
        pytest.param("azurite", 18, 4, marks=pytest.mark.extended),
    ],
)
def test_nothing_that_is_kept_is_lost_and_every_report_is_true(store: str, seed: int, steps: int) -> None:
    with STORES[store]() as mirror:
        counts = campaign(seed, steps, mirror=mirror)
    assert counts.deleting, counts.text()

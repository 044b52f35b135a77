from __future__ import annotations

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest

from lakeplan.values.records import moment_of


def it_is_exact_within_the_calendar() -> None:
    assert moment_of(-1) == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc)


@pytest.mark.parametrize(("us", "year"), [(-(2**63), 1), (2**63, 9999)])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
def it_gives_any_number_a_moment_that_every_zone_has(us: int, year: int, zone: str) -> None:
    assert moment_of(us).astimezone(ZoneInfo(zone)).year == year

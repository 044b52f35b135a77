"""The safest of several clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.errors import ClockSkew, LakeplanError
from lakeplan.state.clocks import MAX_DIFFERENCE, Clocks, clock_warning, read_clocks, server_clock, store_time
from lakeplan.values.repository import StoredObject

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


def of(*others: timedelta | None) -> Clocks:
    clocks: dict[str, Callable[[], datetime | None]] = {
        f"clock {number}": lambda other=other: None if other is None else NOW + other
        for number, other in enumerate(others)
    }
    return read_clocks(lambda: NOW, clocks, where="prod/lake")


def it_takes_the_earliest_and_the_latest_of_all() -> None:
    assert of(3 * SECOND, -2 * SECOND) == Clocks(NOW - 2 * SECOND, NOW + 3 * SECOND)
    assert of(SECOND) == Clocks(NOW, NOW + SECOND)
    assert of(-SECOND, None) == Clocks(NOW - SECOND, NOW)


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "HERE-14")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
@pytest.mark.parametrize(("hours", "seconds"), [(14, -1), (-12, 1)])
def it_gives_days_of_utc_whatever_zone_a_clock_or_this_machine_is_in(hours: int, seconds: int) -> None:
    """Else a hold or an override would end half a day early, or late."""
    other = (NOW + seconds * SECOND).astimezone(timezone(timedelta(hours=hours)))
    clocks = read_clocks(lambda: NOW, {"server": lambda: other}, where="")
    assert {clocks.earliest.date(), clocks.latest.date()} == {NOW.date()}


@pytest.mark.parametrize("sign", [1, -1])
def it_refuses_a_difference_of_more_than_five_minutes(sign: int) -> None:
    assert of(sign * MAX_DIFFERENCE)
    with pytest.raises(ClockSkew, match=r"clock 1 shows 2026-01-01 1.:..:01|clock 1 shows .*:59") as caught:
        of(timedelta(), sign * (MAX_DIFFERENCE + SECOND))
    assert (caught.value.where, "NTP" in caught.value.hint) == ("prod/lake", True)


def it_refuses_two_other_clocks_that_differ_by_more() -> None:
    half = MAX_DIFFERENCE / 2
    assert of(half, -half)
    with pytest.raises(ClockSkew, match=r"clock 0 shows .*, but clock 1 shows"):
        of(half, -half - SECOND)


def it_takes_two_other_clocks_that_agree() -> None:
    ahead = MAX_DIFFERENCE * 0.6
    assert of(ahead, ahead) == Clocks(NOW, NOW + ahead)
    assert of(-ahead, -ahead) == Clocks(NOW - ahead, NOW)


def it_refuses_when_nothing_else_tells_the_time() -> None:
    with pytest.raises(ClockSkew, match="clock 0 could not be read, so only this machine's clock is known"):
        of(None)


def it_does_not_count_the_time_that_an_answer_takes() -> None:
    """A server that takes an hour to answer is read at some moment of that hour."""
    ours = iter([NOW, NOW, NOW + timedelta(hours=1)])
    clocks = read_clocks(lambda: next(ours), {"slow": lambda: NOW + 30 * SECOND}, where="")
    assert clocks == Clocks(NOW, NOW + timedelta(hours=1))


class Server:
    """Its clock differs from ours by ``ahead``; None: it does not say the time."""

    def __init__(self, ahead: timedelta | None) -> None:
        self.ahead = ahead

    def server_time(self, repository: str) -> datetime | None:
        assert repository == "lake"
        return None if self.ahead is None else NOW + self.ahead


class Store:
    """Lists every file with the modification time ``modified_us``; None: a file is gone as soon as written.
    The answer to HEAD is in another time zone, by which no age is judged."""

    url = "s3://bucket/ns"

    def __init__(self, modified_us: int | None) -> None:
        self.modified_us = modified_us
        self.written: dict[str, str] = {}

    def put(self, key: str, data: bytes) -> None:
        self.written[key] = data.decode()

    def stat(self, key: str) -> StoredObject | None:
        assert key in self.written
        return None if self.modified_us is None else StoredObject(key, 1, self.modified_us + 3_600_000_000)

    def find(self, keys: list[str]) -> dict[str, StoredObject]:
        assert {*keys} <= self.written.keys()
        return (
            {} if self.modified_us is None else {key: StoredObject(key, 1, self.modified_us) for key in keys}
        )


def it_reads_the_clock_of_a_server() -> None:
    assert server_clock(Server(SECOND), "lake", lambda: NOW, where="prod/lake") == Clocks(NOW, NOW + SECOND)
    with pytest.raises(ClockSkew, match="the server's clock could not be read") as caught:
        server_clock(Server(None), "lake", lambda: NOW, where="prod/lake")
    assert caught.value.where == "prod/lake"


def it_warns_in_a_plan_of_a_clock_that_differs() -> None:
    assert clock_warning(Server(SECOND), "lake", NOW) is None
    warning = clock_warning(Server(timedelta(hours=25)), "lake", NOW)
    assert warning == (
        "this machine's clock shows 2026-01-01 12:00:00 UTC,"
        " but the server's clock shows 2026-01-02 13:00:00 UTC,"
        " so ages cannot be determined and nothing is deleted"
    )


def it_takes_the_store_s_time_from_a_file_that_it_writes() -> None:
    store = Store(1_767_268_800_000_007)
    at = store_time(store, "_lakeplan/clock.json", {"by": "me", "at": "now"})  # type: ignore[arg-type]
    assert at == NOW + timedelta(microseconds=7)
    assert store.written == {"_lakeplan/clock.json": '{"at": "now", "by": "me"}\n'}
    with pytest.raises(LakeplanError, match="missing from the store's listing") as caught:
        store_time(Store(None), "_lakeplan/clock.json", {})  # type: ignore[arg-type]
    assert caught.value.where == "s3://bucket/ns/_lakeplan/clock.json"


def it_goes_on_to_the_next_clock_when_one_does_not_tell_the_time() -> None:
    assert of(None, 2 * SECOND) == Clocks(NOW, NOW + 2 * SECOND)
    with pytest.raises(ClockSkew):
        of(None, MAX_DIFFERENCE + SECOND)

"""When lakeFS's own collector may do a sweep."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import GateRefused, UsageError
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.rules import (
    START_SECONDS,
    candidate_age_seconds,
    check_collectable,
    check_engine,
    min_age_seconds,
)
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount, MarkClass, Marked
from lakeplan.values.sweep import SUPPORTED_BY_OFFICIAL, SWEEP, SweepSettings, Versions

NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)
OBEYED_BY_OFFICIAL = {
    "engine",
    "automatic",
    "min_age",
    "settle",
    "margin",
    "never_committed",
    "verify",
    "max_objects",
    "max_bytes",
    "quarantine_age",
}
"""Settings that lakeplan itself enforces around lakeFS's own job."""


def test_every_setting_is_obeyed_around_the_official_job_or_refused() -> None:
    assert {setting.key for setting in SWEEP} == OBEYED_BY_OFFICIAL | SUPPORTED_BY_OFFICIAL.keys()


def a_mark(amounts: dict[MarkClass, int], **settings: Any) -> Mark:
    return Mark(
        mark_id="m1",
        server="prod",
        repository="lake",
        endpoint_url="http://127.0.0.1:8000",
        storage_namespace="s3://bucket/lake",
        repository_created=1_700_000_000,
        marked_at=NOW,
        cutoff=NOW - timedelta(days=1),
        looked_at=NOW,
        lowered_at=NOW,
        rules=GcRules(7, {}),
        settings=SweepSettings(engine="lakefs-spark-client", **settings),
        tree_settings=SweepSettings(engine="lakefs-spark-client", **settings),
        held_prefixes=(),
        marked=Marked((), (), {kind: Amount(count, count) for kind, count in amounts.items()}),
        candidates=Amount(100, 100),
        seen_sha256="",
        collector_runs=(),
        unreadable={},
        gates=(),
        by="somebody",
    )


def it_lets_the_collector_take_what_expired() -> None:
    check_collectable(a_mark({MarkClass.BACKLOG: 5, MarkClass.NEWLY_EXPIRED: 2}))


@pytest.mark.parametrize(
    "kind", [MarkClass.AT_RISK, MarkClass.PROTECTED, MarkClass.UNCERTAIN_ADDRESS, MarkClass.NEAR_LIMIT]
)
@pytest.mark.parametrize("never_committed", ["keep", "collect"])
def it_is_blocked_while_it_would_take_what_the_mark_keeps(kind: MarkClass, never_committed: str) -> None:
    with pytest.raises(GateRefused, match=f"{kind.value}: 1 object"):
        check_collectable(a_mark({MarkClass.BACKLOG: 5, kind: 1}, never_committed=never_committed))


def it_is_blocked_by_what_was_never_committed_unless_that_goes() -> None:
    amounts = {MarkClass.NEVER_COMMITTED: 3}
    with pytest.raises(GateRefused, match="never_committed: 3 objects"):
        check_collectable(a_mark(amounts))
    check_collectable(a_mark(amounts, never_committed="collect"))


def it_names_every_class_that_blocks() -> None:
    with pytest.raises(GateRefused) as refused:
        check_collectable(a_mark(dict.fromkeys(MarkClass, 1)))
    for kind in set(MarkClass) - {MarkClass.BACKLOG, MarkClass.NEWLY_EXPIRED}:
        assert kind.value in refused.value.message


@pytest.mark.parametrize(
    "settings", [{"mode": "quarantine"}, {"versions": Versions.ALL}, {"rate": 100}], ids=str
)
def it_refuses_settings_that_the_collector_cannot_follow(settings: dict[str, Any]) -> None:
    official = SweepSettings(engine="lakefs-spark-client", **settings)
    with pytest.raises(UsageError, match=f"sweep.{next(iter(settings))}"):
        check_engine(official, "prod/lake")
    check_engine(replace(official, engine="builtin"), "prod/lake")


def it_judges_no_mark_of_the_builtin_engine() -> None:
    mark = a_mark(dict.fromkeys(MarkClass, 1))
    check_collectable(replace(mark, settings=replace(mark.settings, engine="builtin")))


@given(st.integers(0, 10**6), st.floats(0, 10**6), st.floats(0, START_SECONDS))
def it_marks_only_what_is_old_enough_for_the_collector(age: int, waited: float, start: float) -> None:
    settings = SweepSettings(engine="lakefs-spark-client", min_age_seconds=age)
    newest = NOW - timedelta(seconds=candidate_age_seconds(settings))
    run = NOW + timedelta(seconds=waited)
    seconds = min_age_seconds(cutoff=NOW - timedelta(seconds=age), now=run)
    assert newest <= run + timedelta(seconds=start) - timedelta(seconds=seconds)


@given(
    st.integers(0, 10**6).map(lambda s: timedelta(seconds=s)),
    st.floats(0, START_SECONDS).map(lambda s: timedelta(seconds=s)),
)
def it_never_lets_the_collector_take_what_is_younger_than_the_mark_s_cutoff(
    age: timedelta, start: timedelta
) -> None:
    cutoff = NOW - age
    seconds = min_age_seconds(cutoff=cutoff, now=NOW)
    assert seconds >= 1
    assert NOW + start - timedelta(seconds=seconds) <= cutoff


def it_asks_for_an_age_that_the_collector_does_not_take_for_its_default() -> None:
    mark = replace(a_mark({}), cutoff=NOW)
    assert min_age_seconds(cutoff=mark.cutoff, now=NOW - timedelta(days=2)) == 1


def test_ages_leave_the_job_five_minutes_to_start() -> None:
    official = SweepSettings(engine="lakefs-spark-client", min_age_seconds=9)
    assert candidate_age_seconds(official) == 9 + 301
    assert candidate_age_seconds(replace(official, engine="builtin")) == 9
    cutoff = NOW - timedelta(days=1, microseconds=1)
    assert min_age_seconds(cutoff=cutoff, now=NOW) == 86400 + 1 + 300

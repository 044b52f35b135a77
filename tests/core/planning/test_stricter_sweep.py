"""The stricter of two trees for a sweep, and how a plan file carries it."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date, datetime, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.core.planning.stricter_sweep import all_holds, guard_of, held_to_guard, stricter_sweep
from lakeplan.model.desired import DesiredRepository, Safety
from lakeplan.model.plan import Plan
from lakeplan.model.plan_document import dump_plan, load_plan
from lakeplan.model.stored import Versions
from lakeplan.model.sweep import Hold, SweepSettings

SOONER, LATER = date(2027, 1, 1), date(2028, 1, 1)
SETTINGS = st.builds(
    SweepSettings,
    engine=st.sampled_from(["builtin", "lakefs-spark-client"]),
    automatic=st.booleans(),
    mode=st.sampled_from(["delete", "quarantine"]),
    min_age_seconds=st.integers(0, 9),
    settle_seconds=st.integers(0, 9),
    margin_seconds=st.integers(0, 9),
    never_committed=st.sampled_from(["keep", "collect"]),
    versions=st.sampled_from(list(Versions)),
    verify=st.sampled_from(["sample", "all"]),
    max_objects=st.integers(0, 9),
    max_bytes=st.integers(0, 9),
    rate=st.none() | st.integers(1, 9),
)
STRICTEST = SweepSettings("builtin", False, "quarantine", 9, 9, 9, "keep", Versions.MARKER, "all", 0, 0, 1)


def repository(**more: Any) -> DesiredRepository:
    return DesiredRepository("prod", "a", "a", None, "0", {}, {}, **more)


@given(SETTINGS, SETTINGS)
def it_takes_of_every_setting_one_of_the_two(one, other):
    found = stricter_sweep(one, other)
    assert found == stricter_sweep(other, one)
    for field in fields(SweepSettings):
        sides = (getattr(one, field.name), getattr(other, field.name))
        assert getattr(found, field.name) in sides, field.name


@given(SETTINGS)
def it_never_gives_up_what_is_strictest(settings):
    assert stricter_sweep(STRICTEST, settings) == STRICTEST
    assert stricter_sweep(settings, settings) == settings


def it_holds_what_either_holds_and_for_as_long():
    audit, longer = Hold("prefix", "audit/", SOONER), Hold("prefix", "audit/", LATER)
    endless, tag = Hold("prefix", "audit/"), Hold("tag", "v1")
    assert all_holds((audit,), (longer, tag)) == (longer, tag)
    assert all_holds((longer,), (audit,)) == (longer,)
    assert all_holds((longer,), (endless,), ()) == (endless,)


def it_guards_only_what_the_base_was_stricter_in():
    strict = repository(holds=(Hold("tag", "v1"),), sweep=SweepSettings(min_age_seconds=172_800))
    assert guard_of(repository(), strict) is None
    guard = guard_of(strict, repository(safety=Safety(protected_tags=())))
    assert guard is not None
    held = held_to_guard(repository(safety=Safety(protected_tags=())), guard)
    assert (held.holds, held.sweep) == (strict.holds, strict.sweep)
    assert held.safety.protected_tags == Safety().protected_tags


def it_stands_in_the_plan_file_as_it_is():
    guard = guard_of(
        repository(holds=(Hold("prefix", "audit/", LATER, "legal"),), sweep=STRICTEST), repository()
    )
    assert guard is not None
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    plan = Plan(now, "1", "digest", None, (), sweep_guards={"prod/a": replace(guard)})
    assert load_plan(dump_plan(plan), where="plan.json") == plan

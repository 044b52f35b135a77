"""The stricter of two values of every setting, and how a plan file carries what guards a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import date, datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.config.schemas import bundled_schema
from lakeplan.core.planning.loosening import guard_of, held_to_guard
from lakeplan.core.strictness import (
    EVERY,
    LIFECYCLE,
    SWEEP,
    SinceMark,
    all_holds,
    since_mark,
    stricter_lifecycle,
    stricter_sweep,
    weakened,
)
from lakeplan.model.desired import DesiredRepository, Safety
from lakeplan.model.lifecycle import LifecycleSettings
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
    quarantine_age_seconds=st.integers(0, 9),
)
STRICTEST = SweepSettings("builtin", False, "quarantine", 9, 9, 9, "keep", Versions.MARKER, "all", 0, 0, 1, 9)


def repository(**more: Any) -> DesiredRepository:
    return DesiredRepository("prod", "a", "a", None, "0", {}, {}, **more)


WEAKEST = SweepSettings(
    "lakefs-spark-client", True, "delete", 0, 0, 0, "collect", Versions.ALL, "sample", 99, 99, None, 0
)
BLOCKS = ("sweep", "safety", "lifecycle", "bounds", "holds", "gc", "state")
"""Blocks whose settings have an entry each; other blocks have one entry."""


def settings_of(schema: dict[str, Any], node: dict[str, Any], path: str) -> Iterator[str]:
    """Paths of every setting below a node of a schema."""
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    if "items" in node:
        yield from settings_of(schema, node["items"], path)
    for key, child in node.get("properties", {}).items():
        yield f"{path}.{key}"
        yield from settings_of(schema, child, f"{path}.{key}")


def every_setting() -> Iterator[str]:
    tree = bundled_schema("tree")
    for key, node in {**tree["properties"], **tree["$defs"]["entry"]["properties"]}.items():
        if key in BLOCKS:
            yield from settings_of(tree, node, key)
        else:
            yield key


def it_has_one_entry_for_every_setting_of_the_schemas():
    paths = [setting.path for setting in EVERY]
    assert len(paths) == len(set(paths))
    assert set(paths) == set(every_setting())


@given(SETTINGS, SETTINGS)
def it_combines_in_either_order_to_one_of_the_two_values(one, other):
    found, back = stricter_sweep(one, other), stricter_sweep(other, one)
    assert replace(found, rate=None) == replace(back, rate=None)
    assert found.rate == other.rate, "neutral: today's counts"
    for field in fields(SweepSettings):
        sides = (getattr(one, field.name), getattr(other, field.name))
        assert getattr(found, field.name) in sides, field.name


@given(SETTINGS)
def it_never_gives_up_what_is_strictest(settings):
    assert stricter_sweep(settings, STRICTEST) == STRICTEST
    assert replace(stricter_sweep(STRICTEST, settings), rate=1) == STRICTEST
    assert stricter_sweep(settings, settings) == settings
    assert stricter_sweep(WEAKEST, settings) == settings


def it_weakens_every_setting_of_a_sweep_but_the_neutral_one():
    paths = [setting.path for setting, _, _ in weakened(SWEEP, STRICTEST, WEAKEST)]
    assert paths == [setting.path for setting in SWEEP if setting.path != "sweep.rate"]
    assert list(weakened(SWEEP, WEAKEST, STRICTEST)) == []


def it_keeps_every_branch_that_either_lifecycle_keeps():
    careful = LifecycleSettings(("keep-*",), require_merged=True, min_keep=3)
    loose = LifecycleSettings(("hot-*",), False, 1, False, False, "head_commit", False)
    exempt = ("hot-*", "keep-*")
    assert stricter_lifecycle(careful, loose) == replace(careful, exempt=exempt)
    assert len(list(weakened(LIFECYCLE, careful, loose))) == len(LIFECYCLE)


class DescribeSinceTheMark:
    TREE = SweepSettings()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("engine", "lakefs-spark-client"),
            ("mode", "quarantine"),
            ("min_age_seconds", 365 * 86_400),
        ],
    )
    def it_needs_a_new_mark(self, name: str, value: object) -> None:
        _, refused = since_mark(self.TREE, self.TREE, replace(self.TREE, **{name: value}))
        assert [setting.field for setting in refused] == [name]

    @pytest.mark.parametrize("now", ["builtin", "lakefs-spark-client"])
    def it_needs_a_new_mark_for_any_other_engine(self, now: str) -> None:
        other = {"builtin": "lakefs-spark-client", "lakefs-spark-client": "builtin"}[now]
        marked = replace(self.TREE, engine=other)
        _, refused = since_mark(marked, marked, replace(self.TREE, engine=now))
        assert [setting.since_mark for setting in refused] == [SinceMark.ANY_CHANGE]

    @given(SETTINGS, SETTINGS)
    def it_is_never_weaker_than_the_mark_or_than_what_the_tree_tightened(self, marked, now) -> None:
        settings, refused = since_mark(marked, marked, now)
        found = {setting.path for setting, _, _ in weakened(SWEEP, marked, settings)}
        assert found <= {"sweep.max_objects", "sweep.max_bytes"}, "limits, which gates judge"
        left = [setting.path for setting, _, _ in weakened(SWEEP, now, settings)]
        assert set(left) <= {setting.path for setting in refused}

    def it_leaves_what_a_person_chose_for_the_mark(self) -> None:
        chosen = replace(self.TREE, min_age_seconds=0, never_committed="collect")
        assert since_mark(chosen, self.TREE, self.TREE) == (chosen, ())
        careful = replace(self.TREE, min_age_seconds=3 * 86_400)
        between = replace(self.TREE, min_age_seconds=2 * 86_400)
        assert since_mark(careful, self.TREE, between) == (careful, ()), "already stricter than the tree"
        tightened = replace(self.TREE, min_age_seconds=self.TREE.min_age_seconds + 1)
        _, refused = since_mark(chosen, self.TREE, tightened)
        assert [setting.path for setting in refused] == ["sweep.min_age"]


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

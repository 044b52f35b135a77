"""The stricter of two values of every setting, and how a plan file carries what guards a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import date, datetime, timezone
from typing import Any

import pytest
from hypothesis import given

from lakeplan.review.strictness import SAFETY_REVIEWED as SAFETY
from lakeplan.review.strictness import (
    SERVER,
    TREE,
    all_holds,
    guard_of,
    held_to_guard,
    since_mark,
    stricter_branch_settings,
    stricter_safety,
    stricter_sweep,
    weakened,
)
from lakeplan.tree.schemas import bundled_schema
from lakeplan.values.declare import Order, SinceMark, lower_limit
from lakeplan.values.desired import BRANCH_SETTINGS, BranchSettings, DesiredRepository, Safety
from lakeplan.values.pins import PINS
from lakeplan.values.plan import Plan
from lakeplan.values.plan_document import dump_plan, load_plan
from lakeplan.values.sweep import SWEEP, Hold, SweepSettings, Versions
from tests.review.declared import extreme, kind_of, strategy

RULED = (*SWEEP, *SAFETY, *BRANCH_SETTINGS, *PINS, *TREE, *SERVER)
_HOLD = "identifies the hold; all_holds keeps every one, and one that the head lacks is listed"
_DAYS = "a plan simulates a change; a sweep keeps what the server's or the tree's days keep"
_NAMES = "names what the days are for; a plan expands and simulates it, or lists a pattern without branches"
_PINS = "a plan lists every pin that is no longer required and what only it protects, and gates judge it"
_SIMULATED = (
    "a plan shows every change and what it deletes, and gates judge it; those that lakeplan runs are listed"
)
_ENTRIES = "decides which settings an entry gets; the resolved settings are compared"
_POLICY = ("id", "patterns", "max_age", "max_idle_age", "max_inactivity_time", "description", "remove")
JUDGED_ELSEWHERE = {
    "holds.prefix": _HOLD,
    "holds.branch": _HOLD,
    "holds.tag": _HOLD,
    "holds.commit": _HOLD,
    "holds.until": "of two holds on the same thing the one that ends later counts (all_holds)",
    "holds.reason": "people read it; nothing is decided by it",
    "holds.remove": "drops an inherited hold, which is listed as dropped",
    "gc.default_retention_days": _DAYS,
    "gc.branches": _NAMES,
    "gc.branches.branch_id": _NAMES,
    "gc.branches.pattern": _NAMES,
    "gc.branches.retention_days": _DAYS,
    "gc.branches.min_commits": _PINS,
    "gc.branches.keep": _PINS,
    "gc.branches.keep.daily": _PINS,
    "gc.branches.keep.weekly": _PINS,
    "gc.branches.keep.monthly": _PINS,
    "gc.branches.remove": "drops inherited days; a plan simulates the days that are left",
    "gc.file": "the rules in the file are compared like those in the tree",
    "branch_lifecycle.file": _SIMULATED,
    "branch_lifecycle.policies": _SIMULATED,
    **{f"branch_lifecycle.policies.{key}": _SIMULATED for key in _POLICY},
    "object_lifecycle": _SIMULATED,
    "overrides": "new or wider ones are listed one by one (strictness.weakened_settings)",
    "servers": "servers are paired by their endpoints; one that is lost is listed",
    "servers.endpoint_url": "pairs the servers of both trees",
    "servers.branch_lifecycle": "its settings have entries of their own",
    "servers.branch_lifecycle.schedule": "forecasts when the server's own job runs; nothing is decided by it",
    "servers.cost_per_gb_month": "figures for people; nothing is decided by it",
    "servers.storages": "where storage is read; a sweep checks that it is the repository's",
    "defaults": _ENTRIES,
    "profiles": _ENTRIES,
    "include": _ENTRIES,
    "repositories": _ENTRIES,
    "server": _ENTRIES,
    "use": _ENTRIES,
    "owner": "one whose channel for deletions is another is listed (strictness.weakened_repository)",
    "simulation": "both runners give the same answers; nothing is decided by it",
    "apiVersion": "there is one version",
}
"""Settings without a rule, and why they need none."""

SOONER, LATER = date(2027, 1, 1), date(2028, 1, 1)
SETTINGS = strategy(SWEEP, SweepSettings)
STRICTEST = extreme(SWEEP, SweepSettings, strict=True)
WEAKEST = extreme(SWEEP, SweepSettings, strict=False)


def repository(**more: Any) -> DesiredRepository:
    return DesiredRepository("prod", "a", "a", None, "0", {}, {}, **more)


BLOCKS = ("sweep", "safety", "branch_lifecycle", "bounds", "holds", "gc", "state", "pins")
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
    yield from settings_of(tree, tree["$defs"]["server"], "servers")


def it_has_one_entry_for_every_setting_of_the_schemas():
    paths = [*(setting.path for setting in RULED), *JUDGED_ELSEWHERE]
    assert len(paths) == len(set(paths))
    assert set(paths) == set(every_setting())


@given(SETTINGS, SETTINGS)
def it_combines_in_either_order_to_one_of_the_two_values(one, other):
    found, back = stricter_sweep(one, other), stricter_sweep(other, one)
    for setting in SWEEP:
        old, new, both = (getattr(side, setting.field) for side in (one, other, found))
        if setting.rule.order is Order.STRICTER:
            assert both in (old, new), setting.path
            assert both == getattr(back, setting.field), setting.path
        else:
            assert both == new, f"{setting.path} is neutral: today's counts"


@given(SETTINGS)
def it_never_gives_up_what_is_strictest(settings):
    assert stricter_sweep(settings, STRICTEST) == STRICTEST
    assert replace(stricter_sweep(STRICTEST, settings), rate=STRICTEST.rate) == STRICTEST
    assert stricter_sweep(settings, settings) == settings
    assert stricter_sweep(WEAKEST, settings) == settings


WHICH_IS_STRICTER = [
    ("sweep.engine", "builtin", "lakefs-spark-client"),
    ("sweep.automatic", False, True),
    ("sweep.mode", "quarantine", "delete"),
    ("sweep.min_age", 8, 7),
    ("sweep.settle", 8, 7),
    ("sweep.margin", 8, 7),
    ("sweep.never_committed", "keep", "collect"),
    ("sweep.versions", Versions.MARKER, Versions.ALL),
    ("sweep.verify", "all", "sample"),
    ("sweep.max_objects", 7, 8),
    ("sweep.max_bytes", 7, 8),
    ("sweep.quarantine_age", 8, 7),
    ("safety.max_expired_objects_percent", 7, 8),
    ("safety.max_expired_objects_percent", 7, None),
    ("safety.max_expired_bytes", 0, None),
    ("safety.max_deleted_branches", 7, 8),
    ("safety.impact_tolerance_percent", 7, 8),
    ("safety.max_plan_age", 7, 8),
    ("safety.on_tag_loss", "fail", "warn"),
    ("safety.on_tag_loss", "warn", "ignore"),
    ("safety.on_server_divergence", "fail", "ignore"),
    ("safety.protected_tags", ("v*", "w*"), ("v*",)),
    ("branch_lifecycle.exempt", ("a", "b"), ("a",)),
    ("branch_lifecycle.require_merged", True, False),
    ("branch_lifecycle.min_keep", 8, 7),
    ("branch_lifecycle.keep_with_uncommitted", True, False),
    ("branch_lifecycle.keep_with_open_pull_request", True, False),
    ("branch_lifecycle.keep_protected", True, False),
    ("branch_lifecycle.assume_created", "never", "head_commit"),
    ("branch_lifecycle.notice_period", 8, 7),
    ("bounds.min_retention_days", 8, 7),
    ("bounds.max_retention_days", 7, None),
    ("unmanaged", "warn", "ignore"),
    ("pins.tags", ("a", "b"), ("a",)),
    ("pins.holds", True, False),
    ("pins.at_risk", True, False),
    ("pins.max", 7, 8),
    ("checks", ("a", "b"), ("a",)),
]
"""A stricter and a weaker value of every setting that has them, written down a second time."""


@pytest.mark.parametrize(("path", "strict", "weak"), WHICH_IS_STRICTER)
def it_knows_which_of_two_values_is_stricter(path: str, strict: object, weak: object) -> None:
    rule = next(setting.rule for setting in RULED if setting.path == path)
    assert rule.combine(strict, weak) == rule.combine(weak, strict) == strict
    assert (rule.weakens(strict, weak), rule.weakens(weak, strict)) == (True, False)
    assert not rule.weakens(strict, strict)


def it_knows_that_of_every_setting() -> None:
    known = {setting.path for setting in RULED if setting.rule.order is Order.STRICTER}
    assert known - {path for path, _, _ in WHICH_IS_STRICTER} == {"notify"}, "a test below is about that"


def it_lists_any_change_where_neither_value_is_stricter_unless_that_does_not_matter() -> None:
    (state,) = [setting.rule for setting in TREE if setting.path == "state.url"]
    assert (state.combine("s3://a", "s3://b"), state.weakens("s3://a", "s3://b")) == ("s3://b", True)
    assert not state.weakens("s3://a", "s3://a")
    (notify,) = [setting.rule for setting in TREE if setting.path == "notify"]
    assert notify.weakens("to ops", "to nobody")
    assert notify.weakens("to ops", None)
    assert not notify.weakens(None, "to ops")
    (rate,) = [setting.rule for setting in SWEEP if setting.path == "sweep.rate"]
    assert (rate.combine(5, None), rate.weakens(5, None)) == (None, False)
    engine, zone = (setting.rule for setting in SERVER)
    assert engine.weakens("none", "server")
    assert engine.weakens("server", "none")
    assert zone.weakens("UTC", "Europe/Berlin")
    assert [rule.order for rule in (state, engine, zone)] == [Order.UNORDERED] * 3
    assert rate.order is Order.NEUTRAL


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [(1, 2, 1), (2, 1, 1), (None, 3, 3), (3, None, 3), (None, None, None), (0, 3, 0)],
)
def it_takes_the_lower_of_two_limits_where_none_is_no_limit(one, other, found):
    assert lower_limit(one, other) == found


def it_reads_every_setting_of_a_sweep_from_the_block_that_has_it() -> None:
    for setting in SWEEP:
        key = setting.path.removeprefix("sweep.")
        unit = {"duration": "seconds", "bytes": "bytes"}.get(kind_of(setting), "")
        assert setting.unit == unit
        assert setting.field == (f"{key}_seconds" if unit == "seconds" else key)
    assert {setting.field for setting in SWEEP} == {field.name for field in fields(SweepSettings)}


def it_combines_every_limit_of_both_trees() -> None:
    one = Safety(
        max_expired_objects_percent=10.0,
        max_expired_bytes=None,
        max_deleted_branches=5,
        protected_tags=("a*",),
        on_tag_loss="warn",
        impact_tolerance_percent=1.0,
    )
    other = Safety(
        max_expired_objects_percent=None,
        max_expired_bytes=1000,
        max_deleted_branches=7,
        protected_tags=("b*",),
        on_tag_loss="fail",
        impact_tolerance_percent=2.0,
    )
    found = stricter_safety(one, other)
    assert found == Safety(
        max_expired_objects_percent=10.0,
        max_expired_bytes=1000,
        max_deleted_branches=5,
        protected_tags=("b*", "a*"),
        on_tag_loss="fail",
        impact_tolerance_percent=1.0,
    )
    assert [setting.field for setting, _, _ in weakened(SAFETY, one, other)] == [
        "max_expired_objects_percent",
        "max_deleted_branches",
        "impact_tolerance_percent",
        "protected_tags",
    ]


def it_says_both_values_of_what_is_weaker() -> None:
    ((setting, before, after),) = weakened(
        SWEEP, replace(SweepSettings(), settle_seconds=9), replace(SweepSettings(), settle_seconds=8)
    )
    assert (setting.path, before, after) == ("sweep.settle", 9, 8)


def it_weakens_every_setting_of_a_sweep_but_the_neutral_one():
    paths = [setting.path for setting, _, _ in weakened(SWEEP, STRICTEST, WEAKEST)]
    assert paths == [setting.path for setting in SWEEP if setting.rule.order is Order.STRICTER]
    assert list(weakened(SWEEP, WEAKEST, STRICTEST)) == []


def it_keeps_every_branch_that_either_policy_keeps():
    careful = BranchSettings(("keep-*",), require_merged=True, min_keep=3, notice_period_seconds=9)
    loose = BranchSettings(("hot-*",), False, 1, False, False, False, "head_commit")
    exempt = ("hot-*", "keep-*")
    assert stricter_branch_settings(careful, loose) == replace(careful, exempt=exempt)
    assert len(list(weakened(BRANCH_SETTINGS, careful, loose))) == len(BRANCH_SETTINGS)


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
        limits = {setting.path for setting in SWEEP if setting.since_mark is SinceMark.GATE}
        assert found <= limits, "which gates judge"
        left = [setting.path for setting, _, _ in weakened(SWEEP, now, settings)]
        assert set(left) <= {setting.path for setting in refused}

    @pytest.mark.parametrize(
        ("name", "then", "now", "found"),
        [
            ("settle_seconds", 5, 9, 9),
            ("settle_seconds", 9, 5, 9),
            ("margin_seconds", 5, 9, 9),
            ("never_committed", "collect", "keep", "keep"),
            ("never_committed", "keep", "collect", "keep"),
            ("verify", "sample", "all", "all"),
            ("quarantine_age_seconds", 5, 9, 9),
            ("automatic", True, False, False),
            ("max_objects", 5, 9, 9),
            ("max_objects", 9, 5, 5),
            ("max_bytes", 9, 5, 5),
            ("rate", 5, 9, 9),
            ("rate", 5, None, None),
        ],
    )
    def it_keeps_to_what_was_tightened_and_judges_by_today_s_limits(self, name, then, now, found) -> None:
        marked = replace(self.TREE, **{name: then})
        settings, refused = since_mark(marked, marked, replace(self.TREE, **{name: now}))
        assert settings == replace(marked, **{name: found})
        assert refused == ()

    def it_combines_what_was_tightened_with_what_the_mark_was_made_with(self) -> None:
        """The tree went from 1 to 5; a person had marked with 3, or with 9."""
        then, now = replace(self.TREE, settle_seconds=1), replace(self.TREE, settle_seconds=5)
        for used, found in ((3, 5), (9, 9)):
            settings, _ = since_mark(replace(self.TREE, settle_seconds=used), then, now)
            assert settings.settle_seconds == found

    def it_names_every_setting_that_needs_a_new_mark(self) -> None:
        now = replace(self.TREE, mode="quarantine", min_age_seconds=10**9, rate=7, settle_seconds=10**9)
        settings, refused = since_mark(self.TREE, self.TREE, now)
        assert [setting.path for setting in refused] == ["sweep.mode", "sweep.min_age"]
        assert (settings.rate, settings.settle_seconds) == (7, 10**9)

    def it_is_no_less_strict_for_a_rule_that_is_explained(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused() -> list[str]:
            return [setting.field for setting in since_mark(WEAKEST, WEAKEST, STRICTEST)[1]]

        expected = refused()
        explained = [replace(s, rule=replace(s.rule, why=s.rule.why or "It is explained.")) for s in SWEEP]
        monkeypatch.setattr("lakeplan.review.strictness.SWEEP", explained)
        assert expected
        assert refused() == expected

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
    again = Hold("prefix", "audit/", SOONER, "said later")
    assert all_holds((audit,), (again,)) == (audit,)
    assert all_holds((Hold("branch", "v1"),), (tag,)) == (Hold("branch", "v1"), tag)


def it_guards_only_what_the_base_was_stricter_in():
    strict = repository(holds=(Hold("tag", "v1"),), sweep=SweepSettings(min_age_seconds=172_800))
    assert guard_of(repository(), strict) is None
    guard = guard_of(strict, repository(safety=Safety(protected_tags=())))
    assert guard is not None
    held = held_to_guard(repository(safety=Safety(protected_tags=())), guard)
    assert (held.holds, held.sweep) == (strict.holds, strict.sweep)
    assert held.safety.protected_tags == Safety().protected_tags


def it_guards_an_automatic_sweep_with_an_older_checkout():
    """Whose protected tags and holds may be fewer, and which nobody approves."""
    now = repository(safety=Safety(protected_tags=("v*", "old-*")), sweep=SweepSettings(automatic=True))
    guard = guard_of(repository(safety=Safety(protected_tags=("v*",))), now)
    assert guard is not None
    held = held_to_guard(repository(safety=Safety(protected_tags=("v*",))), guard)
    assert set(held.safety.protected_tags) == {"v*", "old-*"}


def it_stands_in_the_plan_file_as_it_is():
    guard = guard_of(
        repository(holds=(Hold("prefix", "audit/", LATER, "legal"),), sweep=STRICTEST), repository()
    )
    assert guard is not None
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    plan = Plan(now, "1", "digest", None, (), sweep_guards={"prod/a": replace(guard)})
    assert load_plan(dump_plan(plan), where="plan.json") == plan

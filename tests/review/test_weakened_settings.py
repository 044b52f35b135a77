from __future__ import annotations

from dataclasses import fields, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.review.strictness import (
    Guards,
    held_to,
    outside_bounds,
    stricter_safety,
    weakened_repository,
    weakened_settings,
)
from lakeplan.values.declare import ALL_OF_BOTH, LESS, POLICY, Setting
from lakeplan.values.desired import (
    SAFETY,
    BranchRule,
    BranchSettings,
    DesiredRepository,
    GcDesired,
    Override,
    Safety,
    Source,
)
from lakeplan.values.notify import Channel, ChannelKind, NotifyConfig
from lakeplan.values.pins import PinSettings
from lakeplan.values.plan import Plan, WeakenedSetting
from lakeplan.values.sweep import Hold, SweepSettings, Versions
from tests.review.declared import strategy, strictest, values, weakest

HERE = Source("lakeplan.yaml", 7, 3)
TODAY = date(2026, 3, 31)
SAFETIES = strategy(SAFETY, Safety)


def happenings(setting: Setting) -> list[Any]:
    """What may happen that a setting is about: figures at and around every limit, whether a policy has
    something to judge, or a tag."""
    if setting.rule is POLICY:
        return [False, True]
    if setting.rule is ALL_OF_BOTH:
        return sorted({item for value in values(setting) for item in value})
    assert setting.rule is LESS, f"{setting.path} needs a question of its own"
    limits = [value for value in values(setting) if value is not None]
    return [value + more for value in limits for more in (-1, 0, 1)]


HAPPENS = st.fixed_dictionaries({s.field: st.sampled_from(happenings(s)) for s in SAFETY})


def refuses(limit: Any, what: Any) -> bool:
    """The question that a setting of ``safety`` answers, asked plainly."""
    match limit:
        case None:
            return False
        case "fail" | "warn" | "ignore":
            return bool(what) and limit == "fail"
        case tuple():
            return what in limit
        case _:
            return bool(what > limit)


def passes(safety: Safety, happened: dict[str, Any]) -> bool:
    assert happened.keys() == {field.name for field in fields(safety)}
    return not any(refuses(getattr(safety, name), what) for name, what in happened.items())


class DescribeTheStricterOfBoth:
    @given(SAFETIES, SAFETIES, HAPPENS)
    def it_lets_through_exactly_what_both_let_through(self, one, other, happened) -> None:
        both = passes(one, happened) and passes(other, happened)
        assert passes(stricter_safety(one, other), happened) == both

    @pytest.mark.parametrize("setting", SAFETY, ids=lambda setting: setting.path)
    def it_refuses_by_every_setting_alone_what_the_stricter_side_refuses(self, setting: Setting) -> None:
        strict, weak = strictest(setting), weakest(setting)
        sides = [replace(Safety(), **{setting.field: value}) for value in (strict, weak)]
        both = getattr(stricter_safety(*sides), setting.field)
        weakened = [what for what in happenings(setting) if refuses(strict, what) and not refuses(weak, what)]
        assert weakened
        assert all(refuses(both, what) for what in weakened)

    @given(SAFETIES, SAFETIES)
    def it_does_not_matter_which_is_the_base(self, one: Safety, other: Safety) -> None:
        there, back = stricter_safety(one, other), stricter_safety(other, one)
        assert replace(there, protected_tags=()) == replace(back, protected_tags=())
        assert set(there.protected_tags) == set(back.protected_tags)

    @given(SAFETIES, SAFETIES)
    def it_lists_a_loosening_exactly_when_the_base_is_stricter_somewhere(self, base, head) -> None:
        def plain(safety: Safety) -> Safety:
            return replace(safety, protected_tags=tuple(sorted(safety.protected_tags)))

        found = weakened_settings(Guards(base), Guards(head), TODAY)
        assert bool(found) == (plain(stricter_safety(base, head)) != plain(head))

    @given(SAFETIES)
    def it_lists_nothing_against_itself(self, safety: Safety) -> None:
        guards = Guards(safety, state_url="s3://ops/x", unmanaged="fail")
        assert weakened_settings(guards, guards, TODAY) == ()

    def it_holds_an_apply_to_the_limits_of_the_review(self) -> None:
        plan = Plan(datetime(2026, 3, 31, tzinfo=timezone.utc), "0", "", None, ())
        loose = Safety(impact_tolerance_percent=500.0, max_plan_age_seconds=10**6)
        assert held_to(plan, loose) == loose
        held = held_to(replace(plan, impact_tolerance_percent=10.0, max_plan_age_seconds=5), loose)
        assert (held.impact_tolerance_percent, held.max_plan_age_seconds) == (10.0, 5)


BOUNDS_TRIED = ((5, 6), (6, 6), (5, 5), (6, 7), (4, 4))
OPS = NotifyConfig({"ops": Channel("ops", ChannelKind.SLACK)}, {"team-a": "ops"})


class DescribeWhatIsListed:
    @pytest.mark.parametrize(
        ("base", "head", "path"),
        [
            ({}, {"safety": Safety(max_expired_bytes=None)}, "safety.max_expired_bytes"),
            ({}, {"safety": Safety(max_expired_objects_percent=31)}, "safety.max_expired_objects_percent"),
            ({}, {"safety": Safety(on_tag_loss="warn")}, "safety.on_tag_loss"),
            ({}, {"safety": Safety(protected_tags=())}, "safety.protected_tags"),
            ({}, {"safety": Safety(max_plan_age_seconds=10**6)}, "safety.max_plan_age"),
            ({"min_retention_days": 3}, {"min_retention_days": 1}, "bounds.min_retention_days"),
            ({"max_retention_days": 90}, {"max_retention_days": 91}, "bounds.max_retention_days"),
            ({"unmanaged": "fail"}, {"unmanaged": "warn"}, "unmanaged"),
            ({"state_url": "s3://a/b"}, {"state_url": "file://mine"}, "state.url"),
            ({"notify": OPS}, {"notify": None}, "notify"),
        ],
    )
    def it_names_what_is_looser_and_nothing_when_it_is_stricter(
        self, base: dict[str, Any], head: dict[str, Any], path: str
    ) -> None:
        head = {**head, "places": {path: HERE}}
        (found,) = weakened_settings(Guards(**base), Guards(**head), TODAY)
        assert (found.path, found.where, found.scope) == (path, "lakeplan.yaml:7:3", "tree")
        if path != "state.url":
            assert weakened_settings(Guards(**head), Guards(**base), TODAY) == ()

    @pytest.mark.parametrize(
        ("base", "head", "shown"),
        [
            ({"state_url": None}, {"state_url": "s3://a/b"}, ("the default", "s3://a/b")),
            ({"notify": OPS}, {"notify": None}, (str(OPS), "absent")),
            ({"name": "a"}, {"name": None}, ("a", "absent")),
            ({"approvers": "ops"}, {"approvers": None}, ("ops", "no team")),
            (
                {"safety": Safety(max_expired_bytes=5000)},
                {"safety": Safety(max_expired_bytes=None)},
                ("5,000 bytes", "unlimited"),
            ),
        ],
    )
    def it_shows_what_applies_where_nothing_is_set(
        self, base: dict[str, Any], head: dict[str, Any], shown: tuple[str, str]
    ) -> None:
        (found,) = weakened_settings(Guards(**base), Guards(**head), TODAY)
        assert (found.before, found.after, found.where) == (*shown, "")

    def it_points_at_the_block_when_the_key_was_taken_out(self) -> None:
        base = Guards(Safety(max_expired_bytes=5))
        (found,) = weakened_settings(base, Guards(places={"safety": HERE}), TODAY)
        assert (found.before, found.where) == ("5 bytes", "lakeplan.yaml:7:3")


def note(**fields: Any) -> Override:
    made = Override("analytics", "tag-loss", 3, "archived", date(2026, 12, 31), HERE)
    return replace(made, **fields)


class DescribeOverrides:
    @pytest.mark.parametrize(
        "change",
        [
            {"max": 4},
            {"max": None},
            {"expires": date(2099, 1, 1)},
            {"expires": date(2027, 1, 1)},
            {"gate": "clear"},
            {"repository": "*"},
        ],
    )
    def it_lists_one_that_opens_more_than_the_base(self, change: dict[str, Any]) -> None:
        found = weakened_settings(Guards(overrides=(note(),)), Guards(overrides=(note(**change),)), TODAY)
        assert [f.where for f in found] == ["lakeplan.yaml:7:3"]
        assert found[0].path.startswith("overrides: ")

    @pytest.mark.parametrize(
        "change",
        [
            {},
            {"max": 2},
            {"expires": date(2026, 6, 1)},
            {"reason": "other words"},
            {"gate": "clear", "expires": date(2026, 3, 30)},
        ],
    )
    def it_lists_none_that_opens_no_more(self, change: dict[str, Any]) -> None:
        head = Guards(overrides=(note(**change),))
        assert weakened_settings(Guards(overrides=(note(),)), head, TODAY) == ()

    def it_goes_on_past_those_that_open_no_more(self) -> None:
        over = note(gate="clear", expires=TODAY - timedelta(days=1))
        head = Guards(overrides=(over, note(), note(gate="pins", max=None, expires=TODAY)))
        assert weakened_settings(Guards(overrides=(note(),)), head, TODAY) == (
            WeakenedSetting(
                "tree",
                "overrides: pins of analytics",
                "absent",
                "no maximum, until 2026-03-31: archived",
                "lakeplan.yaml:7:3",
            ),
        )

    def it_shows_every_one_of_the_base(self) -> None:
        base = Guards(overrides=(note(max=2_000), note(max=None, expires=TODAY)))
        (found,) = weakened_settings(base, Guards(overrides=(note(max=3_000),)), TODAY)
        assert found.before == "up to 2,000, until 2026-12-31; no maximum, until 2026-03-31"
        assert found.after == "up to 3,000, until 2026-12-31: archived"


def repository(**more: Any) -> DesiredRepository:
    return DesiredRepository("prod", "analytics", "analytics", None, "5f" * 32, {}, {}, source=HERE, **more)


def paths(base: DesiredRepository, head: DesiredRepository | None) -> list[str]:
    return [f.path for f in weakened_repository(base, head, TODAY)]


AUDIT = Hold("prefix", "audit/", date(2027, 1, 1), "legal")


class DescribeHoldsAndSweep:
    @pytest.mark.parametrize(
        "head",
        [
            None,
            repository(),
            repository(holds=(replace(AUDIT, until=date(2026, 12, 31)),)),
            repository(holds=(replace(AUDIT, name="audit/2025/"),)),
        ],
    )
    def it_lists_a_hold_that_is_dropped_or_ends_sooner(self, head: DesiredRepository | None) -> None:
        assert paths(repository(holds=(AUDIT,)), head) == ["holds[prefix audit/]"]

    def it_does_not_miss_a_hold_that_is_over(self) -> None:
        over = replace(AUDIT, until=TODAY - timedelta(days=1))
        assert paths(repository(holds=(over,)), repository()) == []
        assert paths(repository(holds=(replace(AUDIT, until=TODAY),)), repository()) == [
            "holds[prefix audit/]"
        ]

    def it_lists_an_end_where_there_was_none(self) -> None:
        endless = repository(holds=(replace(AUDIT, until=None),))
        assert paths(endless, repository(holds=(AUDIT,))) == ["holds[prefix audit/]"]
        assert paths(repository(holds=(AUDIT,)), endless) == []

    @pytest.mark.parametrize(
        ("weak", "path", "shown"),
        [
            (SweepSettings(automatic=True), "sweep.automatic", ("false", "true")),
            (SweepSettings(versions=Versions.ALL), "sweep.versions", ("marker", "all")),
            (SweepSettings(min_age_seconds=0), "sweep.min_age", ("1d", "0s")),
            (SweepSettings(settle_seconds=3600), "sweep.settle", ("1d", "1h")),
            (SweepSettings(max_objects=10**8), "sweep.max_objects", ("10,000,000", "100,000,000")),
        ],
    )
    def it_lists_what_lets_a_sweep_delete_more(
        self, weak: SweepSettings, path: str, shown: tuple[str, str]
    ) -> None:
        (found,) = weakened_repository(repository(), repository(sweep=weak), TODAY)
        assert (found.path, (found.before, found.after)) == (path, shown)
        assert paths(repository(sweep=weak), repository()) == []

    def it_lists_what_lets_a_branches_run_delete_more(self) -> None:
        careful = BranchSettings(("keep-*",), require_merged=True, min_keep=2)
        assert paths(repository(branch_settings=careful), repository()) == [
            "branch_lifecycle.exempt",
            "branch_lifecycle.require_merged",
            "branch_lifecycle.min_keep",
        ]
        assert paths(repository(), repository(branch_settings=careful)) == []

    def it_lists_another_owner_whose_channel_gets_the_notices_of_deletions(self) -> None:
        theirs = repository(owner="data", notice_channel="data-alerts")
        (found,) = weakened_repository(theirs, repository(owner="web", notice_channel="web"), TODAY)
        assert (found.path, found.before, found.after) == ("owner", "data", "web")
        assert paths(theirs, repository(owner=None, notice_channel="")) == ["owner"]

    def it_lists_no_owner_that_changes_nothing_of_that(self) -> None:
        theirs = repository(owner="data", notice_channel="all")
        assert paths(theirs, repository(owner="web", notice_channel="all")) == []
        assert paths(repository(owner="data", notice_channel=""), theirs) == []
        # of the whole tree: it is listed there
        assert paths(theirs, repository(owner="data", notice_channel="others")) == []


class DescribeWhatIsSaidOfARepository:
    THERE = Source("teams/a.yaml", 9, 5)

    def holds(self, *base: Hold, head: DesiredRepository | None) -> list[WeakenedSetting]:
        return [*weakened_repository(repository(holds=base), head, TODAY)]

    def it_says_when_holds_end_and_where(self) -> None:
        path = "holds[prefix audit/]"
        sooner = replace(AUDIT, until=date(2026, 12, 31))
        ends, place = "until 2027-01-01", "lakeplan.yaml:7:3"
        assert self.holds(AUDIT, head=repository(holds=(sooner,))) == [
            WeakenedSetting("prod/analytics", path, ends, "until 2026-12-31", place)
        ]
        endless = replace(AUDIT, until=None)
        assert self.holds(endless, head=repository(holds=(AUDIT,))) == [
            WeakenedSetting("prod/analytics", path, "no end date", ends, place)
        ]
        assert self.holds(AUDIT, head=repository()) == [
            WeakenedSetting("prod/analytics", path, ends, "absent", place)
        ]
        for head in (None, replace(repository(), source=None)):
            assert self.holds(AUDIT, head=head) == [
                WeakenedSetting("prod/analytics", path, ends, "absent", "")
            ]
        assert self.holds(AUDIT, head=repository(holds=(AUDIT,))) == []

    def it_is_at_the_value_or_at_the_entry(self) -> None:
        theirs = repository(owner="data", notice_channel="a")
        mine = repository(owner="web", notice_channel="b")
        named = replace(mine, values={"/owner": self.THERE})
        for head, place in ((mine, "lakeplan.yaml:7:3"), (named, "teams/a.yaml:9:5")):
            (found,) = weakened_repository(theirs, head, TODAY)
            assert found == WeakenedSetting("prod/analytics", "owner", "data", "web", place)

    def it_is_about_sweeps_branches_and_pins(self) -> None:
        base = repository(
            sweep=SweepSettings(min_age_seconds=7_200),
            branch_settings=BranchSettings(min_keep=2),
            pins=PinSettings(tags=("v*", "w*")),
        )
        head = repository(
            sweep=SweepSettings(min_age_seconds=3_600),
            branch_settings=BranchSettings(min_keep=1),
            pins=PinSettings(tags=("w*",)),
        )
        pins = replace(head, values={"/pins/tags": self.THERE})
        place = "lakeplan.yaml:7:3"
        assert [*weakened_repository(base, pins, TODAY)] == [
            WeakenedSetting("prod/analytics", "sweep.min_age", "2h", "1h", place),
            WeakenedSetting("prod/analytics", "branch_lifecycle.min_keep", "2", "1", place),
            WeakenedSetting("prod/analytics", "pins.tags", "v*", "absent", "teams/a.yaml:9:5"),
        ]


class DescribeBounds:
    def it_takes_the_bounds_themselves(self) -> None:
        wanted = replace(repository(), gc=GcDesired(5, (BranchRule("dev", False, 6, HERE),), HERE))
        found = {bounds: [days for *_, days in outside_bounds(wanted, *bounds)] for bounds in BOUNDS_TRIED}
        assert found == {(5, 6): [], (6, 6): [5], (5, 5): [6], (6, 7): [5], (4, 4): [5, 6]}

    def it_finds_every_retention_outside_them(self) -> None:
        rules = (BranchRule("dev", False, 1, HERE), BranchRule("rel-*", True, 90, HERE))
        wanted = replace(repository(), gc=GcDesired(2, rules, HERE))
        names = [(name, days) for _, name, days in outside_bounds(wanted, 3, 60)]
        assert names == [
            ("gc.default_retention_days", 2),
            ("gc.branches[dev].retention_days", 1),
            ("gc.branches[rel-*].retention_days", 90),
        ]
        assert list(outside_bounds(wanted, 1, 90)) == []
        assert list(outside_bounds(repository(), 3, 60)) == []

"""The gates of a mark: at its approval, and before every round, by figures alone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.errors import GateRefused, StalePlan, UsageError, WriteConflict
from lakeplan.review.gates import GateOverrides
from lakeplan.review.run import Run
from lakeplan.stores.folder import FolderState
from lakeplan.stores.open import Versioned
from lakeplan.sweep.judge import (
    approve,
    held_to_approval,
    judge_again,
    judge_for_approval,
    refuse_shut,
    settings_today,
)
from lakeplan.sweep.mark_record import Allowance, Approval, Judged, Mark
from lakeplan.sweep.ports import Site
from lakeplan.sweep.records import StoredMark
from lakeplan.values.desired import DesiredRepository, Override, Safety, Source
from lakeplan.values.plan import GateOutcome, GateResult
from lakeplan.values.simulation import Amount
from lakeplan.values.sweep import SweepSettings

TODAY = date(2026, 3, 31)
CLOSED = GateOverrides(frozenset(), (), TODAY)
DAY = 86_400
SETTINGS = SweepSettings(min_age_seconds=3 * DAY, max_objects=100, max_bytes=10_000)
WHERE = "prod/lake: mark m1"


class PartOfAMark(SimpleNamespace):
    """The fields that judging reads."""

    stale = Mark.stale


MARK: Any = PartOfAMark(
    mark_id="m1",
    key="prod/lake",
    where="prod/lake: mark m1",
    settings=SETTINGS,
    tree_settings=SETTINGS,
    to_delete=Amount(20, 2_000),
    candidates=Amount(100, 9_000),
)


def site(
    safety: Safety | None = None, sweep: SweepSettings = SETTINGS, *, grace: int | None = 60, **more: Any
) -> Site:
    desired = DesiredRepository(
        "prod", "lake", "lake", None, "0", {}, {}, safety=safety or Safety(), sweep=sweep
    )
    preparer = SimpleNamespace(grace_period_seconds=lambda: grace)
    given = dict.fromkeys(("server", "repository", "reader", "store", "open_store"))
    return Site(desired, preparer=preparer, **{**given, **more})  # type: ignore[arg-type]


def approval(
    *allowed: Allowance,
    safety: Safety | None = None,
    sweep: SweepSettings = SETTINGS,
    grace: int | None = 60,
    automatic: bool = False,
) -> Approval:
    judged = Judged(safety or Safety(), sweep, grace, allowed, automatic)
    return Approval("m1", "d", 20, 2_000, "me", "now", "because", judged, None)


def again(given: Approval, now: Site, today: date = TODAY) -> None:
    judge_again(held_to_approval(now, MARK, given), MARK, given, today)


ID = "20260331T120000Z-0123abcd"
KEY = f"sweep/approvals/{ID}.json"
FULL = PartOfAMark(**vars(MARK) | {"mark_id": ID, "unreadable": ()})
NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)


def run(**more: Any) -> Run:
    return Run("r1", {"user": "ann", "host": "ci"}, lambda: NOW, lambda _: False, **more)


def record(
    state: Any, mark: Any = FULL, by: Run | None = None, *, reason: str = " ok ", **more: Any
) -> Approval:
    stored, given = StoredMark(mark, "d1", shown="s1"), {"overrides": CLOSED} | more
    return approve(given.pop("site", site()), stored, state, by or run(), reason=reason, **given)


class DescribeTheRecordOfAnApproval:
    @pytest.fixture
    def state(self, tmp_path: Path) -> FolderState:
        return FolderState(str(tmp_path))

    def it_has_the_mark_its_figures_and_who_approved_when_and_why(self, state: FolderState) -> None:
        approval = record(state)
        judged = Judged(Safety(), SETTINGS, 60, (), False)
        assert approval == Approval(ID, "d1", 20, 2_000, "ann@ci", "2026-03-31T12:00:00Z", "ok", judged, "s1")
        written = state.read(KEY)
        assert written is not None
        document = json.loads(written.data)
        assert (document["mark_id"], document["digest"], document["shown"]) == (ID, "d1", "s1")
        assert (document["by"], document["reason"]) == ("ann@ci", "ok")

    def it_names_a_known_approver_but_for_automatic_ones_the_run(self, state: FolderState) -> None:
        by = run(approver={"by": "bob"})
        assert record(state, by=by).by == "bob"
        assert record(state, by=by, automatic=True).by == "ann@ci"
        assert record(state, automatic=True).judged.automatic

    def it_replaces_an_earlier_one_and_no_concurrent_one(
        self, state: FolderState, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record(state)
        assert record(state, reason="again").reason == "again"

        def read_before_another_writes(key: str) -> Versioned | None:
            monkeypatch.undo()
            current = state.read(key)
            assert current is not None
            state.write(key, b"another", if_version=current.version)
            return current

        monkeypatch.setattr(state, "read", read_before_another_writes)
        with pytest.raises(WriteConflict):
            record(state, reason="third")
        kept = state.read(KEY)
        assert kept is not None
        assert kept.data == b"another"

    def it_needs_a_reason(self, state: FolderState) -> None:
        with pytest.raises(UsageError, match="an approval needs a reason"):
            record(state, reason=" ")
        assert state.read(KEY) is None

    def it_needs_something_to_delete(self, state: FolderState) -> None:
        empty = SimpleNamespace(**vars(FULL) | {"to_delete": Amount(0, 0)})
        with pytest.raises(UsageError, match="the mark deletes nothing") as caught:
            record(state, empty)
        assert caught.value.where == "prod/lake"

    def it_needs_every_repository_of_the_server(self, state: FolderState) -> None:
        names = tuple(f"r{i}" for i in (6, 5, 4, 3, 2, 1))
        with pytest.raises(GateRefused, match=r"6 other .* \(r1, r2, r3, r4, r5\)") as caught:
            record(state, SimpleNamespace(**vars(FULL) | {"unreadable": names}))
        assert caught.value.where == WHERE
        assert state.read(KEY) is None

    def it_needs_gates_that_pass_or_are_overridden(self, state: FolderState) -> None:
        shut = site(Safety(max_expired_objects_percent=1.0))
        with pytest.raises(GateRefused):
            record(state, site=shut)
        assert state.read(KEY) is None
        opened = GateOverrides(frozenset({"lake=expired-objects"}), (), TODAY)
        allowed = record(state, site=shut, overrides=opened).judged.allowed
        assert [one.gate for one in allowed] == ["expired-objects"]

    def it_refuses_an_override_for_a_repository_that_is_not_the_marks(self, state: FolderState) -> None:
        with pytest.raises(UsageError, match="loke is not in this run"):
            record(state, overrides=GateOverrides(frozenset({"loke=expired-objects"}), (), TODAY))
        assert state.read(KEY) is None


class DescribeApproving:
    def it_records_what_the_gates_were_judged_by(self) -> None:
        safety = Safety(max_expired_bytes=5_000)
        for grace in (60, None):
            judged, gates = judge_for_approval(site(safety, grace=grace), MARK, CLOSED, automatic=True)
            assert judged == Judged(safety, SETTINGS, grace, (), True)
        assert [(g.gate, g.outcome.value, g.value, g.limit) for g in gates] == [
            ("expired-objects", "passed", 20.0, 30.0),
            ("expired-bytes", "passed", 2_000, 5_000),
            ("sweep-limit", "passed", 20, 100),
            ("sweep-limit", "passed", 2_000, 10_000),
        ]
        assert {g.scope for g in gates} == {"prod/lake"}

    def it_records_what_was_overridden_at_a_terminal_and_nothing_else(self) -> None:
        note = Override("lake", "expired-bytes", None, "clean-up", TODAY, Source("a.yaml", 1, 1))
        overrides = GateOverrides(frozenset({"expired-objects"}), (note,), TODAY)
        safety = Safety(max_expired_objects_percent=10.0, max_expired_bytes=1)
        judged, gates = judge_for_approval(site(safety), MARK, overrides, automatic=False)
        assert judged.allowed == (Allowance("expired-objects", "percent", 20.0, 10.0),)
        assert not judged.automatic
        assert [g.outcome.value for g in gates][:2] == ["allowed", "overridden"]

    def it_judges_by_the_age_that_the_mark_was_made_with(self) -> None:
        young = PartOfAMark(**vars(MARK) | {"settings": replace(SETTINGS, min_age_seconds=59)})
        judged, gates = judge_for_approval(site(), young, CLOSED, automatic=False)
        assert [g.gate for g in gates if g.outcome is GateOutcome.REFUSED] == ["min-age"]
        assert judged.sweep.min_age_seconds == 59

    def it_is_held_to_the_settings_of_today(self) -> None:
        longer = replace(SETTINGS, settle_seconds=SETTINGS.settle_seconds + 1)
        assert settings_today(site(sweep=longer), MARK) == longer
        older = replace(SETTINGS, min_age_seconds=4 * DAY)
        with pytest.raises(StalePlan, match=r"the value of sweep.min_age in the tree differs") as caught:
            judge_for_approval(site(sweep=older), MARK, CLOSED, automatic=False)
        assert (caught.value.where, caught.value.hint) == (WHERE, "Run `lakeplan sweep mark` again.")


class DescribeJudgingAgain:
    def it_passes_what_still_passes(self) -> None:
        again(approval(), site())

    @pytest.mark.parametrize(
        "safety", [Safety(max_expired_objects_percent=19.9), Safety(max_expired_bytes=1_999)]
    )
    def it_keeps_to_the_stricter_of_both_limits(self, safety: Safety) -> None:
        for then, now in ((safety, None), (None, safety)):
            with pytest.raises(GateRefused, match="would be deleted; the limit is") as caught:
                again(approval(safety=then), site(now))
            assert caught.value.where == WHERE

    @pytest.mark.parametrize("change", [{"max_objects": 19}, {"max_bytes": 1_999}])
    def it_keeps_to_the_stricter_of_both_sweep_limits(self, change: dict[str, int]) -> None:
        less = replace(SETTINGS, **change)  # type: ignore[arg-type]
        for then, now in ((less, SETTINGS), (SETTINGS, less)):
            with pytest.raises(GateRefused, match="sweep-limit: "):
                again(approval(sweep=then), site(sweep=now))

    @pytest.mark.parametrize(
        ("then", "now", "shut"),
        [
            (60, 60, False),
            (3 * DAY, 3 * DAY, False),
            (3 * DAY + 1, 60, True),
            (60, 3 * DAY + 1, True),
            (None, None, False),
        ],
    )
    def it_takes_the_longer_grace_period(self, then: int | None, now: int | None, shut: bool) -> None:
        if not shut:
            return again(approval(grace=then), site(grace=now))
        with pytest.raises(GateRefused, match="min-age: "):
            again(approval(grace=then), site(grace=now))
        return None

    @pytest.mark.parametrize(("then", "now"), [(None, 60), (60, None)])
    def it_takes_the_server_s_default_where_it_does_not_say(self, then: int | None, now: int | None) -> None:
        young = replace(SETTINGS, min_age_seconds=DAY - 1)
        mark = PartOfAMark(**{**vars(MARK), "settings": young, "tree_settings": young})
        given, held = approval(sweep=young, grace=then), site(sweep=young, grace=now)
        with pytest.raises(GateRefused, match="the server requires collectors to wait 86,400 seconds"):
            judge_again(held_to_approval(held, mark, given), mark, given, TODAY)

    def it_counts_what_was_allowed_until_its_limit_is_tightened(self) -> None:
        allowed = Allowance("expired-objects", "percent", 20.0, 10.0)
        ten = Safety(max_expired_objects_percent=10.0)
        again(approval(allowed, safety=ten), site(ten))
        again(approval(allowed, safety=ten), site())
        for other in (
            Allowance("expired-objects", "percent", 20.0, 11.0),
            Allowance("expired-objects", "percent", 21.0, 10.0),
            Allowance("expired-objects", "bytes", 20.0, 10.0),
            Allowance("tag-loss", "percent", 20.0, 10.0),
        ):
            with pytest.raises(GateRefused):
                again(approval(other, safety=ten), site(ten))
        with pytest.raises(GateRefused, match=r"the limit is 9\.0"):
            again(approval(allowed, safety=ten), site(Safety(max_expired_objects_percent=9.0)))

    def it_counts_an_override_of_the_tree_until_it_expires(self) -> None:
        note = Override("lake", "expired-bytes", None, "clean-up", TODAY, Source("a.yaml", 1, 1))
        low = Safety(max_expired_bytes=1)
        again(approval(safety=low), site(low, overrides=(note,)))
        with pytest.raises(GateRefused):
            again(approval(safety=low), site(low, overrides=(note,)), date(2026, 4, 1))
        with pytest.raises(GateRefused):
            again(approval(safety=low), site(low))

    def it_says_how_to_approve_it_again(self) -> None:
        low = Safety(max_expired_bytes=1)
        with pytest.raises(GateRefused) as caught:
            again(approval(), site(low))
        assert caught.value.hint == (
            "Approve the mark again with --allow expired-bytes at a terminal,"
            " or list the gate under overrides in the tree."
        )


class DescribeAnAutomaticApproval:
    def it_counts_while_the_tree_says_automatic(self) -> None:
        automatic = replace(SETTINGS, automatic=True)
        mark = PartOfAMark(**{**vars(MARK), "settings": automatic, "tree_settings": automatic})
        given = approval(sweep=automatic, automatic=True)
        held = held_to_approval(site(sweep=automatic), mark, given)
        assert held.desired.sweep == automatic
        with pytest.raises(
            GateRefused, match=r"approved automatically, but sweep\.automatic is now false"
        ) as caught:
            held_to_approval(site(), mark, given)
        assert caught.value.where == WHERE
        assert caught.value.hint == "Inspect the mark, then run `lakeplan sweep approve m1 --reason …`."

    def it_does_not_matter_for_a_mark_that_a_person_approved(self) -> None:
        assert held_to_approval(site(), MARK, approval()).desired == site().desired


def it_names_every_gate_that_is_shut() -> None:
    shut = GateOutcome.REFUSED
    gates = [
        GateResult("sweep-limit", "prod/lake", shut, "too many"),
        GateResult("at-risk", "prod/lake", GateOutcome.WARNED, "a warning"),
        GateResult("sweep-limit", "prod/lake", shut, "too much"),
        GateResult("min-age", "prod/lake", shut, "too young"),
    ]
    with pytest.raises(GateRefused) as caught:
        refuse_shut(gates, MARK)
    assert caught.value.message == (
        "a gate refused the mark: sweep-limit: too many; sweep-limit: too much; min-age: too young"
    )
    assert caught.value.hint == (
        "Use --allow sweep-limit --allow min-age at a terminal, or list the gate under overrides in the tree."
    )
    assert caught.value.where == WHERE
    refuse_shut(gates[1:2], MARK)

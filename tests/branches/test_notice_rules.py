"""The rule of notices, drawn small: what a notice, an exemption, a period and a clock make of a deletion."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.branches.notices import (
    EXEMPTIONS_KEPT,
    LAPSE,
    Exemption,
    Notice,
    Spared,
    after_notice,
    is_about,
    notes_on,
    read_exemptions,
    read_notices,
    read_spared,
    with_newest,
    write_exemptions,
    write_notices,
)
from lakeplan.errors import FormatError, WriteConflict
from lakeplan.values.branches import BranchOutlook, BranchVerdict, Keep, StagedChange, StagedData
from lakeplan.values.desired import BranchFacts, Evidence
from tests.branches.conftest import MemoryState

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
PERIOD = 3 * DAY
KEY = "prod/analytics"
NOTHING = StagedData()


def outlook(
    head: str = "h1", since: datetime | None = NOW - DAY, staged: StagedData | None = NOTHING
) -> BranchOutlook:
    """A branch that a policy would delete."""
    facts = BranchFacts("feature-1", head, NOW - 9 * DAY, Evidence.OBSERVED, None, None)
    return BranchOutlook(facts, BranchVerdict(None, "old", since), staged)


def notice(**more: object) -> Notice:
    return replace(Notice("h1", "", NOW, NOW + PERIOD, "ops"), **more)


def verdict(
    found: Notice | None = notice(),  # noqa: B008 - frozen
    exemption: Exemption | None = None,
    *,
    after: timedelta = PERIOD,
    period: timedelta = PERIOD,
    of: BranchOutlook | None = None,
) -> BranchVerdict:
    return after_notice(of or outlook(), found, exemption, period, NOW + after)


class DescribeTheVerdict:
    def it_deletes_from_the_end_of_the_period_on(self) -> None:
        assert verdict() == BranchVerdict(None, "old", NOW - DAY)
        early = verdict(after=PERIOD - SECOND)
        assert early == BranchVerdict(Keep.NOTICE_GIVEN, "old", NOW - DAY, NOW + PERIOD)

    def it_keeps_what_nobody_was_told(self) -> None:
        assert verdict(None, after=DAY) == BranchVerdict(
            Keep.NOTICE_DUE, "old", NOW - DAY, NOW + DAY + PERIOD
        )

    def it_needs_none_without_a_period(self) -> None:
        assert verdict(None, period=timedelta()).deletes
        assert verdict(notice(head="h2"), period=timedelta(), after=timedelta()).deletes

    def it_waits_for_the_later_of_the_period_and_what_was_said(self) -> None:
        longer = 5 * DAY
        assert notice().deletes_at(longer) == NOW + longer
        assert notice().deletes_at(DAY) == NOW + PERIOD
        assert verdict(period=longer, after=longer - SECOND).kept_by is Keep.NOTICE_GIVEN
        assert verdict(period=longer, after=longer).deletes
        assert verdict(period=DAY, after=PERIOD - SECOND).kept_by is Keep.NOTICE_GIVEN

    def it_keeps_what_was_exempt_since_the_notice(self) -> None:
        assert verdict(exemption=Exemption(NOW, NOW + DAY)).kept_by is Keep.NOTICE_DUE
        assert verdict(exemption=Exemption(NOW - 2 * DAY, NOW - DAY)).deletes

    def it_lapses(self) -> None:
        assert verdict(after=PERIOD + LAPSE - SECOND).deletes
        late = verdict(after=PERIOD + LAPSE)
        assert late == BranchVerdict(Keep.NOTICE_DUE, "old", NOW - DAY, NOW + 2 * PERIOD + LAPSE)

    @pytest.mark.parametrize(
        ("accepted_by", "now", "counts"),
        [
            ("ops", "ops", True),
            ("ops", None, True),
            ("", "ops", True),
            ("ops", "", False),
            ("ops", "team", False),
        ],
    )
    def it_counts_by_the_channel_that_the_tree_has_now(
        self, accepted_by: str, now: str | None, counts: bool
    ) -> None:
        found = notice(channel=accepted_by)
        result = after_notice(outlook(), found, None, PERIOD, NOW + PERIOD, channel=now)
        assert result.deletes is counts
        assert counts or result.kept_by is Keep.NOTICE_DUE

    def it_counts_by_any_channel_without_a_period(self) -> None:
        early = after_notice(outlook(), notice(), None, timedelta(), NOW + DAY, channel="team")
        assert early.kept_by is Keep.NOTICE_GIVEN

    def it_counts_thirty_days_and_two_years(self) -> None:
        assert timedelta(days=30) == LAPSE
        assert timedelta(days=730) == EXEMPTIONS_KEPT


class DescribeWhatANoticeIsAbout:
    def it_is_about_the_branch_as_it_was(self) -> None:
        assert is_about(notice(), outlook(), None)

    @pytest.mark.parametrize(
        "changed",
        [
            outlook(head="h2"),
            outlook(staged=StagedData((StagedChange("a", "added", 1),))),
            outlook(staged=StagedData(more=True)),
            outlook(staged=None),
            outlook(since=NOW + SECOND),
            outlook(since=None),
        ],
    )
    def it_is_not_about_it_after_any_change(self, changed: BranchOutlook) -> None:
        assert not is_about(notice(), changed, None)
        assert verdict(of=changed).kept_by is Keep.NOTICE_DUE

    def it_is_about_uncommitted_changes_that_are_the_same(self) -> None:
        staged = StagedData((StagedChange("a", "added", 1),))
        assert is_about(notice(staged=staged.fingerprint), outlook(staged=staged), None)
        assert not is_about(notice(staged=staged.fingerprint), outlook(), None)

    def it_counts_a_policy_that_was_crossed_at_the_moment_of_acceptance(self) -> None:
        assert is_about(notice(), outlook(since=NOW), None)

    @pytest.mark.parametrize(
        ("at", "end", "holds"),
        [
            (-9 * DAY, -SECOND, True),  # over before the notice
            (-9 * DAY, timedelta(), False),
            (-9 * DAY, SECOND, False),
            (timedelta(), SECOND, False),
            (DAY, 2 * DAY, False),  # between the notice and now
            (DAY, 9 * DAY, False),
            (timedelta(), -SECOND, False),  # removed by a clock that is behind
        ],
    )
    def it_is_void_once_an_exemption_held(self, at: timedelta, end: timedelta, holds: bool) -> None:
        for removed in (False, True):
            exemption = Exemption(NOW + at, NOW + end, removed=removed)
            assert is_about(notice(), outlook(), exemption) is holds


class DescribeAnExemption:
    def it_holds_before_its_end(self) -> None:
        exemption = Exemption(NOW, NOW + DAY)
        assert exemption.holds(NOW + DAY - SECOND)
        assert not exemption.holds(NOW + DAY)

    def it_does_not_hold_when_it_was_removed(self) -> None:
        assert not Exemption(NOW, NOW + DAY, removed=True).holds(NOW)

    @pytest.mark.parametrize(
        ("by", "reason", "text"),
        [
            ("", "", "exempt until 2026-03-01 00:00 UTC"),
            ("me", "", "exempt until 2026-03-01 00:00 UTC by me"),
            ("me", "late", "exempt until 2026-03-01 00:00 UTC by me: late"),
        ],
    )
    def it_says_until_when_who_and_why(self, by: str, reason: str, text: str) -> None:
        assert Exemption(NOW, NOW, by, reason).text == text


class DescribeNotes:
    def it_notes_what_is_in_force(self) -> None:
        spared = Spared({"a": Exemption(NOW, NOW + DAY, "me", "late")}, {"a": notice()})
        assert notes_on(spared, "a", "h1", NOW) == (
            "branch a: exempt until 2026-03-02 00:00 UTC by me: late",
            "branch a: its deletion on or after 2026-03-04 00:00 UTC was announced at 2026-03-01 00:00 UTC",
        )

    def it_notes_nothing_of_others_or_of_what_is_over(self) -> None:
        spared = Spared({"a": Exemption(NOW, NOW + DAY)}, {"a": notice()})
        assert notes_on(spared, "a", "h2", NOW + DAY) == ()
        assert notes_on(spared, "b", "h1", NOW) == ()


MOMENT = "2026-03-01T00:00:00Z"
ROWS: dict[str, dict[str, object]] = {
    "exemptions": {"at": MOMENT, "end": MOMENT, "by": "", "reason": "", "removed": False},
    "notices": {"head": "h", "staged": "", "accepted_at": MOMENT, "deleted_from": MOMENT, "channel": "ops"},
}


class DescribeRecords:
    def it_reads_what_it_wrote(self) -> None:
        state = MemoryState()
        assert read_spared(state, KEY) == Spared()
        exemptions = {
            "a": Exemption(NOW, NOW + DAY, "me", "late"),
            "b": Exemption(NOW, NOW, removed=True),
        }
        write_exemptions(state, KEY, exemptions, None, NOW)
        notices = {"a": notice(), "b": notice(staged="x", channel="")}
        version = write_notices(state, KEY, notices, ["a", "b"], None)
        assert read_spared(state, KEY) == Spared(exemptions, notices, version)
        assert set(state.records) == {"exemptions/prod/analytics.json", "notices/prod/analytics.json"}

    def it_forgets_exemptions_that_ended_long_ago(self) -> None:
        state = MemoryState()
        ended = {
            "old": Exemption(NOW, NOW - EXEMPTIONS_KEPT),
            "young": Exemption(NOW, NOW - EXEMPTIONS_KEPT + SECOND),
        }
        write_exemptions(state, KEY, ended, None, NOW)
        assert set(read_exemptions(state, KEY)[0]) == {"young"}

    def it_forgets_notices_of_branches_that_do_not_exist(self) -> None:
        state = MemoryState()
        write_notices(state, KEY, {"a": notice(), "b": notice()}, iter(["b", "c"]), None)
        assert set(read_notices(state, KEY)[0]) == {"b"}

    def it_writes_over_nothing_that_it_has_not_read(self) -> None:
        state = MemoryState()
        write_notices(state, KEY, {}, [], None)
        write_exemptions(state, KEY, {}, None, NOW)
        with pytest.raises(WriteConflict):
            write_notices(state, KEY, {}, [], None)
        with pytest.raises(WriteConflict):
            write_exemptions(state, KEY, {}, None, NOW)
        write_notices(state, KEY, {}, [], read_notices(state, KEY)[1])
        write_exemptions(state, KEY, {}, read_exemptions(state, KEY)[1], NOW)

    def it_writes_this_format(self) -> None:
        state = MemoryState()
        write_exemptions(state, KEY, {"a": Exemption(NOW, NOW + DAY, "me", "late")}, None, NOW)
        write_notices(state, KEY, {"a": notice(staged="f")}, ["a"], None)
        assert json.loads(state.records["exemptions/prod/analytics.json"].data) == {
            "format": "lakeplan.exemptions/v1",
            "repository": KEY,
            "branches": {
                "a": {
                    "at": "2026-03-01T00:00:00Z",
                    "end": "2026-03-02T00:00:00Z",
                    "by": "me",
                    "reason": "late",
                    "removed": False,
                }
            },
        }
        assert json.loads(state.records["notices/prod/analytics.json"].data) == {
            "format": "lakeplan.notices/v1",
            "repository": KEY,
            "branches": {
                "a": {
                    "head": "h1",
                    "staged": "f",
                    "accepted_at": "2026-03-01T00:00:00Z",
                    "deleted_from": "2026-03-04T00:00:00Z",
                    "channel": "ops",
                }
            },
        }

    @pytest.mark.parametrize("kind", ["exemptions", "notices"])
    @pytest.mark.parametrize("missing", ["format", "repository", "branches"])
    def it_takes_no_record_without_one_of_its_keys(self, kind: str, missing: str) -> None:
        document = {"format": f"lakeplan.{kind}/v1", "repository": KEY, "branches": {}}
        del document[missing]
        self.refused(kind, document)

    @pytest.mark.parametrize(
        ("kind", "key"),
        [
            *(("exemptions", key) for key in ("at", "end", "by", "reason", "removed")),
            *(("notices", key) for key in ("head", "staged", "accepted_at", "deleted_from", "channel")),
        ],
    )
    def it_takes_no_branch_without_one_of_its_keys(self, kind: str, key: str) -> None:
        row = ROWS[kind]
        document = {"format": f"lakeplan.{kind}/v1", "repository": KEY, "branches": {"a": row}}
        state = MemoryState()
        state.write(f"{kind}/prod/analytics.json", json.dumps(document).encode(), if_version=None)
        assert read_spared(state, KEY) != Spared()
        for damage in ({k: v for k, v in row.items() if k != key}, {**row, key: 7}, {**row, key: None}):
            self.refused(kind, {**document, "branches": {"a": damage}})

    @pytest.mark.parametrize(
        ("kind", "key", "value"),
        [
            ("exemptions", "by", 7),
            ("exemptions", "reason", []),
            ("exemptions", "removed", "yes"),
            ("notices", "channel", 7),
        ],
    )
    def it_takes_no_value_of_another_type(self, kind: str, key: str, value: object) -> None:
        row = ROWS[kind]
        branches = {"a": {**row, key: value}}
        self.refused(kind, {"format": f"lakeplan.{kind}/v1", "repository": KEY, "branches": branches})

    @pytest.mark.parametrize("kind", ["exemptions", "notices"])
    def it_takes_no_record_of_another_repository_or_format(self, kind: str) -> None:
        document = {"format": f"lakeplan.{kind}/v1", "repository": KEY, "branches": {}}
        self.refused(kind, {**document, "repository": "prod/other"})
        self.refused(kind, {**document, "format": "lakeplan.other/v1"})
        self.refused(kind, [])

    @staticmethod
    def refused(kind: str, document: object) -> None:
        state, key = MemoryState(), f"{kind}/prod/analytics.json"
        state.write(key, json.dumps(document).encode(), if_version=None)
        read = {"exemptions": read_exemptions, "notices": read_notices}[kind]
        for reader in (read, read_spared):
            with pytest.raises(FormatError) as error:
                reader(state, KEY)
            assert error.value.where == key
            assert error.value.hint


MOMENTS = st.integers(-20 * 86400, 20 * 86400).map(lambda seconds: NOW + timedelta(seconds=seconds))
NOTICES = st.builds(
    Notice, st.sampled_from(["h1", "h2"]), st.sampled_from(["", "x"]), MOMENTS, MOMENTS, st.just("ops")
)
EXEMPTIONS = st.none() | st.builds(Exemption, MOMENTS, MOMENTS, removed=st.booleans())
PERIODS = st.integers(1, 10 * 86400).map(lambda seconds: timedelta(seconds=seconds))


@given(st.none() | NOTICES, EXEMPTIONS, PERIODS, MOMENTS, MOMENTS)
def it_deletes_nothing_that_people_were_not_told_long_enough_ago(
    found: Notice | None, exemption: Exemption | None, period: timedelta, since: datetime, as_of: datetime
) -> None:
    result = after_notice(outlook(since=since), found, exemption, period, as_of)
    if not result.deletes:
        assert result.kept_by in (Keep.NOTICE_DUE, Keep.NOTICE_GIVEN)
        return
    assert found is not None
    assert found.head == "h1"
    assert found.staged == ""
    assert since <= found.accepted_at
    assert as_of - found.accepted_at >= period
    assert as_of >= found.deleted_from
    if exemption is not None:
        assert exemption.at < found.accepted_at
        assert exemption.end < found.accepted_at


@given(NOTICES, EXEMPTIONS, PERIODS, PERIODS, MOMENTS)
def it_never_deletes_sooner_by_a_longer_period(
    found: Notice, exemption: Exemption | None, one: timedelta, other: timedelta, as_of: datetime
) -> None:
    short, long = sorted((one, other))
    if after_notice(outlook(), found, exemption, long, as_of).deletes:
        again = after_notice(outlook(), found, exemption, short, as_of)
        assert again.deletes or as_of >= found.deletes_at(short) + LAPSE


def test_of_two_exemptions_the_one_decided_later_counts_and_the_first_of_equal_ones() -> None:
    old, new = Exemption(NOW, NOW + 9 * DAY), Exemption(NOW + DAY, NOW + 2 * DAY, "ana")
    same = replace(new, by="ben")
    assert with_newest({"a": old, "b": new, "c": new}, {"a": new, "b": old, "d": old, "c": same}) == {
        "a": new,
        "b": new,
        "c": new,
        "d": old,
    }

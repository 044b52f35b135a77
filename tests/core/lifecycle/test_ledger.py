"""The ledger: what two looks at a repository say about its branches."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.core.lifecycle.ledger import (
    Record,
    assume_created,
    dump_ledger,
    facts_of,
    load_ledger,
    note_staged,
    observe,
    without,
)
from lakeplan.errors import FormatError
from lakeplan.model.branches import LiveBranch
from lakeplan.model.lifecycle import Evidence

START = datetime(2026, 3, 1, tzinfo=timezone.utc)
KEY = "prod/analytics"


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def epoch(hours: float) -> int:
    return int(at(hours).timestamp())


def looks(*seen: tuple[float, dict[str, str]]):
    """A ledger after looks at (hours, branch → HEAD)."""
    ledger = None
    for hours, heads in seen:
        ledger = observe(ledger, KEY, 1, [LiveBranch(b, h) for b, h in heads.items()], at(hours))
    assert ledger is not None
    return ledger


class DescribeObserving:
    def it_counts_age_from_the_first_look(self):
        ledger = looks((0, {"f": "a"}), (5, {"f": "a"}))
        facts = facts_of(LiveBranch("f", "a"), ledger)
        assert (facts.created, facts.created_evidence) == (at(0), Evidence.OBSERVED)
        assert facts.last_write == at(0)

    def it_counts_a_moved_head_as_a_write_at_the_look(self):
        ledger = looks((0, {"f": "a"}), (5, {"f": "b"}), (9, {"f": "b"}))
        facts = facts_of(LiveBranch("f", "b"), ledger)
        assert facts.created == at(0)
        assert facts.last_write == at(5)

    def it_does_not_take_a_branch_made_today_from_an_old_commit_for_idle(self):
        ledger = looks((0, {}), (5, {"f": "old"}))
        facts = facts_of(LiveBranch("f", "old"), ledger, assume="head_commit", head_date=epoch(-9000))
        assert facts.last_write == at(5)

    def it_forgets_a_branch_that_is_gone_so_that_the_next_of_its_name_is_new(self):
        ledger = looks((0, {"f": "a"}), (5, {}), (9, {"f": "a"}))
        assert facts_of(LiveBranch("f", "a"), ledger).created == at(9)

    def it_takes_a_repository_made_anew_for_another(self):
        ledger = observe(looks((0, {"f": "a"})), KEY, 2, [LiveBranch("f", "a")], at(5))
        assert ledger.began == epoch(5)
        assert ledger.branches["f"].first == epoch(5)

    def it_cannot_tell_a_branch_made_anew_at_the_same_head_between_two_looks(self):
        # Documented: nothing that a server shows is different.
        ledger = looks((0, {"f": "a"}), (5, {"f": "a"}))
        assert facts_of(LiveBranch("f", "a"), ledger).created == at(0)

    def it_gives_a_branch_made_anew_the_age_of_its_last_move(self):
        ledger = looks((0, {"f": "a"}), (5, {"f": "z"}))
        facts = facts_of(LiveBranch("f", "z"), ledger, recreated=True)
        assert facts.created == at(5)
        assert facts.last_write == at(5)

    def it_never_goes_back_when_a_clock_does(self):
        ledger = looks((5, {"f": "a"}), (7, {"f": "b"}), (0, {"f": "c"}))
        facts = facts_of(LiveBranch("f", "c"), ledger)
        assert facts.created == at(5)
        assert facts.last_write == at(7)
        assert ledger.at == epoch(7)


class DescribeEvidence:
    def it_takes_the_newest_evidence_of_a_write(self):
        ledger = looks((0, {"f": "a"}), (2, {"f": "b"}), (9, {"f": "b"}))
        facts = facts_of(LiveBranch("f", "b"), ledger, staged_at=epoch(6), head_date=epoch(1))
        assert (facts.last_write, facts.last_write_evidence) == (at(6), Evidence.STAGED)

    def it_does_not_believe_a_commit_from_the_future(self):
        ledger = looks((0, {"f": "a"}), (2, {"f": "b"}), (9, {"f": "b"}))
        facts = facts_of(LiveBranch("f", "b"), ledger, head_date=epoch(900))
        assert facts.last_write == at(2)

    def it_does_not_believe_an_object_from_the_future(self):
        ledger = looks((0, {"f": "a"}), (9, {"f": "a"}))
        assert facts_of(LiveBranch("f", "a"), ledger, staged_at=epoch(900)).last_write == at(9)

    def it_assumes_the_head_s_date_only_for_branches_of_the_first_look_and_only_when_told(self):
        ledger = assume_created(looks((0, {"f": "a"}), (5, {"f": "a", "g": "a"})), {"a": epoch(-100)})
        assumed = facts_of(LiveBranch("f", "a"), ledger, assume="head_commit", head_date=epoch(-100))
        assert (assumed.created, assumed.created_evidence) == (at(-100), Evidence.ASSUMED)
        assert assumed.last_write == at(-100)
        assert facts_of(LiveBranch("g", "a"), ledger, assume="head_commit").created == at(5)
        assert facts_of(LiveBranch("f", "a"), ledger).created == at(0)

    def it_assumes_nothing_of_a_branch_that_appears_within_the_second_of_the_first_look(self):
        ledger = assume_created(looks((0, {"f": "a"}), (0, {"f": "a", "g": "a"})), {"a": epoch(-100)})
        assert facts_of(LiveBranch("g", "a"), ledger, assume="head_commit").created >= at(0)

    def it_assumes_no_creation_before_the_repository(self):
        ledger = observe(None, KEY, epoch(-50), [LiveBranch("f", "a")], at(0))
        ledger = assume_created(ledger, {"a": epoch(-100)})
        assert facts_of(LiveBranch("f", "a"), ledger, assume="head_commit").created == at(-50)

    def it_assumes_no_creation_after_the_first_look(self):
        ledger = assume_created(looks((0, {"f": "a"})), {"a": epoch(50)})
        assert facts_of(LiveBranch("f", "a"), ledger, assume="head_commit").created == at(0)

    def it_remembers_what_was_staged(self):
        ledger = note_staged(looks((0, {"f": "a"})), {"f": ("abc", epoch(3))})
        assert ledger.branches["f"] == Record(epoch(0), "a", "a", moved=epoch(3), staged="abc")
        ledger = note_staged(ledger, {"f": ("abc", None)})
        assert ledger.branches["f"].moved == epoch(3)


class DescribeTheFile:
    def it_comes_back_as_it_was(self):
        ledger = looks((0, {"f": "a", "ü": "b"}), (5, {"f": "z", "ü": "b"}))
        ledger = assume_created(note_staged(ledger, {"f": ("abc", None)}), {"a": 1})
        assert load_ledger(dump_ledger(ledger), "x") == ledger

    def it_is_small(self):
        heads = {f"feature-of-some-team-{n:06d}": f"{n:064x}" for n in range(10_000)}
        moved = {name: f"{int(head, 16) + 99999:064x}" for name, head in heads.items()}
        ledger = looks((0, heads), (5, moved))
        ledger = note_staged(ledger, dict.fromkeys(heads, ("0123456789abcdef", None)))
        assert len(dump_ledger(ledger)) < 10_000_000

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"{}",
            b"[]",
            b'{"format":"lakeplan.branches/v2"}',
            dump_ledger(looks((0, {"f": "a"})))[:-9],
            dump_ledger(looks((0, {"f": "a"}))).replace(b'"first"', b'"frist"'),
            dump_ledger(looks((0, {"f": "a"}))).replace(b'"branches":{', b'"branches":{"g":7,'),
        ],
    )
    def it_refuses_half_a_memory(self, data):
        with pytest.raises(FormatError, match="damaged"):
            load_ledger(data, "branches/prod/analytics.json")

    def it_drops_what_was_deleted(self):
        assert set(without(looks((0, {"f": "a", "g": "a"})), ["f", "x"]).branches) == {"g"}

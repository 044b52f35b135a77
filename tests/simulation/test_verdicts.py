"""Verdict bits, holders and totals by example; test_impact and test_run have whole simulations."""

from __future__ import annotations

from array import array
from datetime import timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import BranchSets
from lakeplan.simulation import verdicts as module
from lakeplan.simulation.verdicts import (
    Judged,
    ObjectClass,
    RuleSet,
    Sighting,
    bits_of,
    judge,
    kept_by_dangling,
    totals_of,
)
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount
from tests.retention.conftest import NOW, draw_refs

ENTRY, LISTED, OLD, CANDIDATE = Sighting.ENTRY, Sighting.LISTED, Sighting.OLD, Sighting.CANDIDATE
RULES = (RuleSet("rules", GcRules(7)), RuleSet("compare", GcRules(9)), RuleSet("third", GcRules(1)))
OF_BOTH = BranchSets(("a", "b", "c"), [0, 0b101, 0b110], array("i", [0, 1, 2, 2, 1]))


def judged(**fields: Any) -> Judged:
    given = {"rule_set": RULES[0], "server": bytearray(5), "documented": None, "branches": OF_BOTH}
    return Judged(**{**given, "dangling": bytearray([1, 0, 1, 0, 0]), **fields})


def it_gives_every_rule_set_two_bits_of_its_own() -> None:
    assert [(b.name, b.server, b.documented) for b in bits_of(RULES)] == [
        ("rules", 1, 2),
        ("compare", 4, 8),
        ("third", 16, 32),
    ]


def it_holds_a_commit_by_branches_and_by_all_dangling_commits_together() -> None:
    assert [judged().holders(commit) for commit in range(5)] == [0b1000, 0b101, 0b1110, 0b110, 0b101]


def it_counts_the_commits_of_each_branch() -> None:
    assert judged().commits_of_branches() == [2, 2, 4]


def it_judges_all_by_the_same_moment_in_the_server_s_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = CommitGraph.from_refs(draw_refs("main -> a 1"))
    zone = timezone(timedelta(hours=14))
    for name in ("server_verdict", "documented_verdict", "branch_sets", "kept_by_dangling"):
        monkeypatch.setattr(module, name, lambda *args, name=name: (name, *args))
    made = judge(graph, RULES[0], NOW, zone)
    asked = (graph, RULES[0].rules, NOW, zone)
    assert (made.rule_set, made.server) == (RULES[0], ("server_verdict", *asked))
    assert (made.documented, made.branches) == (("documented_verdict", *asked), ("branch_sets", *asked))
    assert made.dangling == ("kept_by_dangling", *asked)


def it_walks_from_dangling_commits_by_the_default_days() -> None:
    """To the first commit that is not after the limit, which it keeps too: its child is."""
    refs = draw_refs("""
        main -> m 1 b
                d 2 c
                c 6 b
                b 7 a
                a 8
                e 7
                f 9 g
                g 9
    """)
    graph = CommitGraph.from_refs(refs)
    midnight = NOW.replace(hour=0)
    ids = [
        (id, kept)
        for id, kept in zip(graph.ids, kept_by_dangling(graph, GcRules(7), NOW, timezone.utc), strict=True)
    ]
    assert ids == [("a", 0), ("b", 1), ("c", 1), ("d", 1), ("e", 0), ("f", 0), ("g", 0), ("m", 0)]
    assert dict(zip(graph.ids, kept_by_dangling(graph, GcRules(8), midnight, timezone.utc), strict=True)) == {
        **dict.fromkeys("abcde", 1), "f": 0, "g": 0, "m": 0,
    }  # fmt: skip


def it_goes_back_so_many_days_of_the_server_s_zone() -> None:
    """Where the clocks went forward meanwhile, that is an hour less."""
    graph = CommitGraph.from_refs(draw_refs("main -> a 1\n b 6.98"))
    berlin = ZoneInfo("Europe/Berlin")
    assert [kept_by_dangling(graph, GcRules(7), NOW, zone)[1] for zone in (timezone.utc, berlin)] == [1, 0]


def total(flags: Sighting, mask: int = 0, alias: int = 0, *, listing: bool = True) -> set[str]:
    one = ObjectClass(flags, mask, alias, (), Amount(2, 20))
    totals = totals_of([one, one], bits_of(RULES)[1], listing=listing)
    found = {name: getattr(totals, name) for name in totals.__dataclass_fields__}
    assert set(found.values()) <= {Amount(), Amount(4, 40)}
    return {name for name, amount in found.items() if amount.objects}


SERVER, DOCUMENTED, OTHER = 4, 8, 1


class DescribeTotals:
    @pytest.mark.parametrize(
        ("flags", "masks", "expected"),
        [
            (LISTED | OLD | ENTRY, (0, 0), {"expired"}),
            (LISTED | OLD | Sighting.ALIAS, (OTHER, 0), {"expired"}),
            (LISTED | OLD, (0, 0), {"never_committed"}),
            (LISTED | OLD | ENTRY, (DOCUMENTED | OTHER, 0), {"expired", "at_risk"}),
            (LISTED | OLD | Sighting.ALIAS, (0, DOCUMENTED), {"expired", "at_risk"}),
            (LISTED | ENTRY, (0, 0), {"kept_young"}),
            (LISTED | OLD | ENTRY, (SERVER | DOCUMENTED, 0), {"kept_by_commits"}),
            (LISTED | OLD | ENTRY, (SERVER, SERVER), {"kept_by_commits"}),
            (LISTED | OLD | ENTRY, (DOCUMENTED, SERVER), {"kept_by_commits", "protected_by_alias"}),
            (LISTED | OLD | Sighting.UNCOMMITTED, (0, 0), {"kept_uncommitted"}),
            (LISTED | OLD | Sighting.UNCOMMITTED, (SERVER, 0), {"kept_by_commits"}),
            (ENTRY | CANDIDATE, (SERVER, 0), {"missing"}),
            (ENTRY | CANDIDATE, (DOCUMENTED | OTHER, 0), set()),
            (ENTRY, (SERVER, 0), set()),
            (CANDIDATE, (0, SERVER), set()),
        ],
    )
    def it_counts_an_object_that_was_listed(
        self, flags: Sighting, masks: tuple[int, int], expected: set[str]
    ) -> None:
        assert total(flags, *masks) == expected

    @pytest.mark.parametrize(
        ("flags", "masks", "expected"),
        [
            (ENTRY | CANDIDATE, (0, 0), {"expired"}),
            (ENTRY, (0, 0), {"kept_elsewhere"}),
            (ENTRY | OLD | LISTED, (0, 0), {"kept_elsewhere"}),
            (ENTRY | CANDIDATE, (SERVER, 0), {"kept_by_commits"}),
            (CANDIDATE | OLD | LISTED, (SERVER, 0), set()),
        ],
    )
    def it_counts_an_object_of_commits_alone(
        self, flags: Sighting, masks: tuple[int, int], expected: set[str]
    ) -> None:
        assert total(flags, *masks, listing=False) == expected

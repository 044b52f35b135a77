"""The ledger: what two observations of a repository say about its branches."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.branches.ledger import (
    SKEW_SECONDS,
    Ledger,
    Mark,
    Record,
    assume_created,
    check_clock,
    dump_ledger,
    facts_of,
    load_ledger,
    note_staged,
    observe,
    without,
)
from lakeplan.errors import FormatError
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import Evidence

START = datetime(2026, 3, 1, tzinfo=timezone.utc)
KEY = "prod/analytics"


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def epoch(hours: float) -> int:
    return int(at(hours).timestamp())


def looks(*seen: tuple[float, dict[str, str]]):
    """A ledger after observations at (hours, branch → HEAD)."""
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

    def it_knows_which_branches_were_there_at_the_first_look(self):
        ledger = looks((0, {"f": "a"}), (0, {"f": "a", "g": "a"}), (5, {"f": "b", "g": "a"}))
        assert ledger.branches["f"].first == ledger.began
        assert ledger.branches["g"].first == epoch(0) + 1
        assert ledger.branches["f"] == Record(epoch(0), "b", "a", moved=epoch(5))

    def it_names_the_repository_that_it_describes(self):
        ledger = observe(None, KEY, 7, [], at(3))
        assert ledger == Ledger(KEY, 7, epoch(3), epoch(3), {})
        assert observe(ledger, KEY, 7, [], at(5)) == Ledger(KEY, 7, epoch(3), epoch(5), {})

    def it_gives_a_branch_made_anew_without_a_move_the_age_of_the_last_look(self):
        ledger = looks((0, {"f": "a"}), (5, {"f": "a"}))
        facts = facts_of(LiveBranch("f", "a"), ledger, recreated=True)
        assert (facts.created, facts.created_evidence) == (at(5), Evidence.OBSERVED)
        ledger = assume_created(ledger, {"a": epoch(-9)})
        facts = facts_of(LiveBranch("f", "a"), ledger, assume="head_commit", recreated=True)
        assert (facts.created, facts.created_evidence) == (at(5), Evidence.OBSERVED)


class DescribeEvidence:
    def it_names_the_branch_its_head_and_whether_it_is_hidden(self):
        ledger = looks((0, {"f": "a"}), (5, {"f": "b"}))
        facts = facts_of(LiveBranch("f", "b", hidden=True), ledger)
        assert (facts.branch_id, facts.commit_id, facts.hidden) == ("f", "b", True)
        assert facts.last_write_evidence is Evidence.OBSERVED
        assert not facts_of(LiveBranch("f", "b"), ledger).hidden

    def it_takes_the_creation_for_the_first_of_equal_evidence(self):
        ledger = looks((0, {"f": "a"}))
        facts = facts_of(LiveBranch("f", "a"), ledger, staged_at=epoch(0), head_date=epoch(0))
        assert facts.last_write_evidence is Evidence.OBSERVED

    def it_names_the_head_commit_where_that_is_the_newest_evidence(self):
        ledger = assume_created(looks((0, {"f": "a"})), {"a": epoch(-100)})
        facts = facts_of(LiveBranch("f", "a"), ledger, assume="head_commit", head_date=epoch(-50))
        assert (facts.last_write, facts.last_write_evidence) == (at(-50), Evidence.HEAD_COMMIT)

    def it_assumes_nothing_that_is_not_older_than_the_first_look(self):
        ledger = assume_created(looks((0, {"f": "a"})), {"a": epoch(0)})
        facts = facts_of(LiveBranch("f", "a"), ledger, assume="head_commit")
        assert (facts.created, facts.created_evidence) == (at(0), Evidence.OBSERVED)

    def it_assumes_1970_for_an_earlier_date(self):
        """A client chose it. A record of an earlier date could not be read again."""
        ledger = assume_created(looks((0, {"f": "a"})), {"a": -253402300799})
        assert ledger.branches["f"].assumed == 0

    def it_assumes_once_and_keeps_to_it(self):
        ledger = assume_created(looks((0, {"f": "a", "g": "x", "h": "c"})), {"a": epoch(-9), "c": epoch(-7)})
        assert {n: r.assumed for n, r in ledger.branches.items()} == {
            "f": epoch(-9),
            "g": None,
            "h": epoch(-7),
        }
        again = assume_created(ledger, {"a": epoch(-99), "x": epoch(-5)})
        assert (again.branches["f"].assumed, again.branches["g"].assumed) == (epoch(-9), epoch(-5))

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

    def it_never_makes_a_write_older_by_what_is_staged(self):
        ledger = looks((0, {"f": "a", "g": "a"}), (5, {"f": "b", "g": "a"}))
        ledger = note_staged(ledger, {"f": ("abc", epoch(3)), "g": ("def", epoch(-3))})
        assert ledger.branches["f"] == Record(epoch(0), "b", "a", moved=epoch(5), staged="abc")
        assert ledger.branches["g"] == Record(epoch(0), "a", "a", moved=epoch(0), staged="def")
        assert note_staged(ledger, {"f": ("", None)}).branches["g"].staged == "def"
        dawn = Ledger(KEY, 0, 0, 0, {"f": Record(0, "a", "a")})
        assert note_staged(dawn, {"f": ("x", 0)}).branches["f"].moved == 0


CREATED = epoch(-1)
MARK = Mark("run-1", 3, "https://lake.example", "s3://bucket/ns", assumable=True, witnessed=False)


def whole() -> Ledger:
    record = Record(epoch(1), "b", "a", moved=epoch(2), staged="", assumed=epoch(-9))
    return Ledger(KEY, CREATED, epoch(0), epoch(9), {"f": record, "g": Record(epoch(1), "c", "c")})


def changed(where: str | None, **values: object) -> bytes:
    """The file with fields of the head, or of a branch, replaced; ``...``: without the field."""
    document = json.loads(dump_ledger(whole(), MARK))
    row = document if where is None else document["branches"][where]
    for key, value in values.items():
        if value is ...:
            del row[key]
        else:
            row[key] = value
    return json.dumps(document).encode()


class DescribeTheFile:
    def it_comes_back_as_it_was(self):
        ledger = looks((0, {"f": "a", "ü": "b"}), (5, {"f": "z", "ü": "b"}))
        ledger = assume_created(note_staged(ledger, {"f": ("abc", None)}), {"a": 1})
        assert load_ledger(dump_ledger(ledger, MARK), "x") == (ledger, MARK)

    def it_is_small(self):
        heads = {f"feature-of-some-team-{n:06d}": f"{n:064x}" for n in range(10_000)}
        moved = {name: f"{int(head, 16) + 99999:064x}" for name, head in heads.items()}
        ledger = looks((0, heads), (5, moved))
        ledger = note_staged(ledger, dict.fromkeys(heads, ("0123456789abcdef", None)))
        assert len(dump_ledger(ledger, MARK)) < 10_000_000

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"{}",
            b"[]",
            b'{"format":"lakeplan.branches/v2"}',
            dump_ledger(whole(), MARK).replace(b"branches/v2", b"branches/v1"),
            dump_ledger(looks((0, {"f": "a"})), MARK)[:-9],
            dump_ledger(looks((0, {"f": "a"})), MARK).replace(b'"first"', b'"frist"'),
            dump_ledger(looks((0, {"f": "a"})), MARK).replace(b'"branches":{', b'"branches":{"g":7,'),
        ],
    )
    def it_refuses_half_a_memory(self, data):
        with pytest.raises(FormatError, match="damaged"):
            load_ledger(data, "branches/prod/analytics.json")

    def it_has_one_line_a_branch_and_leaves_out_what_says_nothing(self):
        assert dump_ledger(whole(), MARK).decode() == (
            '{"format":"lakeplan.branches/v2","repository":"prod/analytics",'
            f'"repository_created":{CREATED},"began":{epoch(0)},"at":{epoch(9)},"id":"run-1","generation":3,'
            '"endpoint":"https://lake.example","namespace":"s3://bucket/ns","assumable":true,'
            '"witnessed":false,"branches":{\n'
            f'"f":{{"first":{epoch(1)},"head":"b","first_head":"a","moved":{epoch(2)},"staged":"",'
            f'"assumed":{epoch(-9)}}},\n'
            f'"g":{{"first":{epoch(1)},"head":"c"}}}}}}\n'
        )

    def it_comes_back_with_what_binds_it(self):
        assert load_ledger(dump_ledger(whole(), MARK), "x") == (whole(), MARK)

    @pytest.mark.parametrize(
        ("where", "values"),
        [
            (None, {"began": epoch(9), "at": epoch(9)}),
            (None, {"repository_created": 0}),
            (None, {"repository_created": epoch(0) + SKEW_SECONDS}),
            (None, {"generation": 1}),
            ("f", {"first": epoch(0), "moved": epoch(0)}),
            ("f", {"first": epoch(9), "moved": epoch(9)}),
            ("f", {"moved": None, "staged": None, "assumed": None}),
            ("f", {"moved": epoch(9), "assumed": 0}),
            ("f", {"assumed": epoch(1)}),
            ("f", {"first_head": ...}),
        ],
    )
    def it_takes_every_value_that_a_run_may_have_written(self, where, values):
        if values.get("began") == epoch(9):
            document = json.loads(changed(None, **values))
            data = json.dumps(document | {"branches": {}}).encode()
        else:
            data = changed(where, **values)
        assert load_ledger(data, "x")[0].repository == KEY

    @pytest.mark.parametrize(
        ("where", "values", "why"),
        [
            (
                None,
                {"format": "lakeplan.branches/v3"},
                "its format is 'lakeplan.branches/v3', not lakeplan.b",
            ),
            (None, {"repository": ""}, "repository is '', not text"),
            (None, {"repository": 7}, "repository is 7, not text"),
            (None, {"repository_created": -1}, "repository_created is -1, which is not between 0 and now"),
            (None, {"repository_created": epoch(0) + SKEW_SECONDS + 1}, "began is"),
            (None, {"at": -1}, "at is -1"),
            (None, {"at": epoch(0) - 1}, "began is"),
            (None, {"began": True}, "began is True, not a whole number"),
            (None, {"began": "1"}, "began is '1', not a whole number"),
            (None, {"began": 1.5}, "began is 1.5, not a whole number"),
            (None, {"generation": 0}, "generation is 0"),
            (None, {"id": ""}, "id is ''"),
            (None, {"endpoint": ""}, "endpoint is ''"),
            (None, {"namespace": None}, "namespace is None"),
            (None, {"assumable": 1}, "assumable and witnessed must be true or false, but are \\[1, False\\]"),
            (
                None,
                {"witnessed": None},
                "assumable and witnessed must be true or false, but are \\[True, None\\]",
            ),
            (None, {"witnessed": ...}, "witnessed"),
            (None, {"branches": []}, "items"),
            ("f", {"first": epoch(0) - 1}, "branch 'f': first is .*, which is not between"),
            ("f", {"first": epoch(9) + 1}, "branch 'f': first is"),
            ("f", {"moved": epoch(1) - 1}, "branch 'f': moved is"),
            ("f", {"moved": epoch(9) + 1}, "branch 'f': moved is"),
            ("f", {"assumed": -1}, "branch 'f': assumed is -1, which is not between 0 and"),
            ("f", {"assumed": epoch(1) + 1}, "branch 'f': assumed is"),
            ("f", {"head": ""}, "branch 'f': head is ''"),
            ("f", {"head": ...}, "branch 'f': 'head'"),
            ("f", {"first_head": ""}, "branch 'f': first_head is ''"),
            ("f", {"staged": 7}, "branch 'f': staged is 7"),
        ],
    )
    def it_refuses_what_no_run_can_have_written(self, where, values, why):
        with pytest.raises(FormatError, match=why) as caught:
            load_ledger(changed(where, **values), "branches/prod/analytics.json")
        assert caught.value.where == "branches/prod/analytics.json"

    def it_takes_the_first_second_that_a_clock_can_show(self):
        dawn = Ledger(KEY, 0, 0, 0, {})
        assert load_ledger(dump_ledger(dawn, MARK), "x") == (dawn, MARK)

    def it_refuses_a_field_that_is_there_twice(self):
        data = dump_ledger(whole(), MARK).replace(b'"generation":3', b'"generation":3,"generation":4')
        with pytest.raises(FormatError, match="a key appears twice"):
            load_ledger(data, "x")

    def it_refuses_a_ledger_from_the_future(self):
        check_clock(whole(), at(9) - timedelta(seconds=SKEW_SECONDS), "x")
        with pytest.raises(FormatError, match=r"a time in the future \(2026-03-01 09:00 UTC\)") as caught:
            check_clock(whole(), at(9) - timedelta(seconds=SKEW_SECONDS + 1), "branches/x.json")
        assert caught.value.where == "branches/x.json"

    def it_drops_what_was_deleted(self):
        assert set(without(looks((0, {"f": "a", "g": "a"})), ["f", "x"]).branches) == {"g"}

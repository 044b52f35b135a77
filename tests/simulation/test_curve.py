"""Curves over small namespaces, day by day against the simple reference of the simulation."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeplan.errors import FormatError, UsageError
from lakeplan.formats.namespace import REFS_MANIFEST_KEY
from lakeplan.retention.rules import Varied
from lakeplan.simulation.curve import CurveRequest, curve, of_namespace
from lakeplan.simulation.runners import Runners
from lakeplan.stores.open import open_namespace
from lakeplan.values.progress import Silent
from lakeplan.values.rules import GcRules
from tests.simulation.namespaces import (
    NOW,
    SERVER_URL,
    History,
    Snapshot,
    Stored,
    entry,
    full,
    write_namespace,
)
from tests.simulation.reference import Reference

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "curve.v1.json").read_text())


def run(history: History, request: CurveRequest, options: Runners, *, listing: bool = True) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        namespace = open_namespace(write_namespace(Path(folder) / "ns", history))
        given_ = of_namespace(
            request,
            namespace,
            listing=listing,
            max_uncommitted_age_seconds=10**9,
            storage_namespace=SERVER_URL,
        )
        document = curve(request, given_, options, Silent())
    jsonschema.validate(document, SCHEMA)
    assert document["runner"] == {"name": options.asked, "reason": "requested"}
    return document


def goes(curve_: dict[str, Any], days: int) -> tuple[int, int]:
    """(objects, bytes) that the documented rule lets go at these days."""
    point = [p for p in curve_["points"] if p["days"] <= days][-1]
    return point["objects"], point["size_bytes"]


LINE = (
    Snapshot("a", 60, (), (entry("x/1", "data/1", 100), entry("y/1", "data/keep", 7))),
    Snapshot("b", 20.5, ("a",), (entry("x/2", "data/2", 30), entry("y/1", "data/keep", 7))),
    Snapshot("c", 5.5, ("b",), (entry("x/3", "data/3", 4), entry("y/1", "data/keep", 7))),
    Snapshot("d", 1.5, ("c",), (entry("y/1", "data/keep", 7),)),
)


class DescribeADrawnHistory:
    def it_steps_down_where_objects_are_needed_no_more(self, runners: Runners) -> None:
        found = run(History(LINE, {"main": "d"}), CurveRequest(GcRules(7), NOW), runners, listing=False)
        (default,) = found["curves"]
        steps = [(p["days"], p["objects"], p["size_bytes"]) for p in default["points"]]
        # c is kept from 2 days on (d is 1.5 days old), b from 6, a from 21
        assert steps == [(0, 3, 134), (2, 2, 130), (6, 1, 100), (21, 0, 0)]
        assert default["now"] == {"objects": 1, "size_bytes": 100}
        assert default["kept_at_any_days"] == {"objects": 1, "size_bytes": 7}
        assert default["kept_at_no_days"] == {"objects": 0, "size_bytes": 0}

    def it_asks_the_server_at_the_points_named(self, runners: Runners) -> None:
        request = CurveRequest(GcRules(7), NOW, points=(1, 30))
        (default,) = run(History(LINE, {"main": "d"}), request, runners, listing=False)["curves"]
        asked = {p["days"]: (p["objects"], p["at_risk"]["objects"]) for p in default["server"]}
        assert asked == {1: (3, 0), 7: (1, 0), 30: (0, 0)}

    def it_draws_a_curve_for_each_branch_rule(self, runners: Runners) -> None:
        history = History(
            (*LINE, Snapshot("e", 3.5, ("c",), (entry("z/9", "data/9", 50),))), {"main": "d", "dev": "e"}
        )
        found = run(history, CurveRequest(GcRules(4, {"main": 21, "gone": 3}), NOW), runners, listing=False)
        assert [c["branch_id"] for c in found["curves"]] == [None, "main"]
        assert found["warnings"][0] == "branch gone does not exist"
        main = found["curves"][1]
        # dev's 4 days keep c whatever main says; main's own days decide over b and a
        assert [goes(main, n) for n in (1, 5, 6, 20, 21)] == [(2, 130), (2, 130), (1, 100), (1, 100), (0, 0)]

    @pytest.mark.parametrize(
        ("days", "default_now", "main_now"),
        [
            (-1, (3, 134), (3, 134)),
            (-3, (3, 134), (3, 134)),
            (36_501, (0, 0), (1, 9)),
            (2**31 - 1, (0, 0), (1, 9)),
        ],
    )
    def it_counts_days_that_no_tree_can_have_as_the_nearest_that_it_can(
        self, days: int, default_now: tuple[int, int], main_now: tuple[int, int], runners: Runners
    ) -> None:
        """A server stores any number. What HEADs hold never expires, and what no walk of main reaches is not
        kept by main's days."""
        dangling = Snapshot("e", 90, ("a",), (entry("z", "data/z", 9),))
        history = History((*LINE, dangling), {"main": "d"})
        found = run(History(LINE, {"main": "d"}), CurveRequest(GcRules(days), NOW), runners, listing=False)
        assert tuple(found["curves"][0]["now"].values()) == default_now
        found = run(history, CurveRequest(GcRules(1, {"main": days}), NOW), runners, listing=False)
        main = found["curves"][1]
        expected = main_now if days > 0 else (main_now[0] + 1, main_now[1] + 9)
        assert tuple(main["now"].values()) == expected
        assert not any(point["at_risk"]["objects"] for point in main["server"])

    def it_says_what_goes_when_if_nobody_writes(self, runners: Runners) -> None:
        request = CurveRequest(GcRules(7), NOW, horizon_days=5)
        horizon = run(History(LINE, {"main": "d"}), request, runners, listing=False)["horizon"]
        assert horizon["gone_now"] == {"objects": 1, "size_bytes": 100}  # a went when b was 7 days old
        # b is kept until c is 7 days old, in 1.5 days; c until d is, in 5.5
        assert [(d["day"], d["objects"], d["size_bytes"]) for d in horizon["days_with_losses"]] == [
            (2, 1, 30)
        ]
        assert horizon["total"] == {"objects": 1, "size_bytes": 30}
        assert horizon["later_or_never"] == {"objects": 2, "size_bytes": 11}

    def it_keeps_what_is_staged_or_young_and_counts_garbage_apart(self, runners: Runners) -> None:
        stored = {
            "data/1": Stored(100, 0.5),
            "data/2": Stored(30),
            "data/3": Stored(4),
            "data/junk": Stored(9),
        }
        history = History(LINE, {"main": "d"}, stored, staged=["data/3"])
        found = run(history, CurveRequest(GcRules(7), NOW), runners)
        assert found["never_committed"] == {"objects": 1, "size_bytes": 9}
        assert found["committed"] == {"objects": 1, "size_bytes": 30}  # 1 is young, 3 staged, keep not stored
        assert [goes(found["curves"][0], n)[0] for n in (0, 5, 6)] == [1, 1, 0]

    def it_forecasts_what_is_too_young_now(self, runners: Runners) -> None:
        stored = {"data/1": Stored(100, 0.5), "data/2": Stored(30, 0.2)}
        history = History(LINE, {"main": "d"}, stored, staged=[])
        found = run(history, CurveRequest(GcRules(7), NOW, horizon_days=5), runners)
        assert found["committed"]["objects"] == found["horizon"]["gone_now"]["objects"] == 0
        assert [(d["day"], d["size_bytes"]) for d in found["horizon"]["days_with_losses"]] == [
            (1, 100),  # expired, and old enough in half a day
            (2, 30),
        ]

    def it_says_what_was_written_too_early(self, runners: Runners, tmp_path: Path) -> None:
        history = History(LINE, {"main": "d"}, {}, staged=["data/3"], staged_age=1.5)
        namespace = open_namespace(write_namespace(tmp_path / "ns", history))
        at = NOW.timestamp() - 2 * 86400
        os.utime(tmp_path / "ns" / REFS_MANIFEST_KEY, (at, at))
        request = CurveRequest(GcRules(7), NOW)
        for listing, told in ((True, 2), (False, 0)):
            given_ = of_namespace(request, namespace, listing=listing, max_uncommitted_age_seconds=2 * 86400)
            notes = curve(request, given_, runners, Silent())["warnings"]
            assert sum("older than the minimum age" in note for note in notes) == told

    def it_has_nothing_to_say_of_a_repository_that_holds_nothing(self, runners: Runners) -> None:
        found = run(History((Snapshot("a", 3),), {"main": "a"}), CurveRequest(GcRules(7), NOW), runners)
        assert found["curves"][0]["points"] == [{"days": 0, "objects": 0, "size_bytes": 0}]


def test_a_damaged_range_gives_its_error_and_no_curve(runners: Runners, tmp_path: Path) -> None:
    url = write_namespace(tmp_path / "ns", History(LINE, {"main": "d"}))
    broken = next(
        p for p in (tmp_path / "ns" / "_lakefs").iterdir() if p.is_file() and b"data/1" in p.read_bytes()
    )
    broken.write_bytes(broken.read_bytes()[:-1])
    request = CurveRequest(GcRules(7), NOW)
    with pytest.raises(FormatError, match=broken.name):
        curve(request, of_namespace(request, open_namespace(url)), runners, Silent())


def test_more_points_than_one_pass_can_ask_are_refused(runners: Runners) -> None:
    request = CurveRequest(GcRules(7), NOW, points=tuple(range(1, 70)))
    with pytest.raises(UsageError, match=r"the curves would have \d+ points"):
        run(History(LINE, {"main": "d"}), request, runners)


@st.composite
def histories(draw: st.DrawFn) -> History:
    size = draw(st.integers(1, 7))
    keys = [f"data/{n}" for n in range(8)]
    commits = []
    for n in range(size):
        parents = (f"c{draw(st.integers(0, n - 1))}",) if n and draw(st.integers(0, 3)) else ()
        held = draw(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(keys)), max_size=5))
        entries = {f"{at}/{key[5:]}": entry(f"{at}/{key[5:]}", key, 1 + int(key[5:])) for at, key in held}
        if draw(st.booleans()):
            entries["d/full"] = full("d/full", f"{SERVER_URL}/data/0", 1)
        age = draw(st.integers(0, 12)) + draw(st.sampled_from([0, 0, 0.25, 0.5]))
        commits.append(Snapshot(f"c{n}", age, parents, tuple(entries.values())))
    branches = draw(
        st.dictionaries(st.sampled_from(["main", "dev"]), st.integers(0, size - 1).map(lambda n: f"c{n}"))
    )
    stored = {key: Stored(1 + int(key[5:])) for key in draw(st.lists(st.sampled_from(keys), unique=True))}
    staged = draw(st.lists(st.sampled_from(keys), max_size=1))
    return History(commits, branches, stored, staged or None)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.integers(1, 14), st.booleans(), st.data())
def test_every_day_of_every_curve_is_what_the_reference_says(
    runners: Runners, history: History, default: int, listing: bool, data: st.DataObject
) -> None:
    own = {b: data.draw(st.integers(1, 14)) for b in history.branches}
    rules = GcRules(default, own if data.draw(st.booleans()) else {})
    horizon = 6
    request = CurveRequest(rules, NOW, points=(1, 3, 5, 9), horizon_days=horizon)
    found = run(history, request, runners, listing=listing)
    for curve_ in found["curves"]:
        varied = Varied(curve_["branch_id"])
        asked = {p["days"]: p for p in curve_["server"]}
        for days in range(16):
            reference = Reference(history, varied.at(rules, days), listing=listing, url_known=True)
            assert goes(curve_, days) == _gone(reference, documented=True), days
            if days in asked:
                point = asked[days]
                assert (point["objects"], point["size_bytes"]) == _gone(reference, documented=False), days
    later = found["horizon"]
    gone_now, by_day = (
        later["gone_now"]["objects"],
        {d["day"]: d["objects"] for d in later["days_with_losses"]},
    )
    for day in range(horizon + 1):
        aged = replace(
            history,
            commits=[replace(c, age=c.age + day) for c in history.commits],
            stored={key: replace(one, age=one.age + day) for key, one in history.stored.items()},
        )
        reference = Reference(aged, rules, listing=listing, url_known=True)
        so_far = gone_now + sum(objects for n, objects in by_day.items() if n <= day)
        assert so_far == _gone(reference, documented=True)[0], day


def _gone(reference: Reference, *, documented: bool) -> tuple[int, int]:
    """(objects, bytes) that commits held and that go, by the documented rule or by the server's walk."""
    judged = copy.copy(reference)
    if documented:
        judged.server = {name for name, keepers in judged.keepers.items() if keepers}
    sizes = [int(str(o["size_bytes"])) for o in judged.answer().objects if o["reason"] == "expired"]
    return len(sizes), sum(sizes)

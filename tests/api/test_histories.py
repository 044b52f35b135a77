"""Verdicts for scripts: the engine's, with moments as datetimes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from lakeplan.api import judge, read_entries, read_refs
from lakeplan.errors import LakeplanError, StorageNotFound, UsageError
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import GcRules
from tests.simulation.namespaces import NOW, History, Snapshot, entry, write_namespace

UTC = timezone.utc


def commit(id: str, age_days: float, *parents: str) -> Commit:
    return Commit(id, int((NOW - timedelta(days=age_days)).timestamp()) * 1_000_000, "", parents)


def refs(*commits: Commit, **branches: str) -> Refs:
    return Refs(commits, tuple(Branch(b, c) for b, c in branches.items()), ())


class DescribeJudge:
    def it_keeps_a_head_without_end(self) -> None:
        (found,) = judge(refs(commit("a", 900), main="a"), GcRules(7), NOW).values()
        assert (found.server, found.documented, found.branches) == (True, True, ("main",))
        assert found.kept_until is None

    def it_says_when_a_commit_goes_and_when_it_went(self) -> None:
        history = refs(commit("a", 90), commit("b", 40, "a"), commit("c", 3, "b"), main="c")
        found = judge(history, GcRules(7), NOW)
        last = timedelta(microseconds=1)
        assert found["b"].kept_until == NOW - timedelta(days=3) + timedelta(days=7) - last
        assert found["a"].kept_until == NOW - timedelta(days=40) + timedelta(days=7) - last
        assert [found[id].documented for id in "abc"] == [False, True, True]

    def it_has_a_moment_for_any_number_of_days(self) -> None:
        history = refs(commit("a", 90), commit("b", 40, "a"), main="b")
        for days in (-(2**31), 0, 2**31 - 1):
            found = judge(history, GcRules(days), NOW)["a"].kept_until
            assert found is not None
            assert datetime.min.replace(tzinfo=UTC) <= found <= datetime.max.replace(tzinfo=UTC)

    @pytest.mark.parametrize("days", [float("nan"), 7.5, "7", None, 2**40])
    def it_refuses_days_that_no_server_stores(self, days: Any) -> None:
        history = refs(commit("a", 90), commit("b", 40, "a"), main="b")
        for rules in (GcRules(days), GcRules(7, {"main": days})):
            with pytest.raises(UsageError, match="invalid GC rules: "):
                judge(history, rules, NOW)

    def it_takes_integers_of_numpy(self) -> None:
        history = refs(commit("a", 90), commit("b", 40, "a"), main="b")
        rules = GcRules(cast(int, np.int64(7)), {"main": cast(int, np.int32(60))})
        assert judge(history, rules, NOW) == judge(history, GcRules(7, {"main": 60}), NOW)

    def it_refuses_a_history_that_lacks_a_head(self) -> None:
        with pytest.raises(LakeplanError, match="HEAD gone of branch main is missing"):
            judge(refs(commit("a", 1), main="gone"), GcRules(7), NOW)


class DescribeNamespace:
    def it_gives_the_objects_of_a_commit_in_order(self, tmp_path: Path) -> None:
        held = (entry("a", "data/x/1", 5), entry("b", "data/x/2", 6))
        url = write_namespace(tmp_path, History([Snapshot("one", 3, (), held)], {"main": "one"}))
        (found,) = read_refs(url).commits
        assert [(e.path, e.address, e.size) for e in read_entries(url, found)] == [
            ("a", "data/x/1", 5),
            ("b", "data/x/2", 6),
        ]

    def it_gives_none_for_a_first_commit(self, tmp_path: Path) -> None:
        assert list(read_entries(tmp_path.as_uri(), commit("first", 1))) == []

    def it_names_a_namespace_without_a_dump(self, tmp_path: Path) -> None:
        with pytest.raises(StorageNotFound, match="no refs dump"):
            read_refs(tmp_path.as_uri())

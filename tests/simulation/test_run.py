"""Whole runs over small namespaces, compared with a reference that is as simple as possible."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeplan.errors import FormatError, LakeplanError, StorageNotFound, UsageError
from lakeplan.simulation.cache import FolderCache, RangeCache
from lakeplan.simulation.documents import SimulateRequest
from lakeplan.simulation.output import TABLES, schema_of
from lakeplan.simulation.run import simulate
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.verdicts import RuleSet
from lakeplan.stores.open import open_namespace
from lakeplan.values.progress import Silent
from lakeplan.values.repository import Entry
from lakeplan.values.rules import GcRules
from tests.simulation.namespaces import (
    NOW,
    SERVER_URL,
    History,
    Snapshot,
    Stored,
    commit_id,
    entry,
    full,
    range_with,
    write_namespace,
)
from tests.simulation.reference import Answer, Reference


@dataclass
class Result:
    summary: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]

    def addresses(self, rule_set: str | None = None) -> list[str]:
        rows = self.tables["objects"]
        return sorted(r["address"] for r in rows if rule_set is None or r["rule_set"] == rule_set)

    def object(self, address: str) -> dict[str, Any]:
        return next(row for row in self.tables["objects"] if row["address"] == address)


def run(
    history: History,
    options: Runners,
    *rules: GcRules,
    folder: Path | None = None,
    listing: bool = True,
    storage_namespace: str | None = SERVER_URL,
    cache: RangeCache | None = None,
    **more: Any,
) -> Result:
    with tempfile.TemporaryDirectory() as fresh:
        root = (folder or Path(fresh)) / "ns"
        url = write_namespace(root, history)
        output = Path(fresh) / "out"
        names = ("rules", "compare")
        request = SimulateRequest(
            tuple(RuleSet(names[n], each) for n, each in enumerate(rules)),
            as_of=NOW,
            listing=listing,
            storage_namespace=storage_namespace,
            output=output,
            **more,
        )
        summary = simulate(request, open_namespace(url), options, Silent(), cache)
        tables = {}
        for name, columns in TABLES.items():
            table = pq.read_table(output / name)
            assert kinds(table.schema) == kinds(schema_of(columns, with_rule_set=len(rules) > 1)), name
            tables[name] = table.to_pylist()
        assert sorted(p.name for p in output.iterdir()) == sorted([*TABLES, "summary.json"])
        return Result(summary, tables)


def kinds(table: pa.Schema) -> list[tuple[str, str]]:
    """Names and types of columns in order; Parquet writers name the elements of lists as they like."""
    return [(f.name, str(f.type).replace(" not null", "").replace("item:", "element:")) for f in table]


def rows_of(result: Result, table: str, rule_set: str | None = None) -> list[dict[str, Any]]:
    key = TABLES[table][0].name
    rows = [r for r in result.tables[table] if rule_set is None or r["rule_set"] == rule_set]
    return sorted(rows, key=lambda row: row[key])


def assert_same(result: Result, answer: Answer, rule_set: str | None = None) -> None:
    dropped = ("creation_date", "kept_until", "rule_set")
    for table in TABLES:
        found = [
            {k: v for k, v in row.items() if k not in dropped} for row in rows_of(result, table, rule_set)
        ]
        assert found == getattr(answer, table), table


MAIN_7 = GcRules(7)


def one_branch(*commits: Snapshot, **more: Any) -> History:
    return History(commits, {"main": commits[-1].name}, **more)


class DescribeWhatGoes:
    def it_lets_go_what_only_expired_commits_hold(self, runners: Runners) -> None:
        history = one_branch(
            Snapshot("a", 60, (), (entry("x/1", "data/p/1", 5), entry("x/2", "data/p/2"))),
            Snapshot("b", 50, ("a",), (entry("x/2", "data/p/2"),)),
            Snapshot("c", 40, ("b",), (entry("x/2", "data/p/2"),)),
            stored={"data/p/1": Stored(5), "data/p/2": Stored()},
            staged=[],
        )
        result = run(history, runners, MAIN_7)
        assert result.addresses() == ["data/p/1"]
        row = result.object("data/p/1")
        assert row["reason"] == "expired"
        assert row["paths"] == ["x/1"]
        assert row["size_bytes"] == 5
        assert not row["at_risk"]

    def it_keeps_an_object_that_a_kept_commit_holds_under_another_path(self, runners: Runners) -> None:
        history = one_branch(
            Snapshot("a", 60, (), (entry("old/name", "data/p/1"),)),
            Snapshot("b", 50, ("a",), ()),
            Snapshot("c", 40, ("b",), (entry("copy/name", "data/p/1"),)),
            stored={"data/p/1": Stored()},
        )
        assert run(history, runners, MAIN_7).addresses() == []

    def it_counts_a_full_address_inside_the_namespace_as_relative(self, runners: Runners) -> None:
        history = one_branch(
            Snapshot("a", 60, (), (entry("old", "data/p/1"), full("gone", f"{SERVER_URL}/data/p/2"))),
            Snapshot("b", 50, ("a",), ()),
            Snapshot("c", 40, ("b",), (full("linked", f"{SERVER_URL}/data/p/1"),)),
            stored={"data/p/1": Stored(), "data/p/2": Stored()},
        )
        result = run(history, runners, MAIN_7)
        assert result.addresses() == ["data/p/2"]
        assert result.object("data/p/2")["reason"] == "expired"

    def it_never_counts_addresses_outside(self, runners: Runners) -> None:
        history = one_branch(
            Snapshot("a", 60, (), (full("in", "s3://elsewhere/in"), full("in2", f"{SERVER_URL}-2/data/p/1"))),
            Snapshot("b", 50, ("a",), ()),
            Snapshot("c", 40, ("b",), ()),
            stored={},
        )
        result = run(history, runners, MAIN_7, listing=False)
        assert result.addresses() == []
        assert result.summary["rule_sets"][0]["objects"]["kept"]["objects"] == 0

    def it_keeps_what_may_be_meant_by_a_full_address_elsewhere(self, runners: Runners) -> None:
        history = one_branch(
            Snapshot("a", 40, (), (full("x", "s3://any/where/data/p/1"), full("y", "s3://any/ns/oldkey"))),
            stored={"data/p/1": Stored(), "oldkey": Stored(), "data/p/3": Stored()},
        )
        result = run(history, runners, MAIN_7, storage_namespace=None)
        assert result.addresses() == ["data/p/3"]
        assert result.summary["rule_sets"][0]["objects"]["protected_by_alias"]["objects"] == 2
        assert any("--storage-namespace" in warning for warning in result.summary["warnings"])

    def it_keeps_staged_and_young_objects_and_lets_strays_go(self, runners: Runners) -> None:
        stored = {
            "data/p/staged": Stored(),
            "data/p/young": Stored(age=0.5),
            "data/p/stray": Stored(7),
            "stray-at-the-root": Stored(),
            "other/place": Stored(),
            "data/direct": Stored(),
        }
        history = one_branch(Snapshot("a", 1, (), ()), stored=stored, staged=["data/p/staged"])
        result = run(history, runners, MAIN_7)
        assert result.addresses() == ["data/direct", "data/p/stray", "stray-at-the-root"]
        assert {row["reason"] for row in result.tables["objects"]} == {"never_committed"}
        assert result.object("data/p/stray")["last_commit_id"] is None
        assert result.object("data/p/stray")["paths"] == []
        objects = result.summary["rule_sets"][0]["objects"]
        assert objects["kept_uncommitted"]["objects"] == 1
        assert objects["kept_young"]["objects"] == 1

    def it_takes_exactly_the_minimum_age_as_too_young(self, runners: Runners) -> None:
        history = one_branch(
            Snapshot("a", 1, (), ()), stored={"data/p/1": Stored(age=1.0), "data/p/2": Stored(age=1.0001)}
        )
        assert run(history, runners, MAIN_7).addresses() == ["data/p/2"]

    def it_says_at_most_without_a_listing(self, runners: Runners) -> None:
        history = one_branch(
            Snapshot("a", 60, (), (entry("x", "data/p/1", 9),)),
            Snapshot("b", 50, ("a",), ()),
            Snapshot("c", 40, ("b",), ()),
            stored={"data/p/stray": Stored()},
        )
        result = run(history, runners, MAIN_7, listing=False)
        assert result.addresses() == ["data/p/1"]
        assert result.object("data/p/1")["size_bytes"] == 9
        assert result.summary["at_most"] is True

    def it_marks_at_risk_what_the_servers_early_stop_loses(self, runners: Runners) -> None:
        # main's HEAD sorts before the feature's: its walk visits P and stops the other one there
        commits = (
            Snapshot("p", 30, (), (entry("f", "data/p/1"),)),
            Snapshot("a-main", 20, ("p",), ()),
            Snapshot("z-feature", 2, ("p",), ()),
        )
        history = History(commits, {"feature": "z-feature", "main": "a-main"}, {"data/p/1": Stored()})
        result = run(history, runners, GcRules(7, {"main": 15}))
        assert result.addresses() == ["data/p/1"]
        assert result.object("data/p/1")["at_risk"] is True

    def it_judges_two_rule_sets_in_one_run(self, runners: Runners) -> None:
        history = one_branch(
            Snapshot("a", 60, (), (entry("x", "data/p/1"),)),
            Snapshot("b", 50, ("a",), ()),
            Snapshot("c", 1, ("b",), ()),
            stored={"data/p/1": Stored()},
        )
        result = run(history, runners, MAIN_7, GcRules(90))
        assert result.addresses("rules") == ["data/p/1"]
        assert result.addresses("compare") == []
        for table, columns in TABLES.items():
            for row in result.tables[table]:
                assert list(row) == [*(c.name for c in columns), "rule_set"]

    def it_counts_an_object_once_for_each_distinct_prefix(self, runners: Runners) -> None:
        deep = "a/b/c/d/e/f/g"
        held = tuple(
            sorted((entry(p, "data/p/1", 3) for p in (deep, "a/b/x", "top", "a//y")), key=lambda e: e.path)
        )
        history = one_branch(
            Snapshot("a", 60, (), held), Snapshot("b", 50, ("a",), ()), Snapshot("c", 40, ("b",), ())
        )
        rows = rows_of(run(history, runners, MAIN_7, listing=False), "prefixes")
        assert [(r["prefix"], r["depth"], r["objects"], r["size_bytes"]) for r in rows] == [
            ("", 0, 1, 3),
            ("a/", 1, 1, 3),
            ("a//", 2, 1, 3),
            ("a/b/", 2, 1, 3),
            ("a/b/c/", 3, 1, 3),
            ("a/b/c/d/", 4, 1, 3),
            ("a/b/c/d/e/", 5, 1, 3),
        ]

    def it_says_when_the_documented_rule_lets_a_commit_go(self, runners: Runners) -> None:
        history = one_branch(Snapshot("a", 20), Snapshot("b", 10, ("a",)), Snapshot("c", 5, ("b",)))
        rows = rows_of(run(history, runners, GcRules(30)), "commits")
        by_age = [(NOW - row["kept_until"]).days if row["kept_until"] else None for row in rows]
        assert by_age == [-20, -25, None]  # a goes when b is 30 days old, b when c is; c is the HEAD


class DescribeStagedData:
    def it_says_when_no_run_is_at_hand(self, runners: Runners) -> None:
        result = run(one_branch(Snapshot("a", 1)), runners, MAIN_7)
        assert result.summary["uncommitted"] == {"run_id": None, "created": None, "files": 0}
        assert any("uncommitted" in warning for warning in result.summary["warnings"])

    def it_refuses_a_run_that_is_too_old_unless_told(self, runners: Runners) -> None:
        history = one_branch(Snapshot("a", 1), staged=["data/p/1"], staged_age=1.5)
        with pytest.raises(LakeplanError, match=r"1 day, 12:00:00 old"):
            run(history, runners, MAIN_7)
        result = run(history, runners, MAIN_7, max_uncommitted_age_seconds=2 * 86400)
        assert any("became uncommitted after" in text for text in result.summary["warnings"])
        assert result.summary["uncommitted"]["files"] == 1


class DescribeWhatCannotBeRead:
    def it_names_a_range_that_is_damaged(self, runners: Runners, tmp_path: Path) -> None:
        history = one_branch(Snapshot("a", 1, (), (entry("x", "data/p/1"),)))
        url = write_namespace(tmp_path / "ns", history)
        damaged = range_with(tmp_path / "ns", b"data/p/1")
        data = bytearray(damaged.read_bytes())
        data[10] ^= 1
        damaged.write_bytes(data)
        request = SimulateRequest((RuleSet("rules", MAIN_7),), NOW, output=tmp_path / "out")
        with pytest.raises(FormatError) as error:
            simulate(request, open_namespace(url), runners, Silent())
        assert damaged.name in str(error.value)
        assert not (tmp_path / "out").exists()

    def it_names_a_range_that_is_missing(self, runners: Runners, tmp_path: Path) -> None:
        history = one_branch(Snapshot("a", 1, (), (entry("x", "data/p/1"),)))
        url = write_namespace(tmp_path / "ns", history)
        missing = range_with(tmp_path / "ns", b"data/p/1")
        missing.unlink()
        with pytest.raises(StorageNotFound, match=missing.name):
            simulate(
                SimulateRequest((RuleSet("rules", MAIN_7),), NOW), open_namespace(url), runners, Silent()
            )

    def it_names_branches_whose_heads_the_dump_lacks(self, runners: Runners) -> None:
        history = History((Snapshot("a", 1),), {"main": "a", "new": "later"})
        with pytest.raises(LakeplanError, match=rf"1 of its branches: new \({commit_id('later')}\)"):
            run(history, runners, MAIN_7)

    def it_says_when_there_is_no_refs_dump(self, runners: Runners, tmp_path: Path) -> None:
        (tmp_path / "ns").mkdir()
        request = SimulateRequest((RuleSet("rules", MAIN_7),), NOW)
        with pytest.raises(StorageNotFound, match="has no refs dump"):
            simulate(request, open_namespace(f"file://{tmp_path / 'ns'}"), runners, Silent())

    def it_does_not_touch_a_folder_that_is_not_its_own(self, runners: Runners, tmp_path: Path) -> None:
        url = write_namespace(tmp_path / "ns", one_branch(Snapshot("a", 1)))
        output = tmp_path / "mine"
        output.mkdir()
        (output / "letter.txt").write_text("dear")
        for overwrite in (False, True):
            request = SimulateRequest((RuleSet("rules", MAIN_7),), NOW, output=output, overwrite=overwrite)
            with pytest.raises(UsageError):
                simulate(request, open_namespace(url), runners, Silent())
        assert (output / "letter.txt").read_text() == "dear"

    def it_replaces_its_own_results_when_told(self, runners: Runners, tmp_path: Path) -> None:
        url = write_namespace(tmp_path / "ns", one_branch(Snapshot("a", 1)))
        output = tmp_path / "out"
        for overwrite in (False, True):
            request = SimulateRequest((RuleSet("rules", MAIN_7),), NOW, output=output, overwrite=overwrite)
            simulate(request, open_namespace(url), runners, Silent())
        assert sorted(p.name for p in tmp_path.iterdir()) == ["ns", "out"]


# Random histories -------------------------------------------------------------------------------------

KEYS = [f"data/p{n % 2}/o{n}" for n in range(8)] + ["oldroot"]
PATHS = ["a", "a/1", "a/b/2", "b/3", "b/c/d/e/f/g/4", "c"]


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    key = draw(st.sampled_from(KEYS))
    path = draw(st.sampled_from(PATHS))
    size = len(key)
    kind = draw(st.sampled_from(["relative"] * 5 + ["full", "outside", "neighbour"]))
    if kind == "full":
        return full(path, f"{SERVER_URL}/{key}", size)
    if kind == "outside":
        return full(path, f"s3://imports/{path}", size)
    if kind == "neighbour":
        return full(path, f"{SERVER_URL}-2/x{key}", size)
    return entry(path, key, size)


@st.composite
def histories(draw: st.DrawFn) -> History:
    count = draw(st.integers(2, 9))
    names = draw(st.permutations([f"{n:02d}" for n in range(count)]))
    commits: list[Snapshot] = []
    for n, name in enumerate(names):
        parents: tuple[str, ...] = ()
        held: dict[str, Entry] = {}
        if n and draw(st.integers(0, 9)):
            parent = commits[draw(st.integers(max(0, n - 3), n - 1))]
            parents, held = (parent.name,), {e.path: e for e in parent.entries}
        for path in draw(st.lists(st.sampled_from(PATHS), max_size=3)):
            held.pop(path, None)
        held |= {e.path: e for e in draw(st.lists(entries(), max_size=4))}
        age = draw(st.integers(1, 300)) / 10 + (count - n)
        commits.append(Snapshot(name, age, parents, tuple(held.values())))
    branches = {
        name: draw(st.sampled_from(names[-4:])) for name in draw(st.sets(st.sampled_from("wxyz"), min_size=1))
    }
    stored = {
        key: Stored(len(key), draw(st.sampled_from([0.5, 5.0])))
        for key in draw(st.lists(st.sampled_from([*KEYS, "data/p0/stray"]), unique=True))
    }
    staged = draw(st.none() | st.lists(st.sampled_from(KEYS), max_size=2, unique=True))
    return History(commits, branches, stored, staged)


rule_sets = st.builds(
    GcRules, st.integers(0, 30), st.dictionaries(st.sampled_from("wxyz"), st.integers(0, 40), max_size=3)
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), rule_sets, rule_sets, st.booleans(), st.booleans())
def test_runs_answer_as_the_reference_does(
    runners: Runners, history: History, rules: GcRules, other: GcRules, listing: bool, url_known: bool
) -> None:
    url = SERVER_URL if url_known else None
    result = run(history, runners, rules, other, listing=listing, storage_namespace=url)
    for name, each in (("rules", rules), ("compare", other)):
        reference = Reference(history, each, listing=listing, url_known=url_known)
        assert_same(result, reference.answer(), name)
        summary = next(r for r in result.summary["rule_sets"] if r["name"] == name)
        objects = rows_of(result, "objects", name)
        assert summary["objects"]["goes"] == {
            "objects": len(objects),
            "size_bytes": sum(row["size_bytes"] for row in objects),
        }
        assert summary["objects"]["at_risk"]["objects"] == sum(row["at_risk"] for row in objects)
        kept = {row["commit_id"] for row in rows_of(result, "commits", name) if row["active"]}
        assert summary["commits"]["active"] == len(kept)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), rule_sets, rule_sets, st.booleans(), st.booleans())
def test_a_cache_changes_no_row(
    runners: Runners, history: History, rules: GcRules, other: GcRules, listing: bool, url_known: bool
) -> None:
    """Empty, filled for other rules, full, and damaged."""
    url = SERVER_URL if url_known else None
    with tempfile.TemporaryDirectory() as folder:
        # found at the same URL each time, so that the namespace is the same
        root, cache = Path(folder), FolderCache(f"{folder}/cache", 10**9)
        for turn, asked in enumerate(([rules], [other], [rules, other], [rules, other])):
            if turn == 3:
                damage(root / "cache")
            result = run(
                history,
                runners,
                *asked,
                folder=root,
                listing=listing,
                storage_namespace=url,
                cache=cache,
            )
            shutil.rmtree(root / "ns")
            for name, each in zip(("rules", "compare"), asked, strict=False):
                reference = Reference(history, each, listing=listing, url_known=url_known)
                assert_same(result, reference.answer(), name if len(asked) > 1 else None)


def damage(folder: Path) -> None:
    """Every file of a cache, each another way."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    whole = [path.read_bytes() for path in paths]
    for n, (path, data) in enumerate(zip(paths, whole, strict=True)):
        middle = len(data) // 2
        changed = data[:middle] + bytes((data[middle] ^ 0x40,)) + data[middle + 1 :]
        path.write_bytes((changed, data[:-1], whole[n - 1], b"")[n % 4])

"""Explanations of random namespaces against the plain reference of the simulation."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.cli.commands.explain import NamespaceOptions
from lakeplan.errors import LakeplanError, PermissionDenied
from lakeplan.explain.explain import Known, Question, World, explain
from lakeplan.explain.search import BranchStaging
from lakeplan.formats.namespace import REFS_MANIFEST_KEY, Addresses, is_candidate_key
from lakeplan.simulation.inputs import read_refs_dump
from lakeplan.stores.open import open_namespace
from lakeplan.values.progress import Silent
from lakeplan.values.rules import GcRules
from lakeplan.values.sweep import HeldCommit, Hold
from tests.explain.asking import explain_addresses
from tests.simulation.namespaces import (
    NOW,
    SERVER_URL,
    History,
    Snapshot,
    Stored,
    commit_id,
    entry,
    full,
    write_namespace,
)
from tests.simulation.reference import Reference
from tests.simulation.test_run import histories, rule_sets

GOES = {"expired", "at_risk", "never_committed"}


def world_of(folder: Path, history: History, rules: GcRules, *, url_known: bool = False) -> World:
    file = folder / "rules.json"
    file.write_text(json.dumps(rules.to_body()))
    options = NamespaceOptions(rules=file, storage_namespace=SERVER_URL if url_known else None)
    return options.world(write_namespace(folder / "ns", history), NOW)


@given(histories(), rule_sets, st.booleans())
@settings(max_examples=60, deadline=None)
def it_says_of_every_object_what_the_reference_says(
    history: History, rules: GcRules, url_known: bool
) -> None:
    answer = Reference(history, rules, listing=True, url_known=url_known).answer()
    rows = {str(row["address"]): row for row in answer.objects}
    stored = sorted(key for key in history.stored if is_candidate_key(key))
    with tempfile.TemporaryDirectory() as folder:
        world = world_of(Path(folder), history, rules, url_known=url_known)
        said = explain_addresses(world, stored)
        for subject in said:
            status, row = subject["verdicts"][0]["status"], rows.get(subject["address"])
            assert (status in GOES) == (row is not None), subject
            if row is not None:
                assert status == ("at_risk" if row["at_risk"] else row["reason"])
                assert subject["paths"] == row["paths"]
        for subject in [s for s in said if s["paths"]][:2]:
            made = explain(world, Question(subject["paths"][0], kind="path"), Silent())
            found = [s for s in made["subjects"] if s["address"] == subject["address"]]
            # Under an alias the path holds another address, which may mean this one.
            assert found or url_known is False
            for one in found:
                assert one["verdicts"][0]["status"] == subject["verdicts"][0]["status"]


COPIED = History(
    commits=(
        Snapshot("a", 100, entries=(entry("x", "data/x"), full("o", "s3://imports/o"))),
        Snapshot("b", 90, ("a",), (entry("y", "data/y"),)),
        Snapshot("c", 1, ("b",), (entry("copy", "data/x"),)),
    ),
    branches={"main": "c"},
    stored={"data/x": Stored(), "data/y": Stored(), "data/stray": Stored(), "data/young": Stored(age=0.1)},
)


def asked(folder: Path, text: str, **options: Any) -> Any:
    folder = Path(tempfile.mkdtemp(dir=folder))
    return explain(world_of(folder, COPIED, GcRules(10)), Question(text, **options), Silent())


def it_finds_what_keeps_an_object_under_another_path(tmp_path: Path) -> None:
    document = asked(tmp_path, "x")
    assert document["subjects"][0]["verdicts"][0]["status"] == "kept"
    assert document["subjects"][0]["paths"] == ["copy", "x"]
    only = asked(tmp_path, "x", path_only=True)
    assert only["subjects"][0]["verdicts"][0]["status"] == "expired"
    assert any("other paths were not searched" in note for note in only["notes"])


@pytest.mark.parametrize(
    "known",
    [
        Known(protected_tags=("v*",)),
        Known(holds=(Hold("tag", "v1"),)),
        Known(holds=(Hold("prefix", "legal/"),)),
        Known(newest={"main": frozenset({1})}),
        Known(recorded=(HeldCommit("branch", "gone", commit_id("c")),)),
        Known(recorded=(HeldCommit("prefix", "legal/", ""),)),
    ],
    ids=["protected tag", "hold on a tag", "hold on a prefix", "newest", "former branch", "former prefix"],
)
def it_finds_what_protects_an_object_under_another_path(tmp_path: Path, known: Known) -> None:
    commits = (
        Snapshot("a", 100, entries=(entry("x", "data/x"),)),
        Snapshot("b", 90, ("a",), (entry("legal/copy", "data/x"),)),
        Snapshot("c", 80, ("b",)),
        Snapshot("d", 1, ("c",)),
    )
    history = History(commits, {"main": "d"}, {"data/x": Stored()}, tags={"v1": "b"})
    world = world_of(tmp_path, history, GcRules(10))
    refs = read_refs_dump(open_namespace(f"file://{tmp_path}/ns"))[1]
    (found,) = explain(replace(world, known=replace(known, refs=refs)), Question("x", kind="path"), Silent())[
        "subjects"
    ]
    assert found["kind"] == "object"
    assert found["verdicts"][0]["status"] == "expired"
    assert len(found["protected_by"]) == 1


def it_says_what_was_written_too_early(tmp_path: Path) -> None:
    history = replace(COPIED, staged=["data/y"], staged_age=0.5)
    url, rules = write_namespace(tmp_path / "ns", history), tmp_path / "rules.json"
    rules.write_text(json.dumps(GcRules(10).to_body()))
    at = NOW.timestamp() - 86400
    os.utime(tmp_path / "ns" / REFS_MANIFEST_KEY, (at, at))
    for min_age, told in (("1h", 2), ("18h", 1), ("36h", 0)):
        world = NamespaceOptions(rules=rules, min_age=min_age).world(url, NOW)
        notes = explain(world, Question("data/stray", kind="address"), Silent())["notes"]
        assert sum("older than the minimum age" in note for note in notes) == told


def it_asks_what_an_address_may_mean_although_the_question_names_it_too(tmp_path: Path) -> None:
    commits = (
        Snapshot("a", 100, entries=(entry("x", "data/x"),)),
        Snapshot("b", 90, ("a",), (entry("x", "data//x"),)),
    )
    history = History(commits, {"main": "b"}, {"data/x": Stored(), "data//x": Stored()})
    world = world_of(tmp_path, history, GcRules(1))
    alone = explain_addresses(world, ["data/x"])
    both = explain_addresses(world, ["data/x", "data//x"])
    assert alone[0]["verdicts"][0]["status"] == "kept"
    assert both[0]["verdicts"][0]["status"] == "kept"


def it_reads_few_ranges_for_a_path_and_all_for_an_address(tmp_path: Path) -> None:
    assert asked(tmp_path, "copy")["read"]["ranges"] == 1
    assert asked(tmp_path, "data/x", kind="address")["read"]["ranges"] > 1


@pytest.mark.parametrize(
    ("text", "kind", "status"),
    [
        ("data/stray", "address", "never_committed"),
        ("data/young", "address", "young"),
        ("s3://imports/o", "address", "outside"),
        ("o", "path", "outside"),
    ],
)
def it_has_a_word_for_every_fate(tmp_path: Path, text: str, kind: Any, status: str) -> None:
    assert asked(tmp_path, text, kind=kind)["subjects"][0]["verdicts"][0]["status"] == status


def it_does_not_say_whether_an_object_outside_the_namespace_is_stored(tmp_path: Path) -> None:
    assert asked(tmp_path, "o", kind="path")["subjects"][0]["stored"] is None


def it_tells_what_is_kept_and_not_stored_from_what_was_collected(tmp_path: Path) -> None:
    history = History(COPIED.commits, COPIED.branches, {})
    world = world_of(tmp_path, history, GcRules(10))
    said = explain_addresses(world, ["data/x", "data/y"])
    assert [s["verdicts"][0]["status"] for s in said] == ["missing", "missing"]
    (tmp_path / "dangling").mkdir()
    dangling = world_of(tmp_path / "dangling", History(COPIED.commits[:2], {}), GcRules(10))
    said = explain_addresses(dangling, ["data/x"])
    assert [s["verdicts"][0]["status"] for s in said] == ["collected"]


def it_promises_nothing_of_an_address_that_may_lie_in_the_namespace(tmp_path: Path) -> None:
    history = History((Snapshot("a", 1, entries=(full("x", f"{SERVER_URL}/data/x"),)),), {"main": "a"})
    made = explain(world_of(tmp_path, history, GcRules(1)), Question("x"), Silent())
    assert made["subjects"][0]["verdicts"][0]["status"] == "unknown"
    assert any("--storage-namespace" in note for note in made["notes"])
    (tmp_path / "known").mkdir()
    known = world_of(tmp_path / "known", history, GcRules(1), url_known=True)
    assert explain(known, Question("x"), Silent())["subjects"][0]["address"] == "data/x"


def it_names_a_damaged_range(tmp_path: Path) -> None:
    world = world_of(tmp_path, COPIED, GcRules(10))
    for file in (tmp_path / "ns" / "_lakefs").iterdir():
        if file.is_file() and b"data/y" in file.read_bytes():
            file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(LakeplanError) as raised:
        explain(world, Question("y"), Silent())
    assert "range" in str(raised.value)


class Branches:
    """A server's staged changes, some of which may not be looked at."""

    def list_uncommitted(self, repository: str, branch: str, prefix: str = "") -> Any:
        if branch == "secret":
            raise PermissionDenied("no", where=repository)
        return iter(["a.csv", "a.csv2"]) if branch == "main" else iter(())

    def physical_address(self, repository: str, branch: str, path: str) -> str | None:
        return None if path == "a.csv2" else f"{SERVER_URL}/data/new"


def it_asks_branches_for_staged_data_and_says_what_it_could_not_see() -> None:
    staging = BranchStaging(Branches(), "r", ("dev", "main"), Addresses((SERVER_URL,)))
    found = staging.find([], ["a.csv"], None)
    assert found.holders == {"data/new": ("branch main",)}
    everywhere = staging.find(["data/new"], [], None)
    assert everywhere.complete
    blind = BranchStaging(Branches(), "r", ("main", "secret"), Addresses((SERVER_URL,)))
    unseen = blind.find([], [], None)
    assert not unseen.complete
    assert ", but not completely" in unseen.inspected

"""A check of damaged namespaces finds every loss, by branch, commit and path, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import jsonschema
import pytest

from lakeplan.errors import GateRefused, StorageError
from lakeplan.formats.namespace import (
    UNIFIED_PREFIX,
    mark_prefix,
    metadata_key,
    quarantine_prefix,
    sweep_prefix,
)
from lakeplan.formats.ranges import read_metarange
from lakeplan.review.selection import Selection
from lakeplan.simulation.checking import StepChecker
from lakeplan.simulation.runners import Runners
from lakeplan.state.sweeps import read_sweeps, record_purge
from lakeplan.sweep.check import ReadData, check_after, check_all, check_before, exit_code_of
from lakeplan.sweep.records import load_mark
from lakeplan.sweep.restore import RestoreOptions, restore
from lakeplan.sweep.service import purge_all, quarantines
from lakeplan.tree.schemas import load_schema
from lakeplan.values.simulation import Amount
from tests.sweeping.lake import LakeRepository
from tests.sweeping.stores import FaultyStore, raising
from tests.sweeping.world import SweepWorld

NOTHING = {"objects": 0, "size_bytes": 0}
EVERYTHING = Selection((), None, None)


def check(world: SweepWorld, *, share: float | None = None) -> dict[str, Any]:
    """The document, which is as its schema says. ``share`` of the data is read."""
    checker = StepChecker(Runners().open)
    read = None if share is None else ReadData(share, "seed")
    document = check_all(world.tree(), EVERYTHING, world.ports(), checker, read=read)
    made: dict[str, Any] = json.loads(json.dumps(document))
    jsonschema.Draft202012Validator(load_schema("check")).validate(made)
    bad = made["failed"] or not all(row["complete"] for row in made["repositories"])
    assert exit_code_of(document) == (3 if bad else 0)
    return made


def checked(world: SweepWorld, *, share: float | None = None) -> dict[str, Any]:
    """The result for the only repository."""
    document = check(world, share=share)
    assert document["failed"] == {}
    (row,) = document["repositories"]
    found: dict[str, Any] = row
    return found


def address_of(repo: LakeRepository, ref: str, path: str = "a.bin") -> str:
    answer = repo.call("GET", f"/refs/{ref}/objects/stat", params={"path": path}).json()
    return repo.relative(answer["physical_address"])


def it_says_that_everything_is_there(world: SweepWorld, repo: LakeRepository) -> None:
    row = checked(world)
    assert row["complete"]
    # the HEAD and the commit that was HEAD seven days ago
    assert (row["commits"]["heads"], row["commits"]["rules"]) == (1, 2)
    assert row["named"] == {"objects": 2, "size_bytes": len(b"third" + b"fourth")}
    assert row["missing"] == row["resized"] == row["outside"] == NOTHING
    assert (row["findings"], row["damaged"], row["quarantine"], row["holds"]) == ([], [], [], [])


def it_changes_nothing(world: SweepWorld, repo: LakeRepository) -> None:
    world.holds = [{"tag": "v*", "reason": "legal"}]
    (repo.folder / address_of(repo, "main")).unlink()
    checked(world)
    refs = {"_lakefs/refs_manifest.json"}

    def files() -> dict[str, int]:
        every = (f for f in repo.folder.rglob("*") if f.is_file())
        return {str(f.relative_to(repo.folder)): f.stat().st_mtime_ns for f in every}

    before = files()
    checked(world)
    assert {name for name, at in files().items() if before.get(name) != at} <= refs
    assert not (repo.folder / "_lakeplan").exists()


def it_names_an_object_that_is_missing(world: SweepWorld, repo: LakeRepository) -> None:
    address = address_of(repo, "main")
    (repo.folder / address).unlink()
    row = checked(world)
    assert row["missing"] == {"objects": 1, "size_bytes": 6}
    (found,) = row["findings"]
    head = repo.call("GET", "/branches/main").json()["commit_id"]
    assert found == {
        "problem": "missing",
        "branches": ["main"],
        "tags": [],
        "commit_id": head,
        "paths": ["a.bin"],
        "address": address,
        "size_bytes": 6,
        "stored_bytes": None,
        "named_by": ["head", "rules"],
        "collector_run": None,
        "quarantine": "",
    }


def it_leaves_alone_what_has_expired(world: SweepWorld, repo: LakeRepository) -> None:
    (repo.folder / address_of(repo, "main~3")).unlink()
    assert checked(world)["complete"]


@pytest.mark.parametrize("chosen", [{"min_commits": 4}, {"keep": {"daily": 4}}, {}], ids=str)
def it_requires_the_commits_of_pins_that_do_not_exist_yet(
    world: SweepWorld, repo: LakeRepository, chosen: dict[str, Any]
) -> None:
    """Sweeps keep them."""
    (repo.folder / address_of(repo, "main~3")).unlink()
    repo.tag("x1", "main~3")
    rule = {"branch_id": "main", "retention_days": 7, **chosen}
    world.gc = {"default_retention_days": 7, "branches": [rule]}
    if not chosen:
        world.pins = {"tags": ["x*"]}
    (found,) = checked(world)["findings"]
    assert found["named_by"] == (["rules", "tag"] if chosen else ["tag", "protected-tag"])
    with pytest.raises(GateRefused, match="1 object that commits need is missing"):
        check_before(world.site(), world.ports(), StepChecker(Runners().open))


@pytest.mark.parametrize("size", [0, 5, 7])
def it_names_an_object_of_another_size(world: SweepWorld, repo: LakeRepository, size: int) -> None:
    os.truncate(repo.folder / address_of(repo, "main"), size)
    row = checked(world)
    assert row["missing"] == NOTHING
    assert row["resized"] == {"objects": 1, "size_bytes": 6}
    (found,) = row["findings"]
    assert (found["problem"], found["size_bytes"], found["stored_bytes"]) == ("size", 6, size)


def it_is_not_complete_while_a_key_cannot_be_asked_for(world: SweepWorld, repo: LakeRepository) -> None:
    repo.stage("odd.bin", "data/x//y")
    repo.commit()
    row = checked(world)
    assert (row["unusual"], row["findings"], row["complete"]) == (1, [], False)


def it_names_a_tag_whose_commit_is_lost(world: SweepWorld, repo: LakeRepository) -> None:
    repo.tag("v9", "main~3")
    store = repo.lake.handle._sandbox.service.store
    with store.transaction():
        store.run("UPDATE tags SET commit_id = ?", "0" * 64)
    row = checked(world)
    assert not row["complete"]
    assert f"tag v9 references commit {'0' * 64}" in row["holds"][0]


def it_names_why_an_object_must_be_there(world: SweepWorld, repo: LakeRepository) -> None:
    repo.tag("v1", "main~3")
    repo.branch("old", "main~2")
    for ref in ("main~3", "main~2", "main~1"):
        (repo.folder / address_of(repo, ref)).unlink()
    rows = {tuple(row["named_by"]): row for row in checked(world)["findings"]}
    assert {by: (row["branches"], row["tags"]) for by, row in rows.items()} == {
        ("tag", "protected-tag"): (["main", "old"], ["v1"]),
        ("head", "rules"): (["old"], []),
        ("rules",): (["main"], []),
    }


def it_counts_every_commit_without_rules(world: SweepWorld, repo: LakeRepository) -> None:
    repo.call("DELETE", "/settings/gc_rules")
    (repo.folder / address_of(repo, "main~3")).unlink()
    row = checked(world)
    assert not row["rules"]
    (found,) = row["findings"]
    assert found["named_by"] == ["rules"]


@pytest.mark.parametrize(
    "hold",
    [{"commit": "main~3"}, {"tag": "v*"}, {"branch": "mai*"}, {"prefix": "a.b"}],
    ids=["commit", "tag", "branch", "prefix"],
)
def it_checks_what_a_hold_names(world: SweepWorld, repo: LakeRepository, hold: dict[str, str]) -> None:
    repo.tag("v1", "main~3")
    commits = repo.call("GET", "/refs/main/commits").json()["results"]
    world.holds = [
        {**{k: commits[3]["id"] if k == "commit" else v for k, v in hold.items()}, "reason": "legal"}
    ]
    assert checked(world)["complete"]
    (repo.folder / address_of(repo, "main~3")).unlink()
    (found,) = checked(world)["findings"]
    assert "hold" in found["named_by"]


def it_names_a_hold_that_names_nothing(world: SweepWorld, repo: LakeRepository) -> None:
    world.holds = [{"tag": "nowhere", "reason": "legal"}]
    row = checked(world)
    assert not row["complete"]
    assert "'nowhere' keeps nothing" in row["holds"][0]


def it_asks_again_before_it_reports(world: SweepWorld, repo: LakeRepository) -> None:
    """The listing of the store lacks an object for a while."""
    lacking = address_of(repo, "main")

    class Listing(FaultyStore):
        def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Any:
            found = self.store.list_objects(prefix, recursive=recursive)
            return (one for one in found if one.key != lacking)

    world.wrap = Listing
    row = checked(world)
    assert row["complete"]
    assert row["missing"] == NOTHING


def it_does_not_miss_what_was_committed_after_the_refs_were_read(
    world: SweepWorld, repo: LakeRepository
) -> None:
    class Late(FaultyStore):
        def list_prefixes(self, prefix: str = "") -> Any:
            if prefix == "data/":
                (repo.folder / repo.upload("late.bin", b"late")).unlink()
                repo.commit()
            return self.store.list_prefixes(prefix)

    world.wrap = Late
    assert checked(world)["complete"]


def it_fails_when_the_store_does_not_answer(world: SweepWorld, repo: LakeRepository) -> None:
    (repo.folder / address_of(repo, "main")).unlink()

    def deaf(store: Any) -> FaultyStore:
        faulty = FaultyStore(store)
        faulty.before = raising(StorageError("no answer"), on="stat")
        return faulty

    world.wrap = deaf
    document = check(world)
    assert document["repositories"] == []
    assert document["failed"]["prod/repo1"]["message"] == "no answer"


# ---- metadata
def damage(repo: LakeRepository, id: str, how: str) -> None:
    file = repo.folder / metadata_key(id)
    if how == "missing":
        file.unlink()
        return
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("how", ["missing", "corrupt"])
def it_names_a_damaged_metarange(world: SweepWorld, repo: LakeRepository, how: str) -> None:
    head = repo.call("GET", "/branches/main").json()["commit_id"]
    id = repo.call("GET", f"/commits/{head}").json()["meta_range_id"]
    damage(repo, id, how)
    row = checked(world)
    (found,) = row["damaged"]
    assert (found["kind"], found["id"], found["branches"]) == ("metarange", id, ["main"])
    assert (found["commit_id"], found["named_by"]) == (head, ["head", "rules"])
    assert row["named"]["objects"] == 1  # what was HEAD seven days ago is checked all the same


@pytest.mark.parametrize("how", ["missing", "corrupt"])
def it_names_a_damaged_range_and_its_paths(world: SweepWorld, repo: LakeRepository, how: str) -> None:
    head = repo.call("GET", "/branches/main").json()["commit_id"]
    metarange = repo.call("GET", f"/commits/{head}").json()["meta_range_id"]
    data = (repo.folder / metadata_key(metarange)).read_bytes()
    (info,) = read_metarange(data, name="test")
    damage(repo, info.id, how)
    row = checked(world)
    (found,) = row["damaged"]
    assert (found["kind"], found["id"], found["branches"]) == ("range", info.id, ["main"])
    assert (found["entries"], found["paths"]) == (1, ["a.bin", "a.bin"])
    assert row["named"]["objects"] == 1
    assert not row["complete"]


# ---- runs and quarantines
def hold_all(repo: LakeRepository) -> None:
    """Tags on every commit: what a sweep takes is missed."""
    for number in range(4):
        repo.tag(f"v{number}", f"main~{number}")


def it_names_the_last_run_that_collected_an_object(world: SweepWorld, repo: LakeRepository) -> None:
    mark = world.mark()
    world.sweep_of(mark)
    world.safety["protected_tags"] = ["release-*"]
    hold_all(repo)
    rows = checked(world)["findings"]
    assert len(rows) == 2
    assert all(row["named_by"] == ["tag"] for row in rows)
    assert {row["collector_run"]["by"] for row in rows} == {"lakeplan"}
    assert all(row["quarantine"] == "" for row in rows)


@pytest.fixture
def moved(world: SweepWorld, repo: LakeRepository) -> str:
    """The id of a mark whose two objects were moved into quarantine."""
    world.sweep["mode"] = "quarantine"
    mark = world.mark()
    world.sweep_of(mark)
    return mark.mark_id


def copies(repo: LakeRepository, mark_id: str) -> list[Any]:
    return sorted(f for f in (repo.folder / quarantine_prefix(mark_id)).rglob("*") if f.is_file())


def it_names_the_quarantine_that_has_a_copy(world: SweepWorld, repo: LakeRepository, moved: str) -> None:
    hold_all(repo)
    rows = checked(world)["findings"]
    assert [row["quarantine"] for row in rows] == [moved, moved]
    assert [row["collector_run"]["run_id"] for row in rows] == [moved, moved]
    os.truncate(copies(repo, moved)[0], 1)  # a restore refuses it
    assert sorted(row["quarantine"] for row in checked(world)["findings"]) == ["", moved]


@pytest.mark.parametrize("record", ["summary.json", "official.json"])
def it_finds_what_is_missing_in_spite_of_a_damaged_record_of_the_sweep(
    world: SweepWorld, repo: LakeRepository, moved: str, record: str
) -> None:
    hold_all(repo)
    (repo.folder / sweep_prefix(moved) / record).write_bytes(b"damaged")
    rows = checked(world)["findings"]
    assert [(row["quarantine"], row["collector_run"]["run_id"]) for row in rows] == [(moved, moved)] * 2


def it_compares_a_quarantine_with_its_records(world: SweepWorld, repo: LakeRepository, moved: str) -> None:
    row = checked(world)
    assert row["complete"]
    (found,) = row["quarantine"]
    assert found["recorded"] == found["present"] == {"objects": 2, "size_bytes": 11}
    gone = copies(repo, moved)[0]
    gone.unlink()
    row = checked(world)
    assert not row["complete"]
    (found,) = row["quarantine"]
    assert found["lost"]["objects"] == 1
    assert found["addresses"] == [str(gone.relative_to(repo.folder / quarantine_prefix(moved)))]


def it_names_a_copy_of_another_size(world: SweepWorld, repo: LakeRepository, moved: str) -> None:
    os.truncate(copies(repo, moved)[0], 1)
    row = checked(world)
    (found,) = row["quarantine"]
    assert (found["resized"]["objects"], found["lost"]["objects"]) == (1, 0)
    assert not row["complete"]


def it_knows_what_was_restored(world: SweepWorld, repo: LakeRepository, moved: str) -> None:
    site = world.site()
    stored = load_mark(site, world.state, moved)
    restore(site, stored, world.ports(), world.run_of(), RestoreOptions())
    for copy in copies(repo, moved):
        copy.unlink()
    row = checked(world)
    (found,) = row["quarantine"]
    assert (found["restored"]["objects"], found["lost"]["objects"]) == (2, 0)
    assert row["complete"]


def it_knows_what_was_purged(world: SweepWorld, repo: LakeRepository, moved: str) -> None:
    world.lake.clock.advance(days=8)
    older = world.now()
    found = quarantines(world.tree(), EVERYTHING, world.ports(), older_than=older)
    purge_all(found, world.ports(), world.run_of(), older_than=older, option=None)
    assert copies(repo, moved) == []
    row = checked(world)
    (one,) = row["quarantine"]
    assert (one["purged"]["objects"], one["lost"]["objects"]) == (2, 0)
    assert row["complete"]


def it_does_not_take_a_lost_copy_for_the_purged_one_of_a_restored_object(
    world: SweepWorld, repo: LakeRepository, moved: str
) -> None:
    first, second = copies(repo, moved)
    prefix = repo.folder / quarantine_prefix(moved)
    back = repo.folder / first.relative_to(prefix)
    back.write_bytes(first.read_bytes())
    first.unlink()
    record_purge(world.state, world.site().key, moved, Amount(2, 2), begun="r")
    record_purge(world.state, world.site().key, moved, Amount(1, 1), ended="r")
    assert checked(world)["complete"]
    second.unlink()  # nobody purged it
    row = checked(world)
    (one,) = row["quarantine"]
    assert (one["restored"]["objects"], one["purged"]["objects"], one["lost"]["objects"]) == (1, 1, 1)
    assert one["addresses"] == [str(second.relative_to(prefix))]
    assert not row["complete"]


def it_counts_what_a_killed_purge_deleted_as_purged(
    world: SweepWorld, repo: LakeRepository, moved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.lake.clock.advance(days=8)
    older = world.now()
    found = quarantines(world.tree(), EVERYTHING, world.ports(), older_than=older)

    def kill(purge: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lakeplan.sweep.purge._Purge._ended", kill)
        with pytest.raises(KeyboardInterrupt):
            purge_all(found, world.ports(), world.run_of(), older_than=older, option=None)
    assert copies(repo, moved) == []
    row = checked(world)
    (one,) = row["quarantine"]
    assert (one["purged"]["objects"], one["lost"]["objects"]) == (2, 0)
    assert one["note"] == "a purge did not record that it finished, so 2 missing copies are counted as purged"
    assert row["complete"]
    again = quarantines(world.tree(), EVERYTHING, world.ports(), older_than=older)
    document, code = purge_all(again, world.ports(), world.run_of(), older_than=older, option=None)
    assert (document["quarantines"], document["refused"], code) == ([], [], 0)
    assert read_sweeps(world.state, world.site().key)[moved].purged.objects == 2
    assert quarantines(world.tree(), EVERYTHING, world.ports(), older_than=older) == []


@pytest.mark.parametrize("what", ["mark", "record"])
def it_says_that_a_quarantine_cannot_be_judged(
    world: SweepWorld, repo: LakeRepository, moved: str, what: str
) -> None:
    folder = repo.folder / (mark_prefix(moved) if what == "mark" else sweep_prefix(moved))
    for file in folder.rglob("mark.json" if what == "mark" else "results/*.parquet"):
        file.write_bytes(b"damaged")
    row = checked(world)
    (found,) = row["quarantine"]
    assert (found["readable"], found["present"]["objects"], row["complete"]) == (False, 2, False)
    assert found["note"]


@pytest.mark.parametrize("summary", ["kept", "damaged", "gone"])
def it_says_that_a_quarantine_is_gone_with_its_mark(
    world: SweepWorld, repo: LakeRepository, moved: str, summary: str
) -> None:
    (repo.folder / mark_prefix(moved) / "mark.json").unlink()
    shutil.rmtree(repo.folder / quarantine_prefix(moved))
    file = repo.folder / sweep_prefix(moved) / "summary.json"
    if summary == "damaged":
        file.write_bytes(b"damaged")
    elif summary == "gone":
        file.unlink()
    row = checked(world)
    (found,) = row["quarantine"]
    assert (found["mark_id"], found["readable"], row["complete"]) == (moved, False, False)


def it_misses_no_mark_of_a_sweep_that_deleted(world: SweepWorld, repo: LakeRepository) -> None:
    mark = world.mark()
    world.sweep_of(mark)
    (repo.folder / mark_prefix(mark.mark_id) / "mark.json").unlink()
    row = checked(world)
    assert (row["quarantine"], row["complete"]) == ([], True)


@pytest.mark.parametrize("file", ["summary.json", "deleted/part-00000.snappy.parquet"])
def it_finds_what_is_missing_in_spite_of_a_damaged_report(
    world: SweepWorld, repo: LakeRepository, file: str
) -> None:
    world.sweep_of(world.mark())
    (report,) = (repo.folder / UNIFIED_PREFIX).glob(f"*/{file}")
    report.write_bytes(b"damaged")
    hold_all(repo)
    rows = checked(world)["findings"]
    assert [row["collector_run"] for row in rows] == [None, None]


# ---- data
def it_reads_data_and_compares_checksums(world: SweepWorld, repo: LakeRepository) -> None:
    row = checked(world, share=1)
    assert row["complete"]
    assert row["read"] == {
        "percent": 100,
        "read": {"objects": 2, "size_bytes": 11},
        "matched": 2,
        "differs": 0,
        "incomparable": 0,
        "unreadable": 0,
    }


def it_names_an_object_with_other_bytes(world: SweepWorld, repo: LakeRepository) -> None:
    address = address_of(repo, "main")
    (repo.folder / address).write_bytes(b"FOURTH")
    assert checked(world)["complete"], "its size is as it should be"
    row = checked(world, share=1)
    assert not row["complete"]
    (found,) = row["findings"]
    assert (found["problem"], found["address"], found["branches"]) == ("checksum", address, ["main"])
    assert (row["read"]["matched"], row["read"]["differs"]) == (1, 1)


def it_does_not_compare_what_has_no_checksum(world: SweepWorld, repo: LakeRepository) -> None:
    address = repo.upload("part.bin", b"1")
    repo.stage("part.bin", address, checksum="0123456789abcdef0123456789abcdef-12")
    repo.commit()
    row = checked(world, share=1)
    assert row["complete"]
    assert (row["read"]["matched"], row["read"]["incomparable"]) == (2, 1)


def it_does_not_count_a_missing_object_twice(world: SweepWorld, repo: LakeRepository) -> None:
    (repo.folder / address_of(repo, "main")).unlink()
    row = checked(world, share=1)
    assert [one["problem"] for one in row["findings"]] == ["missing"]
    assert row["read"]["unreadable"] == 1


def it_reads_about_the_share_that_was_asked_for(world: SweepWorld, repo: LakeRepository) -> None:
    repo.commit(**{f"f{number}": b"x" for number in range(200)})
    assert 20 < checked(world, share=0.25)["read"]["read"]["objects"] < 90


# ---- around a sweep
def it_checks_before_and_after_a_sweep(world: SweepWorld, repo: LakeRepository) -> None:
    world.sweep["mode"] = "quarantine"
    mark = world.mark()
    checker = StepChecker(Runners().open)
    assert check_before(world.site(), world.ports(), checker)["complete"]
    world.sweep_of(mark)
    after = check_after(world.site(), world.ports(), checker, mark.mark_id)
    assert (after["complete"], after["lost_copies"]) == (True, 0)
    copies(repo, mark.mark_id)[0].unlink()
    after = check_after(world.site(), world.ports(), checker, mark.mark_id)
    assert (after["complete"], after["lost_copies"]) == (False, 1)


def it_refuses_to_sweep_what_is_incomplete(world: SweepWorld, repo: LakeRepository) -> None:
    (repo.folder / address_of(repo, "main")).unlink()
    with pytest.raises(GateRefused, match="1 object that commits need is missing"):
        check_before(world.site(), world.ports(), StepChecker(Runners().open))


@pytest.mark.parametrize("protected", [False, True])
def it_refuses_what_only_a_tag_names_if_that_is_protected(
    world: SweepWorld, repo: LakeRepository, protected: bool
) -> None:
    world.safety["protected_tags"] = ["v*"] if protected else ["release-*"]
    repo.tag("v1", "main~3")
    (repo.folder / address_of(repo, "main~3")).unlink()
    checker = StepChecker(Runners().open)
    if protected:
        with pytest.raises(GateRefused):
            check_before(world.site(), world.ports(), checker)
    else:
        assert check_before(world.site(), world.ports(), checker)["tags_only"] == 1


def it_refuses_to_sweep_while_something_cannot_be_asked_for(world: SweepWorld, repo: LakeRepository) -> None:
    repo.stage("odd.bin", "data/x//y")
    repo.commit()
    with pytest.raises(GateRefused):
        check_before(world.site(), world.ports(), StepChecker(Runners().open))


def it_does_not_say_complete_after_a_sweep_whose_records_are_damaged(
    world: SweepWorld, repo: LakeRepository, moved: str
) -> None:
    for file in (repo.folder / sweep_prefix(moved)).rglob("results/*.parquet"):
        file.write_bytes(b"damaged")
    after = check_after(world.site(), world.ports(), StepChecker(Runners().open), moved)
    assert (after["complete"], after["lost_copies"]) == (False, 0)

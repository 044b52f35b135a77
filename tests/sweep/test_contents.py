"""What an approver sees of a mark: amounts, and what keeps the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lakeplan.errors import FormatError
from lakeplan.simulation.marking import StepMarker
from lakeplan.simulation.runners import Runners
from lakeplan.sweep import contents as module
from lakeplan.sweep.contents import contents_digest, read_contents, read_prefixes
from lakeplan.sweep.judge import approve
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.records import read_approval
from tests.sweeping.lake import LakeRepository
from tests.sweeping.world import SweepWorld

DAY = 24


@pytest.fixture
def real(world: SweepWorld) -> SweepWorld:
    """Marks as a user's command does."""
    world.marker = StepMarker(Runners().open)  # type: ignore[assignment]
    return world


def contents(world: SweepWorld, mark: Mark, depth: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = dict(read_contents(world.site().store, mark, depth=depth))
    return found


def keepers(found: dict[str, Any]) -> set[tuple[str, str, str, int]]:
    return {(r["class"], r["kind"], r["prefix"] or r["name"], r["objects"]) for r in found["kept_by"]}


def address(repo: LakeRepository, ref: str, path: str = "a.bin") -> str:
    stats = repo.call("GET", f"/refs/{ref}/objects/stat", params={"path": path}).json()
    return repo.relative(stats["physical_address"])


def it_adds_up_by_prefix_age_and_last_commit(real: SweepWorld, repo: LakeRepository) -> None:
    first, second = address(repo, "main~3"), address(repo, "main~2")
    repo.touch(first, 40 * DAY)
    repo.touch(second, 8 * DAY)
    mark = real.mark()
    found = contents(real, mark)
    assert found["classes"]["backlog"] == {"objects": 2, "size_bytes": 11}
    assert [(p["prefix"], p["goes"]) for p in found["prefixes"]] == [("", mark.to_delete.to_row())]
    assert [(a["from_days"], a["to_days"], a["objects"]) for a in found["ages"]] == [(7, 30, 1), (30, 90, 1)]
    ids = {repo.call("GET", f"/refs/main~{n}/commits").json()["results"][0]["id"] for n in (2, 3)}
    assert {c["commit_id"] for c in found["last_commits"]} == ids
    assert all(c["created"].startswith("2024-0") for c in found["last_commits"])
    assert sum(c["size_bytes"] for c in found["last_commits"]) == 11


def it_says_which_tag_and_which_hold_keep_what(real: SweepWorld, repo: LakeRepository) -> None:
    repo.tag("v1", "main~3")
    real.safety["protected_tags"] = ["v*"]
    real.holds = [{"prefix": "a.", "until": "2030-01-01", "reason": "legal"}]
    found = contents(real, real.mark())
    assert keepers(found) == {("protected", "hold", "a.", 2), ("protected", "tag", "v1", 1)}
    assert found["prefixes"][0]["goes"]["objects"] == 0
    assert found["prefixes"][0]["kept"]["objects"] == 2


def it_says_which_other_repository_keeps_what(real: SweepWorld, repo: LakeRepository) -> None:
    other = real.lake.repository("repo2")
    other.stage("import.bin", f"local://repo1/{address(repo, 'main~3')}")
    other.commit()
    third = real.lake.repository("repo3")
    third.stage("odd.bin", f"local://elsewhere/repo1/{address(repo, 'main~2')}?x=1")
    third.commit()
    mark = real.mark()
    assert keepers(contents(real, mark)) == {
        ("protected", "repository", "prod/repo2", 1),
        ("uncertain_address", "repository", "prod/repo3", 1),
    }


def it_says_which_branch_keeps_what_the_margin_keeps(real: SweepWorld, repo: LakeRepository) -> None:
    real.sweep["margin"] = f"{100 * DAY}h"
    assert keepers(contents(real, real.mark())) == {("near_limit", "branch", "main", 2)}


class DescribePrefixes:
    @pytest.fixture
    def deep(self, real: SweepWorld, repo: LakeRepository) -> SweepWorld:
        """Two objects that expired in folders, and two at the top."""
        for path in ("raw/2026/x.bin", "raw/y.bin"):
            repo.upload(path, b"12345")
        repo.commit(age_days=35)
        for path in ("raw/2026/x.bin", "raw/y.bin"):
            repo.delete(path)
        repo.commit(age_days=33)
        repo.commit(age_days=32)
        for key in repo.stored():
            repo.touch(key, 10 * DAY)
        return real

    @pytest.mark.parametrize(
        ("depth", "expected"),
        [(0, {""}), (1, {"", "raw/"}), (2, {"", "raw/", "raw/2026/"}), (9, {"", "raw/", "raw/2026/"})],
    )
    def it_cuts_paths_at_a_depth(self, deep: SweepWorld, depth: int, expected: set[str]) -> None:
        mark = deep.mark()
        found = contents(deep, mark, depth)["prefixes"]
        assert {p["prefix"] for p in found} == expected
        assert sum(p["goes"]["objects"] for p in found) == mark.to_delete.objects

    def it_makes_a_tree_in_which_folders_hold_all_below(self, deep: SweepWorld) -> None:
        mark = deep.mark()
        found = {p["prefix"]: p["goes"]["objects"] for p in read_prefixes(deep.site().store, mark)}
        assert found[""] == mark.to_delete.objects
        assert (found["raw/"], found["raw/2026/"]) == (2, 1)

    def it_puts_objects_in_no_commit_behind_the_folders_of_all_paths(
        self, deep: SweepWorld, repo: LakeRepository
    ) -> None:
        repo.upload("dropped.bin", b"12345")
        repo.delete("dropped.bin")
        for key in repo.stored():
            repo.touch(key, 10 * DAY)
        rows = read_prefixes(deep.site().store, deep.mark())
        found = [(row["prefix"], row["depth"]) for row in rows]
        assert found == [("", 0), ("raw/", 1), ("raw/2026/", 2), (None, 0)]

    def it_keeps_the_folders_above_when_a_tree_is_too_large(
        self, deep: SweepWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MOST_PREFIXES", 2)
        mark = deep.mark()
        assert [p["prefix"] for p in read_prefixes(deep.site().store, mark)] == ["", "raw/"]
        assert contents(deep, mark, 2)["more_prefixes"] == 1


class DescribeApprovals:
    def it_records_the_digest_of_what_was_shown(self, real: SweepWorld, repo: LakeRepository) -> None:
        mark = real.mark()
        stored = real.stored(mark)
        shown = contents_digest(stored.digest, read_contents(real.site().store, mark, depth=1))
        state = real.ports().state
        approve(
            real.site(),
            replace(stored, shown=shown),
            state,
            real.run_of(),
            reason="x",
            overrides=real.gate_overrides,
        )
        approval = read_approval(state, stored)
        assert approval is not None
        assert (approval.shown, approval.to_row()["shown"]) == (shown, shown)

    def it_differs_with_anything_that_is_shown(self, real: SweepWorld, repo: LakeRepository) -> None:
        mark = real.mark()
        one = read_contents(real.site().store, mark, depth=1)
        two = read_contents(real.site().store, mark, depth=2)
        assert contents_digest("a", one) == contents_digest("a", {**one, "digest": "not of itself"})
        assert len({contents_digest("a", one), contents_digest("b", one), contents_digest("a", two)}) == 3

    def it_reads_no_approval_that_lacks_what_was_shown(self, real: SweepWorld, repo: LakeRepository) -> None:
        mark = real.mark()
        real.approve(mark)
        state = real.ports().state
        key = f"sweep/approvals/{mark.mark_id}.json"
        found = state.read(key)
        assert found is not None
        record = json.loads(found.data)
        assert record.pop("shown") is None
        state.write(key, json.dumps(record).encode(), if_version=found.version)
        with pytest.raises(FormatError, match="the record of this approval is damaged"):
            read_approval(state, real.stored(mark))


def it_shows_no_part_that_was_changed(real: SweepWorld, repo: LakeRepository) -> None:
    mark = real.mark()
    part = mark.marked.going[0]
    file = repo.folder / "_lakeplan/marks" / mark.mark_id / part.name
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(FormatError, match="checksum does not match"):
        contents(real, mark)

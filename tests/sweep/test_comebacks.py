"""How an object comes back to life, between mark and sweep and while a sweep runs: it must still be there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sweeping.lake import LakeRepository
from tests.sweeping.world import SweepWorld

Change = Callable[[LakeRepository], None]
FIRST = "main~3"
"""The commit that holds the oldest version of ``a.bin`` (see conftest)."""


def revert(repo: LakeRepository) -> None:
    # three commits back, one after the other: the reverted tree holds the old addresses again
    for ref in ("main", "main~2", "main~4"):
        repo.revert(ref)


def branch_from_an_old_commit(repo: LakeRepository) -> None:
    repo.branch("fix", FIRST)


def longer_retention(repo: LakeRepository) -> None:
    repo.set_rules(60)


def new_branch_with_longer_retention(repo: LakeRepository) -> None:
    repo.branch("audit", "main~1")
    repo.set_rules(7, audit=60)


def tag_and_reset(repo: LakeRepository) -> None:
    repo.tag("back", FIRST)
    repo.hard_reset("back")


def stage_the_address(repo: LakeRepository) -> None:
    repo.stage("again.bin", _first_address(repo))


def commit_the_address(repo: LakeRepository) -> None:
    repo.stage("again.bin", _first_address(repo))
    repo.commit()


def merge_an_old_branch(repo: LakeRepository) -> None:
    repo.branch("side", FIRST)
    repo.commit(0, "side", b=b"new on an old base")
    repo.hard_reset("side")


def _first_address(repo: LakeRepository) -> str:
    answer = repo.call("GET", f"/refs/{FIRST}/objects/stat", params={"path": "a.bin"}).json()
    return repo.relative(answer["physical_address"])


WAYS = [
    revert,
    branch_from_an_old_commit,
    longer_retention,
    new_branch_with_longer_retention,
    tag_and_reset,
    stage_the_address,
    commit_the_address,
    merge_an_old_branch,
]


BRING_BOTH = (revert, longer_retention, new_branch_with_longer_retention)
"""These bring back the second version of the file too."""


@pytest.fixture
def first(repo: LakeRepository) -> str:
    """The address of the oldest version."""
    return _first_address(repo)


def _data_of(repo: LakeRepository, address: str) -> bytes | None:
    path = repo.folder / address
    return path.read_bytes() if path.is_file() else None


@pytest.mark.parametrize("change", WAYS)
def it_keeps_what_came_back_between_mark_and_sweep(
    world: SweepWorld, repo: LakeRepository, first: str, change: Change
) -> None:
    mark = world.mark()
    assert first in world.going(mark)
    world.approve(mark)
    change(repo)
    end = world.run(mark)
    assert _data_of(repo, first) == b"first"
    assert world.ends(mark)[first] == ("saved", "needed again")
    assert end.came_back == 0
    document = world.finish(end)
    assert document["finished"]
    assert document["saved"]["objects"] >= 1


@pytest.mark.parametrize("change", WAYS)
def it_keeps_what_came_back_between_two_rounds(
    world: SweepWorld, repo: LakeRepository, first: str, change: Change
) -> None:
    world.marker.rows = world.sweeper.parts_a_round = 1
    mark = world.mark()
    world.approve(mark)
    assert len(mark.marked.going) == 2
    world.sweeper.last = frozenset({world.part_of(mark, first)})
    world.sweeper.after_round = lambda number: change(repo) if number == 1 else None
    end = world.run(mark)
    assert end.inspections == 2
    assert _data_of(repo, first) == b"first"
    assert world.ends(mark)[first] == ("saved", "needed again")
    # what went before its time cannot be helped, but it is said
    gone = [address for address, (status, _) in world.ends(mark).items() if status == "deleted"]
    assert len(gone) == 1
    assert end.came_back == (change in BRING_BOTH)


@pytest.mark.parametrize("change", WAYS)
def it_says_what_came_back_too_late(
    world: SweepWorld, repo: LakeRepository, first: str, change: Change
) -> None:
    mark = world.mark()
    world.approve(mark)
    world.sweeper.after_round = lambda number: change(repo)
    end = world.run(mark)
    assert world.ends(mark)[first] == ("deleted", "")
    assert end.came_back >= 1
    assert world.finish(end)["came_back"] >= 1


@pytest.mark.parametrize(("data", "lost"), [(b"first", 0), (b"another object", 1)])
def it_counts_no_other_object_at_the_address_for_the_one_that_came_back(
    world: SweepWorld, repo: LakeRepository, first: str, data: bytes, lost: int
) -> None:
    mark = world.mark()
    world.approve(mark)

    def write_there(number: int) -> None:
        repo.stage("again.bin", first)
        (repo.folder / first).write_bytes(data)

    world.sweeper.after_round = write_there
    assert world.run(mark).came_back == lost

"""Objects staged again with the content of the HEAD's: reading the branch needs them, and the server's list
of uncommitted addresses lacks them (lakeFS since 2024)."""

from __future__ import annotations

import pytest

from lakeplan.errors import LakeplanError
from lakeplan.sweep import inspection
from lakeplan.sweep.inspection import needed_now
from lakeplan.sweep.run import HELD_AGAIN, UNLISTED
from lakeplan.values.simulation import Status
from tests.old_servers import resolve_like_old_servers
from tests.sweeping.lake import LakeRepository
from tests.sweeping.world import SweepWorld

LISTS = "objects/ls"


@pytest.fixture
def again(world: SweepWorld, repo: LakeRepository) -> str:
    """The address of ``a.bin``, uploaded again as it is. A sweep collects what was never committed."""
    world.sweep["never_committed"] = "collect"
    address = repo.upload("a.bin", b"fourth")
    repo.touch(address, age_hours=100)
    return address


@pytest.fixture
def orphan(world: SweepWorld, repo: LakeRepository) -> str:
    address = repo.upload("lost.bin", b"lost")
    repo.delete("lost.bin")
    repo.touch(address, age_hours=100)
    return address


def listings(world: SweepWorld) -> int:
    return sum(LISTS in request.path for request in world.lake.handle.faults.requests)


def it_keeps_it_and_deletes_what_no_branch_reads(world, repo, again, orphan) -> None:
    mark = world.mark()
    assert {again, orphan} <= world.going(mark).keys()
    world.approve(mark)
    end = world.run(mark)
    assert world.ends(mark)[again] == ("saved", HELD_AGAIN)
    assert world.ends(mark)[orphan] == ("deleted", "")
    assert (end.amount(Status.DELETED).objects, end.amount(Status.SAVED).objects) == (3, 1)
    assert repo.get("main", "a.bin") == b"fourth"


def it_keeps_it_on_a_hidden_branch_too(world, repo, orphan) -> None:
    world.sweep["never_committed"] = "collect"
    repo.call("POST", "/branches", json={"name": "secret", "source": "main", "hidden": True})
    address = repo.upload("a.bin", b"fourth", branch="secret")
    repo.touch(address, age_hours=100)
    mark = world.mark()
    world.approve(mark)
    world.run(mark)
    assert world.ends(mark)[address] == ("saved", HELD_AGAIN)


def it_keeps_an_expired_object_that_is_staged_with_the_content_of_the_head(world, repo) -> None:
    """A client restored a file by its old address, although the file had been uploaded again as it was."""
    world.sweep["never_committed"] = "collect"
    expired = repo.call("GET", "/refs/main~3/objects/stat", params={"path": "a.bin"}).json()
    head = repo.call("GET", "/refs/main/objects/stat", params={"path": "a.bin"}).json()
    same = {key: head[key] for key in ("checksum", "size_bytes", "content_type")}
    body = {"physical_address": expired["physical_address"], **same}
    repo.call("PUT", "/branches/main/objects", params={"path": "a.bin"}, json=body)
    assert repo.call("GET", "/branches/main/diff").json()["results"] == []
    mark = world.mark()
    assert not mark.collects
    world.approve(mark)
    world.run(mark)
    assert repo.get("main", "a.bin") == b"first"


def it_sweeps_a_mark_of_expired_objects_although_branches_cannot_be_listed(world, repo) -> None:
    world.sweep["never_committed"] = "collect"
    mark = world.mark()
    assert not mark.collects
    world.approve(mark)
    world.lake.handle.faults.deny(LISTS)
    end = world.run(mark)
    assert (end.finished, end.came_back, end.amount(Status.DELETED).objects) == (True, 0, 2)
    needed_now(world.site(), mark, world.ports(), now=world.now(), keep=lambda: None)


@pytest.fixture
def hexadecimal(repo: LakeRepository, monkeypatch: pytest.MonkeyPatch) -> str:
    """A branch that is named like the beginning of another branch's commit: in the paths of objects, an old
    server reads its name as that commit."""
    resolve_like_old_servers(monkeypatch)
    name = repo.call("GET", "/branches/main").json()["commit_id"][:6]
    repo.call("POST", "/branches", json={"name": "other", "source": "main"})
    repo.commit(0, branch="other", z=b"newest")
    repo.call("POST", "/branches", json={"name": name, "source": "other"})
    return str(name)


def it_collects_nothing_if_a_branch_is_read_as_a_commit(world, repo, hexadecimal) -> None:
    """The objects of that commit were listed in its place, so what is staged again on the branch was lost."""
    world.sweep["never_committed"] = "collect"
    address = repo.upload("z.bin", b"newest", branch=hexadecimal)
    repo.touch(address, age_hours=100)
    mark = world.mark()
    assert address in world.going(mark)
    world.approve(mark)
    end = world.run(mark)
    status, said = world.ends(mark)[address]
    assert status == "saved"
    assert said.startswith(UNLISTED)
    assert hexadecimal in end.problem


@pytest.mark.parametrize("why", ["denied", "too many", "crafted"])
def it_collects_nothing_if_branches_cannot_be_listed(
    world, repo, again, orphan, why, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = world.mark()
    world.approve(mark)
    if why == "denied":
        world.lake.handle.faults.deny(LISTS)
    else:
        monkeypatch.setattr(inspection, "MOST_ON_BRANCHES", 0 if why == "too many" else 1_000)
    if why == "crafted":  # a few thousand of these addresses, which have 500 keys each, took gigabytes
        repo.stage("crafted", f"local://any/{'data/' * 500}x")
    end = world.run(mark)
    for address in (again, orphan):
        status, said = world.ends(mark)[address]
        assert status == "saved"
        assert said.startswith(UNLISTED)
    assert end.amount(Status.DELETED).objects == 2  # of the expired ones, which it does not concern
    assert end.came_back is None  # it might have
    assert UNLISTED in end.problem


def it_lists_branches_only_if_such_objects_may_be_deleted(world, repo, orphan) -> None:
    for setting, expected in (("keep", 0), ("collect", 2)):  # before the round and after it
        world.sweep["never_committed"] = setting
        mark = world.mark()
        world.approve(mark)
        world.lake.handle.faults.forget()
        end = world.run(mark)
        assert listings(world) == expected
        world.finish(end)
    mark = world.mark()  # nothing of the kind is left
    world.lake.handle.faults.forget()
    needed_now(world.site(), mark, world.ports(), now=world.now(), keep=lambda: None)
    assert listings(world) == 0


def it_lists_them_before_the_refs(world, repo, again) -> None:
    """What is committed in between is in the dump."""
    mark = world.mark()
    world.approve(mark)
    world.lake.handle.faults.forget()
    world.run(mark)
    paths = [request.path for request in world.lake.handle.faults.requests]
    listed = next(number for number, path in enumerate(paths) if LISTS in path)
    assert any(path.endswith("/gc/prepare_uncommited") for path in paths[:listed])
    assert any(path.endswith("/refs/dump") for path in paths[listed:])


def it_is_needed_where_only_a_branch_reads_its_copy(world, repo, orphan, monkeypatch) -> None:
    world.sweep["never_committed"] = "collect"
    mark, folder = world.mark(), "_lakeplan/quarantine/m/"
    monkeypatch.setattr(inspection, "_on_branches", lambda _: frozenset({folder + orphan}))
    needed = needed_now(world.site(), mark, world.ports(), now=world.now(), keep=lambda: None, copies=folder)
    assert folder + orphan in needed.addresses


def it_is_needed_for_a_purge_and_a_restore(world, repo, again, orphan) -> None:
    mark = world.mark()
    needed = needed_now(world.site(), mark, world.ports(), now=world.now(), keep=lambda: None)
    assert again in needed.addresses
    assert not needed.addresses & {orphan}
    assert needed.addresses <= world.going(mark).keys()
    world.lake.handle.faults.deny(LISTS)
    with pytest.raises(LakeplanError, match="list the objects of a branch"):
        needed_now(world.site(), mark, world.ports(), now=world.now(), keep=lambda: None)

"""Marks that the state lost: their sweeps can be ended and undone by what is in the namespace, which somebody
else may have written."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeplan.errors import LakeplanError, ServerUnreachable, StalePlan, UsageError
from lakeplan.formats.marks import MARKED, write_part, write_results
from lakeplan.formats.namespace import QUARANTINE_PREFIX, mark_prefix, sweep_prefix
from lakeplan.review.selection import Selection
from lakeplan.state.sweeps import read_sweeps
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.mark_record import Mark, read_mark
from lakeplan.sweep.records import read_summary
from lakeplan.sweep.restore import RestoreOptions, restore
from lakeplan.sweep.service import find_mark, open_mark, purge_all, quarantines
from lakeplan.values.simulation import Part, Status
from tests.sweeping.lake import LakeRepository
from tests.sweeping.stores import FaultyStore, Killed, raising
from tests.sweeping.world import SweepWorld


def lose_state(world: SweepWorld) -> None:
    shutil.rmtree(world.folder / "state")


@pytest.fixture
def killed(world: SweepWorld, repo: LakeRepository) -> Mark:
    """A sweep in quarantine that was killed when it had moved one of two objects; then the state was lost."""
    world.sweep["mode"] = "quarantine"
    world.marker.rows = 1
    mark = world.mark()
    world.approve(mark)

    kill = raising(Killed("delete"), on="delete")
    world.wrap = lambda store: FaultyStore(store, after=kill)
    with suppress(Killed):
        world.run(mark)
    world.wrap = lambda store: store
    assert len(world.going(mark).keys() - repo.stored()) == 1
    lose_state(world)
    return mark


def bring_back(world: SweepWorld, mark_id: str) -> dict[str, Any]:
    site, stored = find_mark(world.tree(), mark_id, world.ports())
    return restore(site, stored, world.ports(), world.run_of(), RestoreOptions())


def edit(repo: LakeRepository, mark_id: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the mark as somebody could who can write to the namespace."""
    file = repo.folder / mark_prefix(mark_id) / "mark.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def forge(world: SweepWorld, repo: LakeRepository, addresses: list[str], mark_id: str = "forged") -> None:
    """A mark that lakeplan never made, whose sweep was begun."""
    pattern = world.mark(repo.name)
    rows = len(addresses)
    columns = {
        "address": addresses,
        "size_bytes": [6] * rows,
        "version": [0] * rows,
        "paths": [["a.bin"]] * rows,
        "last_commit_id": [None] * rows,
        "reason": ["expired"] * rows,
        "class": ["backlog"] * rows,
    }
    data, sha256 = write_part(columns, MARKED)
    store = world.site(repo.name).store
    store.put(f"{mark_prefix(mark_id)}going/part-1.parquet", data)
    store.put(f"{mark_prefix(mark_id)}seen.json", b'{"kept_metaranges": [], "foreign": {}}')
    store.put(f"{sweep_prefix(mark_id)}begun/part-1.json", b"{}\n")
    marked = dataclasses.replace(
        pattern.marked,
        going=(Part("going/part-1.parquet", rows, 6 * rows, sha256),),
        amounts={
            kind: dataclasses.replace(amount, objects=rows) for kind, amount in pattern.marked.amounts.items()
        },
    )
    mark = dataclasses.replace(pattern, mark_id=mark_id, marked=marked)
    store.put(f"{mark_prefix(mark_id)}mark.json", mark.to_bytes())
    lose_state(world)


class DescribeAnOpenSweep:
    def it_is_ended_without_the_state(self, world: SweepWorld, repo: LakeRepository, killed: Mark) -> None:
        with pytest.raises(LakeplanError, match="is not finished"):
            world.mark()
        document = world.finish(world.close(killed))
        assert (document["finished"], document["closed"]) == (True, True)
        assert (document["deleted"]["objects"], document["saved"]["objects"]) == (1, 1)
        assert (document["came_back"], document["approval"]) == (0, None)
        assert set(document["settings_from"].values()) == {"mark"}
        assert [*read_sweeps(world.state, "prod/repo1")] == [killed.mark_id]
        world.mark()

    def it_counts_what_is_needed_again_whatever_the_mark_had_seen(
        self, world: SweepWorld, repo: LakeRepository, killed: Mark
    ) -> None:
        repo.branch("older", "main~3")
        repo.branch("audit", "main~2")
        site = world.site()
        all_seen = {"kept_metaranges": sorted(_metaranges(repo)), "foreign": {}}
        site.store.put(f"{mark_prefix(killed.mark_id)}seen.json", json.dumps(all_seen).encode())
        assert world.finish(world.close(killed))["came_back"] == 1

    def it_is_restored_without_the_state(self, world: SweepWorld, repo: LakeRepository, killed: Mark) -> None:
        repo.branch("older", "main~3")
        repo.branch("audit", "main~2")
        assert bring_back(world, killed.mark_id)["restored"] == 1
        assert repo.get("older", "a.bin") == b"first"
        assert repo.get("audit", "a.bin") == b"second"
        assert world.finish(world.close(killed))["came_back"] == 0

    def it_is_ended_when_only_the_approval_is_lost(self, world: SweepWorld, repo: LakeRepository) -> None:
        mark = world.mark()
        world.approve(mark)
        world.site().store.put(f"{sweep_prefix(mark.mark_id)}begun/part-000001.json", b"{}\n")
        shutil.rmtree(world.folder / "state/sweep/approvals")
        assert world.finish(world.close(mark))["saved"]["objects"] == 2

    def it_reports_to_no_other_tool_what_only_the_namespace_says(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        world.marker.rows = 1
        mark = world.mark()
        world.approve(mark)
        address = min(world.going(mark))
        (repo.folder / address).unlink()
        world.site().store.put(f"{sweep_prefix(mark.mark_id)}begun/part-000001.json", b"{}\n")
        lose_state(world)
        document = world.finish(world.close(mark))
        assert document["deleted"]["objects"] == 1
        assert not (repo.folder / "_lakefs/retention/gc/unified").exists()


def _metaranges(repo: LakeRepository) -> list[str]:
    commits = repo.call("GET", "/refs/main/commits").json()["results"]
    return [commit["meta_range_id"] for commit in commits]


class DescribeWhatDeletes:
    def it_refuses_a_mark_that_the_state_does_not_know(self, world: SweepWorld, killed: Mark) -> None:
        with pytest.raises(UsageError, match="the state has no mark") as refused:
            open_mark(world.tree(), killed.mark_id, world.ports())
        assert f"sweep abort {killed.mark_id}" in refused.value.hint
        assert f"sweep restore {killed.mark_id}" in refused.value.hint

    def it_purges_no_copy(self, world: SweepWorld, repo: LakeRepository, killed: Mark) -> None:
        world.finish(world.close(killed))
        lose_state(world)
        world.lake.clock.advance(days=30)
        found = quarantines(world.tree(), Selection((), None, None), world.ports(), older_than=world.now())
        document, code = purge_all(found, world.ports(), world.run_of(), older_than=world.now(), option=None)
        (refused,) = document["refused"]
        assert "the state has no mark" in refused["message"]
        assert f"sweep restore {killed.mark_id}" in refused["hint"]
        assert code != 0
        assert len([*(repo.folder / QUARANTINE_PREFIX).rglob("*/data/*/*")]) == 1


class DescribeTheSearch:
    def it_names_an_id_that_nobody_knows(self, world: SweepWorld, repo: LakeRepository) -> None:
        with pytest.raises(UsageError, match="is neither in the state nor in a namespace"):
            bring_back(world, "m9999")

    def it_says_what_it_could_not_read(self, world: SweepWorld, repo: LakeRepository, killed: Mark) -> None:
        def wrap(store: SweepStore) -> FaultyStore:
            faulty = FaultyStore(store)
            faulty.before = raising(ServerUnreachable("connection refused"), on="read")
            return faulty

        world.wrap = wrap
        with pytest.raises(LakeplanError, match="the search failed for: prod/repo1: connection refused"):
            world.close(killed)

    def it_ignores_another_repository_s_record(
        self, world: SweepWorld, repo: LakeRepository, killed: Mark
    ) -> None:
        """Somebody who can write to repo2 copies the mark there: it says that it is repo1's."""
        other = world.lake.repository("repo2")
        folder = mark_prefix(killed.mark_id)
        shutil.copytree(repo.folder / folder, other.folder / folder)
        assert world.close(killed).mark.key == "prod/repo1"

    def it_refuses_to_choose(self, world: SweepWorld, repo: LakeRepository, killed: Mark) -> None:
        other = world.lake.repository("repo2")
        folder = mark_prefix(killed.mark_id)
        shutil.copytree(repo.folder / folder, other.folder / folder)
        created = world.site("repo2").repository.creation_date
        identity = {
            "repository": "repo2",
            "storage_namespace": "local://repo2",
            "repository_created": created,
        }
        edit(other, killed.mark_id, lambda mark: mark.update(identity))
        for act in (world.close, lambda mark: bring_back(world, mark.mark_id)):
            with pytest.raises(
                LakeplanError, match=r"because several have a record of it: prod/repo1, prod/repo2"
            ):
                act(killed)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("mark_id", "m0009"),
            ("server", "other"),
            ("repository", "repo2"),
            ("endpoint_url", "http://other.example"),
            ("storage_namespace", "local://repo2"),
            ("repository_created", 17),
        ],
    )
    def it_refuses_a_record_that_the_repository_does_not_confirm(
        self, world: SweepWorld, repo: LakeRepository, killed: Mark, field: str, value: object
    ) -> None:
        edit(repo, killed.mark_id, lambda mark: mark.update({field: value}))
        with pytest.raises(LakeplanError, match="could not be verified"):
            world.close(killed)

    def it_refuses_another_mark_than_the_approved_one(self, world: SweepWorld, repo: LakeRepository) -> None:
        mark = world.mark()
        world.approve(mark)
        shutil.rmtree(world.folder / "state/sweep/marks")
        edit(repo, mark.mark_id, lambda document: document.update(by="mallory"))
        with pytest.raises(StalePlan, match="the mark has changed since it was approved"):
            bring_back(world, mark.mark_id)


class DescribeForgedMarks:
    def it_deletes_nothing(self, world: SweepWorld, repo: LakeRepository) -> None:
        before = repo.stored()
        forge(world, repo, sorted(before))
        end = world.finish(find_and_close(world, "forged"))
        assert repo.stored() == before
        assert (end["deleted"]["objects"], end["saved"]["objects"]) == (0, len(before))

    def it_restores_only_where_an_object_may_be_and_nothing_is(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        live = sorted(repo.stored())[0]
        before = (repo.folder / live).read_bytes()
        lost, odd = (
            "data/lost/object",
            ["_lakefs/evil", "_lakeplan/owner.json", "data/../dummy"],
        )
        forge(world, repo, [live, lost, *odd])
        owner = (repo.folder / "_lakeplan/owner.json").read_bytes()
        store = world.site().store
        for address in (live, lost, "_lakefs/evil", "_lakeplan/owner.json"):
            store.put(f"{QUARANTINE_PREFIX}forged/{address}", b"forged")
        document = bring_back(world, "forged")
        assert (document["restored"], document["already_there"]) == (1, 1)
        assert (repo.folder / live).read_bytes() == before
        assert (repo.folder / lost).read_bytes() == b"forged"
        assert not (repo.folder / "_lakefs/evil").exists()
        assert (repo.folder / "_lakeplan/owner.json").read_bytes() == owner

    def it_restores_no_copy_of_another_mark(
        self, world: SweepWorld, repo: LakeRepository, killed: Mark
    ) -> None:
        world.finish(world.close(killed))
        forge(world, repo, [*world.going(killed)])
        with pytest.raises(UsageError, match="no objects of this mark are in quarantine"):
            bring_back(world, "forged")

    @pytest.mark.parametrize(
        "change",
        [
            lambda mark: mark.update(format="lakeplan.mark/v9"),
            lambda mark: mark.update(server=["prod"]),
            lambda mark: mark.update(marked_at="2024-03-01T12:00:00"),
            lambda mark: mark.update(repository_created="17"),
            lambda mark: mark.update(repository_created=None),
            lambda mark: mark["settings"].pop("never_committed"),
            lambda mark: mark.update(rules=None),
            lambda mark: mark.update(classes={"everything": {"objects": 1, "size_bytes": 1}}),
            lambda mark: mark["classes"]["backlog"].update(objects="2"),
            lambda mark: mark["settings"].update(mode=["quarantine"]),
            lambda mark: mark["settings"].update(verify="none"),
            lambda mark: mark["settings"].update(min_age_seconds=None),
            lambda mark: mark["settings"].update(surprise=1),
            lambda mark: mark["going"][0].update(rows="1"),
            lambda mark: mark["going"][0].update(rows=-1),
            lambda mark: mark["going"][0].update(size_bytes=1 << 80),
            lambda mark: mark["going"][0].update(surprise=1),
            lambda mark: mark["going"][0].update(sha256=None),
            *(
                lambda mark, name=name: mark["going"][0].update(name=name)
                for name in ("going/../../../data/x", "/etc/passwd", "going/", "going/.x", "going/a/b", "", 7)
            ),
            lambda mark: mark.clear(),
        ],
    )
    def it_says_that_a_damaged_mark_is_damaged(
        self, world: SweepWorld, repo: LakeRepository, killed: Mark, change: Callable[[dict[str, Any]], None]
    ) -> None:
        edit(repo, killed.mark_id, change)
        with pytest.raises(LakeplanError, match=r"mark\.json|is damaged|the format of this mark|figures"):
            world.close(killed)

    @pytest.mark.parametrize(
        "table",
        [
            {"address": [1, 2], "size_bytes": [1, 1]},
            {"address": ["data/x", None], "size_bytes": [1, 1], "class": ["backlog"] * 2},
            {"address": ["data/x", "data/y"], "size_bytes": ["1", "1"], "class": ["backlog"] * 2},
            {"address": ["data/x", "data/y"], "size_bytes": [1, 1]},
            {"address": ["data/x", "data/y"], "size_bytes": [1, 1], "class": [1, 2]},
            {"size_bytes": [1, 1]},
        ],
    )
    def it_says_that_a_part_is_none(
        self, world: SweepWorld, repo: LakeRepository, table: dict[str, list[object]]
    ) -> None:
        forge(world, repo, ["data/x", "data/y"])
        self._put(world, repo, table)
        document = find_and_close(world, "forged")
        assert "is not part of a mark" in document.problem
        assert document.pending.objects == 2

    @pytest.mark.parametrize("status", ["vanished", "", None])
    def it_says_that_a_result_is_none(
        self, world: SweepWorld, repo: LakeRepository, status: str | None
    ) -> None:
        forge(world, repo, ["data/x"])
        table = pa.table({"address": ["data/x"], "size_bytes": [1], "status": [status], "reason": [""]})
        store = world.site().store
        store.put(f"{sweep_prefix('forged')}results/part-1.parquet", _file(table))
        with pytest.raises(LakeplanError, match=r"these objects is damaged|is not part"):
            find_and_close(world, "forged")

    def it_keeps_impossible_figures_out_of_the_state(self, world: SweepWorld, repo: LakeRepository) -> None:
        forge(world, repo, ["data/x"])
        data = write_results({"data/x": (Status.DELETED, "")}, {"data/x": -7}, verified=0)
        world.site().store.put(f"{sweep_prefix('forged')}results/part-1.parquet", data)
        document = world.finish(find_and_close(world, "forged"))
        assert "numbers of the sweep are invalid" in document["note"]
        assert read_sweeps(world.state, "prod/repo1") == {}

    @pytest.mark.parametrize("field", ["deleted", "reasons", "settings", "problem", "at"])
    def it_says_that_a_damaged_summary_is_damaged(
        self, world: SweepWorld, repo: LakeRepository, killed: Mark, field: str
    ) -> None:
        world.finish(world.close(killed))
        file = repo.folder / sweep_prefix(killed.mark_id) / "summary.json"
        summary = json.loads(file.read_text())
        file.write_text(json.dumps({**summary, field: 7}))
        with pytest.raises(LakeplanError, match=f"is damaged: {field}"):
            read_summary(world.site().store, killed.mark_id)

    def _put(self, world: SweepWorld, repo: LakeRepository, table: dict[str, list[object]]) -> None:
        data = _file(pa.table(table))
        store = world.site(repo.name).store
        store.put(f"{mark_prefix('forged')}going/part-1.parquet", data)
        sha256 = hashlib.sha256(data).hexdigest()
        edit(repo, "forged", lambda mark: mark["going"][0].update(sha256=sha256))


def _file(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def find_and_close(world: SweepWorld, mark_id: str) -> Any:
    _, stored = find_mark(world.tree(), mark_id, world.ports())
    return world.close(stored.mark)


def test_a_mark_that_was_written_is_read_again(world: SweepWorld, repo: LakeRepository) -> None:
    mark = world.mark()
    assert read_mark(mark.to_bytes(), name="x").to_bytes() == mark.to_bytes()

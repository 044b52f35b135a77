"""Which objects a mark may delete, and which it must not."""

from __future__ import annotations

from typing import Any

import pytest

from lakeplan.errors import UsageError
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.service import check_allowed
from lakeplan.values.simulation import MarkClass
from lakeplan.values.sweep import Deletion
from tests.sweeping.lake import LakeRepository
from tests.sweeping.stores import FaultyStore
from tests.sweeping.world import SweepWorld

DAY = 24
SPELLINGS = [
    "local://elsewhere/repo1/{}?x=1",
    "local://repo1//{}",
    "local://repo1/./{}",
    "local://user@repo1/{}#top",
    "local://elsewhere/../repo1/{}",
]
"""Full addresses that a server, or the store behind it, resolves to one and the same object."""


@pytest.fixture
def collecting(world: SweepWorld) -> SweepWorld:
    """Takes what was never committed too."""
    world.sweep["never_committed"] = "collect"
    return world


def old_stray(repo: LakeRepository, name: str = "data/stray/1", age_hours: float = 5 * DAY) -> str:
    """An object that no commit ever held and nobody staged."""
    path = repo.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"stray")
    repo.touch(name, age_hours)
    return name


def it_takes_what_expired_and_keeps_the_rest(world: SweepWorld, repo: LakeRepository) -> None:
    before = repo.stored()
    mark = world.mark()
    assert set(world.going(mark).values()) == {"backlog"}
    assert mark.to_delete.objects == 2
    document = world.sweep_of(mark)
    assert document["finished"]
    assert document["deleted"] == {"objects": 2, "size_bytes": 11}
    assert before - repo.stored() == set(world.going(mark)) == set(world.ends(mark))
    assert repo.get("main", "a.bin") == b"fourth"
    assert repo.get("main~1", "a.bin") == b"third"
    assert repo.is_gone("main~2", "a.bin")
    assert repo.is_gone("main~3", "a.bin")


def it_deletes_nothing_by_marking(world: SweepWorld, repo: LakeRepository) -> None:
    before = repo.stored()
    world.mark()
    assert repo.stored() == before


class DescribeAges:
    def it_takes_nothing_that_is_younger_than_the_minimum_age(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        repo.touch(_address(repo, "main~3"), age_hours=DAY - 0.1)
        repo.touch(_address(repo, "main~2"), age_hours=DAY + 0.1)
        assert set(world.going(world.mark())) == {_address(repo, "main~2")}

    def it_leaves_what_is_uploaded_while_it_marks(self, collecting: SweepWorld, repo: LakeRepository) -> None:
        seen = []

        def upload() -> None:
            seen.append(repo.upload(f"late{len(seen)}.bin", b"late"))

        collecting.marker.listed = upload  # after the listing
        collecting.between = upload  # between uncommitted data and the refs dump
        mark = collecting.mark()
        assert len(seen) == 2
        assert not set(seen) & {*collecting.going(mark), *collecting.kept(mark)}

    def it_never_takes_an_upload_that_looks_old_when_it_appears(
        self, collecting: SweepWorld, repo: LakeRepository
    ) -> None:
        """S3 dates a multipart upload at its start (retention.md)."""
        collecting.sweep["settle"] = "24h"
        made = []

        def complete_upload() -> None:
            address = repo.upload("long.bin", b"long in coming")
            repo.touch(address, age_hours=3 * DAY)
            made.append(address)

        collecting.marker.listed = complete_upload
        mark = collecting.mark()
        assert made[0] not in {*collecting.going(mark), *collecting.kept(mark)}
        # and when it appears just before the listing, not linked to any path yet
        collecting.marker.listed = lambda: None
        unlinked = old_stray(repo, "data/long/2", age_hours=3 * DAY)
        mark = collecting.mark()
        assert collecting.going(mark)[unlinked] == "never_committed"
        collecting.lake.clock.advance(hours=30)
        repo.stage("long2.bin", unlinked)
        repo.commit()
        collecting.sweep_of(mark)
        assert repo.get("main", "long2.bin") == b"stray"
        assert collecting.ends(mark)[unlinked][0] == "saved"


class DescribeWhatWasNeverCommitted:
    def it_is_counted_apart_and_kept_by_default(self, world: SweepWorld, repo: LakeRepository) -> None:
        stray = old_stray(repo)
        mark = world.mark()
        assert world.kept(mark) == {stray: "never_committed"}
        assert mark.marked.amount(MarkClass.NEVER_COMMITTED).objects == 1
        world.sweep_of(mark)
        assert stray in repo.stored()

    def it_goes_after_two_looks_that_lie_far_enough_apart(
        self, collecting: SweepWorld, repo: LakeRepository
    ) -> None:
        stray = old_stray(repo)
        collecting.sweep["settle"] = "24h"
        collecting.mark()  # since when the rules are as they are
        collecting.lake.clock.advance(hours=25)
        mark = collecting.mark()
        collecting.sweep_of(mark)
        assert stray in repo.stored()
        assert "not yet inspected again after sweep.settle" in collecting.ends(mark)[stray][1]
        # the other objects of that mark did go: a collector ran, and a new mark is wanted
        second = collecting.mark()
        collecting.lake.clock.advance(hours=25)
        collecting.sweep_of(second)
        assert stray not in repo.stored()

    def it_keeps_what_was_being_committed_in_a_slow_hook(
        self, collecting: SweepWorld, repo: LakeRepository
    ) -> None:
        """While a pre-commit hook ran, the staged path was overwritten: the address being committed was in
        neither the uncommitted run nor the dump, yet the commit held it (retention.md)."""
        address = repo.upload("slow.bin", b"slow")
        repo.touch(address, age_hours=2 * DAY)
        repo.reset()  # gone from staging; the commit that holds it is still to come
        collecting.sweep["settle"] = "24h"
        mark = collecting.mark()
        assert collecting.going(mark)[address] == "never_committed"
        repo.stage("slow.bin", address)
        repo.commit()
        repo.upload("slow.bin", b"overwritten")
        collecting.lake.clock.advance(hours=25)
        collecting.sweep_of(mark)
        assert repo.get(repo.call("GET", "/branches/main").json()["commit_id"], "slow.bin") == b"slow"

    def it_does_not_hurry_when_the_commit_takes_longer_than_the_sweep(
        self, collecting: SweepWorld, repo: LakeRepository
    ) -> None:
        address = repo.upload("slow.bin", b"slow")
        repo.touch(address, age_hours=2 * DAY)
        repo.reset()
        collecting.sweep["settle"] = "24h"
        collecting.mark()
        collecting.lake.clock.advance(hours=25)
        mark = collecting.mark()
        collecting.lake.clock.advance(hours=23)
        collecting.sweep_of(mark)
        repo.stage("slow.bin", address)
        repo.commit()
        assert repo.get("main", "slow.bin") == b"slow"


class DescribeWhatIsKept:
    def it_keeps_what_is_staged_whatever_its_age(self, collecting: SweepWorld, repo: LakeRepository) -> None:
        address = repo.upload("staged.bin", b"staged")
        repo.touch(address, age_hours=90 * DAY)
        again = _address(repo, "main~3")
        repo.stage("old.bin", again)
        collecting.sweep_of(collecting.mark())
        assert repo.get("main", "staged.bin") == b"staged"
        assert repo.get("main", "old.bin") == b"first"

    def it_keeps_what_is_staged_between_uncommitted_data_and_the_dump_and_committed_there(
        self, collecting: SweepWorld, repo: LakeRepository
    ) -> None:
        address = repo.upload("quick.bin", b"quick")
        repo.touch(address, age_hours=2 * DAY)
        collecting.between = lambda: repo.commit() and None
        mark = collecting.mark()
        assert address not in collecting.going(mark)

    def it_keeps_protected_tags_and_holds_and_says_so(self, world: SweepWorld, repo: LakeRepository) -> None:
        repo.tag("v1", "main~3")
        mark = world.mark()
        assert world.kept(mark) == {_address(repo, "main~3"): "protected"}
        world.holds = [{"prefix": "a.b", "reason": "legal"}]
        mark = world.mark()
        assert set(world.kept(mark).values()) == {"protected"}
        assert world.going(mark) == {}
        world.holds = [{"prefix": "a.b", "until": "2020-01-01", "reason": "over"}]
        assert world.going(world.mark()) == {}, "as if it were removed"
        world.lake.clock.advance(days=1)
        assert len(world.going(world.mark())) == 1

    def it_keeps_what_is_near_its_limit(self, world: SweepWorld, repo: LakeRepository) -> None:
        # the third version leaves with the day on which the commit of yesterday gets older than the rule
        world.sweep["margin"] = "26h"
        world.lake.clock.advance(days=5)
        assert set(world.kept(world.mark()).values()) == {"near_limit"}
        world.sweep["margin"] = "0s"
        assert len(world.going(world.mark())) == 3

    def it_keeps_what_the_tree_s_own_rules_keep(self, world: SweepWorld, repo: LakeRepository) -> None:
        world.gc = {"default_retention_days": 60}
        mark = world.mark()
        assert set(world.kept(mark).values()) == {"near_limit"}
        assert mark.to_delete.objects == 0

    def it_keeps_a_new_branch_that_a_pattern_of_the_tree_names(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        world.gc = {
            "default_retention_days": 7,
            "branches": [{"pattern": "audit-*", "retention_days": 60}],
        }
        mark = world.mark()
        assert mark.to_delete.objects == 2
        repo.branch("audit-1")  # nobody expanded the pattern on the server
        world.sweep_of(mark)
        assert len([1 for status, _ in world.ends(mark).values() if status == "saved"]) == 2

    @pytest.mark.parametrize("kept", [{"min_commits": 4}, {"keep": {"daily": 4}}, {"keep": {"monthly": 3}}])
    def it_keeps_the_newest_commits_although_they_have_no_pins_yet(
        self, world: SweepWorld, repo: LakeRepository, kept: dict[str, Any]
    ) -> None:
        world.gc = {
            "default_retention_days": 7,
            "branches": [{"branch_id": "main", "retention_days": 7, **kept}],
        }
        mark = world.mark()
        assert world.kept(mark)[_address(repo, "main~3")] == "protected"

    def it_keeps_tags_although_they_have_no_pins_yet(self, world: SweepWorld, repo: LakeRepository) -> None:
        world.pins = {"tags": ["release-*"]}
        world.gc = {"default_retention_days": 7}
        mark = world.mark()
        assert mark.to_delete.objects == 2
        repo.tag("release-1", "main~3")
        world.sweep_of(mark)
        assert repo.get("main~3", "a.bin") == b"first"

    def it_keeps_full_addresses_that_another_repository_holds(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        other = world.lake.repository("repo2")
        address = _address(repo, "main~3")
        other.stage("import.bin", f"local://repo1/{address}")
        other.commit()
        mark = world.mark()
        assert world.kept(mark) == {address: "protected"}
        world.sweep_of(mark)
        assert other.get("main", "import.bin") == b"first"

    @pytest.mark.parametrize(
        ("odd", "date"),
        [
            ({}, 1_709_294_400_000),
            ({"mtime": 1_709_294_400_000}, 1_709_294_400),
            ({"size_bytes": -1}, 1_709_294_400),
        ],
        ids=["commit in milliseconds", "object in milliseconds", "negative size"],
    )
    def it_reads_odd_values_that_clients_gave(
        self, world: SweepWorld, repo: LakeRepository, odd: dict[str, int], date: int
    ) -> None:
        """Servers accept them. One of them in one repository stopped the sweeps of all repositories."""
        address = _address(repo, "main~3")
        other = world.lake.repository("repo2")
        for made, path, held in (
            (repo, "again.bin", repo.upload("c.bin", b"c")),
            (other, "import.bin", address),
        ):
            body = {"physical_address": f"local://repo1/{held}", "checksum": "c", "size_bytes": 1, **odd}
            made.call("PUT", "/branches/main/objects", params={"path": path}, json=body)
            made.call("POST", "/branches/main/commits", json={"message": "odd", "date": date})
        mark = world.mark()
        assert world.kept(mark)[address] == "protected"
        assert set(world.going(mark).values()) == {"backlog"}
        document = world.sweep_of(mark)
        assert document["finished"]
        assert address in repo.stored()

    def it_keeps_what_another_repository_imports_after_the_mark(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        other = world.lake.repository("repo2")
        mark = world.mark()
        address = _address(repo, "main~3")
        other.stage("import.bin", f"local://repo1/{address}")
        other.commit()
        world.sweep_of(mark)
        assert other.get("main", "import.bin") == b"first"
        assert world.ends(mark)[address][0] == "saved"

    @pytest.mark.parametrize("where", SPELLINGS)
    @pytest.mark.parametrize("holder", ["repo1", "repo2"])
    def it_keeps_what_an_address_in_another_spelling_means(
        self, world: SweepWorld, repo: LakeRepository, holder: str, where: str
    ) -> None:
        other = repo if holder == "repo1" else world.lake.repository("repo2")
        address, late = _address(repo, "main~3"), _address(repo, "main~2")
        other.stage("import.bin", where.format(address))
        other.commit()
        mark = world.mark()
        assert world.kept(mark)[address] == "uncertain_address"
        assert mark.marked.amount(MarkClass.UNCERTAIN_ADDRESS).objects == 1
        other.stage("later.bin", where.format(late))
        other.commit()
        world.sweep_of(mark)
        assert {address, late} <= repo.stored()

    @pytest.mark.parametrize("where", ["local://repo1/{}?x=1", "local://repo1//{}"])
    def it_keeps_what_is_staged_in_another_spelling(
        self, world: SweepWorld, repo: LakeRepository, where: str
    ) -> None:
        address = _address(repo, "main~3")
        repo.stage("again.bin", where.format(address))
        assert address not in world.going(world.mark())

    def it_keeps_what_a_relative_address_of_another_repository_leads_out_to(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        other, address = world.lake.repository("repo2"), _address(repo, "main~3")
        other.stage("import.bin", f"local://repo2/../repo1/{address}")  # the server stores ../repo1/data/…
        other.commit()
        assert world.kept(world.mark()) == {address: "uncertain_address"}

    def it_takes_no_query_of_another_repository_for_a_key(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        other, address = world.lake.repository("repo2"), _address(repo, "main~3")
        other.stage("import.bin", f"local://repo1/{address}?x=1")
        other.commit()
        mark = world.mark()
        assert world.kept(mark) == {address: "uncertain_address"}

    def it_keeps_what_the_server_forgets_by_its_early_stop(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        """Whichever way commit ids fall, nothing that the documented rule keeps goes."""
        for n in range(4):
            repo.hard_reset("main~1")
            repo.commit(3, b=f"{n}".encode())
            repo.branch(f"feature{n}", "main~1")
            repo.commit(1, f"feature{n}", c=f"{n}".encode())
            repo.set_rules(2)
            world.lake.clock.advance(days=2)
            mark = world.mark()
            assert _address(repo, f"feature{n}~1") not in world.going(mark)


def it_leaves_no_listing_behind(world: SweepWorld, repo: LakeRepository) -> None:
    mark = world.mark()
    store = world.site().store
    assert list(store.list_objects(f"_lakeplan/marks/{mark.mark_id}/listing/")) == []


def it_warns_of_credentials_that_may_not_delete(
    world: SweepWorld, repo: LakeRepository, caplog: pytest.LogCaptureFixture
) -> None:
    """The mark was approved, and only its sweep failed."""

    def wrap(store: SweepStore) -> FaultyStore:
        faulty = FaultyStore(store)
        faulty.refuses = lambda key: Deletion(key, "AuthorizationPermissionMismatch")
        return faulty

    world.mark()
    assert not caplog.text
    world.wrap = wrap
    world.mark()
    assert "may not be able to delete objects" in caplog.text
    assert "AuthorizationPermissionMismatch" in caplog.text


def it_shuts_a_gate_when_objects_may_go_sooner_than_the_server_asks_for(
    world: SweepWorld, repo: LakeRepository
) -> None:
    repo.touch(_address(repo, "main~3"), age_hours=2)
    world.sweep["min_age"] = "1h"
    mark = world.mark()
    assert mark.to_delete.objects == 2
    assert {gate.gate for gate in mark.gates if gate.outcome.value == "refused"} == {"min-age"}


def _address(repo: LakeRepository, ref: str) -> str:
    answer = repo.call("GET", f"/refs/{ref}/objects/stat", params={"path": "a.bin"}).json()
    return repo.relative(answer["physical_address"])


def it_needs_a_repository_with_allow_where_several_are_marked(
    world: SweepWorld, repo: LakeRepository
) -> None:
    other = world.lake.repository("repo2")
    other.commit(1, a=b"data")
    other.set_rules(7)
    world.allowed = frozenset({"sweep-limit"})
    with pytest.raises(
        UsageError, match="does not specify a repository, but 2 repositories are selected"
    ) as caught:
        world.mark_all()
    assert "--allow prod/repo1=sweep-limit --allow prod/repo2=sweep-limit" in caught.value.hint
    world.allowed = frozenset({"prod/repo1=sweep-limit"})
    world.sweep["max_objects"] = 1
    (mark,) = [mark for mark in world.mark_all().marks if mark.key == "prod/repo1"]
    assert "allowed" in [g.outcome.value for g in mark.gates if g.gate == "sweep-limit"]


def it_needs_a_server_with_allow_where_two_have_the_repository() -> None:
    both = ["prod/repo1", "stage/repo1", "prod/repo2"]
    with pytest.raises(UsageError, match="repo1=sweep-limit matches 2 repositories on different") as caught:
        check_allowed(frozenset({"repo1=sweep-limit"}), both)
    assert "--allow prod/repo1=sweep-limit --allow stage/repo1=sweep-limit" in caught.value.hint
    assert "repo2" not in caught.value.hint
    check_allowed(frozenset({"prod/repo1=sweep-limit", "repo2=min-age"}), both)
    check_allowed(frozenset({"repo1=sweep-limit", "min-age"}), both[:1])

"""The simulation that planning asks: masks of objects over several repositories."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeplan import limits
from lakeplan.errors import FormatError, LakeplanError, SimulationFailed, StorageNotFound
from lakeplan.formats.ranges import write_metarange, write_range
from lakeplan.simulation.cache import FolderCache
from lakeplan.simulation.impact import Inventories, LocalOrSpark
from lakeplan.simulation.inputs import NamespaceMetadata
from lakeplan.simulation.listings import Inventory, open_inventory
from lakeplan.simulation.requests import ImpactRequest
from lakeplan.simulation.runners import Runners
from lakeplan.stores.open import open_namespace
from lakeplan.values.plan import Bit
from lakeplan.values.repository import AddressType, Entry
from lakeplan.values.shown_records import Records, object_digests, packed
from lakeplan.values.simulation import Amount, ImpactResult, PrefixAmount, RunnerChoice, Transition
from tests.simulation.inventories import FakeStore, Row, inventory, inventory_file
from tests.simulation.namespaces import NOW_US, SERVER_URL, entry, full, range_with

BEFORE, AFTER, LATER = 1, 2, 4
EXPIRE = {"expire": Transition(BEFORE, AFTER), "later": Transition(BEFORE, LATER)}


class Repository:
    """A folder of metaranges, one for each commit."""

    def __init__(self, root: Path, key: str = "lab/one") -> None:
        self.key, self.root = key, root
        (root / "_lakefs").mkdir(parents=True)
        self.metaranges: dict[str, int] = {}
        self.tags: dict[str, str] = {}

    def commit(self, mask: int, *entries: Entry) -> str:
        """A commit of one range a first letter, with the verdicts of ``mask``."""
        groups: dict[str, list[Entry]] = defaultdict(list)
        for each in sorted(entries, key=lambda e: e.path.encode()):
            groups[each.path[0]].append(each)
        infos = []
        for group in groups.values():
            info, data = write_range(group)
            self._write(info.id, data)
            infos.append(info)
        metarange, data = write_metarange(infos)
        self._write(metarange, data)
        self.metaranges[metarange] = self.metaranges.get(metarange, 0) | mask
        return metarange

    def tag(self, name: str, metarange: str) -> None:
        self.tags[name] = metarange

    def _write(self, name: str, data: bytes) -> None:
        (self.root / "_lakefs" / name).write_bytes(data)

    def request(self, storage_namespace: str = SERVER_URL) -> ImpactRequest:
        return ImpactRequest(
            self.key,
            storage_namespace,
            NamespaceMetadata(open_namespace(f"file://{self.root}")),
            {id: mask for id, mask in self.metaranges.items() if mask},
            EXPIRE,
            "expire",
            self.tags,
        )


def ask(runners: Runners, *repositories: Repository) -> dict[str, ImpactResult | LakeplanError]:
    return dict(LocalOrSpark(runners).impact([repository.request() for repository in repositories]))


def answer(runners: Runners, repository: Repository) -> ImpactResult:
    found = ask(runners, repository)[repository.key]
    assert isinstance(found, ImpactResult)
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "one")


class DescribeWithoutARunner:
    @pytest.fixture(autouse=True)
    def no_runner(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: object, **options: object) -> None:
            raise SimulationFailed("Java is missing")

        monkeypatch.setattr(Runners, "open", fail)

    def it_starts_nothing_when_no_commit_changes_sides(self, repository: Repository) -> None:
        kept = repository.commit(BEFORE | AFTER | LATER, entry("a", "data/1"))
        repository.tag("v1", kept)
        found = LocalOrSpark().impact([repository.request()])
        assert found == {"lab/one": ImpactResult({}, tags={"v1": Amount()})}

    def it_starts_nothing_when_kept_commits_share_every_range(self, repository: Repository) -> None:
        repository.commit(BEFORE, entry("a", "data/1"))
        repository.commit(BEFORE | AFTER | LATER, entry("a", "data/1"), entry("b", "data/2"))
        found = LocalOrSpark().impact([repository.request()])
        assert found == {"lab/one": ImpactResult({})}

    def it_gives_the_error_to_every_repository_that_is_read(
        self, repository: Repository, tmp_path: Path
    ) -> None:
        repository.commit(BEFORE, entry("a", "data/1"))
        calm = Repository(tmp_path / "calm", "lab/calm")
        calm.commit(BEFORE | AFTER | LATER, entry("a", "data/1"))
        found = LocalOrSpark().impact([repository.request(), calm.request()])
        assert isinstance(found["lab/one"], SimulationFailed)
        assert found["lab/calm"] == ImpactResult({})


class DescribeWhatIsNamed:
    NAMED: ClassVar = {"expire": Bit.NOW, "later": Bit.WEEK}

    def shown(self, runners: Runners, *repositories: Repository) -> list[Any]:
        asked = [replace(repository.request(), shown=self.NAMED) for repository in repositories]
        found = LocalOrSpark(runners).impact(asked)
        return [getattr(found[repository.key], "shown", None) for repository in repositories]

    def it_names_every_object_by_why_it_expires(self, runners: Runners, repository: Repository) -> None:
        repository.commit(BEFORE, *(entry(f"a{n}", f"data/{n}") for n in range(20)))
        repository.commit(BEFORE | AFTER, entry("b", "data/7"), entry("c", "data/late"))
        repository.commit(BEFORE | AFTER | LATER, entry("d", "data/3"))
        (data,) = self.shown(runners, repository)
        now = [f"data/{n}" for n in range(20) if n not in (3, 7)]
        expected = dict.fromkeys(now, int(Bit.NOW | Bit.WEEK)) | dict.fromkeys(["data/7", "data/late"], 2)
        assert data == packed(
            (object_digests(repository.key, [address]), bits) for address, bits in expected.items()
        )

    def it_names_none_of_a_repository_beyond_the_limit(
        self, runners: Runners, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "SHOWN_RECORDS", 2)
        small = Repository(tmp_path / "small", "lab/small")
        small.commit(BEFORE, entry("a", "data/1"))
        repository.commit(BEFORE, *(entry(f"a{n}", f"data/{n}") for n in range(3)))
        large, known = self.shown(runners, repository, small)
        assert large is None
        assert Records(known).count(Bit.NOW) == 1


class DescribeImpact:
    def it_counts_objects_by_the_verdicts_of_all_commits_that_hold_them(
        self, runners: Runners, repository: Repository
    ) -> None:
        repository.commit(BEFORE, entry("a/1", "data/1", 5), entry("b/2", "data/2", 7))
        repository.commit(BEFORE | AFTER, entry("c/copy", "data/2", 7))
        found = answer(runners, repository)
        assert found.by_mask == {BEFORE: Amount(1, 5), BEFORE | AFTER: Amount(1, 7)}
        assert found.amount(EXPIRE["expire"]) == Amount(1, 5)
        assert found.amount(EXPIRE["later"]) == Amount(2, 12)
        assert found.prefixes == (PrefixAmount("", 0, Amount(1, 5)), PrefixAmount("a/", 1, Amount(1, 5)))
        assert (found.ranges_read, found.entries_read) == (3, 3)
        assert found.runner == RunnerChoice(str(runners.asked), "requested")

    def it_counts_full_addresses_inside_and_none_outside(
        self, runners: Runners, repository: Repository
    ) -> None:
        repository.commit(
            BEFORE,
            full("a", f"{SERVER_URL}/data/1", 5),
            full("b", "s3://imports/data/9", 100),
            entry("c", "elsewhere/deep", 3),
        )
        repository.commit(BEFORE | AFTER | LATER, full("d", f"{SERVER_URL}-2/data/1", 5))
        assert answer(runners, repository).by_mask == {BEFORE: Amount(1, 5)}

    def it_counts_what_tags_lose(self, runners: Runners, repository: Repository) -> None:
        old = repository.commit(BEFORE, entry("a", "data/1", 5), entry("b", "data/2", 7))
        kept = repository.commit(BEFORE | AFTER, entry("b", "data/2", 7))
        forgotten = repository.commit(0, entry("a", "data/1", 5), entry("z", "data/9", 1))
        for name, at in (("v1", old), ("v2", kept), ("v0", forgotten), ("first", "")):
            repository.tag(name, at)
        found = answer(runners, repository)
        assert found.tags == {
            "first": Amount(),
            "v0": Amount(1, 5),
            "v1": Amount(1, 5),
            "v2": Amount(),
        }
        assert 0 not in found.by_mask

    def it_never_mixes_the_same_range_in_two_namespaces(self, runners: Runners, tmp_path: Path) -> None:
        one, two = Repository(tmp_path / "1", "lab/one"), Repository(tmp_path / "2", "lab/two")
        same = entry("a", "data/1", 5)
        one.commit(BEFORE, same)
        two.commit(BEFORE | AFTER, same)
        found = ask(runners, one, two)
        assert found["lab/one"].by_mask == {BEFORE: Amount(1, 5)}  # type: ignore[union-attr]
        assert found["lab/two"].by_mask == {BEFORE | AFTER: Amount(1, 5)}  # type: ignore[union-attr]
        assert found["lab/two"].prefixes == ()  # type: ignore[union-attr]

    def it_never_mixes_them_in_a_cache(self, runners: Runners, tmp_path: Path) -> None:
        """One repository's data imported into two others: their ranges are the same files."""
        held = entry("a", "data/1", 5), full("b/1", f"{SERVER_URL}/data/2", 7)
        requests = []
        for n, url in enumerate((SERVER_URL, "s3://bucket/two", "s3://bucket/three")):
            repository = Repository(tmp_path / str(n), f"lab/{n}")
            repository.commit(BEFORE, *held)
            requests.append(repository.request(url))
        cache = FolderCache(str(tmp_path / "cache"), 10**9)
        for _ in range(2):
            found = LocalOrSpark(runners, cache=cache).impact(requests)
            gone = [found[request.key].by_mask for request in requests]  # type: ignore[union-attr]
            assert gone == [{BEFORE: Amount(2, 12)}, {BEFORE: Amount(1, 5)}, {BEFORE: Amount(1, 5)}]

    def it_gives_a_repository_that_cannot_be_read_its_own_error(
        self, runners: Runners, tmp_path: Path
    ) -> None:
        good, damaged, empty = (Repository(tmp_path / n, f"lab/{n}") for n in ("good", "damaged", "empty"))
        for repository in (good, damaged, empty):
            repository.commit(BEFORE, entry("a", "data/1", 5))
        broken = range_with(damaged.root, b"data/1")
        broken.write_bytes(broken.read_bytes()[:-10])
        for path in (empty.root / "_lakefs").iterdir():
            path.unlink()
        found = ask(runners, good, damaged, empty)
        assert found["lab/good"].by_mask == {BEFORE: Amount(1, 5)}  # type: ignore[union-attr]
        assert isinstance(found["lab/damaged"], FormatError)
        assert broken.name in str(found["lab/damaged"])
        assert isinstance(found["lab/empty"], StorageNotFound)


KEYS = [f"data/p/{n}" for n in range(6)]
held = st.lists(
    st.builds(
        Entry,
        st.sampled_from(["a/1", "a/2", "b/x/3", "c"]),
        st.sampled_from(KEYS),
        st.just(AddressType.RELATIVE),
        st.just(2),
    ),
    unique_by=lambda e: e.path,
)
commits = st.lists(st.tuples(st.integers(1, 7), held), min_size=1, max_size=6)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(commits, min_size=1, max_size=3))
def test_masks_are_those_of_the_commits_that_hold_an_object(
    runners: Runners, histories: Sequence[list[tuple[int, list[Entry]]]]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        repositories, expected = [], {}
        for n, history in enumerate(histories):
            repository = Repository(Path(root) / str(n), f"lab/{n}")
            masks: dict[str, int] = defaultdict(int)
            for mask, entries in history:
                repository.commit(mask, *entries)
                for each in entries:
                    masks[each.address] |= mask
            repositories.append(repository)
            expected[repository.key] = masks
        for key, found in ask(runners, *repositories).items():
            assert isinstance(found, ImpactResult)
            for transition in EXPIRE.values():
                gone = [address for address, mask in expected[key].items() if transition.expires(mask)]
                assert found.amount(transition) == Amount(len(gone), 2 * len(gone))
            if found.ranges_read:
                assert sum(a.objects for a in found.by_mask.values()) == len(expected[key])


class DescribeWithAnInventory:
    """It says which objects are stored, and lowers no figure that a gate judges."""

    def inventory(self, *rows: Row | str) -> Inventory:
        every: list[Row] = [{"key": "ns/_lakefs/dummy"}]
        every += [{"key": row} if isinstance(row, str) else row for row in rows]
        file = inventory_file(every, bucket="bucket")
        made = inventory([file], bucket="bucket", to="inv", created_ms=NOW_US // 1000, folder="x")
        reader = FakeStore(made)
        place = "s3://inv/x/manifest.json"
        return open_inventory(place, reader, SERVER_URL, as_of_us=NOW_US, max_age_seconds=1)

    def ask(self, repository: Repository, inventories: Inventories) -> ImpactResult:
        request = replace(repository.request(), storage_id="", shown={"expire": Bit.NOW})
        found = LocalOrSpark(Runners("local"), inventories=inventories).impact([request])[repository.key]
        assert isinstance(found, ImpactResult)
        return found

    @pytest.fixture
    def full(self, repository: Repository) -> Repository:
        repository.commit(
            BEFORE, entry("a", "data/1", 10), entry("b", "data/2", 20), entry("c", "data/3", 40)
        )
        repository.commit(BEFORE | AFTER | LATER, entry("c", "data/3", 40))
        return repository

    def it_counts_what_is_stored_of_what_expires(self, full: Repository) -> None:
        stored = [{"key": "ns/data/2", "size": 0}, "ns/data/3", "ns/data/never-committed", "other/data/1"]
        found = self.ask(full, lambda _: self.inventory(*stored))
        assert found.stored is not None
        assert found.stored.created == "2026-03-31T12:00:00Z"
        assert found.stored.amount(EXPIRE["expire"]) == Amount(1, 20)

    def it_changes_nothing_else(self, full: Repository) -> None:
        without = self.ask(full, lambda _: None)
        assert without.stored is None
        assert without.amount(EXPIRE["expire"]) == Amount(2, 30)
        for rows in ([], [{"key": "ns/data/1", "size": 0}, {"key": "ns/data/2", "size": 10**12}]):
            found = self.ask(full, lambda _, rows=rows: self.inventory(*rows))  # type: ignore[misc]
            assert replace(found, stored=None) == without

    def it_says_why_it_is_not_used(self, full: Repository) -> None:
        def broken(_: ImpactRequest) -> Inventory:
            raise FormatError("is not the manifest of an S3 inventory", where="s3://inv/x/manifest.json")

        found = self.ask(full, broken)
        assert found.amount(EXPIRE["expire"]) == Amount(2, 30)
        assert found.stored is not None
        assert "is not the manifest" in found.stored.problem

    def it_is_not_opened_for_what_does_not_ask(self, full: Repository) -> None:
        def never(_: ImpactRequest) -> Inventory:
            raise AssertionError

        found = LocalOrSpark(Runners("local"), inventories=never).impact([full.request()])
        assert isinstance(found[full.key], ImpactResult)

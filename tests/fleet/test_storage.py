"""What is stored and who holds it, compared with a count that shares no code with it."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import jsonschema
import pytest

from lakeplan.fleet import storage
from lakeplan.fleet.audit import AuditSettings
from lakeplan.fleet.storage import storage_of_servers, with_growth, with_owners
from lakeplan.stores.open import NamespaceReader
from lakeplan.tree.schemas import load_schema
from tests.fleet.test_audit import address_of, kept_by_server, ports
from tests.sweeping.lake import Lake, LakeRepository

NOTHING = {"objects": 0, "size_bytes": 0}
DAY = 86_400
PARTS = ("held", "uncommitted", "young", "reclaimable", "unreferenced")


def measure(
    lake: Lake,
    *,
    listed: bool = True,
    compare: tuple[str, str] | None = None,
    dump_refs: bool = False,
    places: bool = False,
    classes: bool = False,
    zones: Mapping[str, tzinfo] | None = None,
    **more: Any,
) -> Any:
    settings = AuditSettings(
        lake.clock(),
        timezone.utc,
        sample=0,
        dump_refs=dump_refs,
        places=places,
        classes=classes,
        zones=zones or {},
    )
    document = storage_of_servers(
        {"prod": "x"},
        ports(lake, listed=listed, **more),
        settings,
        takes=lambda server, name: True,
        compare=compare,
    )
    assert document["failed"] == {}
    found = json.loads(json.dumps(document))
    jsonschema.Draft202012Validator(load_schema("storage")).validate(found)
    return found


def measured(lake: Lake, **more: Any) -> Any:
    (row,) = measure(lake, **more)["repositories"]
    return row


# ---- the independent count
def history(lake: Lake, repo: LakeRepository, draw: random.Random) -> None:
    """Commits of every age on three branches, tags, files that nobody names, and staged files."""
    names = ["main"]
    lake.clock.advance(days=1)
    for age in sorted((draw.randint(1, 60) for _ in range(14)), reverse=True):
        branch = draw.choice(names)
        files = {
            draw.choice(["a", "b", "raw/a", "raw/b", "raw/2026/a", "daily/x/a"]): bytes(draw.randint(1, 90))
            + bytes([draw.randint(0, 255)])
            for _ in range(draw.randint(1, 3))
        }
        repo.commit(age, branch, **files)
        if len(names) < 3 and draw.random() < 0.4:
            repo.branch(f"x{len(names)}", branch)
            names.append(f"x{len(names)}")
        if draw.random() < 0.3:
            repo.tag(f"v{age}-{draw.random()}", branch)
    repo.set_rules(draw.choice([1, 7, 30]), x1=draw.choice([3, 20]))
    for number in range(draw.randint(0, 3)):
        (repo.folder / "data" / f"lost{number}").write_bytes(bytes(draw.randint(1, 50)))
        repo.touch(f"data/lost{number}")
    for number in range(draw.randint(0, 3)):
        repo.upload(f"staged{number}.bin", bytes(draw.randint(1, 50)), draw.choice(names))
    lake.clock.advance(days=2)
    if draw.random() < 0.8:
        repo.call("POST", "/gc/prepare_uncommited", json={})
    for number in range(draw.randint(0, 2)):
        (repo.folder / "data" / f"new{number}").write_bytes(bytes(draw.randint(1, 50)))
        repo.touch(f"data/new{number}")


def objects_of(repo: LakeRepository, ref: str) -> set[str]:
    answer = repo.call("GET", f"/refs/{ref}/objects/ls", params={"amount": 1000}).json()
    return {repo.relative(one["physical_address"]) for one in answer["results"]}


def refs_of(repo: LakeRepository, kind: str) -> dict[str, str]:
    answer = repo.call("GET", f"/{kind}", params={"amount": 1000}).json()
    return {one["id"]: one["commit_id"] for one in answer["results"]}


def commits_by_hand(lake: Lake, repo: LakeRepository) -> tuple[set[str], set[str]]:
    """Commits that rules or tags keep, and all, from the server's own answers."""
    now = lake.clock().timestamp()
    rules = repo.call("GET", "/settings/gc_rules").json()
    days = {one["branch_id"]: one["retention_days"] for one in rules["branches"]}
    branches, tags = refs_of(repo, "branches"), refs_of(repo, "tags")
    keep, every = kept_by_server(repo), set[str]()
    for name, head in branches.items():
        log = repo.call("GET", f"/refs/{head}/commits", params={"amount": 1000}).json()["results"]
        every |= {one["id"] for one in log}
        commits = {one["id"]: one for one in log}
        at, limit = head, now - DAY * days.get(name, rules["default_retention_days"])
        keep.add(at)
        while commits[at]["parents"] and commits[at]["creation_date"] > limit:
            at = commits[at]["parents"][0]
            keep.add(at)
    return (keep & every) | set(tags.values()), every


def held_below(lake: Lake, repo: LakeRepository, prefix: str) -> dict[str, int]:
    found = set[str]()
    for commit in commits_by_hand(lake, repo)[0]:
        answer = repo.call("GET", f"/refs/{commit}/objects/ls", params={"amount": 1000, "prefix": prefix})
        found |= {repo.relative(one["physical_address"]) for one in answer.json()["results"]}
    sizes = [(repo.folder / key).stat().st_size for key in found & set(repo.stored())]
    return {"objects": len(sizes), "size_bytes": sum(sizes)}


def count_by_hand(lake: Lake, repo: LakeRepository) -> dict[str, Counter[str]]:
    """Bytes and objects by part, from the files, the listings of commits and the server's own answers."""
    now, branches = lake.clock().timestamp(), refs_of(repo, "branches")
    kept, every = commits_by_hand(lake, repo)
    held = set[str]().union(*(objects_of(repo, id) for id in kept))
    committed = set[str]().union(*(objects_of(repo, id) for id in every))
    staged = {address for name in branches for address in objects_of(repo, name)} - committed
    has_run = (repo.folder / "_lakefs/retention/gc/uncommitted").exists()
    found: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    for key in repo.stored():
        file = (repo.folder / key).stat()
        if key in held:
            part = "held"
        elif key in staged and has_run:
            part = "uncommitted"
        elif file.st_mtime >= now - DAY:
            part = "young"
        else:
            part = "reclaimable" if key in committed else "unreferenced"
        found[part].update(objects=1, size_bytes=file.st_size)
    return found


@pytest.mark.parametrize("seed", range(12))
def it_equals_a_count_by_hand_and_adds_up(lake: Lake, seed: int) -> None:
    repo = lake.repository("repo1")
    history(lake, repo, random.Random(seed))
    row = measured(lake)
    by_hand = count_by_hand(lake, repo)
    for part, amount in by_hand.items():
        if row[part] is None:
            assert (part, amount) == ("uncommitted", Counter())
        else:
            assert (part, row[part]) == (part, NOTHING | dict(amount))
    files = [(repo.folder / key).stat().st_size for key in repo.stored()]
    assert row["stored"] == {"objects": len(files), "size_bytes": sum(files)}
    for figure in ("objects", "size_bytes"):
        assert sum((row[part] or NOTHING)[figure] for part in PARTS) == row["stored"][figure]
        assert row["shared"][figure] + row["exclusive"][figure] == row["held"][figure]
        reclaimable = [row["reclaimable"][figure]]
        reclaimable += [one["reclaimable"][figure] for one in row["periods"]]
        assert reclaimable == sorted(reclaimable)
        for one in (*row["branches"], *row["tags"]):
            assert one["exclusive"][figure] <= one["held"][figure] <= row["held"][figure]
    assert {one["name"] for one in row["branches"]} == refs_of(repo, "branches").keys()
    assert {one["name"] for one in row["tags"]} == refs_of(repo, "tags").keys()
    # by prefix and age it is the same, and asking for them changes nothing else
    more = measured(lake, places=True)
    places = {one["prefix"]: one for one in more.pop("prefixes")}
    ages = more.pop("ages")
    assert more.pop("prefixes_left_out") == 0
    assert more == row
    for part in PARTS:
        assert places[""][part] == (row[part] or NOTHING)
    for prefix in ("raw/", "raw/2026/", "daily/", "daily/x/"):
        held = places[prefix]["held"] if prefix in places else NOTHING
        assert (prefix, held_below(lake, repo, prefix)) == (prefix, held)
    for figure in ("objects", "size_bytes"):
        assert sum(age[figure] for age in ages) == row["stored"][figure]
    now = lake.clock().timestamp()
    for age in ages:
        files = [(repo.folder / key).stat() for key in repo.stored()]
        of_age = [f for f in files if age["from_days"] <= (now - f.st_mtime) / DAY < (age["to_days"] or 1e9)]
        assert age["objects"] == len(of_age)


# ---- examples
def it_says_what_can_be_deleted_now_and_later(lake: Lake, repo: LakeRepository) -> None:
    row = measured(lake)
    assert row["reclaimable"] == {"objects": 2, "size_bytes": 11}
    assert row["held"] == row["exclusive"] == {"objects": 2, "size_bytes": 11}
    assert [(one["days"], one["reclaimable"]["objects"]) for one in row["periods"]] == [
        (7, 3),
        (30, 3),
        (90, 3),
    ]


def it_says_what_only_a_tag_holds(lake: Lake, repo: LakeRepository) -> None:
    repo.tag("v1", "main~3")
    row = measured(lake)
    assert row["tags_only"] == {"objects": 1, "size_bytes": 5}
    assert row["reclaimable"] == {"objects": 1, "size_bytes": 6}
    assert row["tags"] == [
        {
            "name": "v1",
            "held": {"objects": 1, "size_bytes": 5},
            "exclusive": {"objects": 1, "size_bytes": 5},
        }
    ]


def it_says_what_two_branches_share(lake: Lake, repo: LakeRepository) -> None:
    repo.branch("other")
    repo.commit(0, "other", b=b"own")
    repo.set_rules(7, other=1)
    row = measured(lake, compare=("main", "other"))
    assert row["compared"] == {
        "branches": ["main", "other"],
        "both": {"objects": 1, "size_bytes": 6},
        "only_first": {"objects": 1, "size_bytes": 5},
        "only_second": {"objects": 1, "size_bytes": 3},
    }
    assert row["shared"] == {"objects": 1, "size_bytes": 6}
    assert measured(lake, compare=("main", "none"))["compared"] is None


def it_leaves_unknown_what_only_a_listing_shows(lake: Lake, repo: LakeRepository) -> None:
    row = measured(lake, listed=False)
    assert [row[name] for name in ("stored", "uncommitted", "young", "unreferenced", "noncurrent")] == [
        None
    ] * 5
    assert (row["listed"], row["not_listed"]) == (False, "no credentials")
    assert (row["held"]["objects"], row["reclaimable"]["objects"]) == (2, 2)


def it_does_not_count_what_is_gone(lake: Lake, repo: LakeRepository) -> None:
    address_of(repo, "main").unlink()
    row = measured(lake)
    assert row["stored"]["objects"] == 3
    assert row["held"]["objects"] == 1


def it_gives_no_branch_what_a_commit_of_a_deleted_branch_keeps_too(lake: Lake, repo: LakeRepository) -> None:
    repo.branch("gone")
    repo.commit(0, "gone", b=b"own")
    repo.drop_branch("gone")
    row = measured(lake, dump_refs=True)
    assert row["held"]["objects"] == 3
    assert row["branches"][0]["exclusive"] == NOTHING
    row = measured(lake)
    assert row["held"] == row["branches"][0]["exclusive"] == {"objects": 2, "size_bytes": 11}
    assert row["young"] == {"objects": 1, "size_bytes": 3}  # nothing that was read names it


def it_keeps_everything_without_rules(lake: Lake, repo: LakeRepository) -> None:
    repo.call("DELETE", "/settings/gc_rules")
    row = measured(lake)
    assert row["held"] == row["stored"] == {"objects": 4, "size_bytes": 22}
    assert row["reclaimable"] == row["periods"][-1]["reclaimable"] == NOTHING


def it_says_how_much_a_repository_grew(lake: Lake, repo: LakeRepository) -> None:
    before = measure(lake)
    repo.commit(0, b=b"more")
    address_of(repo, "main~4").unlink()  # a collection
    row = with_growth(measure(lake), before)["repositories"][0]
    assert row["growth"]["stored"] == {"objects": 0, "size_bytes": -1}
    assert row["growth"]["held"] == {"objects": 1, "size_bytes": 4}
    unlisted = with_growth(measure(lake, listed=False), before)["repositories"][0]
    assert (unlisted["growth"]["stored"], unlisted["growth"]["held"]) == (None, None)


class Classed:
    """A folder whose store has classes: what lies below ``data/a`` is cold."""

    def __init__(self, inner: NamespaceReader) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def list_classes(self) -> Iterator[tuple[str, int, str]]:
        for one in self._inner.list_objects():
            yield one.key, one.size, "COLD" if hash_of(one.key) else "STANDARD"
        yield "data/folder/", 0, "STANDARD"


def hash_of(key: str) -> bool:
    return sum(key.encode()) % 2 == 1


def it_counts_storage_classes_of_data_alone(lake: Lake, repo: LakeRepository) -> None:
    plain = ports(lake)
    found = measured(lake, classes=True)
    assert found["classes"] is None, "folders have none"

    def store(_: str, repository: Any) -> Any:
        return Classed(plain.store("prod", repository))

    row = measured(lake, classes=True, store=store)
    files = [file for file in (repo.folder / "data").rglob("*") if file.is_file()]
    by_hand: Counter[str] = Counter()
    for file in files:
        key = file.relative_to(repo.folder).as_posix()
        by_hand["COLD" if hash_of(key) else "STANDARD"] += file.stat().st_size
    assert {one["storage_class"]: one["size_bytes"] for one in row["classes"]} == by_hand
    assert sum(one["objects"] for one in row["classes"]) == row["stored"]["objects"] == len(files)
    assert "classes" not in measured(lake, store=store)


def it_sums_owners(lake: Lake, repo: LakeRepository) -> None:
    lake.repository("repo2")
    document = measure(lake)
    other = lake.repository("repo3")
    other.commit(1, b=b"123456")
    lake.clock.advance(days=2)
    document = with_owners(measure(lake), lambda key: "" if key.endswith("2") else "data")
    jsonschema.Draft202012Validator(load_schema("storage")).validate(json.loads(json.dumps(document)))
    rows = {row["repository"]: row for row in document["repositories"]}
    assert {key: row["owner"] for key, row in rows.items()} == {
        "prod/repo1": "data",
        "prod/repo2": None,
        "prod/repo3": "data",
    }
    data, nobody = document["owners"]
    assert (data["owner"], data["repositories"]) == ("data", 2)
    assert (nobody["owner"], nobody["repositories"], nobody["held"]) == (None, 1, NOTHING)
    for name in ("stored", "held", "reclaimable", "unreferenced"):
        every = [rows[key][name]["size_bytes"] for key in ("prod/repo1", "prod/repo3")]
        assert data[name]["size_bytes"] == sum(every)
    assert data["noncurrent"] is None, "a folder does not say"


def it_judges_each_server_in_its_own_zone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    history(lake, lake.repository("repo1"), random.Random(1))
    zone, seen = ZoneInfo("Europe/Berlin"), set[object]()
    judged = storage.judge
    monkeypatch.setattr(storage, "judge", lambda *given: seen.add(given[-1]) or judged(*given))
    measured(lake, zones={"prod": zone})
    assert seen == {zone}

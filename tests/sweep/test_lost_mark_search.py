"""Where a mark that the state lost is searched for, by figures alone; whole sweeps are in test_lost_marks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.errors import LakeplanError, ServerUnreachable, StorageError, StorageNotFound, UsageError
from lakeplan.sweep import service as module
from lakeplan.sweep.records import StoredMark
from lakeplan.sweep.service import NAMED, find_mark

FOLDER = "_lakeplan/marks/m1/"


def record(**changes: Any) -> Any:
    """A mark ``m1`` of ``prod/lake``."""
    mark = {
        "mark_id": "m1",
        "key": "prod/lake",
        "endpoint_url": "http://prod",
        "storage_namespace": "s3://lake",
        "repository_created": 17,
        **changes,
    }
    return SimpleNamespace(**mark)


@dataclass
class Case:
    """Servers with repositories. ``records``: what the namespace of one has, by ``server/name``."""

    servers: dict[str, list[str] | LakeplanError] = field(default_factory=lambda: {"prod": ["lake"]})
    desired: dict[str, list[str]] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)
    approval: object = None
    known: bool = False
    steps: list[Any] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def find(self, mark_id: str = "m1") -> Any:
        tree: Any = SimpleNamespace(
            servers={
                name: SimpleNamespace(name=name, endpoint_url=f"http://{name}") for name in self.servers
            },
            resolve=self.resolve,
        )
        self.tree, self.wanted = tree, mark_id
        self.ports: Any = SimpleNamespace(reader=self.reader, store=self.store, state="state", progress=self)
        return find_mark(tree, mark_id, self.ports)

    def resolve(self, server: str, listed: Any) -> list[Any]:
        names = self.desired.get(server, [*listed])
        return [SimpleNamespace(server=server, name=name, key=f"{server}/{name}") for name in names]

    def reader(self, server: str) -> Any:
        names = self.servers[server]
        if isinstance(names, LakeplanError):
            raise names
        repositories = [
            SimpleNamespace(
                id=name, key=f"{server}/{name}", storage_namespace=f"s3://{name}", creation_date=17
            )
            for name in names
        ]
        return SimpleNamespace(list_repositories=lambda: iter(repositories))

    def store(self, server: Any, repository: Any) -> str:
        assert repository.key == f"{server.name}/{repository.id}"
        return str(repository.key)

    @contextmanager
    def task(self, text: str, total: int) -> Iterator[Any]:
        self.steps.append((text, total))
        yield lambda: self.steps.append("step")

    # ---- what the search calls
    def read_mark_index(self, state: str, mark_id: str) -> Any:
        assert (state, mark_id) == ("state", self.wanted)
        return {} if self.known else None

    def read_stored(self, store: str, mark_id: str) -> StoredMark:
        assert mark_id == "m1"
        self.read.append(store)
        found = self.records.get(store, StorageNotFound("there is no mark"))
        if isinstance(found, LakeplanError):
            raise found
        return StoredMark(found, f"digest of {store}", recorded=False)

    def read_approval(self, state: str, stored: StoredMark) -> object:
        assert (state, stored.mark.mark_id) == ("state", "m1")
        return self.approval


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    made = Case()
    for name in ("read_mark_index", "read_stored", "read_approval"):
        monkeypatch.setattr(module, name, getattr(made, name))
    monkeypatch.setattr(module, "open_mark", lambda *args: ("open_mark", *args))
    monkeypatch.setattr(module, "open_site", lambda desired, *args: (desired.key, *args))
    return made


def it_searches_for_no_mark_that_the_state_knows(case: Case) -> None:
    case.known = True
    assert case.find() == ("open_mark", case.tree, "m1", case.ports)
    assert case.steps == case.read == []


@pytest.mark.parametrize(("approval", "recorded"), [(None, False), (object(), True)])
def it_finds_the_one_repository_that_confirms_a_record(
    case: Case, approval: object, recorded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    case.servers = {
        "away": ServerUnreachable("no answer"),
        "prod": ["other", "empty", "lake", "last"],
        "dev": ["lake"],
    }
    mark = record()
    case.records = {"prod/lake": mark, "prod/other": StorageError("no permission")}
    case.approval = approval
    site, stored = case.find()
    assert site == ("prod/lake", case.tree, case.ports)
    assert stored == StoredMark(mark, "digest of prod/lake", recorded=recorded)
    assert case.steps == [
        ("searching for mark m1 on prod", 4),
        *["step"] * 4,
        ("searching for mark m1 on dev", 1),
        "step",
    ]
    assert caplog.messages == [
        "the state has no mark m1: using its record in the namespace of prod/lake",
        "could not search these repositories for the mark: server away: no answer; prod/other: no permission",
    ]


def it_warns_of_nothing_that_it_could_read(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    case.records = {"prod/lake": record()}
    case.find()
    assert len(caplog.messages) == 1


def it_searches_only_repositories_that_the_tree_names_and_the_server_has(case: Case) -> None:
    case.servers["prod"] = ["lake", "not-in-tree"]
    case.desired["prod"] = ["gone", "lake"]
    with pytest.raises(UsageError, match="is neither in the state nor in a namespace"):
        case.find()
    assert case.read == ["prod/lake"]
    assert case.steps == [("searching for mark m1 on prod", 1), "step"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mark_id": "m2"}, "the record belongs to mark m2 of repository prod/lake"),
        ({"key": "prod/other"}, "the record belongs to mark m1 of repository prod/other"),
        ({"endpoint_url": "http://dev"}, "the mark was created on a different server (http://dev)"),
        ({"storage_namespace": "s3://old"}, "the mark was created in a different namespace (s3://old)"),
        ({"repository_created": 16}, "the repository was deleted and created again after the mark"),
    ],
)
def it_says_why_a_repository_does_not_confirm_a_record(case: Case, changes: dict[str, Any], why: str) -> None:
    case.servers["dev"] = StorageError("no answer")
    case.records = {"prod/lake": record(**changes)}
    with pytest.raises(LakeplanError, match="could not be verified") as caught:
        case.find()
    assert f": prod/lake: {why}" in caught.value.message
    assert caught.value.where == f"{FOLDER}mark.json"


def it_refuses_to_choose_between_repositories(case: Case) -> None:
    case.servers = {"prod": ["lake", "twin"]}
    case.records = {
        "prod/lake": record(),
        "prod/twin": record(key="prod/twin", storage_namespace="s3://twin"),
    }
    with pytest.raises(LakeplanError, match=r"because several have .*: prod/lake, prod/twin$") as caught:
        case.find()
    assert f"delete {FOLDER} from that namespace" in caught.value.hint


def it_names_some_of_what_it_could_not_read(case: Case) -> None:
    names = [f"r{n}" for n in range(NAMED + 2)]
    case.servers["prod"] = names
    case.records = {f"prod/{name}": StorageError("no permission") for name in names}
    named = "; ".join(f"prod/{name}: no permission" for name in names[:NAMED])
    with pytest.raises(LakeplanError, match="the search failed for: ") as caught:
        case.find()
    assert caught.value.message.endswith(f"the search failed for: {named}; and 2 more")
    for name in names[NAMED:]:
        del case.records[f"prod/{name}"]
    with pytest.raises(LakeplanError) as caught:
        case.find()
    assert caught.value.message.endswith(f"the search failed for: {named}")


@pytest.mark.parametrize("mark_id", ["../m1", ".m1", "", "\udcff"])
def it_refuses_an_id_that_no_mark_has(case: Case, mark_id: str) -> None:
    with pytest.raises(UsageError, match="is not a mark id"):
        case.find(mark_id)
    assert case.read == []

"""The client against whole servers: the sandbox, and a real lakeFS when the LAKEPLAN_TEST_* variables name
one. The same tests for both."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from lakeplan.errors import (
    AuthenticationFailed,
    DataGone,
    NotFound,
    PermissionDenied,
    ReadOnlyRepository,
    RepositoryNotFound,
)
from lakeplan.lakefs.client import LakeFSServer, _dump_by_task
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.lakefs.protocols import GcRulesWriter, LakeFSReader, MetadataReader
from lakeplan.lakefs.transport import PERMISSIONS, RetryPolicy
from lakeplan.lakefs.writers import LakeFSRulesWriter
from lakeplan.sandbox.service import Options
from lakeplan.values.desired import ServerConfig
from lakeplan.values.rules import GcRules
from tests.sandboxes import Faults, start_sandbox

pytestmark = pytest.mark.contract
REAL = ("LAKEPLAN_TEST_ENDPOINT", "LAKEPLAN_TEST_ACCESS_KEY_ID", "LAKEPLAN_TEST_SECRET_ACCESS_KEY")
MISSING = f"missing-{uuid.uuid4().hex[:12]}"


class Place:
    """A server to test against. ``faults`` are the sandbox's; a real server has none."""

    def __init__(self, url: str, key: str, secret: str, namespaces: str, faults: Faults | None) -> None:
        self.config = ServerConfig("tested", url)
        self.credentials = Credentials(Secret(key), Secret(secret))
        self.namespaces = namespaces
        self.faults = faults

    def call(self, method: str, path: str, status: int, **parts: Any) -> Any:
        auth = (self.credentials.access_key_id.reveal(), self.credentials.secret_access_key.reveal())
        url = f"{self.config.endpoint_url}/api/v1/repositories{path}"
        answer = requests.request(method, url, auth=auth, timeout=60, **parts)
        assert answer.status_code == status, answer.text
        return answer.json() if "json" in answer.headers.get("Content-Type", "") else answer.text

    def make_repository(self, **body: object) -> str:
        name = f"adapter-{uuid.uuid4().hex[:12]}"
        self.call("POST", "", 201, json={"name": name, "storage_namespace": self.namespaces + name, **body})
        return name

    def commit(self, repository: str, path: str) -> Any:
        branch = f"/{repository}/branches/main"
        self.call("POST", f"{branch}/objects", 201, params={"path": path}, data=b"data")
        return self.call("POST", f"{branch}/commits", 201, json={"message": f"adds {path}"})


@pytest.fixture(scope="module", params=["sandbox", "real"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "sandbox":
        faults = Faults()
        with start_sandbox(tmp_path_factory.mktemp("sandbox"), options=Options(), faults=faults) as handle:
            yield Place(
                handle.endpoint_url, handle.access_key_id, handle.secret_access_key, "local://", faults
            )
        return
    if not all(os.environ.get(name) for name in REAL):
        pytest.skip("no real lakeFS: set LAKEPLAN_TEST_ENDPOINT and its credentials")
    url, key, secret = (os.environ[name] for name in REAL)
    prefix = os.environ.get("LAKEPLAN_TEST_STORAGE_NAMESPACE_PREFIX", "local://")
    yield Place(url, key, secret, prefix if prefix.endswith("/") else f"{prefix}/", None)


@pytest.fixture
def reader(place: Place) -> LakeFSServer:
    return LakeFSServer.connect(place.config, place.credentials)


@pytest.fixture
def writer(place: Place) -> LakeFSRulesWriter:
    return LakeFSRulesWriter.connect(place.config, place.credentials)


@pytest.fixture(scope="module")
def repository(place: Place) -> str:
    """Read only by agreement: two commits on main, a branch, a hidden branch and a tag."""
    name = place.make_repository()
    first = place.commit(name, "a/1")
    place.commit(name, "a/2")
    place.call("POST", f"/{name}/branches", 201, json={"name": "dev", "source": first["id"]})
    place.call("POST", f"/{name}/branches", 201, json={"name": "gone", "source": "main", "hidden": True})
    place.call("POST", f"/{name}/tags", 201, json={"id": "v1", "ref": first["id"]})
    return name


def it_fits_the_ports(reader: LakeFSServer, writer: LakeFSRulesWriter, repository: str) -> None:
    as_reader: LakeFSReader = reader
    as_writer: GcRulesWriter = writer
    metadata: MetadataReader = reader.metadata_reader(repository)
    assert as_reader.name == "tested"
    assert as_writer.can_set_gc_rules(repository)
    assert metadata is not None


def it_reads_the_version(reader: LakeFSServer) -> None:
    assert reader.identify().version


def it_lists_and_reads_repositories(reader: LakeFSServer, place: Place, repository: str) -> None:
    (found,) = reader.list_repositories(repository)
    assert found == reader.get_repository(repository)
    assert found.default_branch == "main"
    assert found.storage_namespace == place.namespaces + repository
    assert found.creation_date > 1_600_000_000
    assert not found.read_only
    assert list(reader.list_repositories("no-such-repository")) == []


def it_lists_hidden_branches_too(
    reader: LakeFSServer, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakeplan.lakefs.answers.PAGE", 1)
    branches = {branch.id: branch.commit_id for branch in reader.list_branches(repository)}
    assert set(branches) == {"dev", "gone", "main"}
    assert branches["gone"] == branches["main"] != branches["dev"]
    assert [branch.id for branch in reader.list_branches(repository, "d")] == ["dev"]
    assert [(tag.id, tag.commit_id) for tag in reader.list_tags(repository)] == [("v1", branches["dev"])]


def it_reads_commits_and_logs(reader: LakeFSServer, repository: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeplan.lakefs.answers.PAGE", 2)
    log = list(reader.log_commits(repository, "main"))
    assert len(log) == 3
    assert [commit.message for commit in log[:2]] == ["adds a/2", "adds a/1"]
    assert [commit.main_parent for commit in log] == [log[1].id, log[2].id, None]
    assert log[2].meta_range_id == ""
    assert all(commit.creation_us % 1_000_000 == 0 and commit.creation_us > 0 for commit in log)
    assert [reader.get_commit(repository, commit.id) for commit in log] == log


def it_says_what_is_missing(reader: LakeFSServer, writer: LakeFSRulesWriter, repository: str) -> None:
    for ask in (
        lambda: reader.get_repository(MISSING),
        lambda: reader.get_gc_rules(MISSING),
        lambda: list(reader.list_branches(MISSING)),
        lambda: list(reader.list_tags(MISSING)),
        lambda: reader.get_commit(MISSING, "a" * 64),
        lambda: list(reader.log_commits(MISSING, "main")),
        lambda: reader.dump_refs(MISSING),
        lambda: reader.metadata_reader(MISSING),
        lambda: writer.set_gc_rules(MISSING, GcRules(7)),
        lambda: writer.delete_gc_rules(MISSING),
    ):
        with pytest.raises(RepositoryNotFound, match="does not exist") as caught:
            ask()
        assert f"repository {MISSING}" in caught.value.where
    for ask in (
        lambda: reader.get_commit(repository, "a" * 64),
        lambda: list(reader.log_commits(repository, "no-branch")),
    ):
        with pytest.raises(NotFound) as missing:
            ask()
        assert type(missing.value) is NotFound


def it_sets_reads_and_deletes_rules(place: Place, reader: LakeFSServer, writer: LakeFSRulesWriter) -> None:
    name = place.make_repository()
    assert reader.get_gc_rules(name) is None
    for rules in (GcRules(21), GcRules(21, {"main": 28, "no branch": -7}), GcRules(-3, {"ünï/x": 0})):
        writer.set_gc_rules(name, rules)
        assert reader.get_gc_rules(name) == rules
    writer.set_gc_rules(name, GcRules(5_000_000_000))
    assert reader.get_gc_rules(name) == GcRules(705032704)
    writer.delete_gc_rules(name)
    assert reader.get_gc_rules(name) is None
    writer.delete_gc_rules(name)


def it_dumps_refs_and_reads_metadata(reader: LakeFSServer, repository: str) -> None:
    ids = reader.dump_refs(repository)
    metadata = pickle.loads(pickle.dumps(reader.metadata_reader(repository)))
    for found in (ids.commits_meta_range_id, ids.branches_meta_range_id, ids.tags_meta_range_id):
        assert len(metadata.read_metadata("meta_range", found)) > 100
    head = next(iter(reader.log_commits(repository, "main")))
    assert len(metadata.read_metadata("meta_range", head.meta_range_id)) > 100
    with pytest.raises(DataGone):
        metadata.read_metadata("range", "f" * 64)


def it_dumps_refs_by_a_task_as_well(reader: LakeFSServer, repository: str) -> None:
    assert _dump_by_task(reader._transport, repository) == reader.dump_refs(repository)


def it_dumps_refs_without_tags(place: Place, reader: LakeFSServer) -> None:
    ids = reader.dump_refs(place.make_repository())
    assert len(ids.commits_meta_range_id) == 64
    assert len(ids.branches_meta_range_id) == 64


def it_says_that_a_repository_is_read_only(
    place: Place, reader: LakeFSServer, writer: LakeFSRulesWriter
) -> None:
    name = place.make_repository(read_only=True)
    assert reader.get_repository(name).read_only
    with pytest.raises(ReadOnlyRepository):
        writer.set_gc_rules(name, GcRules(7))
    assert len(reader.dump_refs(name).commits_meta_range_id) == 64


def it_says_that_credentials_are_wrong(place: Place, repository: str) -> None:
    wrong = Credentials(place.credentials.access_key_id, Secret("wrong"))
    reader, writer = LakeFSServer.connect(place.config, wrong), LakeFSRulesWriter.connect(place.config, wrong)
    for ask in (lambda: reader.get_gc_rules(repository), lambda: writer.can_set_gc_rules(repository)):
        with pytest.raises(AuthenticationFailed):
            ask()


def it_names_a_missing_permission(place: Place, reader: LakeFSServer, repository: str) -> None:
    if place.faults is None:
        pytest.skip("an open-source server has no users without permissions")
    for status in (401, 403):
        place.faults.deny("GET .*/branches", status=status)
        try:
            with pytest.raises(PermissionDenied, match=PERMISSIONS["list branches"]):
                list(reader.list_branches(repository))
        finally:
            place.faults.clear()


def it_works_when_the_server_fails_twice(place: Place, repository: str) -> None:
    if place.faults is None:
        pytest.skip("a real server does not fail on request")
    reader = LakeFSServer.connect(place.config, place.credentials, retries=RetryPolicy(first=0.01))
    place.faults.fail_next(2, 500, "GET .*/branches")
    assert len(list(reader.list_branches(repository))) == 3

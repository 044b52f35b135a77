"""One suite of behaviours, run against the sandbox always and against a real lakeFS as well when the
LAKEPLAN_TEST_* variables name one. What a server wrote is read from its storage: a local disk, or S3 when
AWS_ACCESS_KEY_ID is set (at LAKEPLAN_TEST_STORAGE_ENDPOINT, if that is another endpoint)."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests

from lakeplan.formats.ranges import read_metarange, read_range
from lakeplan.formats.refs import read_refs
from lakeplan.sandbox.service import Options
from lakeplan.values.repository import Entry, Refs, RefsDumpIds
from tests.sandboxes import SandboxHandle, start_sandbox

TIMEOUT = 60
REAL = ("LAKEPLAN_TEST_ENDPOINT", "LAKEPLAN_TEST_ACCESS_KEY_ID", "LAKEPLAN_TEST_SECRET_ACCESS_KEY")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        servers = ["sandbox", "real"] if all(os.environ.get(name) for name in REAL) else ["sandbox"]
        metafunc.parametrize("server", servers, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = {path for path in {item.path for item in items} if here in path.parents}
    for item in items:
        if item.path in ours:
            item.add_marker("contract")


@dataclass
class Server:
    """A lakeFS server. ``folder`` is where the sandbox keeps its namespaces."""

    url: str
    auth: tuple[str, str] = field(repr=False)
    namespace_prefix: str
    folder: Path | None = None

    def call(self, method: str, path: str, **parts: Any) -> requests.Response:
        """Answers are never followed nor raised; ``auth=None`` sends no credentials."""
        parts.setdefault("auth", self.auth)
        parts.setdefault("timeout", TIMEOUT)
        return requests.request(method, f"{self.url}/api/v1{path}", allow_redirects=False, **parts)

    def read_location(self, location: str) -> bytes | list[bytes]:
        """A file, or the files of a folder, that an answer names by URL; skips where that cannot be read."""
        if location.startswith("s3://") and os.environ.get("AWS_ACCESS_KEY_ID"):
            return _read_s3(location)
        path = Path(location.removeprefix("local://"))
        if self.folder is not None:
            path = self.folder / path
        elif not location.startswith("local:///") or not path.exists():
            pytest.skip(f"{location} cannot be read from here")
        return [p.read_bytes() for p in sorted(path.iterdir())] if path.is_dir() else path.read_bytes()

    @property
    def presigns(self) -> bool:
        return bool(self.call("GET", "/config").json()["storage_config"]["pre_sign_support"])


def _read_s3(location: str) -> bytes | list[bytes]:
    client = boto3.client("s3", endpoint_url=os.environ.get("LAKEPLAN_TEST_STORAGE_ENDPOINT"))
    bucket, _, key = location.removeprefix("s3://").partition("/")
    if not key.endswith("/"):
        return bytes(client.get_object(Bucket=bucket, Key=key)["Body"].read())
    found = client.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])
    return [client.get_object(Bucket=bucket, Key=o["Key"])["Body"].read() for o in found]


@dataclass
class Repo:
    """A repository on a server. Paths are below ``/repositories/{name}``."""

    server: Server
    name: str

    def call(self, method: str, path: str = "", /, **parts: Any) -> requests.Response:
        return self.server.call(method, f"/repositories/{self.name}{path}", **parts)

    def get(self, path: str = "", /, **query: Any) -> requests.Response:
        return self.call("GET", path, params=query)

    def put(self, path: str, body: object = None, /, **query: Any) -> requests.Response:
        return self.call("PUT", path, json=body, params=query)

    def post(self, path: str, body: object = None, /, **query: Any) -> requests.Response:
        return self.call("POST", path, json=body, params=query)

    def delete(self, path: str = "", /, **query: Any) -> requests.Response:
        return self.call("DELETE", path, params=query)

    def upload(self, branch: str, path: str, data: bytes = b"x") -> requests.Response:
        return self.call(
            "POST",
            f"/branches/{branch}/objects",
            params={"path": path},
            data=data,
            headers={"Content-Type": "application/octet-stream"},
        )

    def commit(self, branch: str = "main", message: str = "a commit", **body: object) -> Any:
        """A commit, made; its JSON."""
        answer = self.post(f"/branches/{branch}/commits", {"message": message, **body})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def commit_object(self, branch: str, path: str, data: bytes = b"x", **body: object) -> Any:
        """Uploads and commits one object. Returns the commit's JSON."""
        assert self.upload(branch, path, data).status_code == 201
        return self.commit(branch, f"adds {path}", **body)

    def branch(self, name: str, source: str = "main", **body: object) -> str:
        """A branch, made; its commit id."""
        answer = self.post("/branches", {"name": name, "source": source, **body})
        assert answer.status_code == 201, answer.text
        return answer.text.strip()

    def head(self, branch: str = "main") -> str:
        return str(self.get(f"/branches/{branch}").json()["commit_id"])

    def log(self, ref: str = "main", **query: Any) -> list[Any]:
        return list(self.get(f"/refs/{ref}/commits", **query).json()["results"])

    def paths(self, ref: str = "main") -> list[str]:
        return [o["path"] for o in self.get(f"/refs/{ref}/objects/ls").json()["results"]]

    def read(self, ref: str, path: str) -> bytes:
        answer = self.get(f"/refs/{ref}/objects", path=path)
        assert answer.status_code == 200, answer.text
        return answer.content

    def read_metadata(self, kind: str, id: str) -> bytes:
        answer = self.get(f"/metadata/object/{kind}/{id}")
        assert answer.status_code == 200, answer.text
        return answer.content

    def entries(self, meta_range_id: str) -> list[Entry]:
        """The objects of a tree, every file verified against its id."""
        found: list[Entry] = []
        data = self.read_metadata("meta_range", meta_range_id)
        for info in read_metarange(data, name=meta_range_id, verify_id=meta_range_id):
            found.extend(read_range(self.read_metadata("range", info.id), name=info.id, verify_id=info.id))
        return found

    def refs(self) -> Refs:
        """A refs dump, made and read."""
        answer = self.put("/refs/dump")
        assert answer.status_code == 201, answer.text
        return read_refs(RefsDumpIds(**answer.json()), self.read_metadata)

    def set_rules(self, default: int, **branches: int) -> None:
        items = [{"branch_id": b, "retention_days": d} for b, d in branches.items()]
        body = {"default_retention_days": default, "branches": items}
        assert self.put("/settings/gc_rules", body).status_code == 204


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if request.param == "real":
        endpoint, key, secret = (os.environ[name] for name in REAL)
        prefix = os.environ.get("LAKEPLAN_TEST_STORAGE_NAMESPACE_PREFIX", "local://")
        yield Server(endpoint.rstrip("/"), (key, secret), prefix)
        return
    folder = tmp_path_factory.mktemp("sandbox")
    with start_sandbox(folder, options=Options()) as handle:
        yield Server(
            handle.endpoint_url, (handle.access_key_id, handle.secret_access_key), "local://", folder
        )


@pytest.fixture
def make_repo(server: Server) -> Iterator[Callable[..., Repo]]:
    """Makes repositories with names of their own, and deletes them afterwards."""
    made: list[str] = []

    def make(**body: object) -> Repo:
        name = f"contract-{uuid.uuid4().hex[:16]}"
        namespace = f"{server.namespace_prefix.rstrip('/')}/{name}"
        if server.namespace_prefix.endswith("://"):
            namespace = f"{server.namespace_prefix}{name}"
        answer = server.call(
            "POST", "/repositories", json={"name": name, "storage_namespace": namespace, **body}
        )
        assert answer.status_code == 201, answer.text
        made.append(name)
        return Repo(server, name)

    yield make
    for name in made:
        server.call("DELETE", f"/repositories/{name}", params={"force": "true"})


@pytest.fixture
def repo(make_repo: Callable[..., Repo]) -> Repo:
    return make_repo()


@pytest.fixture
def connect() -> Callable[[SandboxHandle, str], Repo]:
    """Makes a repository on a sandbox of the test's own."""

    def make(handle: SandboxHandle, name: str) -> Repo:
        server = Server(handle.endpoint_url, (handle.access_key_id, handle.secret_access_key), "local://")
        body = {"name": name, "storage_namespace": f"local://{name}"}
        assert server.call("POST", "/repositories", json=body).status_code == 201
        return Repo(server, name)

    return make


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits until something holds: a real server keeps repositories and settings cached for seconds."""

    def wait(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not holds():
            assert time.monotonic() < deadline, "it did not come to hold"
            time.sleep(0.5)

    return wait

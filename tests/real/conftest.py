"""The servers that these tests run against, and lakeplan's command line in this process.

The sandbox always, and a real lakeFS when the LAKEPLAN_TEST_* variables name one. Its object store is found
as boto3 finds it, and LAKEPLAN_TEST_STORAGE_ENDPOINT names its endpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakeplan.cli.main import run
from tests.sandboxes import start_sandbox

REAL = ("LAKEPLAN_TEST_ENDPOINT", "LAKEPLAN_TEST_ACCESS_KEY_ID", "LAKEPLAN_TEST_SECRET_ACCESS_KEY")
ON_REAL = all(os.environ.get(name) for name in REAL)


@dataclass
class Server:
    url: str
    auth: tuple[str, str] = field(repr=False)
    prefix: str
    storage: dict[str, str]


@pytest.fixture(params=["sandbox", *(["real"] if ON_REAL else [])])
def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    monkeypatch.delenv("CI", raising=False)
    if request.param == "sandbox":
        with start_sandbox(tmp_path / "sandbox") as handle:
            auth = (handle.access_key_id, handle.secret_access_key)
            local = {"type": "local", "path": str(tmp_path / "sandbox")}
            found = Server(handle.endpoint_url, auth, "local://", local)
            bind(monkeypatch, found)
            yield found
        return
    url, key, secret = (os.environ[name] for name in REAL)
    endpoint = os.environ["LAKEPLAN_TEST_STORAGE_ENDPOINT"]
    monkeypatch.setenv("LAKEPLAN_PROD_STORAGE_URL", endpoint)
    store = {"type": "s3", "endpoint_url": endpoint, "region": "us-east-1"}
    found = Server(url, (key, secret), os.environ["LAKEPLAN_TEST_STORAGE_NAMESPACE_PREFIX"], store)
    bind(monkeypatch, found)
    yield found


def bind(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setenv("LAKEPLAN_PROD_ENDPOINT_URL", server.url)
    monkeypatch.setenv("LAKEPLAN_PROD_ACCESS_KEY_ID", server.auth[0])
    monkeypatch.setenv("LAKEPLAN_PROD_SECRET_ACCESS_KEY", server.auth[1])


class Command:
    def __init__(self, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.tree = tree
        self._capsys = capsys
        self.said = ""

    def __call__(self, *words: str | Path, allowed: tuple[int, ...] = (0,)) -> tuple[int, Any]:
        self._capsys.readouterr()
        split = 2 if words[0] in ("sweep", "branches", "pins") else 1
        code = int(run([*map(str, words[:split]), "-C", str(self.tree), *map(str, words[split:])]))
        out, err = self._capsys.readouterr()
        self.said = f"{words}: exit {code}\n{out}\n{err}"
        assert code in allowed, self.said
        return code, json.loads(out) if out.lstrip().startswith("{") else None

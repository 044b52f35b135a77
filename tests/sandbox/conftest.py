"""A sandbox of its own for each test, and a way to call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from tests.sandboxes import SandboxHandle, start_sandbox

Call = Callable[..., requests.Response]


@pytest.fixture
def sandbox(tmp_path) -> Iterator[SandboxHandle]:
    with start_sandbox(tmp_path / "sandbox") as handle:
        yield handle


@pytest.fixture
def caller() -> Callable[[SandboxHandle], Call]:
    """``caller(handle)(method, path, **)``: a call with the handle's credentials."""

    def of(handle: SandboxHandle) -> Call:
        def call(method: str, path: str, **parts: Any) -> requests.Response:
            parts.setdefault("auth", (handle.access_key_id, handle.secret_access_key))
            url = f"{handle.endpoint_url}/api/v1{path}"
            return requests.request(method, url, allow_redirects=False, timeout=30, **parts)

        return call

    return of


@pytest.fixture
def call(sandbox, caller) -> Call:
    return caller(sandbox)


@pytest.fixture
def repository(call) -> str:
    body = {"name": "repo", "storage_namespace": "local://repo"}
    assert call("POST", "/repositories", json=body).status_code == 201
    return "/repositories/repo"

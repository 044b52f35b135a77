"""A sandbox that answers without sockets or threads, in a fifth of the time."""

from __future__ import annotations

import email.utils
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from lakeplan.sandbox.messages import Request, Response
from tests.sandboxes import NO_ANSWER, RUNNING, Sandbox, SandboxHandle


class InProcess(HTTPAdapter):
    """Has requests answered by ``answer``, which gets each with its path as it was sent. ``now`` is the
    server's clock."""

    def __init__(self, answer: Callable[[Request, str], Response], now: Callable[[], float]) -> None:
        super().__init__()
        self._answer, self._now = answer, now

    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:  # type: ignore[override]
        parts = urlsplit(request.url or "")
        body = request.body or b""
        asked = Request(
            method=request.method or "GET",
            path=unquote(parts.path),
            query=parse_qs(parts.query, keep_blank_values=True),
            headers={name.lower(): str(value) for name, value in request.headers.items()},
            body=body.encode() if isinstance(body, str) else bytes(body),
            base_url=f"{parts.scheme}://{parts.netloc}",
        )
        found = self._answer(asked, parts.path)
        headers = {
            "Date": email.utils.formatdate(self._now(), usegmt=True),
            "Content-Length": str(len(found.body)),
            **found.headers,
        }
        raw = HTTPResponse(
            body=io.BytesIO(b"" if asked.method == "HEAD" else found.body),
            headers=headers,
            status=found.status,
            reason="",
            preload_content=False,
            request_method=asked.method,
        )
        return self.build_response(request, raw)


def _adapter_of(sandbox: Sandbox) -> InProcess:
    """The server's faults reach its requests, and they are recorded."""

    def answer(request: Request, raw_path: str) -> Response:
        response = sandbox.answer(request, raw_path)
        if response is NO_ANSWER:
            raise requests.ConnectionError("injected fault")
        return response

    return InProcess(answer, sandbox.service.now)


def session_of(handle: SandboxHandle) -> requests.Session:
    """A session with the credentials of a running sandbox, for what a test prepares."""
    session = requests.Session()
    session.trust_env = False  # looking for proxies takes as long as an answer
    session.auth = (handle.access_key_id, handle.secret_access_key)
    session.mount(handle.endpoint_url, _adapter_of(handle._sandbox))
    return session


@contextmanager
def no_sockets() -> Iterator[None]:
    """What lakeplan asks a running sandbox of this process, by its endpoint URL, is answered in the same
    call. Every other request, and one to a sandbox that was stopped, goes through a socket."""
    send = HTTPAdapter.send

    def direct(self: HTTPAdapter, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        parts = urlsplit(request.url or "")
        sandbox = RUNNING.get(f"{parts.scheme}://{parts.netloc}")
        return send(self, request, **options) if sandbox is None else _adapter_of(sandbox).send(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HTTPAdapter, "send", direct)
        yield

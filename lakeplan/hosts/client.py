"""Requests to the API of a host, limited in size and time. The token is sent only to that API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

import requests

from lakeplan import limits
from lakeplan.errors import UsageError
from lakeplan.hosts.protocols import HostError
from lakeplan.lakefs.credentials import Secret
from lakeplan.lakefs.transport import RetryPolicy, new_session, read_whole, server_message
from lakeplan.limits import TooLarge, parse_json
from lakeplan.values.bodies import TooSlow, within

PAGE = 100
P = ParamSpec("P")
R = TypeVar("R")
_TIMEOUT = (10.0, 60.0)
_RETRIED = frozenset({429, 500, 502, 503, 504})


def reads_answers(method: Callable[P, R]) -> Callable[P, R]:
    """Raise HostError if an answer lacks an expected field."""

    @wraps(method)
    def checked(*given: P.args, **named: P.kwargs) -> R:
        try:
            return method(*given, **named)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise HostError(
                f"the host returned an unexpected response ({type(error).__name__})",
                hint="Run the job again.",
                detail=str(error),
            ) from None

    return checked


@dataclass(frozen=True)
class Answer:
    status: int
    content: bytes
    location: str = ""
    more: bool = False

    def json(self) -> Any:
        return parse_json(self.content)


class HostClient:
    """Sends requests to a host. ``api`` is the base of all paths. ``header`` is the header with the token."""

    def __init__(self, name: str, api: str, header: str, token: Secret, retries: RetryPolicy) -> None:
        if urlsplit(api).scheme not in ("http", "https"):
            raise UsageError(
                f"the API address of {name} is not an http or https URL",
                hint="Check the variable that contains the URL.",
            )
        self.name, self._api, self._retries = name, api.rstrip("/"), retries
        self._header, self._token = header, token
        self._session = new_session()

    def __repr__(self) -> str:
        return f"HostClient({self.name!r}, {self._api!r})"

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        accept: tuple[int, ...] = (),
        token: Secret | None = None,
    ) -> Answer:
        """Return an answer with a status of 200 to 299 or in ``accept``. Only GET is retried. Raises
        HostError."""
        headers = {"Accept": "application/json", self._header: _value(self._header, token or self._token)}
        answer = self._tried(method, self._api + path, body, headers, f"{method} {path}", limits.JSON_BYTES)
        if 200 <= answer.status < 300 or answer.status in accept:
            return answer
        raise self._refused(answer, f"{method} {path}")

    def get(self, path: str) -> Any:
        return self._parsed(self.call("GET", path), path)

    def _parsed(self, answer: Answer, path: str) -> Any:
        try:
            return answer.json()
        except ValueError as error:
            raise self._failed(f"GET {path}", f"the response is not JSON ({error})") from None

    def pages(self, path: str, key: str | None = None, *, most: int = limits.HOST_ITEMS) -> Iterator[Any]:
        """Yield every item of a listing. Raises HostError if there are more than ``most``."""
        number = 1
        while True:
            separator = "&" if "?" in path else "?"
            page = self.call("GET", f"{path}{separator}per_page={PAGE}&page={number}")
            answer = self._parsed(page, path)
            items = answer if key is None else answer.get(key) if isinstance(answer, dict) else None
            if not isinstance(items, list):
                raise self._failed(f"GET {path}", "the response is not a list")
            yield from items
            # A page that is not full need not be the last one, because hosts leave out what is hidden.
            if len(items) < PAGE and not page.more:
                return
            if number * PAGE >= most:
                raise self._failed(f"GET {path}", f"the list exceeds the limit of {most:,} items")
            number += 1

    def download(self, path: str) -> bytes:
        """Return a file. If the host redirects to a store, the store does not get the token. Raises
        HostError."""
        answer = self.call("GET", path, accept=(301, 302, 303, 307, 308))
        for _ in range(limits.HOST_REDIRECTS):
            if not 300 <= answer.status < 400:
                break
            if urlsplit(answer.location).scheme not in ("http", "https"):
                raise self._failed(f"GET {path}", "the host redirects to a URL that is not http or https")
            answer = self._tried("GET", answer.location, None, {}, f"GET {path}", limits.OBJECT_BYTES)
        if answer.status != 200:
            raise self._refused(answer, f"GET {path}")
        return answer.content

    def _tried(
        self, method: str, url: str, body: object, headers: Mapping[str, str], what: str, limit: int
    ) -> Answer:
        for attempt in range(1, self._retries.tries + 1):
            last = method != "GET" or attempt == self._retries.tries
            try:
                answer = within(
                    limits.FILE_SECONDS, lambda: self._send(method, url, body, dict(headers), limit)
                )
            except (TooLarge, TooSlow) as error:
                raise self._failed(what, str(error)) from None
            except (requests.RequestException, ValueError) as error:
                # The library's message is omitted, because it may contain a signed URL.
                if last or isinstance(error, ValueError):
                    raise self._failed(what, f"the host did not respond ({type(error).__name__})") from None
            else:
                if last or answer.status not in _RETRIED:
                    return answer
            time.sleep(self._retries.wait(attempt, None, 0.5))
        raise AssertionError("the last attempt returns or raises")

    def _send(self, method: str, url: str, body: object, headers: dict[str, str], limit: int) -> Answer:
        response = self._session.request(
            method,
            url,
            json=body,
            headers=headers,
            auth=lambda prepared: prepared,  # without it requests would look for a password in ~/.netrc
            timeout=_TIMEOUT,
            allow_redirects=False,
            stream=True,
        )
        read_whole(response, limit, time.monotonic)
        location, more = response.headers.get("Location", ""), "next" in response.links
        return Answer(response.status_code, response.content, location, more)

    def _refused(self, answer: Answer, what: str) -> HostError:
        message = server_message(answer.content)
        reason = f"status {answer.status}" + (f", {message}" if message else "")
        return self._failed(what, reason, answer.status)

    def _failed(self, what: str, reason: str, status: int = 0) -> HostError:
        hints = {
            401: "Check the token.",
            403: "Check the permissions of the job's token.",
            404: "Check the permissions of the job's token, and that the repository and the pull request or"
            " merge request exist.",
        }
        return HostError(
            f"{what.partition('?')[0]}: {reason}",
            where=f"{self.name} ({self._api})",
            hint=hints.get(status, "Run the job again."),
        )


def _value(header: str, token: Secret) -> str:
    return f"Bearer {token.reveal()}" if header == "Authorization" else token.reveal()

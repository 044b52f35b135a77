"""HTTP to one lakeFS server: time limits, retries as lakectl has them, no redirects, no secrets in logs."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import quote

import requests
from requests.auth import AuthBase
from urllib3.exceptions import ProtocolError, ReadTimeoutError, SSLError

from lakeplan import __version__, limits
from lakeplan.adapters.bodies import TooSlow, read_body, within
from lakeplan.adapters.lakefs import faults
from lakeplan.adapters.lakefs.endpoint import API_PATH
from lakeplan.adapters.lakefs.secret import Credentials
from lakeplan.limits import TooLarge

log = logging.getLogger(__name__)

RETRIED_STATUSES = frozenset({429, 500, 503})
READ_METHODS = frozenset({"GET", "HEAD"})
READS = re.compile(r"GET .*")


@dataclass(frozen=True)
class Timeouts:
    """Seconds to connect, to wait for the next bytes of an answer, and for the whole of one."""

    connect: float = 10.0
    read: float = 60.0
    total: float = limits.ANSWER_SECONDS


@dataclass(frozen=True)
class RetryPolicy:
    """``tries`` in all; waits grow by powers of two from ``first`` to at most ``longest`` seconds, with
    jitter (lakectl: 4 tries, 200 ms to 30 s). A ``Retry-After`` is kept to, up to ``longest``."""

    tries: int = 4
    first: float = 0.2
    longest: float = 30.0

    def wait(self, failed: int, retry_after: float | None, random_part: float) -> float:
        """Seconds to wait after the ``failed``-th failure (from 1); ``random_part`` is in [0, 1)."""
        grown = min(self.longest, self.first * 2.0 ** (failed - 1))
        backoff = grown * (0.5 + random_part / 2)
        return backoff if retry_after is None else min(self.longest, max(retry_after, backoff))


@dataclass(frozen=True)
class Clock:
    """The time that waiting takes; tests bring their own."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random


class NoAuth(AuthBase):
    """Sends no credentials; without it requests would take some from a .netrc file."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.pop("Authorization", None)
        return request


class BasicAuth(AuthBase):
    """HTTP basic authentication that does not show what it holds."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        pair = f"{self._credentials.access_key_id.reveal()}:{self._credentials.secret_access_key.reveal()}"
        request.headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return request


@dataclass(frozen=True)
class Connection:
    """All that is needed to talk to a server: picklable, credentials included, and shown without them.

    ``endpoint`` is normalised. ``allowed`` is matched against ``METHOD /path``: a reader's connection
    refuses whatever could write, so that a plan cannot.
    """

    name: str
    endpoint: str
    credentials: Credentials
    timeouts: Timeouts = field(default_factory=Timeouts)
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = field(default_factory=Clock)
    allowed: re.Pattern[str] = READS
    storage: tuple[str, ...] = ()
    """Addresses of storage that the server's presigned URLs may lead to, next to the vendors' own."""


class Transport:
    """Requests to one server. May be used from several threads (each has its own session) and pickled."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._local = threading.local()

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.connection,))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection.name!r}, {self.connection.endpoint!r})"

    def where(self, repository: str | None) -> str:
        """How messages name the place: the server's name and address, and the repository."""
        server = f"server {self.connection.name} ({self.connection.endpoint})"
        return f"{server}, repository {repository}" if repository else server

    def request(
        self,
        method: str,
        *path: str,
        operation: str,
        repository: str | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: object = None,
        accept: frozenset[int] = frozenset(),
        repeatable: bool = False,
        retry_timeouts: bool = True,
        limit: int | None = None,
        timeouts: Timeouts | None = None,
    ) -> requests.Response:
        """One answer of 200 to 299, or of a status in ``accept``. ``path`` are the parts below /api/v1.

        Raises ServerUnreachable when there is no answer, and what ``faults.refusal`` makes of any other
        status. Reads are tried again after connection errors and 429, 500 and 503. A request that writes is
        sent once: its answer may be lost after the server acted, and what it would do a second time must be
        judged again by whoever asked for it (``errors.may_have_acted``). ``repeatable`` is for a request that
        is not a read and changes nothing that anybody else could have changed meanwhile; a POST among them is
        tried again only after 429 and 503, as it may have started work that takes long.
        """
        relative = "/" + "/".join(quote(part, safe="") for part in path)
        if not self.connection.allowed.fullmatch(f"{method} {relative}"):
            raise AssertionError(f"this connection may not {method} {relative}")
        policy, clock = self.connection.retries, self.connection.clock
        timeouts, what = timeouts or self.connection.timeouts, (method, relative)
        sent = {"params": dict(params or {}), "headers": dict(headers or {}), "json": body}
        where, attempt = self.where(repository), 1
        may_repeat = repeatable or method in READ_METHODS
        while True:
            outcome = self._attempt(
                timeouts, lambda session: self._send(session, timeouts, limit, what, sent)
            )
            retry_after = None
            if isinstance(outcome, requests.Response):
                if 200 <= outcome.status_code < 300 or outcome.status_code in accept:
                    return outcome
                error = faults.refusal(outcome, operation=operation, where=where, repository=repository)
                again = may_repeat and _worth_retrying(method, outcome)
                retry_after = _retry_after(outcome, clock.now())
            else:
                error = faults.unreachable(outcome, where, operation)
                again = may_repeat and method != "POST"
                again &= retry_timeouts or not isinstance(outcome, requests.ReadTimeout)
                again &= not isinstance(outcome, faults.BeyondLimit)
            if not again or attempt >= policy.tries:
                raise error
            pause = policy.wait(attempt, retry_after, clock.random())
            log.debug("%s %s: %s; again in %.1f s", method, relative, type(error).__name__, pause)
            clock.sleep(pause)
            attempt += 1

    def _attempt(
        self, timeouts: Timeouts, send: Callable[[requests.Session], requests.Response]
    ) -> requests.Response | requests.RequestException:
        session = self._session()
        try:
            return within(timeouts.total, lambda: send(session))
        except TooSlow as error:
            self._local.session = None  # the request that was given up still has it
            return faults.BeyondLimit(str(error))
        except TooLarge as error:
            return faults.BeyondLimit(str(error))
        except requests.RequestException as error:
            return error

    def _send(
        self,
        session: requests.Session,
        timeouts: Timeouts,
        limit: int | None,
        what: tuple[str, str],
        sent: Mapping[str, Any],
    ) -> requests.Response:
        clock = self.connection.clock
        started = clock.monotonic()
        response = session.request(
            what[0],
            self.connection.endpoint + API_PATH + what[1],
            auth=BasicAuth(self.connection.credentials),
            timeout=(timeouts.connect, timeouts.read),
            allow_redirects=False,
            stream=True,
            **sent,
        )
        read_whole(response, limits.JSON_BYTES if limit is None else limit, clock.monotonic)
        took = clock.monotonic() - started
        log.debug("%s %s: %d in %.0f ms", *what, response.status_code, took * 1000)
        return response

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            quiet_vendor_logs()
            session = self._local.session = new_session()
        return session


def _worth_retrying(method: str, response: requests.Response) -> bool:
    status, said = response.status_code, faults.server_message(response)
    if faults.is_permission_problem(status, said) or faults.is_unknown_route(status, said):
        return False
    return status in (RETRIED_STATUSES - {500} if method == "POST" else RETRIED_STATUSES)


class Session(requests.Session):
    """Follows no redirect, and does not take one apart either: requests raises ValueError for some
    ``Location`` headers. Keeps no cookies."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["User-Agent"] = f"lakeplan/{__version__}"
        self.headers["Accept-Encoding"] = "gzip"
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        return None


def new_session() -> requests.Session:
    return Session()


def read_whole(response: requests.Response, limit: int, clock: Callable[[], float]) -> None:
    """Reads a streamed answer's body within the limits; ``content`` then has it. Raises TooLarge, TooSlow,
    and RequestException for a body that breaks off or cannot be decoded."""
    encoding = response.headers.get("Content-Encoding", "")
    with contextlib.ExitStack() as failed:
        failed.callback(response.close)
        try:
            response._content = read_body(response.raw, limit, encoding=encoding, clock=clock)
        except TooLarge:
            raise
        except ProtocolError as error:
            raise requests.exceptions.ChunkedEncodingError(error) from error
        except (ReadTimeoutError, SSLError) as error:
            raise requests.ConnectionError(error) from error
        except ValueError as error:
            raise requests.exceptions.ContentDecodingError(error) from error
        response._content_consumed = True  # type: ignore[attr-defined]
        failed.pop_all()


def quiet_vendor_logs() -> None:
    """urllib3 logs whole URLs, signatures included: below warning it says nothing here."""
    for name in ("urllib3", "urllib3.connectionpool", "requests"):
        logger = logging.getLogger(name)
        if logger.level < logging.WARNING:
            logger.setLevel(logging.WARNING)


def _retry_after(response: requests.Response, now: float) -> float | None:
    """Seconds that the server asks to wait: a number, or a date (RFC 9110)."""
    value = response.headers.get("Retry-After", "").strip()
    if not value:
        return None
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None

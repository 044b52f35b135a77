"""Requests to a lakeFS server, and the errors and missing permissions that its responses mean."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.cookiejar import DefaultCookiePolicy
from typing import Any, ClassVar, Self
from urllib.parse import quote

import requests
from requests import exceptions as vendor
from requests.auth import AuthBase
from urllib3.exceptions import ProtocolError, ReadTimeoutError, SSLError

from lakeplan import __version__, limits
from lakeplan.errors import (
    AuthenticationFailed,
    DataGone,
    FeatureMissing,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    ReadOnlyRepository,
    RepositoryNotFound,
    ServerError,
    ServerUnreachable,
    UnexpectedAnswer,
)
from lakeplan.lakefs.credentials import API_PATH, Credentials, normalise_endpoint
from lakeplan.limits import MESSAGE_BYTES, TooLarge, parse_json
from lakeplan.values.bodies import TooSlow, quiet_logs, read_body, within
from lakeplan.values.desired import ServerConfig

_RULES = "retention:SetGarbageCollectionRules"
_DUMP = "fs:ListBranches, fs:ListTags and fs:ListCommits"
_POLICIES = "branches:SetBranchLifecyclePolicies"

PERMISSIONS = {
    "read the server's version": "fs:ReadConfig",
    "read the server's configuration": "fs:ReadConfig",
    "list repositories": "fs:ListRepositories",
    "read the repository": "fs:ReadRepository",
    "read the GC rules": "retention:GetGarbageCollectionRules",
    "check whether GC rules may be set": _RULES,
    "set the GC rules": _RULES,
    "delete the GC rules": _RULES,
    "read the branch lifecycle policies": "branches:GetBranchLifecyclePolicies",
    "check whether branch lifecycle policies may be set": _POLICIES,
    "set the branch lifecycle policies": _POLICIES,
    "delete the branch lifecycle policies": _POLICIES,
    "list branches": "fs:ListBranches",
    "list tags": "fs:ListTags",
    "read a commit": "fs:ReadCommit",
    "list commits": "fs:ReadBranch",
    "read a branch": "fs:ReadBranch",
    "read uncommitted changes": "fs:ListObjects",
    "read the modification time of an object": "fs:ReadObject",
    "list the objects of a commit": "fs:ListObjects",
    "read an object": "fs:ReadObject",
    "list pull requests": "pr:ListPullRequests",
    "read the repository's metadata": "fs:ReadRepository",
    "set the repository's metadata": "fs:UpdateRepository",
    "remove keys from the repository's metadata": "fs:UpdateRepository",
    "read the branch protection rules": "branches:GetBranchProtectionRules",
    "delete a branch": "fs:DeleteBranch",
    "create a branch": "fs:CreateBranch",
    "dump the refs": _DUMP,
    "read the state of the refs dump": _DUMP,
    "read metadata": "fs:ListObjects and fs:ReadRepository",
}
"""The permission that each operation needs, by its name in messages (lakefs/api.md)."""

_UNREACHABLE = "Check endpoint_url, the network and the proxy settings."
_TLS = "Check the server's certificate, or set REQUESTS_CA_BUNDLE to a CA bundle."
_SETTINGS = "Check endpoint_url and the proxy settings."
_NOT_LAKEFS = "Check that endpoint_url points to a lakeFS server."
_SLOW = "the server did not respond within the time limit"
CHERRY_PICKED = "Try again later. lakeFS can return this error for up to ten minutes after a cherry-pick."

REQUEST_ERRORS: dict[type[Exception], tuple[str, str]] = {
    vendor.SSLError: ("the TLS connection failed", _TLS),
    vendor.ProxyError: ("the request failed at the proxy", "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY."),
    vendor.ConnectTimeout: ("the connection was not established within the time limit", _UNREACHABLE),
    vendor.ReadTimeout: (_SLOW, "Try again. The server may be busy."),
    vendor.Timeout: (_SLOW, _UNREACHABLE),
    vendor.ChunkedEncodingError: ("the response was incomplete", "Run the command again."),
    vendor.ContentDecodingError: ("the response could not be decoded", "Check any proxies, then try again."),
    vendor.ConnectionError: ("the connection failed", _UNREACHABLE),
    vendor.InvalidURL: ("the address is not a valid URL", _SETTINGS),
    vendor.InvalidSchema: ("the address does not begin with http:// or https://", _SETTINGS),
    vendor.InvalidProxyURL: ("the proxy's address is not a valid URL", _SETTINGS),
    vendor.InvalidHeader: ("a request header is invalid", "Check the credentials for special characters."),
    vendor.RequestException: ("the request failed", _UNREACHABLE),
}
"""The error classes of requests that its callers here can meet."""


class BeyondLimit(vendor.RequestException):
    """A response is too large or too slow, as the text says."""


def unreachable(error: Exception, where: str, operation: str) -> ServerError:
    """Return the error of a request without a response. The library's text may have a signed URL."""
    if isinstance(error, BeyondLimit):
        return ServerUnreachable(
            f"cannot {operation}: the response was refused: {error}",
            where=where,
            hint="Check that endpoint_url points to a lakeFS server. See docs/limits.md for the limits.",
            detail="ReadTimeout",
        )
    kind = next((kind for kind in type(error).__mro__ if kind in REQUEST_ERRORS), vendor.RequestException)
    what, hint = REQUEST_ERRORS[kind]
    if type(error) is vendor.ConnectionError:
        what, hint = _connection_details(error, what, hint)
    return ServerUnreachable(
        f"cannot {operation}: {what}", where=where, hint=hint, detail=type(error).__name__
    )


def _connection_details(error: Exception, what: str, hint: str) -> tuple[str, str]:
    text = str(error)
    if re.search(r"NameResolutionError|getaddrinfo|Name or service not known|resolve", text):
        return "the host name could not be resolved", "Check the host name in endpoint_url, and DNS."
    if "refused" in text:
        return "the connection was refused", "Check endpoint_url, and that the server is running."
    if "timed out" in text:
        return _SLOW, "Try again. The server may be busy."
    return what, hint


def refusal(
    response: requests.Response, *, operation: str, where: str, repository: str | None
) -> ServerError:
    """Return the error that a status of 300 or above means."""
    status = response.status_code
    message = server_message(response.content)
    if is_permission_problem(status, message):
        if response.content and not message:
            media = response.headers.get("Content-Type", "").partition(";")[0] or "unknown"
            hint = "Set endpoint_url to lakeFS's API, not its S3 gateway, and check any proxies in between."
            what = f"the response is not from a lakeFS API (status {status}, content type {media})"
            return PermissionDenied(f"cannot {operation}: {what}", where=where, hint=hint)
        return _denied(message, operation, where, PERMISSIONS.get(operation))
    if is_unknown_route(status, message):
        what = "the server does not support this request"
        hint = "Check the server's version and edition, and endpoint_url."
        return FeatureMissing(f"cannot {operation}: {what}", where=where, hint=hint)
    if status == 404:
        return _missing(message, operation, where, repository)
    if status in _STATUSES:
        kind, what, hint = _STATUSES[status]
        reason = message or "no reason given"
        return kind(f"cannot {operation}: {what.format(reason=reason)}", where=where, hint=hint)
    return _unexpected(status, message, operation, where)


_STATUSES: dict[int, tuple[type[ServerError], str, str]] = {
    401: (
        AuthenticationFailed,
        "the server does not accept the credentials",
        "Check the access key and its secret, and that they belong to this server.",
    ),
    410: (DataGone, "the data no longer exists ({reason})", ""),
    412: (
        PreconditionFailed,
        "the repository changed in the meantime, or a hook refused the request ({reason})",
        "Run `lakeplan plan` again.",
    ),
}


def _unexpected(status: int, message: str, operation: str, where: str) -> UnexpectedAnswer:
    what, hint = f"status {status}" + (f", {message}" if message else ""), ""
    if status in (429, 503):
        what, hint = f"the server is overloaded (status {status})", "Try again later."
    elif 300 <= status < 400:
        what = f"the server redirects (status {status}), and lakeplan does not follow redirects"
        hint = "Set endpoint_url to the final address. It may have to be https instead of http."
    elif status >= 500:
        hint = "Check the server's log."
    return UnexpectedAnswer(f"cannot {operation}: {what}", status=status, where=where, hint=hint)


def is_permission_problem(status: int, message: str) -> bool:
    """Return whether a permission is missing: status 403, or another with which lakeFS says the same."""
    text = message.lower()
    return (
        status == 403
        or (status == 401 and "insufficient permissions" in text)
        or (status == 500 and "required permissions" in text)
    )


def is_unknown_route(status: int, message: str) -> bool:
    """Return whether the server does not know the request: status 404 since lakeFS 1.75, 500 before."""
    return status in (404, 500) and "invalid api endpoint" in message.lower()


def _denied(message: str, operation: str, where: str, permission: str | None) -> ServerError:
    if "read-only" in message.lower() or "read only" in message.lower():
        return ReadOnlyRepository(
            f"cannot {operation}: the repository is read-only",
            where=where,
            hint="Remove the repository from the tree, or make it writable.",
        )
    needed = f"the operation requires {permission}" if permission else "a permission is missing"
    return PermissionDenied(
        f"cannot {operation}: {needed}",
        where=where,
        hint="On the server, grant the permission to the user of this access key.",
        detail=message,
    )


def _missing(message: str, operation: str, where: str, repository: str | None) -> ServerError:
    if repository is not None and "repository not found" in message.lower():
        return RepositoryNotFound(
            "the repository does not exist", where=where, hint="Check the repository's name and server."
        )
    if not message:
        return UnexpectedAnswer(
            f"cannot {operation}: the server returned status 404 without a lakeFS error message",
            status=404,
            where=where,
            hint=_NOT_LAKEFS,
        )
    hint = CHERRY_PICKED if message.endswith("commit not found") else ""
    return NotFound(f"cannot {operation}: {message}", where=where, hint=hint)


def server_message(content: bytes) -> str:
    """Return ``message`` of the body of an error, as one short line, or "" for any other body."""
    try:
        body = parse_json(content, limit=MESSAGE_BYTES)
    except ValueError:
        return ""
    message = body.get("message") if isinstance(body, dict) else None
    return " ".join(message.split())[:300] if isinstance(message, str) else ""


log = logging.getLogger(__name__)

RETRIED_STATUSES = frozenset({429, 500, 503})
READ_METHODS = frozenset({"GET", "HEAD"})
READS = re.compile(r"GET .*")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Timeouts:
    """Time limits in seconds: to connect, for the next bytes of a response, and for a whole one."""

    connect: float = 10.0
    read: float = 60.0
    total: float = limits.ANSWER_SECONDS


@dataclass(frozen=True)
class RetryPolicy:
    """When a request is sent again: ``tries`` in total, with waits that double from ``first`` to at most
    ``longest`` seconds, with jitter (like lakectl's). ``Retry-After`` is obeyed up to ``longest``."""

    tries: int = 4
    first: float = 0.2
    longest: float = 30.0

    def wait(self, failed: int, retry_after: float | None, random_part: float) -> float:
        """Return the seconds to wait after the ``failed``-th failure (from 1). ``random_part`` is in [0,
        1)."""
        grown = min(self.longest, self.first * 2.0 ** (failed - 1))
        backoff = grown * (0.5 + random_part / 2)
        return backoff if retry_after is None else min(self.longest, max(retry_after, backoff))


@dataclass(frozen=True)
class Clock:
    """The clock for waiting, which tests replace."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random


class NoAuth(AuthBase):
    """Sends no credentials. Without it, requests would read some from a .netrc file."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.pop("Authorization", None)
        return request


class BasicAuth(AuthBase):
    """HTTP basic authentication that does not show its credentials."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        pair = f"{self._credentials.access_key_id.reveal()}:{self._credentials.secret_access_key.reveal()}"
        request.headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return request


class Pace:
    """A limit of requests per second for all threads of a process that share it."""

    def __init__(self, rate: float) -> None:
        self._rate, self._next, self._lock = rate, 0.0, threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._rate,))

    def wait(self, clock: Clock) -> None:
        """Wait until the next request may be sent."""
        with self._lock:
            now = clock.monotonic()
            at = max(now, self._next)
            self._next = at + 1 / self._rate
        clock.sleep(at - now)


@dataclass(frozen=True)
class Connection:
    """Everything that a request to a server needs. A pickle contains the credentials; ``repr`` does not.

    ``endpoint`` is normalised. ``allowed`` matches the ``METHOD /path`` of allowed requests, so that the
    connection of a plan cannot write.
    """

    name: str
    endpoint: str
    credentials: Credentials
    timeouts: Timeouts = field(default_factory=Timeouts)
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = field(default_factory=Clock)
    allowed: re.Pattern[str] = READS
    storage: tuple[str, ...] = ()
    """Addresses of storage, besides the vendors', that presigned URLs may lead to."""
    pace: Pace | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Call:
    """A request before it is sent. ``path`` has the parts below /api/v1. ``operation`` is its name in
    messages.

    ``accept`` lists statuses of 300 and above that are not errors. ``repeatable`` is for requests that are
    not reads and change nothing that others can change. A repeatable POST, which may have started long work,
    is sent again after 429 and 503 only. ``limit`` is the most bytes of the response, by default those of a
    JSON document.
    """

    method: str
    path: tuple[str, ...]
    operation: str
    repository: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    accept: frozenset[int] = frozenset()
    repeatable: bool = False
    retry_timeouts: bool = True
    limit: int | None = None
    timeouts: Timeouts | None = None

    @property
    def relative(self) -> str:
        """The path as it is sent."""
        return "/" + "/".join(quote(part, safe="") for part in self.path)


def of_repository(method: str, repository: str, *path: str, operation: str, **options: Any) -> Call:
    """Return a call below a repository. ``options`` are the other fields of ``Call``."""
    return Call(method, ("repositories", repository, *path), operation, repository, **options)


class Transport:
    """Sends requests to one server. Picklable. May be used from several threads."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._local = threading.local()

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.connection,))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection.name!r}, {self.connection.endpoint!r})"

    def where(self, repository: str | None) -> str:
        """Return the place for messages: the server's name and address, and the repository."""
        server = f"server {self.connection.name} ({self.connection.endpoint})"
        return f"{server}, repository {repository}" if repository else server

    def request(self, call: Call) -> requests.Response:
        """Return a response with a status of 200 to 299, or one that the call accepts.

        Raises ServerUnreachable without a response, and the error of ``refusal`` for other statuses. Reads
        are sent again after connection errors, 429, 500 and 503. A request that writes is sent once: its
        response may be lost after the server acted, so the caller has to check before it repeats the request
        (``errors.may_have_acted``).
        """
        self._refuse_impossible(call)
        what = f"{call.method} {call.relative}"
        if not self.connection.allowed.fullmatch(what):
            raise AssertionError(f"this connection may not send {what}")
        policy, clock = self.connection.retries, self.connection.clock
        where, attempt = self.where(call.repository), 1
        may_repeat = call.repeatable or call.method in READ_METHODS
        while True:
            outcome = self._attempt(call)
            retry_after = None
            if isinstance(outcome, requests.Response):
                if 200 <= outcome.status_code < 300 or outcome.status_code in call.accept:
                    return outcome
                error = refusal(outcome, operation=call.operation, where=where, repository=call.repository)
                again = may_repeat and _worth_retrying(call.method, outcome)
                retry_after = requested_wait(outcome, clock.now())
            else:
                error = unreachable(outcome, where, call.operation)
                again = may_repeat and call.method != "POST"
                again &= call.retry_timeouts or not isinstance(outcome, requests.ReadTimeout)
                again &= not isinstance(outcome, BeyondLimit)
            if not again or attempt >= policy.tries:
                raise error
            pause = policy.wait(attempt, retry_after, clock.random())
            log.debug("%s: %s; retrying in %.1f s", what, type(error).__name__, pause)
            clock.sleep(pause)
            attempt += 1

    def _refuse_impossible(self, call: Call) -> None:
        """Raise ServerError for a name that no server has. requests would remove ``.`` and ``..`` from the
        path and request something else, such as the repository instead of a branch."""
        names = (*call.path, *call.params.values())
        wrong = [part for part in call.path if part in (".", "..")] or [*filter(_SURROGATE.search, names)]
        if wrong:
            raise ServerError(
                f"cannot {call.operation}: {wrong[0]!r} is not a valid name",
                where=self.where(call.repository),
                hint="Check the name, and check that endpoint_url points to a lakeFS server.",
            )

    def _attempt(self, call: Call) -> requests.Response | requests.RequestException:
        session, timeouts = self._session(), call.timeouts or self.connection.timeouts
        if self.connection.pace is not None:
            self.connection.pace.wait(self.connection.clock)
        try:
            return within(timeouts.total, lambda: self._send(session, timeouts, call))
        except TooSlow as error:
            self._local.session = None  # the abandoned request still uses it
            return BeyondLimit(str(error))
        except TooLarge as error:
            return BeyondLimit(str(error))
        except requests.RequestException as error:
            return error

    def _send(self, session: requests.Session, timeouts: Timeouts, call: Call) -> requests.Response:
        clock = self.connection.clock
        started = clock.monotonic()
        response = session.request(
            call.method,
            self.connection.endpoint + API_PATH + call.relative,
            params=dict(call.params),
            headers=dict(call.headers),
            json=call.body,
            auth=BasicAuth(self.connection.credentials),
            timeout=(timeouts.connect, timeouts.read),
            allow_redirects=False,
            stream=True,
        )
        read_whole(response, limits.JSON_BYTES if call.limit is None else call.limit, clock.monotonic)
        took = clock.monotonic() - started
        log.debug("%s %s: %d in %.0f ms", call.method, call.relative, response.status_code, took * 1000)
        return response

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = new_session()
        return session


class Adapter:
    """The base of readers and writers of a server: a connection for the requests in ``_ALLOWED``."""

    _ALLOWED: ClassVar[re.Pattern[str]]

    def __init__(self, connection: Connection) -> None:
        self._transport = Transport(connection)

    def __repr__(self) -> str:
        server = self._transport.connection
        return f"{type(self).__name__}({server.name!r}, {server.endpoint!r})"

    def paced(self, pace: Pace | None) -> Self:
        """Return a copy that sends requests at this pace."""
        return self if pace is None else type(self)(replace(self._transport.connection, pace=pace))

    @classmethod
    def connect(
        cls,
        server: ServerConfig,
        credentials: Credentials,
        *,
        timeouts: Timeouts | None = None,
        retries: RetryPolicy | None = None,
        clock: Clock | None = None,
        storage: Sequence[str] = (),
    ) -> Self:
        """Return an adapter, without a request. ``storage`` lists addresses of the server's storage, which
        presigned URLs may lead to. Raises CredentialsError for an invalid endpoint URL."""
        return cls(
            Connection(
                server.name,
                normalise_endpoint(server.endpoint_url, what=f"server {server.name}"),
                credentials,
                timeouts or Timeouts(),
                retries or RetryPolicy(),
                clock or Clock(),
                cls._ALLOWED,
                tuple(storage),
            )
        )


def _worth_retrying(method: str, response: requests.Response) -> bool:
    status, message = response.status_code, server_message(response.content)
    if is_permission_problem(status, message) or is_unknown_route(status, message):
        return False
    return status in (RETRIED_STATUSES - {500} if method == "POST" else RETRIED_STATUSES)


class Session(requests.Session):
    """Keeps no cookies, and neither follows nor parses redirects, which may raise ValueError."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["User-Agent"] = f"lakeplan/{__version__}"
        self.headers["Accept-Encoding"] = "gzip"
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        return None


def new_session() -> requests.Session:
    """Return a session whose requests are not logged: urllib3 logs whole URLs, with signatures."""
    quiet_logs("urllib3", "urllib3.connectionpool", "requests")
    return Session()


def read_whole(response: requests.Response, limit: int, clock: Callable[[], float]) -> None:
    """Read the body of a streamed response into ``content``. Raises TooLarge, TooSlow, RequestException."""
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


def requested_wait(response: requests.Response, now: float) -> float | None:
    """Return the seconds of ``Retry-After``, which is a number or a date (RFC 9110), or None."""
    value = response.headers.get("Retry-After", "").strip()
    if not value:
        return None
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None

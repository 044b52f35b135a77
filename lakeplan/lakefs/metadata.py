"""Reads ranges and metaranges. Presigned URLs may lead only to the repository's storage."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import unquote, urljoin

import requests

from lakeplan import limits
from lakeplan.errors import UnexpectedAnswer
from lakeplan.lakefs.protocols import MetadataKind
from lakeplan.lakefs.transport import (
    Connection,
    NoAuth,
    Timeouts,
    Transport,
    new_session,
    of_repository,
    read_whole,
)
from lakeplan.values.bodies import TooSlow, within
from lakeplan.values.urls import (
    BUCKET_SCHEMES,
    BadUrl,
    WebUrl,
    parse_bucket_url,
    parse_signed_url,
    parse_web_url,
    scheme_of,
    storage_of,
)


def may_follow(target: str, *, server: str, namespace: str, bound: Sequence[str] = ()) -> bool:
    """Return whether a redirect to ``target`` leads to the storage of ``namespace``: the server, a bound
    storage address (``bound``), or the vendor's host for this bucket or account, by HTTPS."""
    try:
        signed = parse_signed_url(target)
        places = [parse_web_url(url) for url in (server, *bound) if scheme_of(url) in ("http", "https")]
        bucket = _bucket(namespace)
    except BadUrl:
        return False
    for place in places:
        hosts = (place.host, f"{bucket}.{place.host}") if bucket else (place.host,)
        if any(signed.origin == replace(place, host=host).origin for host in hosts):
            return True
    return signed.scheme == "https" and signed.port is None and _is_vendors(signed, target, namespace, bucket)


def _is_vendors(url: WebUrl, target: str, namespace: str, bucket: str) -> bool:
    kind = storage_of(namespace)
    if kind is None or kind.hosts is None:
        return False
    if not bucket:
        try:
            place = parse_web_url(namespace)
        except BadUrl:
            return False
        return url.origin == place.origin and kind.hosts.fullmatch(place.host) is not None
    parts = [unquote(part) for part in re.split(r"[?#]", target.partition("://")[2])[0].split("/")]
    if "." in parts or ".." in parts:
        # Programs remove such parts before the request, and would request another bucket.
        return False
    first = parts[1] if len(parts) > 1 else ""
    match = kind.hosts.fullmatch(url.host)
    return match is not None and (match["bucket"] or first) == bucket


def _bucket(namespace: str) -> str:
    """Return the bucket of a namespace, or "" if it has none."""
    if scheme_of(namespace) not in BUCKET_SCHEMES:
        return ""
    return parse_bucket_url(namespace, BUCKET_SCHEMES).bucket


log = logging.getLogger(__name__)

OPERATION = "read metadata"
REDIRECTS = frozenset({302, 303, 307})


class LakeFSMetadata:
    """Implements ``MetadataReader`` of one repository. May be used from several threads.

    A pickle has the credentials, which ``repr`` and ``str`` do not show. It is for the Spark workers of this
    run only.

    With ``presign`` the server redirects to a signed URL of the object store, which is read without the
    lakeFS credentials, and only from the storage of ``namespace`` (``may_follow``). If that fails, the server
    streams the file. If the store cannot be reached from here, the server streams later files too.
    """

    def __init__(self, connection: Connection, repository: str, namespace: str, presign: bool) -> None:
        self._transport = Transport(connection)
        self._repository = repository
        self._namespace = namespace
        self._presign = presign
        self._local = threading.local()

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._transport.connection, self._repository, self._namespace, self._presign))

    def __repr__(self) -> str:
        server = self._transport.connection
        return f"LakeFSMetadata({server.name!r}, {server.endpoint!r}, {self._repository!r})"

    def read_metadata(self, kind: MetadataKind, id: str) -> bytes:
        if self._presign and (data := self._read_presigned(kind, id)) is not None:
            return data
        response = self._get(kind, id, presign=False)
        return self._whole(response)

    def _get(self, kind: MetadataKind, id: str, *, presign: bool) -> requests.Response:
        return self._transport.request(
            of_repository(
                *("GET", self._repository, "metadata", "object", kind, id),
                operation=OPERATION,
                params={"presign": "true"} if presign else {},
                limit=limits.TABLE_BYTES,
                timeouts=self._timeouts,
                accept=REDIRECTS if presign else frozenset(),
            )
        )

    def _read_presigned(self, kind: MetadataKind, id: str) -> bytes | None:
        """Return the file, read by a signed URL, or None if it has to be streamed."""
        answer = self._get(kind, id, presign=True)
        if answer.status_code not in REDIRECTS:
            return self._whole(answer)  # the server streams if it does not know the parameter
        location = answer.headers.get("Location", "")[: limits.URL_CHARACTERS + 1]
        target = _target(answer.url, location)
        server = self._transport.connection
        if not may_follow(target, server=server.endpoint, namespace=self._namespace, bound=server.storage):
            log.debug("a presigned URL does not point to the storage; reading through the server instead")
            return None
        session, timeouts = self._store(), self._timeouts
        try:
            response = within(timeouts.total, lambda: _fetch(session, target, timeouts))
            if response.status_code == 200 and _complete(response):
                return response.content
            reason = f"returned status {response.status_code} or incomplete data"
        except (TooSlow, limits.TooLarge) as error:
            self._local.session, self._presign = None, False
            reason = f"sent too much data, or sent it too slowly: {error}"
        except (requests.ConnectionError, requests.Timeout) as error:
            self._presign = False
            reason = f"cannot be reached ({type(error).__name__})"
        except requests.RequestException as error:
            reason = f"cannot be requested ({type(error).__name__})"
        log.debug("a presigned URL %s; reading through the server instead", reason)
        return None

    def _whole(self, response: requests.Response) -> bytes:
        if response.status_code != 200 or not _complete(response):
            status = response.status_code
            what = "an incomplete file" if status == 200 else f"status {status}"
            raise UnexpectedAnswer(
                f"cannot {OPERATION}: the server returned {what}",
                status=status,
                where=self._transport.where(self._repository),
                hint="Run the command again.",
            )
        return response.content

    @property
    def _timeouts(self) -> Timeouts:
        """The limits for a file, which may take longer than a response of the API."""
        given = self._transport.connection.timeouts
        return replace(given, total=max(given.total, limits.FILE_SECONDS))

    def _store(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = new_session()
        return session


def _target(url: str, location: str) -> str:
    """Return the target of a redirect, or "" if it is not a URL."""
    try:
        return urljoin(url, location)
    except ValueError:
        return ""


def _complete(response: requests.Response) -> bool:
    """Return whether all announced bytes were received. The length of a decoded body is not known."""
    announced = response.headers.get("Content-Length", "")
    if not announced.isdecimal() or response.headers.get("Content-Encoding"):
        return True
    return len(response.content) == limits.number_of(announced)


def _fetch(session: requests.Session, url: str, timeouts: Timeouts) -> requests.Response:
    """Send one request, without credentials and without following redirects."""
    response = session.get(
        url, auth=NoAuth(), timeout=(timeouts.connect, timeouts.read), allow_redirects=False, stream=True
    )
    read_whole(response, limits.TABLE_BYTES, time.monotonic)
    return response

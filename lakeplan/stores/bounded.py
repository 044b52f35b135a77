"""Limits of size, rate and time for responses of object stores, which the vendors' libraries lack."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from lakeplan import limits
from lakeplan.errors import StorageError
from lakeplan.values.bodies import TooSlow, within
from lakeplan.values.urls import shown_url

T = TypeVar("T")
_PIECE = limits.MIB
REMNANT_PAGES = 1_000
"""The most pages of older versions that are counted. A page has a thousand versions."""
CONNECTIONS = 32
HINT = "Check the address of the store. See docs/limits.md for the limits."


class BoundedRaw:
    """urllib3's response, whose body has limits of size, rate and total time."""

    def __init__(self, raw: Any, limit: int, where: str, *, has_body: bool = True) -> None:
        self._raw = raw
        self._left = limit
        self._limit = limit
        self._where = where
        self._started = time.monotonic()
        announced = raw.headers.get("Content-Length", "")
        # azure-core allocates memory for the announced bytes.
        if has_body and announced.isdecimal() and (len(announced) > 18 or int(announced) > limit):
            raise self._beyond(f"a response is larger than the limit of {limits.size_text(limit)}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, amt: int | None = None, decode_content: bool | None = None) -> Iterator[bytes]:
        while chunk := self._next(amt or _PIECE, decode_content):
            yield chunk

    def read(self, amt: int | None = None, decode_content: bool | None = None, **_: Any) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while amt is None or size < amt:
            chunk = self._next(_PIECE if amt is None else amt - size, decode_content)
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)

    def _next(self, amount: int, decode_content: bool | None) -> bytes:
        chunk: bytes = self._raw.read1(min(amount, _PIECE), decode_content)
        self._left -= len(chunk)
        elapsed = time.monotonic() - self._started
        if self._left < 0:
            raise self._beyond(f"a response is larger than the limit of {limits.size_text(self._limit)}")
        if elapsed > limits.FILE_SECONDS:
            raise self._beyond(f"a response took longer than the limit of {limits.FILE_SECONDS:g} seconds")
        if elapsed > limits.RATE_GRACE_SECONDS and self._limit - self._left < limits.RATE_BYTES * elapsed:
            raise self._beyond(
                f"a response was slower than the minimum rate of {limits.RATE_BYTES:,} bytes per second"
            )
        return chunk

    def _beyond(self, message: str) -> StorageError:
        self._raw.close()
        return StorageError(message, where=self._where, hint=HINT)


def bound_s3(client: Any) -> None:
    """Make a boto3 client read within limits."""
    session = client._endpoint.http_session

    def send(request: Any, **_: object) -> Any:
        whole, where = not request.stream_output, shown_url(request.url)
        request.stream_output = True

        def fetch() -> Any:
            response = session.send(request)
            limit = limits.STORE_ANSWER_BYTES if whole else limits.OBJECT_BYTES
            response.raw = BoundedRaw(response.raw, limit, where, has_body=request.method != "HEAD")
            if whole:
                _read_content(response, request.url)
            return response

        try:
            return in_time(fetch, where)
        finally:
            request.stream_output = not whole

    client.meta.events.register("before-send.s3", send)


def _read_content(response: Any, url: str) -> None:
    """Read the body. Errors are those of botocore's session, so that botocore repeats the request."""
    from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
    from urllib3.exceptions import ProtocolError
    from urllib3.exceptions import ReadTimeoutError as SlowError

    try:
        _ = response.content
    except SlowError as error:
        raise ReadTimeoutError(endpoint_url=shown_url(url), error=error) from error
    except ProtocolError as error:
        raise ConnectionClosedError(endpoint_url=shown_url(url), error=error) from error


def bounded_session() -> Any:
    """Return a session of requests that reads within limits. azure-core's transport uses it too. It has room
    for the connections of all threads, because urllib3 warns of every connection that it must discard."""
    import requests

    class Bounded(requests.Session):
        def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            whole, where = not options.get("stream"), shown_url(str(request.url))
            limit = limits.STORE_ANSWER_BYTES if whole else limits.OBJECT_BYTES

            def fetch() -> requests.Response:
                response = super(Bounded, self).send(request, **{**options, "stream": True})
                has_body = request.method != "HEAD"
                response.raw = BoundedRaw(response.raw, limit, where, has_body=has_body)
                if whole:
                    _ = response.content
                return response

            return in_time(fetch, where)

        def get_redirect_target(self, resp: requests.Response) -> str | None:
            return None

    session = Bounded()
    for scheme in ("https://", "http://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS))
    return session


def in_time(call: Callable[[], T], where: str, seconds: float | None = None) -> T:
    """Return what ``call`` returns. Raises StorageError if it takes longer than ``seconds``, by default the
    limit for the head of a response, or for all of a small one."""
    try:
        return within(limits.ANSWER_SECONDS if seconds is None else seconds, call)
    except TooSlow as error:
        raise StorageError(f"a response was refused: {error}", where=where, hint=HINT) from None


def too_large(where: str) -> StorageError:
    return StorageError(
        f"the object is larger than the limit of {limits.size_text(limits.OBJECT_BYTES)}",
        where=where,
        hint=HINT,
    )


def bounded_pages(pages: Iterable[T], first_of: Callable[[T], object], where: str) -> Iterator[T]:
    """Yield the pages of a listing. ``first_of`` names the first entry of a page, and returns None for an
    empty one.

    Raises StorageError for too many empty pages, for an entry that is first on two pages, and for a listing
    that does not end. Each page is compared with the one before it, and with the last one whose number is a
    power of two. That finds every repeated page and every cycle without remembering all pages.
    """
    empty, shown = 0, 0
    before = known = None
    started = time.monotonic()
    for number, page in enumerate(pages, start=1):
        first = first_of(page)
        empty = 0 if first is not None else empty + 1
        if first is not None:
            shown += 1
            if first in (before, known):
                raise StorageError(
                    "the listing returned the same page twice, so it would never end",
                    where=where,
                    hint=HINT,
                )
            before = first
            if shown & (shown - 1) == 0:
                known = first
        late = time.monotonic() - started > limits.STORE_LISTING_SECONDS
        if late or empty > limits.EMPTY_PAGES or number > limits.STORE_PAGES:
            raise StorageError(
                "the storage kept returning more pages without reaching the end of the listing",
                where=where,
                hint=HINT,
            )
        yield page


def whole_listing(pages: Iterable[Any], where: str) -> Iterator[Any]:
    """Yield the pages of a listing of S3. Raises StorageError if the last page says that more follow but not
    where, which botocore treats as the end."""
    page: Any = {}
    for page in pages:
        yield page
    if page.get("IsTruncated"):
        raise StorageError(
            "the listing has more pages, but the response does not contain the token of the next page",
            where=where,
            hint=HINT,
        )


C = TypeVar("C")


class LazyClient(ABC, Generic[C]):
    """Makes a vendor's client on first use. Thread-safe. A pickle has only ``made_with``, the arguments of
    the subclass, and never credentials."""

    def __init__(self, *made_with: Any) -> None:
        self._made_with = made_with
        self._lock = threading.Lock()
        self._client: C | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), self._made_with)

    def get(self) -> C:
        with self._lock:
            if self._client is None:
                self._client = self._make()
            return self._client

    @abstractmethod
    def _make(self) -> C:
        """Return a new client. Raises StorageError."""

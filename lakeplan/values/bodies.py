"""Responses of servers and stores, read within limits of size, rate and total time."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Protocol, TypeVar

from lakeplan import limits

T = TypeVar("T")
_PIECE = 64 * limits.KIB
_GZIP = 16 + zlib.MAX_WBITS


class TooSlow(Exception):
    """A response exceeds a time limit. The message completes a sentence whose subject is the response."""


class Raw(Protocol):
    """urllib3's response, whose ``read1`` returns what has arrived."""

    def read1(self, amount: int, decode_content: bool | None = None) -> bytes: ...


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what ``call`` returns, or raise what it raises. Raises TooSlow if that takes longer.

    Libraries limit the wait for the next bytes only, so a response of one byte a second would never end. The
    abandoned call continues in its thread, so it must be safe to abandon at any point.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  (it is raised in the thread that waits)
            future.set_exception(error)

    threading.Thread(target=run, name="lakeplan-request", daemon=True).start()
    if wait([future], seconds).not_done:
        raise TooSlow(f"it took longer than the limit of {seconds:g} seconds")
    return future.result()


def read_body(
    raw: Raw, limit: int, *, encoding: str = "", clock: Callable[[], float] = time.monotonic
) -> bytes:
    """Return the whole body, decoded. Raises limits.TooLarge above ``limit`` bytes, TooSlow below the lowest
    allowed rate, and ValueError for an encoding that is damaged or was not requested."""
    chunks = _received(raw, clock)
    if encoding.lower() in ("", "identity"):
        return _joined(chunks, limit)
    if encoding.lower() == "gzip":
        return _joined(_unzipped(chunks), limit)
    raise ValueError("its Content-Encoding is not supported")


def _received(raw: Raw, clock: Callable[[], float]) -> Iterator[bytes]:
    started, received = clock(), 0
    while chunk := raw.read1(_PIECE, decode_content=False):
        received += len(chunk)
        elapsed = clock() - started
        if elapsed > limits.RATE_GRACE_SECONDS and received < limits.RATE_BYTES * elapsed:
            raise TooSlow(f"it was slower than the minimum of {limits.RATE_BYTES:,} bytes per second")
        yield chunk


def _unzipped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    unzip, received = zlib.decompressobj(_GZIP), False
    try:
        for chunk in chunks:
            waiting, received = chunk, True
            while waiting:
                yield unzip.decompress(waiting, _PIECE)
                waiting = unzip.unconsumed_tail
            if unzip.unused_data:
                raise ValueError("its gzip data is followed by other data")
        while received and not unzip.eof and (rest := unzip.decompress(b"", _PIECE)):
            yield rest
    except zlib.error:
        raise ValueError("its gzip data is damaged") from None
    if received and not unzip.eof:
        raise ValueError("its gzip data is truncated")


def _joined(chunks: Iterator[bytes], limit: int) -> bytes:
    body = bytearray()
    for chunk in chunks:
        limits.check_size(len(body) + len(chunk), limit)
        body += chunk
    return bytes(body)


def quiet_logs(*names: str) -> None:
    """Silence vendors' loggers below warnings, because they log headers, session tokens and signed URLs."""
    for name in names:
        logger = logging.getLogger(name)
        if logger.level < logging.WARNING:
            logger.setLevel(logging.WARNING)

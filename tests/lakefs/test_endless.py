"""Answers that are too large, too slow, too deep, or that never end."""

from __future__ import annotations

import gzip
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from lakeplan import limits
from lakeplan.errors import LakeplanError, ServerUnreachable, UnexpectedAnswer
from lakeplan.lakefs.answers import list_all
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import Call, Timeouts
from lakeplan.values.desired import ServerConfig
from tests.cpu import PATIENCE, at_most_cpu_seconds
from tests.dripping import HEAD, serving
from tests.lakefs.conftest import Answer, FakeClock, Scripted, Seen

MIB = limits.MIB
LISTING = Call("GET", ("x",), "list")
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def chunks_without_end() -> Iterator[bytes]:
    yield CHUNKED
    yield from itertools.repeat(b"100000\r\n" + bytes(MIB) + b"\r\n")


def a_pebibyte() -> Iterator[bytes]:
    yield HEAD + b"Content-Length: 1125899906842624\r\n\r\n"
    yield from itertools.repeat(bytes(MIB))


def no_length() -> Iterator[bytes]:
    yield HEAD + b"Connection: close\r\n\r\n"
    yield from itertools.repeat(bytes(MIB))


def zipped() -> Iterator[bytes]:
    body = gzip.compress(bytes(300 * MIB))
    yield HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body


CHILD = """
import resource, sys
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.errors import LakeplanError
from lakeplan.values.desired import ServerConfig
credentials = Credentials(Secret("k"), Secret("s"), "test")
server = LakeFSServer.connect(ServerConfig("prod", sys.argv[1]), credentials)
resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2)
try:
    server.identify()
except LakeplanError as error:
    print(error)
"""


@pytest.mark.parametrize("answer", [chunks_without_end, a_pebibyte, no_length, zipped])
def it_takes_no_more_of_a_body_than_the_limit(answer: Callable[[], Iterator[bytes]]) -> None:
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with at_most_cpu_seconds(10), serving(answer) as url:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, url], capture_output=True, timeout=120, check=False, env=env
        )
    assert b"larger than the limit of 64 MiB" in done.stdout, done.stderr[-500:]


def ask(url: str, credentials: Credentials, total: float = 30.0) -> None:
    LakeFSServer.connect(ServerConfig("prod", url), credentials, timeouts=Timeouts(5, 5, total)).identify()


def drip(start: bytes, piece: bytes, seconds: float) -> Callable[[], Iterator[bytes]]:
    def answer() -> Iterator[bytes]:
        yield start
        while True:
            time.sleep(seconds)
            yield piece

    return answer


def it_gives_up_a_body_of_a_few_bytes_a_second(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RATE_GRACE_SECONDS", 0.3)
    started = time.monotonic()
    with (
        serving(drip(HEAD + b"Content-Length: 100000\r\n\r\n", b" ", 0.02)) as url,
        pytest.raises(ServerUnreachable, match="bytes per second"),
    ):
        ask(url, credentials)
    assert time.monotonic() - started < 25


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (HEAD, b"X-A: b\r\n"),
        (b"HTTP/1.1 200 ", b"O"),
        (CHUNKED, b"0"),
        (b"HTTP/1.1 100 Continue\r\n\r\n",) * 2,
    ],
)
def it_gives_up_a_head_that_does_not_end(credentials: Credentials, start: bytes, piece: bytes) -> None:
    started = time.monotonic()
    with serving(drip(start, piece, 0.05)) as url, pytest.raises(ServerUnreachable):
        ask(url, credentials, total=1.0)
    assert time.monotonic() - started < PATIENCE


def it_waits_for_an_answer_that_is_slow_and_whole(credentials: Credentials) -> None:
    body = b'{"version": "1.2.3"}'

    def answer() -> Iterator[bytes]:
        yield HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
        for at in range(len(body)):
            time.sleep(0.02)
            yield body[at : at + 1]

    with serving(answer) as url:
        ask(url, credentials)


def _zip(data: bytes) -> bytes:
    """The same bytes in every process: names of tests are made of them."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Encoding": "br"}, b"{}"),
        ({"Content-Encoding": "gzip, gzip"}, _zip(_zip(b"{}"))),
        ({"Content-Encoding": "gzip"}, b"no gzip"),
        ({"Content-Encoding": "gzip"}, _zip(b'{"version": "1"}')[:-9]),
        ({"Content-Encoding": "gzip"}, _zip(b"{}") + b"more"),
        ({}, b"[" * 200_000),
        ({}, b'{"version":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        ({}, b'{"version": NaN}'),
        ({}, b'{"version": ' + b"9" * 5_000 + b"}"),
    ],
)
def it_refuses_a_body_that_cannot_be_decoded(
    scripted: Scripted, credentials: Credentials, fake_clock: FakeClock, headers: dict[str, str], body: bytes
) -> None:
    scripted.script = [Answer(200, body, headers)]
    with pytest.raises(LakeplanError):
        LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock()).identify()


def it_reads_gzip(scripted: Scripted, credentials: Credentials) -> None:
    body = gzip.compress(b'{"version": "' + b"1" * 500_000 + b'"}')
    scripted.script = [Answer(200, body, {"Content-Encoding": "gzip"})]
    assert len(LakeFSServer.connect(scripted.config(), credentials).identify().version) == 500_000


@pytest.mark.parametrize("value", ["315360000", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 -2359", "-1"])
def it_waits_no_longer_than_its_own_limit(
    scripted: Scripted, credentials: Credentials, fake_clock: FakeClock, value: str
) -> None:
    scripted.script = [Answer(503, {"message": "busy"}, {"Retry-After": value})]
    with pytest.raises(LakeplanError):
        LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock()).identify()
    assert sum(fake_clock.slept) <= 90


class DescribeListings:
    def listed(self, scripted: Scripted, credentials: Credentials, most: int = 50) -> int:
        transport = LakeFSServer.connect(scripted.config(), credentials)._transport
        found = list_all(transport, LISTING, lambda fields: fields.name("id"), most=most)
        return sum(1 for _ in found)

    def page(self, results: int, offset: str) -> Answer:
        pagination = {"has_more": True, "next_offset": offset, "results": results}
        return Answer(200, {"results": [{"id": "x"}] * results, "pagination": pagination})

    def it_ends_one_without_end(self, scripted: Scripted, credentials: Credentials) -> None:
        numbers = itertools.count()
        scripted.script = [lambda _: self.page(20, str(next(numbers)))]
        with pytest.raises(UnexpectedAnswer, match="more pages after 60 entries"):
            self.listed(scripted, credentials)

    def it_ends_one_of_empty_pages(
        self, scripted: Scripted, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "EMPTY_PAGES", 10)
        numbers = itertools.count()
        scripted.script = [lambda _: self.page(0, str(next(numbers)))]
        with pytest.raises(UnexpectedAnswer, match="kept returning more pages"):
            self.listed(scripted, credentials)
        assert len(scripted.seen) < 20

    def it_ends_one_that_leads_in_a_circle(self, scripted: Scripted, credentials: Credentials) -> None:
        def answer(request: Seen) -> Answer:
            return self.page(1, {"": "a", "a": "b", "b": "a"}[request.query.get("after", "")])

        scripted.script = [answer]
        with pytest.raises(UnexpectedAnswer, match="referred back to an earlier page"):
            self.listed(scripted, credentials)

    @pytest.mark.parametrize("padding", ["x" * 400, "é" * 150, "😀" * 30])
    def it_ends_one_of_long_names(
        self, scripted: Scripted, credentials: Credentials, monkeypatch: pytest.MonkeyPatch, padding: str
    ) -> None:
        monkeypatch.setattr(limits, "LISTING_BYTES", 40 * limits.KIB)
        numbers = itertools.count()

        def answer(_: Seen) -> Answer:
            n = next(numbers)
            pagination = {"has_more": n < 1000, "next_offset": str(n)}
            return Answer(200, {"results": [{"id": f"{n}-{padding}"}], "pagination": pagination})

        scripted.script = [answer]
        with pytest.raises(UnexpectedAnswer, match="take more memory than the limit of 40 KiB"):
            self.listed(scripted, credentials, most=limits.LISTED)
        assert len(scripted.seen) < 110

    @pytest.mark.parametrize(
        "page",
        [
            {"results": [{"id": "x" * 16_385}], "pagination": {"has_more": False}},
            {"results": [], "pagination": {"has_more": True, "next_offset": "x" * 16_385}},
        ],
    )
    def it_takes_no_name_longer_than_a_key(
        self, scripted: Scripted, credentials: Credentials, page: object
    ) -> None:
        scripted.script = [Answer(200, page)]
        with pytest.raises(UnexpectedAnswer, match="the limit of 16,384 characters"):
            self.listed(scripted, credentials)

    def it_ends_one_that_takes_hours(
        self, scripted: Scripted, credentials: Credentials, fake_clock: FakeClock
    ) -> None:
        numbers = itertools.count()

        def answer(_: Seen) -> Answer:
            fake_clock.time += 3600
            return self.page(1, str(next(numbers)))

        scripted.script = [answer]
        transport = LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock())._transport
        with pytest.raises(UnexpectedAnswer, match="4 hours"):
            list(list_all(transport, LISTING, lambda fields: fields.name("id")))

    def it_refuses_a_huge_page(
        self, scripted: Scripted, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "PAGE_ITEMS", 3)
        scripted.script = [self.page(4, "a")]
        with pytest.raises(UnexpectedAnswer, match="the limit of 3 results"):
            self.listed(scripted, credentials)


def it_refuses_numbers_that_no_date_or_array_can_hold(scripted: Scripted, credentials: Credentials) -> None:
    for huge in (2**63, 10**400, -(2**63)):
        body = {"id": "r", "creation_date": huge, "default_branch": "main", "storage_namespace": "s3://b/r"}
        scripted.script = [Answer(200, body)]
        with pytest.raises(UnexpectedAnswer, match="too large"):
            LakeFSServer.connect(scripted.config(), credentials).get_repository("r")

from __future__ import annotations

import base64
import gzip
import json
import logging
import pickle
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest
import requests

from lakeplan import __version__
from lakeplan.errors import NotFound, ServerError, ServerUnreachable, UnexpectedAnswer, may_have_acted
from lakeplan.lakefs.client import READS_AND_DUMPS, LakeFSServer
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import (
    CHERRY_PICKED,
    Call,
    Connection,
    NoAuth,
    Pace,
    RetryPolicy,
    Timeouts,
    Transport,
    new_session,
)
from lakeplan.lakefs.writers import LakeFSBranchWriter, LakeFSRulesWriter, LakeFSSettingsWriter
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import Policy, ServerConfig, SettingKind
from lakeplan.values.rules import GcRules
from tests.lakefs.conftest import Answer, FakeClock, Scripted

VERSION = Answer(body={"version": "1.84.0", "version_context": "lakeFS"})
FAILURE = Answer(500, {"message": "boom"})


@pytest.fixture
def silent_url() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


@pytest.fixture
def server(scripted: Scripted, credentials: Credentials, fake_clock: FakeClock) -> LakeFSServer:
    return LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock())


def it_sends_credentials_and_says_who_it_is(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [VERSION]
    assert server.identify().version == "1.84.0"
    (seen,) = scripted.seen
    assert seen.path == "/api/v1/config/version"
    assert seen.headers["User-Agent"] == f"lakeplan/{__version__}"
    assert base64.b64decode(seen.headers["Authorization"].removeprefix("Basic ")) == (
        b"AKIAEXAMPLEKEY:the-secret-itself"
    )


@pytest.mark.parametrize("status", [429, 500, 503])
def it_works_after_two_failures(
    scripted: Scripted, server: LakeFSServer, fake_clock: FakeClock, status: int
) -> None:
    failure = Answer(status, {"message": "boom"})
    scripted.script = [failure, failure, VERSION]
    assert server.identify().version == "1.84.0"
    assert len(scripted.seen) == 3
    assert fake_clock.slept == [0.2, 0.4]


def it_gives_up_after_four_tries(scripted: Scripted, server: LakeFSServer, fake_clock: FakeClock) -> None:
    scripted.script = [FAILURE]
    with pytest.raises(UnexpectedAnswer, match="status 500, boom") as caught:
        server.identify()
    assert caught.value.status == 500
    assert scripted.url in caught.value.where
    assert "prod" in caught.value.where
    assert len(scripted.seen) == 4
    assert fake_clock.slept == [0.2, 0.4, 0.8]


@pytest.mark.parametrize("status", [400, 401, 404, 409, 418, 502])
def it_does_not_repeat_what_would_fail_again(scripted: Scripted, server: LakeFSServer, status: int) -> None:
    scripted.script = [Answer(status, {"message": "no"})]
    with pytest.raises(Exception, match="cannot read the server's version"):
        server.identify()
    assert len(scripted.seen) == 1


@pytest.mark.parametrize(
    ("value", "waits"),
    [("7", 7.0), (formatdate(1_700_000_011, usegmt=True), 11.0), ("3600", 30.0), ("soon", 0.2), ("0", 0.2)],
)
def it_waits_as_long_as_it_is_asked_to(
    scripted: Scripted, server: LakeFSServer, fake_clock: FakeClock, value: str, waits: float
) -> None:
    scripted.script = [Answer(429, {"message": "slow"}, {"Retry-After": value}), VERSION]
    server.identify()
    assert fake_clock.slept == [waits]


def it_waits_longer_each_time_up_to_a_limit() -> None:
    policy = RetryPolicy()
    assert [policy.wait(n, None, 1.0) for n in (1, 2, 3, 10)] == [0.2, 0.4, 0.8, 30.0]
    assert policy.wait(3, None, 0.0) == 0.4


def it_tries_again_when_the_answer_breaks_off(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [Answer(200, {"version": "1"}, cut_short_by=10), VERSION]
    assert server.identify().version == "1.84.0"


def it_says_that_nobody_listens(credentials: Credentials, fake_clock: FakeClock) -> None:
    server = LakeFSServer.connect(
        ServerConfig("prod", "http://127.0.0.1:1"), credentials, clock=fake_clock.clock()
    )
    with pytest.raises(ServerUnreachable, match="refused") as caught:
        server.identify()
    assert "endpoint_url" in caught.value.hint
    assert len(fake_clock.slept) == 3


def it_says_that_the_name_does_not_resolve(credentials: Credentials, fake_clock: FakeClock) -> None:
    config = ServerConfig("prod", "http://no-such-host.invalid")
    with pytest.raises(ServerUnreachable, match="could not be resolved"):
        LakeFSServer.connect(config, credentials, clock=fake_clock.clock()).identify()


def it_does_not_wait_for_ever(silent_url: str, credentials: Credentials, fake_clock: FakeClock) -> None:
    config = ServerConfig("prod", silent_url)
    server = LakeFSServer.connect(
        config,
        credentials,
        timeouts=Timeouts(connect=1, read=0.05, total=20),
        retries=RetryPolicy(tries=2),
        clock=fake_clock.clock(),
    )
    with pytest.raises(ServerUnreachable, match="time limit"):
        server.identify()


def it_says_that_tls_failed(credentials: Credentials, scripted: Scripted, fake_clock: FakeClock) -> None:
    config = ServerConfig("prod", scripted.url.replace("http://", "https://"))
    with pytest.raises(ServerUnreachable, match="the TLS connection failed") as caught:
        LakeFSServer.connect(config, credentials, clock=fake_clock.clock()).identify()
    assert "certificate" in caught.value.hint


def it_follows_no_redirect_of_the_api(scripted: Scripted, elsewhere: Scripted, server: LakeFSServer) -> None:
    elsewhere.script = [VERSION]
    scripted.script = [Answer(302, {}, {"Location": f"{elsewhere.url}/api/v1/config/version?sig=SECRET"})]
    with pytest.raises(UnexpectedAnswer, match="redirects") as caught:
        server.identify()
    assert elsewhere.seen == []
    assert "SECRET" not in f"{caught.value} {caught.value.detail}"


LOST = [
    Answer(429, {"message": "slow"}, {"Retry-After": "1"}),
    FAILURE,
    Answer(503, {"message": "busy"}, {"Retry-After": "1"}),
    Answer(201, {"id": "b"}, cut_short_by=10),
]


@pytest.mark.parametrize("lost", LOST, ids=["429", "500", "503", "cut"])
@pytest.mark.parametrize("write", ["rules", "no rules", "policies", "no policies", "delete", "create"])
def it_sends_what_writes_once_whatever_the_answer(
    scripted: Scripted, credentials: Credentials, fake_clock: FakeClock, write: str, lost: Answer
) -> None:
    ends = (scripted.config(), credentials)
    rules = LakeFSRulesWriter.connect(*ends, clock=fake_clock.clock())
    settings = LakeFSSettingsWriter.connect(*ends, clock=fake_clock.clock())
    branches = LakeFSBranchWriter.connect(*ends, clock=fake_clock.clock())
    kind = SettingKind.BRANCH_LIFECYCLE
    writes: dict[str, Callable[[], None]] = {
        "rules": lambda: rules.set_gc_rules("r", GcRules(7)),
        "no rules": lambda: rules.delete_gc_rules("r"),
        "policies": lambda: settings.set_items("r", kind, (Policy(None, ("f",), 60),), if_match='"e"'),
        "no policies": lambda: settings.delete_items("r", kind),
        "delete": lambda: branches.delete_branch("r", "b"),
        "create": lambda: branches.create_branch("r", LiveBranch("b", "c0")),
    }
    commit = Answer(200, {"id": "c0", "creation_date": 1, "meta_range_id": "", "parents": []})
    scripted.script = [commit, lost] if write == "create" else [lost]
    with pytest.raises(ServerError) as caught:
        writes[write]()
    assert len([seen for seen in scripted.seen if seen.method != "GET"]) == 1
    assert may_have_acted(caught.value)


def it_repeats_a_dump_which_changes_nothing(scripted: Scripted, server: LakeFSServer) -> None:
    ids = {f"{kind}_meta_range_id": "0" * 64 for kind in ("commits", "tags", "branches")}
    scripted.script = [FAILURE, Answer(201, ids)]
    server.dump_refs("repo")
    assert [seen.method for seen in scripted.seen] == ["PUT", "PUT"]


class DescribeLimits:
    """A plan's connection cannot write, whatever the code above it does."""

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("PUT", "/repositories/r/settings/gc_rules"),
            ("DELETE", "/repositories/r/settings/gc_rules"),
            ("DELETE", "/repositories/r/branches/b"),
            ("POST", "/repositories"),
            ("PUT", "/repositories/a/b/refs/dump"),
            ("PUT", "/repositories/r/refs/restore"),
        ],
    )
    def it_lets_no_write_through(self, server: LakeFSServer, method: str, path: str) -> None:
        assert not READS_AND_DUMPS.fullmatch(f"{method} {path}")
        with pytest.raises(AssertionError, match="may not"):
            server._transport.request(Call(method, tuple(path.strip("/").split("/")), "x"))

    def it_has_no_method_that_writes(self, server: LakeFSServer) -> None:
        public = {name for name in dir(server) if not name.startswith("_")}
        assert public == {
            "connect",
            "dump_refs", "get_commit", "get_gc_rules", "get_object_rules", "get_policies", "get_repository",
            "identify", "list_addresses", "list_branches", "list_pins", "list_repositories", "list_tags",
            "list_uncommitted", "log_commits", "metadata", "metadata_reader", "name", "paced",
            "physical_address", "server_time",
        }  # fmt: skip

    def it_quotes_what_goes_into_a_path(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [Answer(404, {"message": "not found"})]
        assert server.get_gc_rules("a/../b?x") is None
        assert scripted.seen[0].path == "/api/v1/repositories/a%2F..%2Fb%3Fx/settings/gc_rules"


def it_serves_several_threads(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [VERSION]
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(server.identify().version)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["1.84.0"] * 8


def it_can_be_pickled(scripted: Scripted, credentials: Credentials) -> None:
    scripted.script = [VERSION]
    transport = LakeFSServer.connect(scripted.config(), credentials)._transport
    copy = pickle.loads(pickle.dumps(transport))
    assert copy.request(Call("GET", ("config", "version"), "x")).json()["version"] == "1.84.0"


def it_keeps_one_session_for_each_thread(scripted: Scripted, credentials: Credentials) -> None:
    transport = LakeFSServer.connect(scripted.config(), credentials)._transport
    own = transport._session()
    others: list[requests.Session] = []
    thread = threading.Thread(target=lambda: others.append(transport._session()))
    thread.start()
    thread.join()
    assert transport._session() is own
    assert others[0] is not own


def it_may_be_given_a_pace(scripted: Scripted, server: LakeFSServer, fake_clock: FakeClock) -> None:
    scripted.script = [VERSION]
    assert server.paced(None) is server
    paced = server.paced(Pace(2))
    for asked in (paced, paced, server):
        asked.identify()
    assert fake_clock.slept == [0, 0.5]


def it_reads_what_the_server_compressed(scripted: Scripted, server: LakeFSServer) -> None:
    body = gzip.compress(json.dumps(VERSION.body).encode())
    scripted.script = [Answer(200, body, {"Content-Encoding": "gzip"})]
    assert server.identify().version == "1.84.0"


@pytest.mark.parametrize("name", ["urllib3", "urllib3.connectionpool", "requests"])
def it_lets_no_library_log_what_is_sent(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger=name)
    new_session()
    assert not logging.getLogger(name).isEnabledFor(logging.INFO)


def it_keeps_no_cookies(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [replace(VERSION, headers={"Set-Cookie": "a=b"}), VERSION]
    server.identify()
    server.identify()
    assert "Cookie" not in scripted.seen[1].headers
    assert scripted.seen[1].headers["Accept-Encoding"] == "gzip"


def it_knows_the_storage_of_its_server(scripted: Scripted, credentials: Credentials) -> None:
    server = LakeFSServer.connect(scripted.config(), credentials, storage=["http://store"])
    assert server._transport.connection.storage == ("http://store",)
    assert LakeFSServer.connect(scripted.config(), credentials)._transport.connection.storage == ()


def it_shows_its_server_and_no_credentials(scripted: Scripted, server: LakeFSServer) -> None:
    for shown in (repr(server), repr(server._transport)):
        assert f"('prod', '{scripted.url}')" in shown
        assert "secret" not in shown


class DescribeImpossibleNames:
    @pytest.mark.parametrize("name", ["..", "."])
    def it_deletes_no_repository_for_a_branch_of_dots(
        self, scripted: Scripted, credentials: Credentials, fake_clock: FakeClock, name: str
    ) -> None:
        """Requests and urllib3 take dots out of a path: it would be that of the repository."""
        scripted.script = [Answer(204)]
        writer = LakeFSBranchWriter.connect(scripted.config(), credentials, clock=fake_clock.clock())
        with pytest.raises(ServerError, match="not a valid name"):
            writer.delete_branch("repo", name)
        assert scripted.seen == []

    @pytest.mark.parametrize("name", ["\ud800", "a\udcff"])
    def it_sends_no_text_that_utf_8_cannot_write(
        self, scripted: Scripted, server: LakeFSServer, name: str
    ) -> None:
        with pytest.raises(ServerError, match="not a valid name"):
            server.get_commit("repo", name)
        with pytest.raises(ServerError, match="not a valid name"):
            server.physical_address("repo", "main", name)
        assert scripted.seen == []


class DescribeACall:
    """One request with each of its options."""

    CALL = Call("GET", ("config", "version"), "ask", "repo")

    @pytest.fixture
    def transport(self, scripted: Scripted, credentials: Credentials, fake_clock: FakeClock) -> Transport:
        scripted.script = [VERSION]
        return self.connected(scripted.url, credentials, fake_clock)

    @staticmethod
    def connected(url: str, credentials: Credentials, fake_clock: FakeClock, **options: Any) -> Transport:
        clock = fake_clock.clock()
        return Transport(
            Connection("prod", url, credentials, clock=clock, allowed=re.compile(".*"), **options)
        )

    def it_has_parameters_headers_and_a_body(self, transport: Transport, scripted: Scripted) -> None:
        headers = {"If-Match": "e"}
        transport.request(
            Call("PUT", ("a",), "ask", params={"after": "b/c"}, headers=headers, body={"days": 7})
        )
        (seen,) = scripted.seen
        assert (seen.method, seen.path, seen.query) == ("PUT", "/api/v1/a", {"after": "b/c"})
        assert seen.headers["If-Match"] == "e"
        assert json.loads(seen.body) == {"days": 7}

    @pytest.mark.parametrize(("status", "accepted"), [(200, True), (299, True), (300, False), (404, False)])
    def it_accepts_success_alone(
        self, transport: Transport, scripted: Scripted, status: int, accepted: bool
    ) -> None:
        scripted.script = [Answer(status, {"message": "some"})]
        if accepted:
            assert transport.request(self.CALL).status_code == status
        else:
            with pytest.raises(ServerError):
                transport.request(self.CALL)

    def it_accepts_what_it_names_too(self, transport: Transport, scripted: Scripted) -> None:
        scripted.script = [Answer(404, {"message": "none"})]
        assert transport.request(replace(self.CALL, accept=frozenset({404}))).status_code == 404

    @pytest.mark.parametrize(
        ("answer", "times"),
        [
            (Answer(429, {"message": "slow"}), 4),
            (Answer(503, {"message": "busy"}), 4),
            (FAILURE, 1),
            (Answer(201, {"id": "b"}, cut_short_by=10), 1),
        ],
        ids=["429", "503", "500", "cut"],
    )
    def it_repeats_a_post_only_when_the_server_refused_it(
        self, transport: Transport, scripted: Scripted, answer: Answer, times: int
    ) -> None:
        """The server may have started long work that an error or a lost answer says nothing of."""
        scripted.script = [answer]
        with pytest.raises(ServerError):
            transport.request(replace(self.CALL, method="POST", repeatable=True))
        assert len(scripted.seen) == times

    @pytest.mark.parametrize(
        ("status", "message", "times"),
        [
            (500, "boom", 4),
            (500, "required permissions are missing", 1),
            (500, "invalid API endpoint", 1),
            (503, "invalid API endpoint", 4),
        ],
    )
    def it_repeats_no_refusal_that_a_server_calls_its_own_error(
        self, transport: Transport, scripted: Scripted, status: int, message: str, times: int
    ) -> None:
        scripted.script = [Answer(status, {"message": message})]
        with pytest.raises(ServerError):
            transport.request(self.CALL)
        assert len(scripted.seen) == times

    @pytest.mark.parametrize(("retried", "times"), [(True, 3), (False, 1)])
    def it_may_give_up_when_the_server_is_slow_once(
        self, silent_url: str, credentials: Credentials, fake_clock: FakeClock, retried: bool, times: int
    ) -> None:
        transport = self.connected(
            silent_url,
            credentials,
            fake_clock,
            timeouts=Timeouts(connect=5, read=0.05, total=20),
            retries=RetryPolicy(tries=3),
        )
        with pytest.raises(ServerUnreachable):
            transport.request(replace(self.CALL, retry_timeouts=retried))
        assert len(fake_clock.slept) == times - 1

    def it_repeats_a_lost_answer_whether_or_not_it_repeats_slow_ones(
        self, transport: Transport, scripted: Scripted
    ) -> None:
        scripted.script = [Answer(200, {}, cut_short_by=10), VERSION]
        assert transport.request(replace(self.CALL, retry_timeouts=False)).ok

    def it_names_itself_and_the_repository_when_nobody_answers(
        self, credentials: Credentials, fake_clock: FakeClock
    ) -> None:
        transport = self.connected("http://127.0.0.1:1", credentials, fake_clock)
        with pytest.raises(ServerUnreachable, match="cannot ask: ") as caught:
            transport.request(self.CALL)
        assert caught.value.where == "server prod (http://127.0.0.1:1), repository repo"
        assert transport.where(None) == "server prod (http://127.0.0.1:1)"

    def it_reads_so_many_bytes(self, transport: Transport, scripted: Scripted) -> None:
        scripted.script = [Answer(200, bytes(1000))]
        assert len(transport.request(replace(self.CALL, limit=1000)).content) == 1000
        with pytest.raises(ServerUnreachable, match=r"the response was refused: .*999 bytes"):
            transport.request(replace(self.CALL, limit=999))
        assert len(scripted.seen) == 2, "it is not sent again"

    def it_ends_after_so_long_in_all_and_is_not_sent_again(
        self, silent_url: str, credentials: Credentials, fake_clock: FakeClock
    ) -> None:
        transport = self.connected(
            silent_url,
            credentials,
            fake_clock,
            timeouts=Timeouts(connect=30, read=30, total=0.1),
        )
        session = transport._session()
        with pytest.raises(ServerUnreachable, match=r"the response was refused: .*0\.1"):
            transport.request(self.CALL)
        assert fake_clock.slept == []
        assert transport._session() not in (session, ""), "the abandoned request still uses its session"

    def it_waits_for_its_turn(
        self, scripted: Scripted, credentials: Credentials, fake_clock: FakeClock
    ) -> None:
        scripted.script = [VERSION]
        transport = self.connected(scripted.url, credentials, fake_clock, pace=Pace(2))
        for _ in range(2):
            transport.request(self.CALL)
        assert fake_clock.slept == [0, 0.5]

    def it_says_how_long_a_cherry_picked_commit_is_missing(
        self, transport: Transport, scripted: Scripted
    ) -> None:
        for message, hint in (("c1: commit not found", CHERRY_PICKED), ("branch not found", "")):
            scripted.script = [Answer(404, {"message": message})]
            with pytest.raises(NotFound) as caught:
                transport.request(self.CALL)
            assert caught.value.hint == hint


def it_sends_no_credentials_where_it_has_none() -> None:
    request = requests.Request("GET", "http://h/", headers={"Authorization": "of .netrc"}).prepare()
    for _ in range(2):
        assert "Authorization" not in NoAuth()(request).headers

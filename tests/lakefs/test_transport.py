from __future__ import annotations

import base64
import pickle
import socket
import threading
from collections.abc import Callable
from email.utils import formatdate

import pytest

from lakeplan import __version__
from lakeplan.errors import ServerError, ServerUnreachable, UnexpectedAnswer, may_have_acted
from lakeplan.lakefs.client import READS_AND_DUMPS, LakeFSServer
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import Call, RetryPolicy, Timeouts
from lakeplan.lakefs.writers import LakeFSBranchWriter, LakeFSRulesWriter, LakeFSSettingsWriter
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import ServerConfig
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import Policy, SettingKind
from tests.lakefs.conftest import Answer, FakeClock, Scripted

VERSION = Answer(body={"version": "1.84.0", "version_context": "lakeFS"})
FAILURE = Answer(500, {"message": "boom"})


@pytest.fixture
def server(scripted: Scripted, credentials: Credentials, fake_clock: FakeClock) -> LakeFSServer:
    return LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock())


def it_sends_credentials_and_says_who_it_is(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [VERSION]
    assert server.version() == "1.84.0"
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
    assert server.version() == "1.84.0"
    assert len(scripted.seen) == 3
    assert fake_clock.slept == [0.2, 0.4]


def it_gives_up_after_four_tries(scripted: Scripted, server: LakeFSServer, fake_clock: FakeClock) -> None:
    scripted.script = [FAILURE]
    with pytest.raises(UnexpectedAnswer, match="status 500, boom") as caught:
        server.version()
    assert caught.value.status == 500
    assert scripted.url in caught.value.where
    assert "prod" in caught.value.where
    assert len(scripted.seen) == 4
    assert fake_clock.slept == [0.2, 0.4, 0.8]


@pytest.mark.parametrize("status", [400, 401, 404, 409, 418, 502])
def it_does_not_repeat_what_would_fail_again(scripted: Scripted, server: LakeFSServer, status: int) -> None:
    scripted.script = [Answer(status, {"message": "no"})]
    with pytest.raises(Exception, match="cannot read the server's version"):
        server.version()
    assert len(scripted.seen) == 1


@pytest.mark.parametrize(
    ("value", "waits"),
    [("7", 7.0), (formatdate(1_700_000_011, usegmt=True), 11.0), ("3600", 30.0), ("soon", 0.2), ("0", 0.2)],
)
def it_waits_as_long_as_it_is_asked_to(
    scripted: Scripted, server: LakeFSServer, fake_clock: FakeClock, value: str, waits: float
) -> None:
    scripted.script = [Answer(429, {"message": "slow"}, {"Retry-After": value}), VERSION]
    server.version()
    assert fake_clock.slept == [waits]


def it_waits_longer_each_time_up_to_a_limit() -> None:
    policy = RetryPolicy()
    assert [policy.wait(n, None, 1.0) for n in (1, 2, 3, 10)] == [0.2, 0.4, 0.8, 30.0]
    assert policy.wait(3, None, 0.0) == 0.4


def it_tries_again_when_the_answer_breaks_off(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [Answer(200, {"version": "1"}, cut_short_by=10), VERSION]
    assert server.version() == "1.84.0"


def it_says_that_nobody_listens(credentials: Credentials, fake_clock: FakeClock) -> None:
    server = LakeFSServer.connect(
        ServerConfig("prod", "http://127.0.0.1:1"), credentials, clock=fake_clock.clock()
    )
    with pytest.raises(ServerUnreachable, match="refused") as caught:
        server.version()
    assert "endpoint_url" in caught.value.hint
    assert len(fake_clock.slept) == 3


def it_says_that_the_name_does_not_resolve(credentials: Credentials, fake_clock: FakeClock) -> None:
    config = ServerConfig("prod", "http://no-such-host.invalid")
    with pytest.raises(ServerUnreachable, match="does not resolve"):
        LakeFSServer.connect(config, credentials, clock=fake_clock.clock()).version()


def it_does_not_wait_for_ever(credentials: Credentials, fake_clock: FakeClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, never answers
        config = ServerConfig("prod", f"http://127.0.0.1:{silent.getsockname()[1]}")
        server = LakeFSServer.connect(
            config,
            credentials,
            timeouts=Timeouts(connect=1, read=0.05),
            retries=RetryPolicy(tries=2),
            clock=fake_clock.clock(),
        )
        with pytest.raises(ServerUnreachable, match="time limit"):
            server.version()


def it_says_that_tls_failed(credentials: Credentials, scripted: Scripted, fake_clock: FakeClock) -> None:
    config = ServerConfig("prod", scripted.url.replace("http://", "https://"))
    with pytest.raises(ServerUnreachable, match="TLS failed") as caught:
        LakeFSServer.connect(config, credentials, clock=fake_clock.clock()).version()
    assert "certificate" in caught.value.hint


def it_follows_no_redirect_of_the_api(scripted: Scripted, elsewhere: Scripted, server: LakeFSServer) -> None:
    elsewhere.script = [VERSION]
    scripted.script = [Answer(302, {}, {"Location": f"{elsewhere.url}/api/v1/config/version?sig=SECRET"})]
    with pytest.raises(UnexpectedAnswer, match="redirects") as caught:
        server.version()
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
            "list_addresses", "list_branches", "list_pins", "list_repositories", "list_tags",
            "list_uncommitted", "log_commits", "metadata", "metadata_reader", "name", "paced",
            "physical_address", "server_time", "version",
        }  # fmt: skip

    def it_quotes_what_goes_into_a_path(self, scripted: Scripted, server: LakeFSServer) -> None:
        scripted.script = [Answer(404, {"message": "not found"})]
        assert server.get_gc_rules("a/../b?x") is None
        assert scripted.seen[0].path == "/api/v1/repositories/a%2F..%2Fb%3Fx/settings/gc_rules"


def it_serves_several_threads(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [VERSION]
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(server.version())) for _ in range(8)]
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

from __future__ import annotations

import threading

import pytest

from lakeplan.errors import RepositoryNotFound, ServerUnreachable, UnexpectedAnswer
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import RetryPolicy, Timeouts
from lakeplan.values.repository import RefsDumpIds
from tests.lakefs.conftest import Answer, FakeClock, Scripted, Seen

IDS = {
    "commits_meta_range_id": "c" * 64,
    "branches_meta_range_id": "b" * 64,
    "tags_meta_range_id": "a" * 64,
}
EXPECTED = RefsDumpIds("c" * 64, "b" * 64, "a" * 64)
RUNNING = {"id": "task", "done": False, "update_time": "2026-01-01T00:00:00Z"}


@pytest.fixture
def server(scripted: Scripted, credentials: Credentials, fake_clock: FakeClock) -> LakeFSServer:
    return LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock())


def it_takes_the_ids_of_the_short_way(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [Answer(201, IDS)]
    assert server.dump_refs("repo") == EXPECTED
    assert [(seen.method, seen.path) for seen in scripted.seen] == [
        ("PUT", "/api/v1/repositories/repo/refs/dump")
    ]


@pytest.mark.parametrize("status", [405, 408, 413, 501, 502, 504])
def it_starts_a_task_when_the_short_way_is_not_to_be_had(
    scripted: Scripted, server: LakeFSServer, fake_clock: FakeClock, status: int
) -> None:
    scripted.script = [
        Answer(status, {"message": "no"}),
        Answer(202, {"id": "task"}),
        Answer(200, RUNNING),
        Answer(200, RUNNING),
        Answer(200, {**RUNNING, "done": True, "refs": IDS}),
    ]
    assert server.dump_refs("repo") == EXPECTED
    assert [seen.method for seen in scripted.seen] == ["PUT", "POST", "GET", "GET", "GET"]
    assert scripted.seen[-1].query == {"task_id": "task"}
    assert fake_clock.slept == [0.5, 0.75]


def it_starts_a_task_when_the_route_is_unknown(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [
        Answer(404, {"message": "invalid API endpoint"}),
        Answer(202, {"id": "task"}),
        Answer(200, {**RUNNING, "done": True, "refs": IDS}),
    ]
    assert server.dump_refs("repo") == EXPECTED


def it_starts_a_task_when_the_short_way_takes_too_long(
    scripted: Scripted, credentials: Credentials, fake_clock: FakeClock
) -> None:
    release = threading.Event()

    def hang(_: Seen) -> Answer:
        release.wait(5)
        return Answer(500, {})

    server = LakeFSServer.connect(
        scripted.config(), credentials, timeouts=Timeouts(read=1), clock=fake_clock.clock()
    )
    scripted.script = [hang, Answer(202, {"id": "task"}), Answer(200, {**RUNNING, "done": True, "refs": IDS})]
    try:
        assert server.dump_refs("repo") == EXPECTED
    finally:
        release.set()
    assert [seen.method for seen in scripted.seen] == ["PUT", "POST", "GET"]


def it_does_not_start_a_task_for_a_server_that_is_not_there(
    credentials: Credentials, scripted: Scripted, fake_clock: FakeClock
) -> None:
    scripted.stop()
    server = LakeFSServer.connect(
        scripted.config(), credentials, retries=RetryPolicy(tries=1), clock=fake_clock.clock()
    )
    with pytest.raises(ServerUnreachable, match="refused"):
        server.dump_refs("repo")


def it_does_not_start_a_task_for_a_missing_repository(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [Answer(404, {"message": "repository not found"})]
    with pytest.raises(RepositoryNotFound):
        server.dump_refs("repo")
    assert len(scripted.seen) == 1


def it_says_what_went_wrong_with_the_task(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [
        Answer(413, {"message": "too large"}),
        Answer(202, {"id": "task"}),
        Answer(200, {**RUNNING, "done": True, "error": "disk\nfull"}),
    ]
    with pytest.raises(UnexpectedAnswer, match="the server reported an error: disk full"):
        server.dump_refs("repo")


def it_does_not_wait_for_ever(scripted: Scripted, server: LakeFSServer, fake_clock: FakeClock) -> None:
    scripted.script = [Answer(413, {}), Answer(202, {"id": "task"}), Answer(200, RUNNING)]
    with pytest.raises(ServerUnreachable, match="the dump did not finish within 60 minutes"):
        server.dump_refs("repo")
    assert max(fake_clock.slept) == 5.0


def it_does_not_repeat_a_task_that_may_have_started(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [Answer(413, {}), Answer(500, {"message": "boom"})]
    with pytest.raises(UnexpectedAnswer, match="boom"):
        server.dump_refs("repo")
    assert [seen.method for seen in scripted.seen] == ["PUT", "POST"]


@pytest.mark.parametrize(
    "ids",
    [
        {},
        {**IDS, "tags_meta_range_id": None},
        {**IDS, "commits_meta_range_id": "../../data/x"},
        {**IDS, "branches_meta_range_id": "b" * 63},
    ],
)
def it_takes_no_other_text_for_an_id(
    scripted: Scripted, server: LakeFSServer, ids: dict[str, object]
) -> None:
    scripted.script = [Answer(201, ids)]
    with pytest.raises(UnexpectedAnswer):
        server.dump_refs("repo")
    scripted.script = [
        Answer(413, {}),
        Answer(202, {"id": "task"}),
        Answer(200, {**RUNNING, "done": True, "refs": ids}),
    ]
    with pytest.raises(UnexpectedAnswer):
        server.dump_refs("repo")

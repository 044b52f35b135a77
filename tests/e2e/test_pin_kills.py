"""An apply that is killed at any of its writes: nothing is kept less than before or after, and the next one
finishes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.errors import PermissionDenied, UnexpectedAnswer
from lakeplan.lakefs import writers
from lakeplan.lakefs.transport import Transport
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import DocumentedRule, ServerWalk
from lakeplan.values.rules import rules_from_body
from tests.e2e.test_pins import PATH, REPOSITORY, applied, hidden, pin_of, planned, tree


@pytest.fixture
def changing(world):
    """A tree that asks for other pins and longer retention than were applied: two new ones, of which one is
    at a commit that nothing follows, and one retired. Returns the commits of main, and the loose one."""
    api = world.api
    api.repository(REPOSITORY)
    line = [api.commit(REPOSITORY, "main", age, **{f"f{age}": age}) for age in (400, 300, 200, 100)]
    api.branch(REPOSITORY, "dev", line[0])
    below = api.commit(REPOSITORY, "dev", 9, below=1)
    loose = api.commit(REPOSITORY, "dev", 8, loose=1)
    api.call("DELETE", f"{PATH}/branches/dev")
    api.commit(REPOSITORY, "main", 0, last=5)
    api.tag(REPOSITORY, "v1", line[0])
    api.tag(REPOSITORY, "w1", line[2])
    api.tag(REPOSITORY, "w2", loose)
    api.set_rules(REPOSITORY, 10)
    tree(world, '{tags: ["v*"]}', default=10)
    world.override("tag-loss", "expired-objects")
    applied(world)
    assert set(hidden(world)) == {pin_of(line[0])}
    tree(world, '{tags: ["w*"]}', default=12)
    return [*line, below, loose]


def kept(world) -> set[tuple[str, int, str]]:
    """Commits that a collection keeps, by verdict and day from now."""
    refs = world.handle._sandbox.service.open(REPOSITORY).refs()
    graph = CommitGraph.from_refs(refs)
    rules = rules_from_body(world.api.call("GET", f"{PATH}/settings/gc_rules"))
    now, found = datetime.now(timezone.utc), set()
    for days in (0, 7, 30):
        moment = now + timedelta(days=days)
        for name, rule in (("server", ServerWalk), ("documented", DocumentedRule)):
            flags = rule(graph, rules).active(moment, timezone.utc)
            found |= {(name, days, graph.ids[n]) for n, flag in enumerate(flags) if flag}
    return found


class Killed(BaseException):
    """As a kill: nothing catches it."""


def count_of(monkeypatch: pytest.MonkeyPatch, at: int = 0, *, after: bool = False) -> list[str]:
    """The writes that are sent from now on; it dies at the one of this number, before or after the server
    did it."""
    real, seen = writers._Writer._send, []

    def send(self, method, repository, *path, **options):
        if method == "GET":
            return real(self, method, repository, *path, **options)
        seen.append(f"{method} {path[0]}")
        if len(seen) == at and not after:
            raise Killed
        real(self, method, repository, *path, **options)
        if len(seen) == at:
            raise Killed
        return None

    monkeypatch.setattr(writers._Writer, "_send", send)
    return seen


ORDER = ["PUT settings", "POST branches", "POST branches", "PUT settings", "DELETE branches", "PUT settings"]


def it_writes_in_the_order_that_keeps_everything(world, changing, monkeypatch):
    states = [row["state"] for row in planned(world)["pins"]["pins"]]
    assert sorted(states) == ["missing", "missing", "retired"]
    seen = count_of(monkeypatch)
    applied(world)
    assert seen == ORDER
    assert set(hidden(world)) == {pin_of(changing[2]), pin_of(changing[-1])}
    assert world.api.rules(REPOSITORY) == {"*": 12, pin_of(changing[2]): 0}


def fail_at(monkeypatch: pytest.MonkeyPatch, at: int, how: str) -> None:
    """Let this write and those after it fail: they are ``refused``, or their answers are ``lost``. If
    ``unread``, all reads after this write fail."""
    write, request, seen = writers._Writer._send, Transport.request, []

    def send(self, method, repository, *path, **options):
        if method == "GET":
            return write(self, method, repository, *path, **options)
        seen.append(path[0])
        if len(seen) >= at and how == "refused":
            raise PermissionDenied("no", where=REPOSITORY)
        write(self, method, repository, *path, **options)
        if len(seen) >= at and how == "lost":
            raise UnexpectedAnswer("no", where=REPOSITORY, status=502)
        return None

    def read(self, call):
        if len(seen) >= at and how == "unread" and call.method == "GET":
            raise PermissionDenied("no", where=REPOSITORY)
        return request(self, call)

    monkeypatch.setattr(writers._Writer, "_send", send)
    monkeypatch.setattr(Transport, "request", read)


FAILURES = [(how, at) for how in ("refused", "lost", "unread") for at in range(1, len(ORDER) + 1)]
FIRST = [("refused", 1), ("refused", 4), ("lost", 1), ("unread", 1)]


@pytest.mark.parametrize(
    ("how", "at"),
    [pytest.param(*one, marks=[] if one in FIRST else [pytest.mark.extended]) for one in FAILURES],
)
def it_ends_as_partly_done_if_a_write_fails_that_may_have_acted(world, changing, monkeypatch, at, how):
    with monkeypatch.context() as patch:
        fail_at(patch, at, how)
        ended = world.lakeplan("apply", "--auto-approve", "--format", "json")
    unchanged = at == 1 and how == "refused"
    assert ended.code == (1 if unchanged else 3), ended.err
    assert ended.json["end"] == ("failed" if unchanged else "partly")
    (result,) = ended.json["results"]
    said = "may already have been written" in result["message"] or "were written, but" in result["message"]
    assert said != unchanged
    (run,) = world.lakeplan(("history", "show"), "last", "--format", "json").json["runs"]
    assert run["repositories"][0]["message"] == result["message"]
    applied(world)
    assert world.lakeplan("drift", "--fail-on", "pins-missing").code == 0


@pytest.mark.parametrize("at", range(1, len(ORDER) + 1))
@pytest.mark.parametrize("after", [False, True])
def it_keeps_all_wherever_it_is_killed_and_the_next_apply_finishes(world, changing, monkeypatch, at, after):
    start = kept(world)
    with monkeypatch.context() as patch:
        count_of(patch, at, after=after)
        with pytest.raises(Killed):
            applied(world)
    killed = kept(world)
    applied(world)
    end = kept(world)
    assert set(hidden(world)) == {pin_of(changing[2]), pin_of(changing[-1])}
    assert world.api.rules(REPOSITORY) == {"*": 12, pin_of(changing[2]): 0}
    assert world.lakeplan("drift", "--fail-on", "pins-missing").code == 0
    assert start & end <= killed
    assert ("server", 30, changing[-1]) in end
    if at < 4:  # the new rules were not written
        assert start <= killed

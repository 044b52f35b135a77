"""Two trees that claim one repository at once, in every order in which a server can see their requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import combinations
from types import SimpleNamespace

import pytest

from lakeplan.errors import GateRefused, LakeplanError
from lakeplan.review import claims
from lakeplan.review.claims import CLAIM, check_claims, claim, claim_all, claims_in, release, take
from lakeplan.review.run import Run

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
RUN = Run("run", {}, lambda: NOW, lambda holder: False, sleep=lambda seconds: None)


class Server:
    """The metadata of one repository. ``turn`` is called before every request with the name of the tree."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {"team": "data", "lakeplan.branch-ledger": "1 x 2"}

    def as_seen_by(self, turn: Callable[[], None] = lambda: None) -> _Client:
        return _Client(self, turn)


class _Client:
    def __init__(self, server: Server, turn: Callable[[], None]) -> None:
        self._server, self._turn = server, turn
        self.reader = self.metadata_writer = self

    def metadata(self, repository: str) -> Mapping[str, str]:
        assert repository == "repo"
        self._turn()
        return dict(self._server.values)

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None:
        assert repository == "repo"
        self._turn()
        self._server.values |= values

    def delete_metadata(self, repository: str, keys: Sequence[str]) -> None:
        assert repository == "repo"
        self._turn()
        for key in keys:
            self._server.values.pop(key, None)


def both(server: Server, order: Sequence[str]) -> dict[str, bool]:
    """Claims for two trees whose requests reach the server in this order; who was let through."""
    from threading import Condition, Thread

    pending, ended = list(order), set()
    turn_of, results = Condition(), {}

    def turns(tree: str) -> Callable[[], None]:
        def wait() -> None:
            with turn_of:
                # Names of a tree that has ended are no turns any more; beyond the order anybody may go.
                turn_of.wait_for(lambda: not [n for n in pending if n not in ended] or _next() == tree)
                while pending and pending[0] in ended:
                    pending.pop(0)
                if pending and pending[0] == tree:
                    pending.pop(0)
                turn_of.notify_all()

        def _next() -> str:
            return next(n for n in pending if n not in ended)

        return wait

    def one(tree: str) -> None:
        try:
            claim("repo", "prod/repo", tree, server.as_seen_by(turns(tree)), RUN)
            results[tree] = True
        except GateRefused:
            results[tree] = False
        with turn_of:
            ended.add(tree)
            turn_of.notify_all()

    threads = [Thread(target=one, args=(tree,)) for tree in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    return results


@pytest.mark.parametrize("of_a", list(combinations(range(6), 3)))
def it_lets_at_most_one_of_two_trees_have_a_repository(of_a):
    server = Server()
    got = both(server, ["a" if place in of_a else "b" for place in range(6)])
    assert not (got["a"] and got["b"])
    left = claims_in(server.values)
    assert left == tuple(tree for tree in ("a", "b") if got[tree])
    assert server.values["team"] == "data"


def it_claims_once():
    server = Server()
    assert claim("repo", "prod/repo", "a", server.as_seen_by(), RUN)
    first = dict(server.values)
    assert not claim("repo", "prod/repo", "a", server.as_seen_by(), RUN)
    assert server.values == first


def it_writes_nothing_for_a_tree_without_a_name():
    server = Server()
    before = dict(server.values)
    assert not claim("repo", "prod/repo", "", server.as_seen_by(), RUN)
    assert server.values == before


def it_counts_any_key_of_its_kind_as_a_claim():
    for name in ("", "A B", "a\x1b[31m", "\N{SNOWMAN}"):
        with pytest.raises(GateRefused):
            check_claims({CLAIM + name: "x"}, "a", "prod/repo")
        with pytest.raises(GateRefused):
            check_claims({CLAIM + name: "x"}, "", "prod/repo")


def it_says_who_has_a_repository_and_what_to_do():
    claimed = dict.fromkeys([f"{CLAIM}{n}" for n in "gfedcba"], "x")
    with pytest.raises(GateRefused, match=r"repository: 'a', 'b', 'c', 'd', 'e'$") as caught:
        check_claims(claimed, "", "prod/re po")
    named = " If this is the same tree, add its name to lakeplan.yaml (`name: …`)."
    assert caught.value.where == "prod/re po"
    assert "`lakeplan claim --take 'prod/re po'`" in caught.value.hint
    assert caught.value.hint.endswith(named)
    assert "Exclude" in caught.value.hint
    with pytest.raises(GateRefused) as caught:
        check_claims(claimed, "a", "prod/repo")
    assert named not in caught.value.hint


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def it_names_the_repository_that_another_tree_has(when):
    server = Server()

    def turn() -> None:
        if when == "before" or CLAIM + "a" in server.values:
            server.values[CLAIM + "b"] = "x"

    client = server.as_seen_by(turn)
    with pytest.raises(GateRefused) as caught:
        claim("repo", "prod/repo", "a", client, RUN)
    assert caught.value.where == "prod/repo"
    assert claims_in(server.values) == ("b",)


def it_reads_a_claim_again_that_a_cache_does_not_show_yet():
    server = Server()
    client, stale = server.as_seen_by(), [{}, {}]
    read = client.metadata
    client.metadata = lambda repository: stale.pop() if stale else read(repository)  # type: ignore[method-assign]
    assert claim("repo", "prod/repo", "a", client, RUN)
    assert stale == []
    client, slept = server.as_seen_by(), []
    del server.values[CLAIM + "a"]
    assert claim("repo", "prod/repo", "a", client, replace(RUN, sleep=slept.append))
    assert slept == [], "the first answer has it"


def it_claims_what_needs_no_write_and_says_what_it_could_not_claim(monkeypatch):
    asked = []

    def one(*args):
        asked.append(args)
        if args[0] in failing:
            raise LakeplanError("denied")

    def all_of(tree, *names):
        asked.clear()
        listed = [SimpleNamespace(name=n, key=f"prod/{n}", server="prod", failure=None) for n in names]
        broken = SimpleNamespace(failure="unreachable")
        return claim_all([broken, *listed], tree, lambda server: f"client of {server}", RUN)

    monkeypatch.setattr(claims, "claim", one)
    failing = set()
    assert all_of("a", "x", "y") == ""
    assert asked == [(n, f"prod/{n}", "a", "client of prod", RUN) for n in ("x", "y")]
    assert (all_of("", "x"), asked) == ("", [])
    failing = set("vwxy")
    text = "could not be claimed for this tree:"
    assert all_of("a", *"xz") == f"1 repository {text} prod/x: denied"
    three = "prod/v: denied; prod/w: denied; prod/x: denied"
    assert all_of("a", *"vwx") == f"3 repositories {text} {three}"
    assert all_of("a", *"vwxyz") == f"4 repositories {text} {three}, and 1 more"


def it_does_not_go_on_when_the_server_forgets_a_claim():
    server = Server()
    client = server.as_seen_by()
    client.set_metadata = lambda repository, values: None  # type: ignore[method-assign]
    with pytest.raises(LakeplanError, match="did not return the claim"):
        claim("repo", "prod/repo", "a", client, RUN)


def it_takes_over_and_releases():
    server = Server()
    client = server.as_seen_by()
    claim("repo", "prod/repo", "a", client, RUN)
    assert take("repo", "b", client, RUN) == ("a",)
    assert claims_in(server.values) == ("b",)
    assert not release("repo", "a", client)
    assert release("repo", "b", client)
    assert claims_in(server.values) == ()
    assert server.values["team"] == "data"

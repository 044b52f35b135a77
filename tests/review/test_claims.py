"""Two trees that claim one repository at once, in every order in which a server can see their requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import combinations

import pytest

from lakeplan.errors import GateRefused, LakeplanError
from lakeplan.review.claims import CLAIM, check_claims, claim, claims_in, release, take
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
        self._turn()
        return dict(self._server.values)

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None:
        self._turn()
        self._server.values |= values

    def delete_metadata(self, repository: str, keys: Sequence[str]) -> None:
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

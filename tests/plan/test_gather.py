"""Reading a commit graph while a server is busy: what a dump lacks is fetched, or there is no answer."""

from __future__ import annotations

import pytest

from lakeplan.errors import NotFound
from lakeplan.formats.refs import write_refs_dump
from lakeplan.review.selection import DANGLING_UNSEEN, read_graph
from lakeplan.values.branches import LiveBranch
from lakeplan.values.repository import Branch, Commit, Refs, RefsDumpIds, Tag

A, B, C, D = (letter * 64 for letter in "abcd")
OLD, HEAD = Commit(A, 1_000_000, ""), Commit(B, 2_000_000, "", (A,))
NEW, NEWER = Commit(C, 3_000_000, "", (B,)), Commit(D, 4_000_000, "", (C,))


class Server:
    """A dump of ``dumped``, and commits that can be asked for by id."""

    def __init__(self, dumped: Refs, *commits: Commit) -> None:
        self._ids, self._files = write_refs_dump(dumped)
        self._refs = dumped
        self._commits = {c.id: c for c in commits}
        self.asked: list[str] = []
        self.dumps = 0

    def dump_refs(self, repository: str) -> RefsDumpIds:
        self.dumps += 1
        return self._ids

    def metadata_reader(self, repository: str) -> Server:
        return self

    def read_metadata(self, kind: str, id: str) -> bytes:
        return self._files[id]

    def get_commit(self, repository: str, commit_id: str) -> Commit:
        self.asked.append(commit_id)
        if commit_id not in self._commits:
            raise NotFound("cannot read a commit: not found", where=commit_id)
        return self._commits[commit_id]

    def list_branches(self, repository: str) -> list[Branch]:
        return list(self._refs.branches)

    def list_pins(self, repository: str) -> list[LiveBranch]:
        return []

    def list_tags(self, repository: str) -> list[Tag]:
        return list(self._refs.tags)

    def log_commits(self, repository: str, ref: str) -> list[Commit]:
        found, wanted = [], [ref]
        while wanted:
            found.append(self._commits[wanted.pop()])
            wanted += found[-1].parents
        return found


def it_fetches_a_head_that_the_dump_lacks_with_its_missing_ancestors():
    server = Server(Refs((OLD, HEAD), (Branch("main", D),), ()), NEW, NEWER)
    graph, blind_to = read_graph(server, "analytics", read_only=False)
    assert graph.ids == [A, B, C, D]
    assert server.asked == [D, C]
    assert blind_to == ()


def it_gives_no_graph_when_such_a_head_cannot_be_fetched():
    server = Server(Refs((OLD, HEAD), (Branch("main", D),), ()), NEWER)
    with pytest.raises(NotFound):
        read_graph(server, "analytics", read_only=False)


def it_asks_for_nothing_when_the_dump_is_whole():
    server = Server(Refs((OLD, HEAD), (Branch("main", B),), (Tag("v1", A),)))
    graph, _ = read_graph(server, "analytics", read_only=False)
    assert server.asked == []
    assert graph.tags == (Tag("v1", A),)


def it_reads_logs_of_branches_and_tags_when_it_may_not_dump_and_says_what_it_misses():
    dangling = Commit("e" * 64, 5_000_000, "", (A,))
    refs = Refs((OLD, HEAD, NEW, dangling), (Branch("main", B),), (Tag("v1", C),))
    server = Server(refs, OLD, HEAD, NEW, dangling)
    graph, blind_to = read_graph(server, "analytics", read_only=True)
    assert graph.ids == [A, B, C]
    assert blind_to == (DANGLING_UNSEEN,)
    assert server.dumps == 0

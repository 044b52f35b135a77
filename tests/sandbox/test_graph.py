"""Logs and merge bases, drawn."""

from __future__ import annotations

import pytest

from lakeplan.sandbox.graph import log, merge_base
from lakeplan.sandbox.messages import ApiError
from lakeplan.values.repository import Commit


class Drawn:
    """``a: b c`` says that a has the parents b and c; commits are dated in the order they stand."""

    def __init__(self, picture):
        self.commits = {}
        for number, line in enumerate(picture.strip().splitlines()):
            id, _, parents = (part.strip() for part in line.partition(":"))
            generation = 1 + max((self.commits[p].generation for p in parents.split()), default=0)
            self.commits[id] = Commit(id, number, "", tuple(parents.split()), generation=generation)

    def commit(self, id):
        if id not in self.commits:
            raise ApiError(404, "commit not found")
        return self.commits[id]


CRISS_CROSS = """
root:
a: root
b: root
m: a b
c: m
d: b
"""


@pytest.mark.parametrize(
    ("left", "right", "base"),
    [("c", "d", "b"), ("a", "b", "root"), ("c", "c", "c"), ("c", "a", "a"), ("root", "c", "root")],
)
def it_finds_the_best_common_ancestor(left, right, base):
    drawn = Drawn(CRISS_CROSS)
    assert merge_base(drawn, left, right).id == base
    assert merge_base(drawn, right, left).id == base


def it_finds_none_between_strangers():
    assert merge_base(Drawn("a:\nb:"), "a", "b") is None


def it_logs_each_commit_once_newest_first():
    assert [c.id for c in log(Drawn(CRISS_CROSS), "c")] == ["c", "m", "b", "a", "root"]


def it_logs_first_parents_only_when_asked():
    assert [c.id for c in log(Drawn(CRISS_CROSS), "c", first_parent=True)] == ["c", "m", "a", "root"]

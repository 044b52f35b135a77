"""Which commits branches, tags and holds name, and which prefixes no path can begin with."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import (
    Keep,
    KeepRules,
    commits_named,
    hold_problem,
    is_continued,
    keep_masks,
    names_branch,
    needed_branches,
    own_commits,
    prefix_problem,
    reachable,
    tags_on,
)
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.sweep import Hold

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)


def refs_of(parents: dict[str, str], branches: dict[str, str], tags: dict[str, str] | None = None) -> Refs:
    """Commits with the letters of their parents, branches and tags with their commits."""
    return Refs(
        tuple(Commit(id, 0, f"m-{id}", tuple(of)) for id, of in parents.items()),
        tuple(Branch(*each) for each in branches.items()),
        tuple(Tag(*each) for each in (tags or {}).items()),
    )


#   r - a - b - c   main
#        \   \
#         x - m     dev (a merge), and y after it: old
TREE = {"r": "", "a": "r", "b": "a", "c": "b", "x": "a", "m": "xb", "y": "m"}
HEADS = {"main": "c", "dev": "m", "old": "y"}


def it_follows_main_parents_to_a_first_head() -> None:
    graph = CommitGraph.from_refs(refs_of(TREE, HEADS))
    continued = {first for first in TREE if is_continued(graph, first, "y")}
    assert continued == {"y", "m", "x", "a", "r"}
    assert is_continued(graph, "c", "c")
    assert not is_continued(graph, "y", "m")
    assert not is_continued(graph, "none", "c")
    assert not is_continued(graph, "c", "none")
    assert not is_continued(graph, "none", "none")


class DescribeTagsOnBranches:
    def on(self, default: str = "main", **tags: str) -> dict[str, tuple[str, ...]]:
        return tags_on(refs_of(TREE, HEADS, tags), default)

    def it_is_every_tag_that_the_default_branch_does_not_reach(self) -> None:
        assert self.on() == {}
        assert self.on(v1="c", v2="b", v3="r") == {}
        assert self.on(v2="x", v1="x", v3="y") == {"dev": ("v1", "v2"), "old": ("v1", "v2", "v3")}
        assert self.on(v1="m") == {"dev": ("v1",), "old": ("v1",)}
        assert self.on(v1="y") == {"old": ("v1",)}
        assert self.on(v1="none") == {}

    def it_is_every_tag_without_a_default_branch(self) -> None:
        found = {"main": ("v1",), "dev": ("v1",), "old": ("v1",)}
        assert self.on("trunk", v1="r") == found
        assert self.on("trunk", v1="b", v2="c") == {**found, "main": ("v1", "v2")}

    def it_unites_the_tags_of_all_parents(self) -> None:
        assert self.on("trunk", v1="x", v2="b")["dev"] == ("v1", "v2")

    def it_leaves_out_unknown_parents_and_heads(self) -> None:
        partial = {id: of for id, of in TREE.items() if id not in "ra"}
        refs = refs_of(partial, {"gone": "a", **HEADS}, {"v1": "x"})
        assert tags_on(refs, "main") == {"dev": ("v1",), "old": ("v1",)}
        assert tags_on(refs, "trunk") == {"dev": ("v1",), "old": ("v1",)}


class DescribeBranchesThatLeave:
    def it_needs_those_that_alone_reach_a_held_commit(self) -> None:
        refs = refs_of(TREE, HEADS)
        assert needed_branches(refs, {"dev", "old"}, ["x"]) == {"dev", "old"}
        assert needed_branches(refs, {"dev", "old"}, ["y", "b"]) == {"old"}
        assert needed_branches(refs, {"dev"}, ["x"]) == set()
        assert needed_branches(refs, {"old"}, ["y", "r"]) == {"old"}
        assert needed_branches(refs, {"dev", "old"}, ["a", "b"]) == set()
        assert needed_branches(refs, set(), ["none"]) == set()

    def it_counts_tags_as_remaining(self) -> None:
        tagged = refs_of(TREE, HEADS, {"v1": "m"})
        assert needed_branches(tagged, {"dev", "old"}, ["x"]) == set()
        assert own_commits(tagged, {"dev", "old"}) == {"dev": set(), "old": {"y"}}

    def it_has_the_commits_of_its_own(self) -> None:
        refs = refs_of(TREE, HEADS)
        assert own_commits(refs, {"dev", "old"}) == {"dev": {"x", "m"}, "old": {"x", "m", "y"}}
        assert own_commits(refs, {"old"}) == {"old": {"y"}}
        assert own_commits(refs, set()) == {}


def it_reaches_all_parents_that_are_known() -> None:
    commits = {commit.id: commit for commit in refs_of({**TREE, "z": "?y"}, {}).commits}
    assert reachable(commits, ["z", "c", "none"]) == {*TREE, "z"}
    diamond = {c.id: c for c in refs_of({"r": "", "s": "", "a": "r", "b": "ra", "c": "sba"}, {}).commits}
    assert reachable(diamond, ["c", "r"]) == {"r", "s", "a", "b", "c"}


def hold(kind: str, name: str) -> Hold:
    return Hold(kind, name, None, "legal")  # type: ignore[arg-type]


def it_names_a_branch_by_any_hold_on_branches() -> None:
    holds = [hold("tag", "v1"), hold("branch", "release-*"), hold("branch", "main")]
    assert names_branch(holds, "main")
    assert names_branch(holds, "release-1")
    assert not names_branch(holds, "v1")
    assert not names_branch(holds, "dev")


def it_takes_a_whole_id_for_no_abbreviation() -> None:
    refs = Refs(tuple(Commit(id, 0, "") for id in ("abc", "abcd")), (), ())
    assert commits_named(hold("commit", "abc"), refs) == {"abc"}
    assert commits_named(hold("commit", "ab"), refs) == {"abc", "abcd"}
    assert "no tag with that name" in hold_problem(hold("tag", "v1"), refs)


NO_URL = "a prefix is the beginning of a path, not a URL"
NO_SLASH = "an object path must not begin with a slash or dots"
NO_WILDCARDS = "a prefix cannot contain wildcards: it covers every path that begins with it"
LEGAL = "write a prefix such as 'legal/'"


@pytest.mark.parametrize(
    ("prefix", "problem"),
    [
        ("legal/", ""),
        ("a b/c.d/", ""),
        ("", ""),
        ("lakefs://lake/main/legal/2026/", f"{NO_URL}; write 'legal/2026/'"),
        ("s3a+x-1.b://lake/main/a://b", f"{NO_URL}; {LEGAL}"),
        ("lakefs://lake/main/", f"{NO_URL}; {LEGAL}"),
        ("lakefs://lake/main", f"{NO_URL}; {LEGAL}"),
        ("lakefs://lake", f"{NO_URL}; {LEGAL}"),
        (" legal/ ", "a prefix must not begin or end with whitespace; write 'legal/'"),
        ("legal/\n", "a prefix must not begin or end with whitespace; write 'legal/'"),
        (" ", f"a prefix must not begin or end with whitespace; {LEGAL}"),
        ("legal\\2026\\", "paths use slashes, not backslashes; write 'legal/2026/'"),
        ("/legal/", f"{NO_SLASH}; write 'legal/'"),
        ("./legal/", f"{NO_SLASH}; write 'legal/'"),
        ("../.././legal/", f"{NO_SLASH}; write 'legal/'"),
        ("/", f"{NO_SLASH}; {LEGAL}"),
        ("legal/*", f"{NO_WILDCARDS}; write 'legal/'"),
        ("legal/?.csv", f"{NO_WILDCARDS}; write 'legal/'"),
        ("*", f"{NO_WILDCARDS}; {LEGAL}"),
        ("/legal/*", f"{NO_SLASH}; {LEGAL}"),
    ],
)  # fmt: skip
def it_says_what_to_write_instead_of_a_prefix(prefix: str, problem: str) -> None:
    assert prefix_problem(prefix) == problem


@pytest.mark.parametrize("expanded", [None, GcRules(8, {"pin": 100})])
def it_keeps_what_is_kept_with_or_without_pins(expanded: GcRules | None) -> None:
    # the pin's HEAD sorts first, so the walk of dev stops at the shared parent before marking it
    def at(age: float) -> int:
        return int((NOW - timedelta(days=age)).timestamp() * 1e6)

    commits = (
        Commit("p0", at(300), ""),
        Commit("p1", at(200), "m1", ("p0",)),
        Commit("a-pin", at(150), "m2", ("p1",)),
        Commit("b-dev", at(3), "m3", ("p1",)),
        Commit("c-old", at(120), "m4", ("a-pin",)),
    )
    branches = (Branch("pin", "a-pin"), Branch("dev", "b-dev"), Branch("old", "c-old"))
    refs = Refs(commits, branches, ())
    graph = CommitGraph.from_refs(refs)

    def masks(*pins: str) -> dict[str, int]:
        stored = GcRules(7, {"pin": 100})
        rules = KeepRules(stored, NOW, timezone.utc, 0, expanded, pins=frozenset(pins))
        return dict(zip(graph.ids, keep_masks(graph, refs, rules), strict=True))

    assert not masks()["p1"] & Keep.SERVER
    assert masks("pin")["p1"] & Keep.SERVER
    assert masks("pin")["p1"] & Keep.EXPANDED == (Keep.EXPANDED if expanded else 0)
    assert masks("pin")["a-pin"] & Keep.SERVER
    assert not masks("pin")["p0"]

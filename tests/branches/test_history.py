"""What commits say about branches."""

from __future__ import annotations

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import is_continued, reachable, tags_on
from lakeplan.values.repository import Branch, Commit, Refs, Tag


def refs(commits: dict[str, str], branches: dict[str, str], tags: dict[str, str] | None = None) -> Refs:
    """Commits as child → parents, such as ``m: b a`` for a merge into b."""
    return Refs(
        tuple(Commit(id, 0, "", tuple(parents.split())) for id, parents in commits.items()),
        tuple(Branch(n, c) for n, c in branches.items()),
        tuple(Tag(n, c) for n, c in (tags or {}).items()),
    )


#   a ── b ── m   main (m merges f2)
#         └ f1 ── f2   feature
HISTORY = {"a": "", "b": "a", "f1": "b", "f2": "f1", "m": "b f2", "x": "a"}


class DescribeContinuation:
    graph = CommitGraph.from_refs(refs(HISTORY, {"main": "m", "feature": "f2", "reset": "x"}))

    def it_follows_commits_and_merges(self):
        assert is_continued(self.graph, "b", "f2")
        assert is_continued(self.graph, "b", "m")
        assert is_continued(self.graph, "b", "b")

    def it_does_not_follow_a_hard_reset_or_another_line(self):
        assert not is_continued(self.graph, "f2", "f1")
        assert not is_continued(self.graph, "f1", "x")

    def it_does_not_take_a_merged_branch_made_anew_from_main_for_the_old_one(self):
        assert not is_continued(self.graph, "f2", "m")

    def it_does_not_believe_what_it_cannot_see(self):
        assert not is_continued(self.graph, "gone", "m")
        assert not is_continued(self.graph, "b", "gone")


def it_reaches_along_every_parent():
    commits = {c.id: c for c in refs(HISTORY, {}).commits}
    assert reachable(commits, ["m"]) == {"m", "b", "a", "f1", "f2"}
    assert reachable(commits, ["x", "unknown"]) == {"x", "a"}


def it_names_tags_that_a_branch_leads_to_and_the_default_branch_does_not():
    commits = {"a": "", "b": "a", "f1": "a", "f2": "f1", "g": "f1"}
    found = refs(commits, {"main": "b", "feature": "f2", "other": "g"}, {"v1": "a", "wip": "f1", "tip": "f2"})
    assert tags_on(found, "main") == {"feature": ("tip", "wip"), "other": ("wip",)}
    assert tags_on(refs(commits, {"main": "b"}), "main") == {}


def it_stands_deep_histories():
    commits = {"c0": ""} | {f"c{n}": f"c{n - 1}" for n in range(1, 5000)}
    found = refs(commits, {"main": "c0", "feature": "c4999"}, {"t": "c1"})
    assert tags_on(found, "main") == {"feature": ("t",)}

"""Legal holds keep branches from ``branches run``: by name, and where they alone lead to what is held."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.branches.keepers import held_branches, with_other_names
from lakeplan.errors import LakeplanError
from lakeplan.formats.ranges import write_metarange, write_range
from lakeplan.values.desired import BranchSettings, DesiredRepository
from lakeplan.values.repository import AddressType, Branch, Commit, Entry, Refs, Tag
from lakeplan.values.sweep import Hold


class Ranges:
    """Metaranges of commits, written as a server does."""

    def __init__(self, lakefs: Any) -> None:
        self.lakefs, self.files = lakefs, {}
        lakefs.metadata_reader = lambda repository: SimpleNamespace(read_metadata=self.read)

    def read(self, kind: str, id: str) -> bytes:
        assert kind == "meta_range"
        return self.files[id]

    def commit(self, branch: str, *paths: str) -> str:
        """A commit that has exactly these paths, each in a separate range."""
        infos = []
        for path in sorted(paths):
            info, data = write_range([Entry(path, f"data/{path!a}", AddressType.RELATIVE, 1)])
            self.files[info.id] = data
            infos.append(info)
        metarange, data = write_metarange(infos)
        self.files[metarange] = data
        id = self.lakefs.commit(branch)
        made = self.lakefs.commits[id]
        self.lakefs.commits[id] = type(made)(made.id, made.creation_us, metarange, made.parents)
        return str(id)


def outcome(world: Any, *holds: Hold) -> list[str]:
    """Branches that a run deletes."""
    world.tree.holds = holds
    return sorted(name for name, end in world.ends().items() if end == "deleted")


def in_the_end(world: Any, *holds: Hold) -> list[str]:
    """Branches that two runs delete, four days apart: the first one sees what was written."""
    first = outcome(world, *holds)
    world.clock.wait(4)
    return sorted([*first, *outcome(world, *holds)])


class DescribeAHoldOnABranch:
    def it_keeps_the_branch_and_says_so(self, idle):
        idle.tree.holds = (Hold("branch", "feature-1"),)
        assert idle.outlooks().feature_1.verdict.kept_by.value == "held"
        assert outcome(idle, Hold("branch", "feature-1")) == ["feature-2"]
        assert "feature-1" in idle.lakefs.branches

    def it_keeps_every_branch_that_a_glob_names(self, idle):
        assert outcome(idle, Hold("branch", "feature-*")) == []

    def it_ends_after_its_last_day(self, idle):
        today = idle.clock.now.date()
        assert outcome(idle, Hold("branch", "feature-1", today)) == ["feature-2"]
        assert outcome(idle, Hold("branch", "feature-1", today - timedelta(days=1))) == ["feature-1"]

    def it_counts_among_what_min_keep_keeps(self, idle):
        idle.tree.settings = BranchSettings(min_keep=1)
        assert outcome(idle, Hold("branch", "feature-1")) == ["feature-2"]


class DescribeAHoldThatKeepsNothing:
    @pytest.mark.parametrize(
        "hold", [Hold("branch", "featrue-1"), Hold("tag", "v1"), Hold("commit", "abcdef"), Hold("commit", "")]
    )
    def it_deletes_nothing_until_that_is_clear(self, idle, hold):
        idle.lakefs.commit("main")
        idle.tree.holds = (hold,)
        (repository,) = idle.run().repositories
        assert "hold on" in repository.failure.message
        assert {"feature-1", "feature-2"} <= set(idle.lakefs.branches)

    def it_does_not_matter_once_expired(self, idle):
        gone = Hold("branch", "featrue-1", idle.clock.now.date() - timedelta(days=1))
        assert outcome(idle, gone) == ["feature-1", "feature-2"]


class DescribeAHoldOnACommit:
    def it_keeps_the_only_branches_that_lead_to_it(self, idle):
        commit = idle.lakefs.commit("feature-1")
        assert in_the_end(idle, Hold("commit", commit[:12])) == ["feature-2"]

    def it_needs_no_branch_where_another_one_or_a_tag_leads_to_it(self, idle):
        shared = idle.lakefs.branches["feature-1"].commit_id
        assert outcome(idle, Hold("commit", shared)) == ["feature-1", "feature-2"]

    def it_needs_no_branch_for_what_a_tag_names(self, idle):
        idle.lakefs.tags.append(Tag("v1", idle.lakefs.commit("feature-1")))
        assert in_the_end(idle, Hold("tag", "v1")) == ["feature-1", "feature-2"]


class DescribeAHoldOnAPrefix:
    def it_keeps_a_branch_with_uncommitted_changes_below_it(self, idle):
        idle.tree.settings = BranchSettings(keep_with_uncommitted=False)
        idle.lakefs.stage("feature-1", "legal/a")
        idle.lakefs.stage("feature-2", "other/a")
        assert in_the_end(idle, Hold("prefix", "legal/")) == ["feature-2"]

    def it_keeps_a_branch_whose_uncommitted_changes_are_too_many_to_list(self, idle):
        idle.tree.settings = BranchSettings(keep_with_uncommitted=False)
        idle.lakefs.stage("feature-1", "a", more=True)
        assert in_the_end(idle, Hold("prefix", "legal/")) == ["feature-2"]

    def it_keeps_a_branch_that_alone_leads_to_paths_below_it(self, idle):
        ranges = Ranges(idle.lakefs)
        ranges.commit("main", "legal/1", "x")
        idle.lakefs.branch("feature-1")
        idle.lakefs.branch("feature-2")
        ranges.commit("feature-1", "legal/1", "legal/2", "x")
        ranges.commit("feature-1", "legal/1", "x")  # its HEAD does not have it any more
        ranges.commit("feature-2", "legal/1", "x", "y")
        assert in_the_end(idle, Hold("prefix", "legal/")) == ["feature-2"]

    def it_keeps_one_of_whose_commits_too_many_would_have_to_be_read(self, idle, monkeypatch):
        monkeypatch.setattr("lakeplan.branches.keepers.MAX_OWN_COMMITS", 1)
        ranges = Ranges(idle.lakefs)
        for _ in range(2):
            ranges.commit("feature-1", "x")
        assert in_the_end(idle, Hold("prefix", "legal/")) == ["feature-2"]

    def it_reads_as_many_commits_as_it_may_and_the_branches_after_one_with_more(self, idle, monkeypatch):
        monkeypatch.setattr("lakeplan.branches.keepers.MAX_OWN_COMMITS", 1)
        ranges = Ranges(idle.lakefs)
        ranges.commit("feature-1", "x")
        ranges.commit("feature-2", "x", "y")
        assert in_the_end(idle, Hold("prefix", "legal/")) == ["feature-1", "feature-2"]
        for name, path in (("feature-3", "x"), ("feature-3", "x"), ("feature-4", "legal/a")):
            if name not in idle.lakefs.branches:
                idle.lakefs.branch(name)
            ranges.commit(name, path)
        assert in_the_end(idle, Hold("prefix", "legal/")) == []


class DescribeAPrefixAtTheEndsOfARange:
    @pytest.mark.parametrize("path", ["legal/", "legal/a", "\udcff/a"])
    def it_keeps_a_branch_with_a_range_that_begins_or_ends_there(self, idle, path):
        ranges = Ranges(idle.lakefs)
        ranges.commit("main", "x")
        idle.lakefs.branch("feature-1")
        ranges.commit("feature-1", path, "x")
        prefix = path if path.endswith("/") else path[:-1]
        assert "feature-1" not in in_the_end(idle, Hold("prefix", prefix))


class DescribeABranchThatIsNotInTheRefs:
    """Made while they were read."""

    @pytest.mark.parametrize(("kind", "kept"), [("commit", {"late"}), ("branch", set())])
    def it_is_kept_where_what_it_leads_to_may_be_held(self, kind, kept):
        commits = Commit("a", 0, "range", ()), Commit("b", 0, "own", ("a",))
        refs = Refs(commits, (Branch("f", "b"), Branch("main", "a")), ())
        leaving = {name: SimpleNamespace(staged=None) for name in ("late", "f")}
        nothing_is_read: Any = None
        assert held_branches((Hold(kind, "other"),), refs, leaving, nothing_is_read) == kept  # type: ignore[arg-type]


OTHERS = (Hold("tag", "v2"),)


class DescribeAServerThatTheTreeHasByTwoNames:
    def merged(self, *, same: bool = True, down: str = "", name: str = "lake", holds: Any = OTHERS):
        """Holds of ``prod/lake``, which the tree has as ``again/lake`` too, and what was asked of servers."""

        def desired(server: str, name: str, holds: tuple[Hold, ...]) -> DesiredRepository:
            return DesiredRepository(server, name, name, None, "", {}, {}, holds=holds)

        def get_repository(server: str, name: str) -> Any:
            asked.append(f"{server}/{name}")
            if server == down:
                raise LakeplanError("no answer")
            other = "" if same or server == "prod" else "-other"
            return SimpleNamespace(creation_date=1, storage_namespace=f"s3://b{other}")

        def readers(server: str) -> Any:
            return SimpleNamespace(refs=SimpleNamespace(get_repository=partial(get_repository, server)))

        def find(server: str, wanted: str) -> DesiredRepository | None:
            assert server == "again", "other servers only"
            return desired("again", name, holds) if name == wanted else None

        asked: list[str] = []
        own = (Hold("tag", "v1"),)
        tree: Any = SimpleNamespace(servers={"prod": None, "again": None}, find=find)
        return with_other_names(desired("prod", "lake", own), tree, readers).holds, asked

    def it_keeps_what_either_entry_holds(self):
        assert self.merged() == ((Hold("tag", "v1"), *OTHERS), ["prod/lake", "again/lake"])

    @pytest.mark.parametrize("how", [{"same": False}, {"down": "again"}, {"down": "prod"}])
    def it_leaves_alone_what_may_be_another_repository(self, how):
        assert self.merged(**how)[0] == (Hold("tag", "v1"),)

    @pytest.mark.parametrize("how", [{"name": "pond"}, {"holds": ()}])
    def it_asks_no_server_where_no_other_entry_holds_anything(self, how):
        assert self.merged(**how) == ((Hold("tag", "v1"),), [])

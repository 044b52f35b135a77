"""Runs that would delete data of tags: the gate over every tag on an expiring commit."""

from __future__ import annotations

from datetime import date

import pytest

from lakeplan.branches.documents import run_exit_code
from lakeplan.errors import UsageError
from lakeplan.values.desired import Override, Safety, Source
from lakeplan.values.repository import Tag
from lakeplan.values.rules import GcRules


class DescribeTags:
    @pytest.fixture
    def tagged(self, idle):
        """Rules of 21 days, and a tag on a commit that only feature-1 holds."""
        idle.lakefs.rules = GcRules(21)
        head = idle.lakefs.commit("feature-1")
        idle.lakefs.tags.append(Tag("v1", head))
        idle.run()
        idle.clock.wait(4)
        return idle

    def it_deletes_no_branch_whose_tags_would_lose_data(self, tagged):
        report = tagged.run()
        (gate,) = [g for g in report.repositories[0].gates if g.gate == "tag-loss"]
        assert (gate.outcome.value, gate.value) == ("refused", 1)
        assert "1 tag (v1) may lose data once `lakeplan branches run` deletes feature-1" in gate.message
        assert run_exit_code(report) == 4
        assert "feature-1" in tagged.lakefs.branches

    @pytest.mark.parametrize("ahead", [0, 1])
    def it_sees_a_tag_below_a_commit_that_stays(self, world, ahead):
        """feature-1 made from main's HEAD, or one ahead of it; its longer days alone keep what is older."""
        world.lakefs.rules = GcRules(21, {"main": 21, "feature-1": 90})
        world.lakefs.tags.append(Tag("v1", world.lakefs.branches["main"].commit_id))
        for days in (10, 40):
            world.clock.wait(days)
            world.lakefs.commit("main")
        world.lakefs.branch("feature-1")
        for _ in range(ahead):
            world.lakefs.commit("feature-1")
        world.run()
        world.clock.wait(10)
        report = world.run()
        (gate,) = [g for g in report.repositories[0].gates if g.gate == "tag-loss"]
        assert "1 tag (v1) may lose data once `lakeplan branches run` deletes feature-1" in gate.message
        assert "feature-1" in world.lakefs.branches

    def it_says_so_before_in_a_plan(self, tagged):
        assert [g.gate for g in tagged.plan().refused] == ["tag-loss"]

    @pytest.mark.parametrize("word", ["warn", "ignore"])
    def it_goes_on_where_the_tree_says_so(self, tagged, word):
        tagged.tree.safety = Safety(on_tag_loss=word)
        assert tagged.ends()["feature-1"] == "deleted"

    def it_opens_by_name(self, tagged):
        assert tagged.ends(options={"allowed": frozenset({"tag-loss"})})["feature-1"] == "deleted"

    def it_opens_for_the_repository_that_is_named(self, tagged):
        named = {"allowed": frozenset({"prod/analytics=tag-loss"})}
        assert tagged.ends(options=named)["feature-1"] == "deleted"

    def it_refuses_to_run_for_one_that_is_not_in_the_run(self, tagged):
        with pytest.raises(UsageError, match="prod/analytic is not in this run") as caught:
            tagged.run(options={"allowed": frozenset({"prod/analytic=tag-loss"})})
        assert "--allow prod/analytics=tag-loss" in caught.value.hint
        assert "feature-1" in tagged.lakefs.branches

    def it_does_not_take_it_for_the_other_gate(self, tagged):
        """What opens one gate in every repository does not open the limit over all of them."""
        tagged.tree.safety = Safety(max_deleted_branches=0)
        tagged.tree.overrides = (
            Override("analytics", "tag-loss", None, "archived", date(2099, 1, 1), Source("l.yaml", 1, 1)),
        )
        report = tagged.run()
        assert [g.outcome.value for g in report.gates] == ["refused"]

    def it_is_quiet_about_a_tag_that_another_branch_keeps(self, tagged):
        tagged.lakefs.branch("kept", "feature-1")
        assert tagged.ends()["feature-1"] == "deleted"

    def it_is_quiet_where_nothing_is_ever_collected(self, tagged):
        tagged.lakefs.rules = None
        assert tagged.ends()["feature-1"] == "deleted"

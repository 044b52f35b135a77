"""Writes that reset the idle clock, and what does not: branch-lifecycle.md on the sandbox."""

from __future__ import annotations

import pytest

GO = {"feature-1": ("delete", "policy"), "main": ("keep", "default_branch")}
STAY = {"feature-1": ("keep", "not_crossed"), "main": ("keep", "default_branch")}


class DescribeWrites:
    """ "Writes that reset the idle clock": each kind, between two observations."""

    def it_is_idle_without_any(self, lake):
        lake.observed("feature-1")
        assert lake.verdicts() == GO

    def it_is_reset_by_a_commit(self, lake):
        lake.observed("feature-1")
        lake.api.commit("analytics", "feature-1", 100, data=3)
        assert lake.verdicts() == STAY

    def it_is_reset_by_a_merge(self, lake):
        lake.api.commit("analytics", "main", 100, data=10)
        lake.observed("feature-1")
        lake.api.commit("analytics", "main", 100, data=11)
        lake.api.call("POST", "/repositories/analytics/refs/main/merge/feature-1", json={})
        assert lake.verdicts() == STAY

    def it_is_reset_by_a_revert_and_a_cherry_pick(self, lake):
        commit = lake.api.commit("analytics", "main", 100, data=10)
        for action, body in (("revert", {"ref": commit, "parent_number": 0}), ("cherry-pick", None)):
            lake.observed("feature-1")
            if body is None:
                body = {"ref": lake.api.commit("analytics", "main", 90, other=9)}
            lake.api.call("POST", f"/repositories/analytics/branches/feature-1/{action}", json=body)
            assert lake.verdicts() == STAY, action
            lake.api.call("DELETE", "/repositories/analytics/branches/feature-1")
            lake.branches("run")

    def it_is_reset_by_a_retarget(self, lake):
        commit = lake.api.commit("analytics", "main", 100, data=10)
        lake.api.commit("analytics", "main", 99, data=11)
        lake.observed("feature-1")
        lake.api.call("PUT", "/repositories/analytics/branches/feature-1/hard_reset", params={"ref": commit})
        assert lake.verdicts() == STAY

    def it_is_reset_by_an_import_which_ends_in_a_commit(self, lake):
        lake.observed("feature-1")
        foreign = {"physical_address": "local://elsewhere/old", "checksum": "c", "size_bytes": 3, "mtime": 1}
        path = "/repositories/analytics/branches/feature-1"
        lake.api.call("PUT", f"{path}/objects", params={"path": "imported"}, json=foreign)
        body = {"message": "import", "date": 1_500_000_000, "metadata": {".lakefs.merge.strategy": "dest"}}
        lake.api.call("POST", f"{path}/commits", json=body)
        assert lake.verdicts() == STAY

    @pytest.mark.parametrize("kind", ["create", "update", "delete"])
    def it_is_reset_by_staging(self, lake, kind):
        lake.api.commit("analytics", "main", 100, data=10)
        lake.policies(
            "{id: quiet, patterns: [feature-*], max_idle_age: 3d}", "{keep_with_uncommitted: false}"
        )
        lake.observed("feature-1")
        if kind == "delete":
            lake.api.delete("analytics", "feature-1", "data.bin")
        else:
            lake.api.upload("analytics", "feature-1", "new" if kind == "create" else "data.bin", b"x")
        assert lake.verdicts() == STAY

    def it_is_reset_by_a_reset_of_staged_changes(self, lake):
        lake.api.branch("analytics", "feature-1")
        lake.api.upload("analytics", "feature-1", "new", b"x")
        lake.observed()
        lake.branches("run")  # looks at what is staged, because the branch would go
        lake.grow_older(4)
        assert lake.verdicts()["feature-1"] == ("keep", "uncommitted")
        lake.api.call("PUT", "/repositories/analytics/branches/feature-1", json={"type": "reset"})
        assert lake.verdicts() == STAY

    def it_is_not_reset_by_reads(self, lake):
        lake.api.commit("analytics", "main", 100, data=10)
        lake.observed("feature-1")
        for path in ("refs/feature-1/objects?path=data.bin", "branches/feature-1", "refs/feature-1/commits"):
            lake.api.call("GET", f"/repositories/analytics/{path}")
        assert lake.verdicts() == GO

    def it_is_not_reset_by_an_everest_mount_and_the_plan_says_so(self, lake):
        lake.observed("feature-1")
        document = lake.branches("plan", "--no-simulate").json
        assert any("Everest" in c for c in document["caveats"])

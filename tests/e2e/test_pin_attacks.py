"""Changes by others between two runs: a pin must still exist then, or a run must report what is missing."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from lakeplan.lakefs import writers
from lakeplan.plan import pin_sync
from tests.e2e.test_pins import PATH, REPOSITORY, applied, commits, hidden, pin_of, planned, tree

__all__ = ["commits"]


@pytest.fixture
def pinned(world, commits):
    tree(world, '{tags: ["v*"]}')
    applied(world)
    return pin_of(commits[1])


class DescribeHolds:
    def held(self, world, *holds: str) -> None:
        tree(world, "{holds: true}")
        world.append(f"repositories/{REPOSITORY}.yaml", f"    holds: [{', '.join(holds)}]\n")
        applied(world)

    def it_keeps_the_pins_of_a_hold_whose_branch_somebody_deletes(self, world, commits):
        world.api.branch(REPOSITORY, "legal", commits[1])
        self.held(world, "{branch: legal, reason: case}")
        assert hidden(world) == {pin_of(commits[0]): commits[0]}
        world.api.call("DELETE", f"{PATH}/branches/legal")
        world.lakeplan(("pins", "sync"))
        assert hidden(world) == {pin_of(commits[0]): commits[0]}

    def it_keeps_the_pin_of_a_hold_whose_tag_somebody_moves_or_deletes(self, world, commits):
        self.held(world, "{tag: v1, reason: case}")
        world.api.call("DELETE", f"{PATH}/tags/v1")
        world.lakeplan(("pins", "sync"))
        assert hidden(world) == {pin_of(commits[1]): commits[1]}
        world.api.tag(REPOSITORY, "v1", commits[0])
        assert world.lakeplan(("pins", "sync")).code == 0
        assert hidden(world) == {pin_of(c): c for c in commits[:2]}

    def it_remembers_a_hold_that_names_a_pin_that_was_there(self, world, pinned, commits):
        tree(world, '{tags: ["v*"], holds: true}')
        world.append(f"repositories/{REPOSITORY}.yaml", "    holds: [{tag: v1, reason: case}]\n")
        applied(world)
        assert [row["state"] for row in planned(world)["pins"]["pins"]] == ["kept"]
        world.api.call("DELETE", f"{PATH}/tags/v1")
        world.lakeplan(("pins", "sync"))
        assert hidden(world) == {pinned: commits[1]}

    def it_deletes_the_pin_once_the_hold_is_taken_out_of_the_tree(self, world, commits):
        self.held(world, "{tag: v1, reason: case}")
        world.api.call("DELETE", f"{PATH}/tags/v1")
        tree(world, "{holds: true}")
        world.lakeplan(("pins", "sync"))  # nobody reviewed that
        assert hidden(world) == {pin_of(commits[1]): commits[1]}
        world.override("tag-loss", "expired-objects")
        applied(world)
        assert hidden(world) == {}


class DescribeASyncThatCannotFinish:
    """Its exit code and message say so, which are all that a schedule reads."""

    def failed(self, world) -> str:
        result = world.lakeplan(("pins", "sync"), "--format", "json")
        assert result.code in (3, 4)
        (message,) = [r["message"] for r in result.json["results"] if r["outcome"] == "failed"]
        return message

    def it_says_that_a_pin_was_moved_or_made_visible(self, world, pinned, commits):
        for made in ({"source": commits[0], "hidden": True}, {"source": commits[1]}):
            world.api.call("DELETE", f"{PATH}/branches/{pinned}")
            world.api.call("POST", f"{PATH}/branches", json={"name": pinned, **made})
            assert f"0 days or less for {pinned}" in self.failed(world)

    def it_says_that_the_name_of_a_pin_without_a_rule_is_taken(self, world, pinned, commits):
        world.api.call("DELETE", f"{PATH}/branches/{pinned}")
        world.api.call("POST", f"{PATH}/branches", json={"name": pinned, "source": commits[0]})
        world.api.set_rules(REPOSITORY, 7)
        assert (
            f"commit {commits[1]} cannot be pinned, because another branch or pin has this name"
            in self.failed(world)
        )

    def it_says_that_another_branch_has_a_rule_of_no_days(self, world, pinned):
        world.api.branch(REPOSITORY, "dev")
        world.api.set_rules(REPOSITORY, 7, dev=0, **{pinned: 0})
        assert "0 days or less for dev" in self.failed(world)


def it_keeps_pins_while_somebody_replaces_the_rules_in_two_steps(world, pinned, commits):
    world.api.call("DELETE", f"{PATH}/settings/gc_rules")
    assert world.lakeplan(("pins", "sync")).code == 0
    assert hidden(world) == {pinned: commits[1]}


def it_keeps_a_retired_pin_with_uncommitted_changes(world, pinned):
    world.override("tag-loss", "expired-objects")
    world.api.upload(REPOSITORY, pinned, "work.bin", b"work")
    world.api.call("DELETE", f"{PATH}/tags/v1")
    result = world.lakeplan(("pins", "sync"))
    assert result.code == 5, result.out
    assert f"the pin {pinned} has uncommitted changes" in " ".join(result.out.split())
    assert set(hidden(world)) == {pinned}
    world.api.delete(REPOSITORY, pinned, "work.bin")
    assert world.lakeplan(("pins", "sync")).code == 0
    assert hidden(world) == {}


class DescribeASecondWriter:
    """Somebody writes between two writes of a run."""

    def between(self, world, monkeypatch, method: str, act, *, before: bool = False) -> None:
        """``act`` runs once, right after (or ``before``) the first request of this kind to branches."""
        real, done = writers._Writer._send, []

        def send(self, sent, repository, *path, **options):
            first = sent == method and path[0] == "branches" and not done
            if first:
                done.append(path)
            if first and before:
                act()
            answer = real(self, sent, repository, *path, **options)
            if first and not before:
                act()
            return answer

        monkeypatch.setattr(writers._Writer, "_send", send)

    def it_keeps_longer_rules_that_somebody_sets_while_pins_are_deleted(
        self, world, pinned, commits, monkeypatch
    ):
        world.override("tag-loss", "expired-objects")
        world.api.call("DELETE", f"{PATH}/tags/v1")
        self.between(world, monkeypatch, "DELETE", lambda: world.api.set_rules(REPOSITORY, 400))
        result = world.lakeplan(("pins", "sync"))
        assert result.code != 0
        assert "someone else changed" in " ".join(result.out.split())
        assert world.api.rules(REPOSITORY) == {"*": 400}

    def it_keeps_a_pin_whose_tag_somebody_sets_again_before_it_is_deleted(
        self, world, pinned, commits, monkeypatch
    ):
        world.override("tag-loss", "expired-objects")
        world.api.tag(REPOSITORY, "v0", commits[0])
        world.api.call("DELETE", f"{PATH}/tags/v1")
        self.between(world, monkeypatch, "POST", lambda: world.api.tag(REPOSITORY, "v1", commits[1]))
        result = world.lakeplan(("pins", "sync"))
        assert result.code == 3, result.out
        assert f"the pin {pinned} is required again" in " ".join(result.out.split())
        assert set(hidden(world)) == {pinned, pin_of(commits[0])}
        assert world.lakeplan(("pins", "sync")).code == 0
        assert set(hidden(world)) == {pinned, pin_of(commits[0])}

    @pytest.mark.parametrize("is_taken_over", [False, True])
    def it_inspects_again_while_deletions_take_long(self, world, pinned, commits, monkeypatch, is_taken_over):
        world.override("tag-loss", "expired-objects")
        world.api.tag(REPOSITORY, "v0", commits[0])
        applied(world)
        for tag in ("v0", "v1"):
            world.api.call("DELETE", f"{PATH}/tags/{tag}")
        passed = 0

        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.now(tz) + timedelta(seconds=passed)

        def act() -> None:
            nonlocal passed
            passed = 60
            if is_taken_over:
                claim = {"metadata": {"lakeplan.tree.team-b": "2026-01-01T00:00:00Z"}}
                world.api.call("POST", f"{PATH}/metadata", json=claim)
            else:
                world.api.tag(REPOSITORY, "v0", commits[0])
                world.api.tag(REPOSITORY, "v1", commits[1])

        monkeypatch.setattr("lakeplan.cli.process.datetime", Clock)
        self.between(world, monkeypatch, "DELETE", act)
        result = world.lakeplan(("pins", "sync"))
        assert result.code == 3, result.out
        assert len(hidden(world)) == 1

    def it_deletes_no_pin_by_rules_that_no_gate_has_judged(self, world, pinned, monkeypatch):
        world.api.set_rules(REPOSITORY, 1000, **{pinned: 0})
        world.api.call("DELETE", f"{PATH}/tags/v1")
        make_plan = pin_sync.make_plan

        def made(*arguments):
            plan = make_plan(*arguments)
            world.api.set_rules(REPOSITORY, 7, **{pinned: 0})
            return plan

        monkeypatch.setattr(pin_sync, "make_plan", made)
        result = world.lakeplan(("pins", "sync"))
        assert result.code != 0
        assert "someone else changed the rules" in " ".join(result.out.split())
        assert set(hidden(world)) == {pinned}

    def it_never_takes_a_pin_for_its_own_that_another_state_made_first(self, world, commits, monkeypatch):
        pin = pin_of(commits[1])
        tree(world, '{tags: ["v*"]}')

        def make() -> None:
            made = {"name": pin, "source": commits[1], "hidden": True}
            world.api.call("POST", f"{PATH}/branches", json=made)

        self.between(world, monkeypatch, "POST", make, before=True)
        assert world.lakeplan("apply", "--auto-approve").code != 0
        tree(world, "")
        world.override("tag-loss", "expired-objects")
        world.lakeplan("apply", "--auto-approve")
        assert hidden(world) == {pin: commits[1]}

    def it_deletes_no_adopted_pin_before_a_plan_showed_it(self, world, pinned, commits):
        world.override("tag-loss", "expired-objects")
        theirs = pin_of(commits[0])
        made = {"name": theirs, "source": commits[0], "hidden": True}
        world.api.call("POST", f"{PATH}/branches", json=made)
        for more in (("--adopt",), ()):
            world.lakeplan(("pins", "sync"), *more)
            assert set(hidden(world)) == {pinned, theirs}
        states = {row["branch_id"]: row["state"] for row in planned(world)["pins"]["pins"]}
        assert states == {pinned: "kept", theirs: "retired"}
        applied(world)
        assert set(hidden(world)) == {pinned}

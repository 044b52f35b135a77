"""``apply --refresh-patterns`` without a plan file: what a scheduled job may do without a person."""

from __future__ import annotations

import pytest

from tests.commits_csv import read_commits_csv

NAME = "releases"


def entry(world, *lines: str, default: int = 7, name: str = NAME) -> None:
    rules = "".join(f"        - {{{line}}}\n" for line in lines)
    world.write(
        "repositories/releases.yaml",
        f"apiVersion: lakeplan/v1\nrepositories:\n  {name}:\n    gc:\n"
        f"      default_retention_days: {default}\n      branches:\n{rules}",
    )


PATTERN = "pattern: 'release-*', retention_days: 90"


@pytest.fixture
def applied(world):
    """A repository with one release, whose rules an apply wrote."""
    world.api.repository(NAME)
    world.api.commit(NAME, "main", 1, a=10)
    world.api.branch(NAME, "release-1")
    entry(world, PATTERN)
    assert world.lakeplan("apply", world.plan_file()).code == 0
    assert world.api.rules(NAME) == {"*": 7, "release-1": 90}
    return world


def refresh(world, *more: str):
    return world.lakeplan("apply", "--refresh-patterns", *more)


def it_gives_a_new_branch_its_days_without_a_person(applied):
    applied.api.branch(NAME, "release-2")
    done = refresh(applied)
    assert done.code == 0, done.err
    assert applied.api.rules(NAME) == {"*": 7, "release-1": 90, "release-2": 90}
    drift = applied.lakeplan("drift", "--format", "json")
    assert drift.json["repositories"] == []


def it_says_that_nothing_is_to_be_done(applied):
    done = refresh(applied)
    assert (done.code, done.out) == (0, "Every branch already has the retention of its pattern.\n")


def it_raises_what_was_lowered_by_hand_and_keeps_what_was_raised(applied):
    applied.api.branch(NAME, "release-2")
    applied.api.set_rules(NAME, 9, **{"release-1": 5, "release-2": 365, "main": 33})
    assert refresh(applied).code == 0
    assert applied.api.rules(NAME) == {"*": 9, "main": 33, "release-1": 90, "release-2": 365}


def it_applies_nothing_else_of_the_tree(applied):
    applied.api.branch(NAME, "release-2")
    applied.api.branch(NAME, "tmp-1")
    entry(
        applied,
        PATTERN,
        "pattern: 'tmp-*', retention_days: 2",
        "branch_id: release-1, retention_days: 3",
        "branch_id: main, retention_days: 300",
        default=4,
    )
    assert refresh(applied).code == 0
    assert applied.api.rules(NAME) == {"*": 7, "release-1": 90, "release-2": 90}
    # What waits for an apply still does.
    plan = applied.lakeplan("plan", "--format", "json").json
    assert plan["repositories"][0]["action"] == "change"


def it_leaves_repositories_alone_that_no_apply_has_seen(world):
    for name in ("new-1", "new-2"):
        world.api.repository(name)
        world.api.branch(name, "release-1")
    world.api.set_rules("new-2", 7)
    entry(world, PATTERN, name="new-*")
    assert refresh(world).code == 0
    assert world.api.rules("new-1") is None
    assert world.api.rules("new-2") == {"*": 7}


def it_sets_no_rules_where_they_were_removed(applied):
    applied.api.branch(NAME, "release-2")
    applied.api.call("DELETE", f"/repositories/{NAME}/settings/gc_rules")
    assert refresh(applied).code == 0
    assert applied.api.rules(NAME) is None


def it_is_no_business_of_unmanaged_repositories(applied):
    applied.append("lakeplan.yaml", "unmanaged: fail\n")
    applied.api.repository("other")
    applied.api.branch(NAME, "release-2")
    assert refresh(applied).code == 0
    assert applied.api.rules(NAME)["release-2"] == 90


def it_goes_on_when_one_repository_fails(applied):
    applied.api.branch(NAME, "release-2")
    applied.append("repositories/releases.yaml", "  gone: {gc: {default_retention_days: 3}}\n")
    done = refresh(applied)
    assert done.code == 3
    assert "gone" in done.err
    assert applied.api.rules(NAME)["release-2"] == 90


def it_needs_the_checks_of_the_tree(applied):
    applied.api.branch(NAME, "release-2")
    applied.append("lakeplan.yaml", "checks: [{name: own, run: [python3, own.py]}]\n")
    applied.write("own.py", "raise SystemExit('no')\n")
    assert refresh(applied).code == 4
    assert refresh(applied, "--run-checks").code == 4
    assert "release-2" not in applied.api.rules(NAME)
    applied.write("own.py", "")
    assert refresh(applied, "--run-checks").code == 0
    assert applied.api.rules(NAME)["release-2"] == 90


def it_does_not_sweep(applied):
    assert refresh(applied, "--sweep").code == 64


def refused_at_early_stop(world, *, feature, keep):
    """The repository's name, and the refused refresh of a new branch ``keep-1``. ``feature`` and ``keep`` are
    days."""
    name, first = world.early_stop()
    lines = (f"branch_id: feature, retention_days: {feature}", f"pattern: 'keep-*', retention_days: {keep}")
    entry(world, *lines, default=3, name=name)
    world.override("unknown-impact")
    assert world.lakeplan("apply", world.plan_file("plan.json", "--no-simulate"), "--no-simulate").code == 0
    world.api.branch(name, "keep-1", first)
    refused = refresh(world)
    assert refused.code == 4, refused.out + refused.err
    return name, refused


def it_leaves_to_a_review_what_would_have_the_server_keep_less(world):
    """The early stop (retention.md): more days for ``keep-1`` end the walk of ``feature`` at their parent."""
    name, refused = refused_at_early_stop(world, feature=7, keep=100)
    assert "keep less data of another" in refused.err
    assert world.api.rules(name) == {"*": 3, "feature": 7}


def it_leaves_to_a_review_what_would_have_the_server_keep_less_at_a_later_time(world):
    """The parent would be kept for 294 days by ``feature``. With ``keep-1``, the server stops after 215."""
    name, _ = refused_at_early_stop(world, feature=300, keep=365)
    assert world.api.rules(name) == {"*": 3, "feature": 300}
    shown = world.lakeplan("plan")
    assert "would expire sooner" in shown.out, shown.out


def it_judges_pins_by_the_rule_that_they_have(world):
    """A pin's rule of 0 days is part of the server's walk: by it more days for ``rel-1`` lose the root."""
    for attempt in range(24):
        name = f"pinned-{attempt}"
        world.api.repository(name)
        root = world.api.commit(name, "main", 150, x=10)
        world.api.branch(name, "rel-1")
        world.api.delete(name, "rel-1", "x.bin")
        for age, size in ((96, 11), (95, 12), (20, 13)):
            head = world.api.commit(name, "rel-1", age, y=size)
        world.api.delete(name, "main", "x.bin")
        if head < world.api.commit(name, "main", 20, z=10):  # the server walks from the smaller id first
            break
    pin = f"lakeplan-pin-{head[:12]}"
    body = {"name": pin, "source": head, "hidden": True}
    world.api.call("POST", f"/repositories/{name}/branches", json=body)
    entry(world, "pattern: 'rel-*', retention_days: 90", default=30, name=name)
    world.override("unknown-impact")
    assert world.lakeplan("apply", world.plan_file("plan.json", "--no-simulate"), "--no-simulate").code == 0
    world.api.set_rules(name, 30, **{"rel-1": 7, pin: 0})
    assert root in kept(world, name)
    refused = refresh(world)
    assert root in kept(world, name)
    assert refused.code == 4, refused.out + refused.err
    assert "keep less data of another" in refused.err


def kept(world, name: str) -> set[str]:
    answer = world.api.call("POST", f"/repositories/{name}/gc/prepare_commits")
    place = answer["gc_commits_location"].partition("://")[2]
    return set(read_commits_csv((world.folder / "sandbox" / place).read_bytes()))

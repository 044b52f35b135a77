"""A pull request full of symbolic links: nothing outside the tree is read, quoted or written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

SECRET = "AKIA-not-for-anybody"


@pytest.fixture
def secret(world) -> Path:
    """A file next to the tree that no output may quote."""
    path = world.folder / "outside" / "secret.yaml"
    path.parent.mkdir()
    path.write_text(f"{SECRET}: {SECRET}\n")
    return path


def _root_file(tree: Path, secret: Path) -> None:
    (tree / "lakeplan.yaml").unlink()
    (tree / "lakeplan.yaml").symlink_to(secret)


def _included_file(tree: Path, secret: Path) -> None:
    (tree / "repositories").mkdir()
    (tree / "repositories/a.yaml").symlink_to(secret)


def _included_folder(tree: Path, secret: Path) -> None:
    (tree / "repositories").symlink_to(secret.parent)


def _rules_file(tree: Path, secret: Path) -> None:
    (tree / "rules.json").symlink_to(secret)
    _entry(tree, "rules.json")


def _git_configuration(tree: Path, secret: Path) -> None:
    (tree / ".git").mkdir()
    (tree / ".git/config").write_text(secret.read_text())
    (tree / "rules.json").symlink_to(".git/config")
    _entry(tree, "rules.json")


def _git_configuration_by_name(tree: Path, secret: Path) -> None:
    (tree / ".git").mkdir()
    (tree / ".git/config").write_text(secret.read_text())
    _entry(tree, ".git/config")


def _device(tree: Path, secret: Path) -> None:
    os.mkfifo(tree / "rules.json")
    _entry(tree, "rules.json")


def _entry(tree: Path, file: str) -> None:
    with (tree / "lakeplan.yaml").open("a") as root:
        root.write(f"repositories: {{analytics: {{gc: {{file: {file}}}}}}}\n")


@pytest.mark.parametrize(
    "make",
    [
        *(_root_file, _included_file, _included_folder, _rules_file),
        *(_git_configuration, _git_configuration_by_name, _device),
    ],
)
def it_reads_nothing_outside_the_tree(world, secret, make):
    make(world.tree, secret)
    for command in ("validate", "plan"):
        result = world.lakeplan(command)
        assert result.code == 1
        assert SECRET not in result.out + result.err
        assert any(word in result.err + result.out for word in ("link", "belongs to git", "regular file"))


@pytest.mark.parametrize("whole_folder", [False, True])
def it_reads_no_policy_test_outside_the_tree(world, secret, whole_folder):
    if whole_folder:
        (world.tree / "tests").symlink_to(secret.parent)
    else:
        (world.tree / "tests").mkdir()
        (world.tree / "tests/a.yaml").symlink_to(secret)
    result = world.lakeplan("test")
    assert result.code == 64
    assert "points outside the tree" in result.err
    assert SECRET not in result.out + result.err


def ready(world) -> None:
    world.api.repository("analytics")
    world.rules("analytics", 21)
    world.override("adoption", "unknown-impact")


@pytest.mark.parametrize("inner", ["", "applied", "history"])
def it_follows_no_link_to_its_state(world, inner):
    ready(world)
    outside = world.folder / "outside"
    outside.mkdir()
    state = world.tree / ".lakeplan"
    if inner:
        state.mkdir()
    (state / inner if inner else state).symlink_to(outside)
    result = world.lakeplan("apply", "--auto-approve", "--no-simulate")
    assert result.code in (1, 3), result.out
    assert "symbolic link" in result.err + result.out
    assert list(outside.iterdir()) == []
    assert world.api.rules("analytics") is None


def it_creates_state_and_plans_for_their_owner_alone(world):
    ready(world)
    plan = world.plan_file("plan.json", "--no-simulate")
    assert world.lakeplan("apply", plan, "--no-simulate").code == 0
    made = [world.tree / ".lakeplan", *(world.tree / ".lakeplan").rglob("*")]
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [plan, *made]}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert any(path.is_file() for path in made)


def it_uses_no_folder_outside_the_tree_that_only_the_tree_names(world, monkeypatch):
    ready(world)
    outside = world.folder / "outside"
    with (world.tree / "lakeplan.yaml").open("a") as root:
        root.write(f"state: {{url: 'file://{outside}'}}\n")
    refused = world.lakeplan("apply", "--auto-approve", "--no-simulate")
    assert refused.code == 1
    assert "LAKEPLAN_STATE_URL" in refused.err
    assert not outside.exists()
    monkeypatch.setenv("LAKEPLAN_STATE_URL", f"file://{outside}")
    assert world.lakeplan("apply", "--auto-approve", "--no-simulate").code == 0
    assert (outside / "history").is_dir()


def it_reports_that_the_state_of_a_reviewed_plan_cannot_be_used(world):
    ready(world)
    plan, report = world.plan_file("plan.json", "--no-simulate"), world.folder / "apply.json"
    with (world.tree / "lakeplan.yaml").open("a") as root:
        root.write(f"state: {{url: 'file://{world.folder / 'outside'}'}}\n")
    out = ("--format", "json", "--out", str(report))
    assert world.lakeplan("apply", plan, "--no-simulate", *out).code == 1
    document = json.loads(report.read_text())
    assert document["end"] == "failed"
    assert "LAKEPLAN_STATE_URL" in document["refusals"][0] + document["hint"]


def it_writes_its_outputs_through_no_link(world, secret, monkeypatch):
    ready(world)
    (world.tree / "plan.json").symlink_to(secret)
    (world.tree / "out").symlink_to(secret.parent)
    monkeypatch.chdir(world.tree)
    before = secret.read_text()
    assert world.lakeplan("plan", "--no-simulate", "--out", "plan.json").code == 0
    assert not (world.tree / "plan.json").is_symlink()
    refused = world.lakeplan("plan", "--no-simulate", "--out", "out/plan.json")
    assert refused.code == 1
    assert "out is a symbolic link" in refused.err
    assert secret.read_text() == before
    assert [path.name for path in secret.parent.iterdir()] == [secret.name]

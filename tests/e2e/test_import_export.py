"""A tree from servers and from lakectl's files, and back."""

from __future__ import annotations

import json
import shutil

import pytest

from lakeplan.cli import main
from lakeplan.cli.commands import trees
from lakeplan.plan import drift
from lakeplan.plan.drift import read_servers
from lakeplan.sandbox.service import Options
from lakeplan.values.local import write_file
from tests.sandboxes import start_sandbox


@pytest.fixture
def stored(world):
    """Three repositories with rules (two alike), one without, and no tree."""
    for name in ("analytics", "events", "logs", "bare"):
        world.api.repository(name)
    world.api.set_rules("analytics", 21, main=28)
    world.api.set_rules("events", 21, main=28)
    world.api.set_rules("logs", 9, gone=3)
    (world.tree / "lakeplan.yaml").unlink()
    return world


def endpoint(world):
    return ("--endpoint", f"prod={world.handle.endpoint_url}")


@pytest.mark.parametrize("split", ["repository", "server", "owner"])
def it_writes_a_tree_after_which_a_plan_shows_no_changes(stored, split):
    stored.handle.faults.forget()
    result = stored.lakeplan("import", *endpoint(stored), "--split", split, "--owner", "a*=data")
    assert result.code == 0, result.err
    assert "not imported: prod/bare: it has no GC rules" in result.out
    assert "3 repositories, 1 profile." in result.out
    assert {r.method for r in stored.handle.faults.requests} == {"GET"}
    plan = stored.lakeplan("plan", "--detailed-exitcode")
    assert plan.code == 0, plan.out + plan.err
    assert stored.lakeplan("drift", "--fail-on", "tree-ahead").code == 0


def it_writes_over_no_tree_that_appeared_while_it_read(stored, monkeypatch):
    def read_slowly(*arguments, **options):
        (stored.tree / "lakeplan.yaml").write_text("# a colleague's\n")
        return read_servers(*arguments, **options)

    monkeypatch.setattr(drift, "read_servers", read_slowly)
    result = stored.lakeplan("import", *endpoint(stored))
    assert result.code == 1
    assert "already has a tree" in result.err
    assert (stored.tree / "lakeplan.yaml").read_text() == "# a colleague's\n"
    assert not list((stored.tree / "repositories").glob("*"))


@pytest.mark.parametrize("number", [1, 2, 3])
def it_leaves_no_tree_that_looks_complete_when_it_is_killed(world, monkeypatch, number):
    """The files of two repositories and the one that makes the folder a tree."""
    for name in ("alpha", "beta"):
        world.api.repository(name)
        world.api.set_rules(name, 5)
    tree = world.folder / "imported"
    command = ("import", "-C", str(tree), "--endpoint", f"prod={world.handle.endpoint_url}")
    with monkeypatch.context() as patch:
        written = []

        def write(path, data, *, mode):
            if path.is_relative_to(tree) and path.suffix == ".yaml":
                written.append(path.name)
                if len(written) == number:
                    raise KeyboardInterrupt
            write_file(path, data, mode=mode)

        patch.setattr("lakeplan.cli.commands.trees.write_file", write)
        assert main.run(command) == 130
    assert main.run(["plan", "-C", str(tree)]) == 1, "there is no tree"
    if number > 1:
        assert main.run(command) == 1
        shutil.rmtree(tree / "repositories")  # as the hint says
    assert main.run(command) == 0
    assert {p.name for p in tree.rglob("*.yaml")} == {"lakeplan.yaml", "alpha.yaml", "beta.yaml"}


def it_leaves_out_nonsense_and_exits_with_partly_done(stored):
    stored.api.set_rules("logs", -3)
    result = stored.lakeplan("import", *endpoint(stored))
    assert result.code == 3
    assert "-3 days for the default" in result.out
    assert stored.lakeplan("plan", "--detailed-exitcode").code == 0


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("{a,b}-*", "instead of an {a,b} group"),
        ("[^a]x*", "the meaning of [^a]"),
        ("[!a]x*", 'write "[0-9]x*", "[A-Z]x*", "[b-z]x*", "_x*"'),
        ("x[-_]a", 'write "x_a", "x-a"'),
    ],
)
@pytest.mark.parametrize("split", ["repository", "server"])
def it_imports_the_rest_when_one_repository_cannot_be_expressed(tmp_path, make_world, pattern, why, split):
    with start_sandbox(tmp_path / "sandbox", options=Options(flavor="enterprise")) as handle:
        world = make_world(handle)
        for name in ("analytics", "events", "logs"):
            world.api.repository(name)
            world.api.set_rules(name, 21)
        body = {"policies": [{"name_patterns": [pattern], "max_age": 604_800}]}
        world.api.call("PUT", "/repositories/events/settings/branch_lifecycle/policies", json=body)
        (world.tree / "lakeplan.yaml").unlink()
        result = world.lakeplan("import", *endpoint(world), "--split", split)
        assert result.code == 3, result.err
        assert "not imported: prod/events: no tree can express the stored rules" in result.out
        shown = " ".join(result.out.split())
        assert why in shown
        assert "2 repositories" in shown
        assert "lakeplan-import-" not in result.out + result.err + (world.tree / "lakeplan.yaml").read_text()
        assert world.lakeplan("plan", "--detailed-exitcode").code == 0


def it_imports_the_rest_of_files_when_one_names_no_repository(stored):
    folder = stored.folder / "rules"
    folder.mkdir()
    for name in ("analytics", "No_Repository"):
        (folder / f"{name}.json").write_text('{"default_retention_days": 9}')
    result = stored.lakeplan("import", *endpoint(stored), "--from-files", folder)
    assert result.code == 3
    assert "not imported: prod/No_Repository" in result.out
    assert "1 repository" in result.out


@pytest.mark.parametrize("file", ["lakeplan.yaml", "repositories/a.yaml"])
def it_does_not_overwrite_a_tree(stored, file):
    stored.write(file, "mine")
    result = stored.lakeplan("import", *endpoint(stored))
    assert result.code == 1
    assert "the folder already has a tree" in result.err
    assert [p.name for p in stored.tree.rglob("*.yaml")] == [file.rpartition("/")[2]]


def it_takes_only_what_is_asked_for(stored):
    assert stored.lakeplan("import", *endpoint(stored), "--target", "l*", "-q").code == 0
    assert not (stored.tree / "repositories/analytics.yaml").exists()
    assert (stored.tree / "repositories/logs.yaml").exists()


def it_goes_from_files_to_a_tree_and_back(stored):
    folder = stored.folder / "rules"
    folder.mkdir()
    body = {"branches": [{"branch_id": "main", "retention_days": 28}], "default_retention_days": 21}
    (folder / "analytics.json").write_text(json.dumps(body))
    (folder / "logs.json").write_text('{"default_retention_days": 9}')
    stored.handle.faults.forget()
    result = stored.lakeplan("import", *endpoint(stored), "--from-files", folder)
    assert result.code == 0, result.err
    out = stored.folder / "back.json"
    assert stored.lakeplan("export", "analytics", "--format", "lakectl", "--out", out).code == 0
    assert json.loads(out.read_text()) == body
    assert stored.lakeplan("export", "prod/logs").json == {"branches": [], "default_retention_days": 9}
    assert not stored.handle.faults.requests


def it_expands_patterns_when_it_exports(world):
    world.api.repository("analytics")
    world.api.branch("analytics", "release-1")
    world.write(
        "repositories/a.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    gc:\n      default_retention_days: 9\n"
        "      branches: [{pattern: 'release-*', retention_days: 90}]\n",
    )
    assert world.lakeplan("export", "analytics").json == {
        "branches": [{"branch_id": "release-1", "retention_days": 90}],
        "default_retention_days": 9,
    }


@pytest.mark.parametrize(("command", "has_tree"), [("storage", True), ("audit", False)])
def it_hints_at_the_tree_where_a_command_reads_one(monkeypatch, capsys, tmp_path, command, has_tree):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LAKECTL_SERVER_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("LAKEPLAN_TREE", raising=False)
    assert main.run([command]) == 64
    said = " ".join(capsys.readouterr().err.split())
    assert ("no server was specified" in said, "--tree DIR" in said) == (True, has_tree)
    assert "--endpoint prod=" in said


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        ([], 64, "no server was specified"),
        (["--endpoint", "prod"], 64, "NAME=VALUE"),
        (["--endpoint", "a=http://x", "--endpoint", "a=http://y"], 64, "same name"),
        (["--endpoint", "prod=http://x", "--split", "team"], 64, "one of repository"),
        (["--endpoint", "prod=http://x", "--owner", "team"], 64, "NAME=VALUE"),
        (["--endpoint", "prod=http://x", "--from-files", "/nowhere.json"], 64, "cannot read the rules"),
        (["--endpoint", "other=http://x"], 1, "no credentials"),
        (["--endpoint", "prod=http://127.0.0.2:9"], 1, "nothing was sent"),
    ],
)
def it_explains_wrong_imports(stored, monkeypatch, tmp_path, wrong, code, text):
    monkeypatch.setenv("HOME", str(tmp_path))
    result = stored.lakeplan("import", *wrong)
    assert result.code == code
    assert text in result.err
    assert not list(stored.tree.rglob("*.yaml"))


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ([], 64),
        (["nobody"], 64),
        (["scratch"], 1),
        (["analytics", "--format", "json"], 64),
        (["analytics", "--out", "/nowhere/x.json"], 1),
        (["owned"], 1),
    ],
)
def it_explains_wrong_exports(world, wrong, code):
    world.rules("analytics", 3)
    world.write(
        "repositories/scratch.yaml",
        "apiVersion: lakeplan/v1\nrepositories: {scratch: {gc: clear}, owned: {owner: me}}\n",
    )
    result = world.lakeplan("export", *wrong)
    assert result.code == code
    assert result.err
    assert "Traceback" not in result.err


def it_ignores_the_state_that_it_writes(stored):
    assert stored.lakeplan("import", *endpoint(stored)).code == 0
    assert ".lakeplan/" in (stored.tree / ".gitignore").read_text().splitlines()
    assert (stored.tree / ".lakeplan/baselines/prod/analytics.json").is_file()


def it_leaves_a_gitignore_alone_and_says_what_to_add(stored):
    stored.write(".gitignore", "mine\n")
    result = stored.lakeplan("import", *endpoint(stored))
    assert result.code == 0
    assert (stored.tree / ".gitignore").read_text() == "mine\n"
    assert "add .lakeplan/" in result.out


def it_records_what_it_read_in_the_state_that_is_named(stored, monkeypatch):
    url = f"file://{stored.folder}/ops"
    monkeypatch.setenv("LAKEPLAN_STATE_URL", url)
    assert stored.lakeplan("import", *endpoint(stored), "--state", url).code == 0
    assert f"state: {{url: {url}}}" in (stored.tree / "lakeplan.yaml").read_text().replace('"', "")
    assert not (stored.tree / ".lakeplan").exists()
    stored.api.set_rules("logs", 1)
    assert "server-edited" in stored.lakeplan("drift").out


def it_writes_the_tree_and_says_so_when_the_state_cannot_be_written(stored):
    stored.write(".lakeplan/baselines", "a file in the way")
    result = stored.lakeplan("import", *endpoint(stored))
    assert result.code == 3
    assert "The tree is complete, but its baseline could not be recorded" in " ".join(result.err.split())
    assert stored.lakeplan("plan", "--detailed-exitcode").code == 0


def it_names_the_variable_that_confirms_the_address_of_a_new_state(stored):
    url = f"file://{stored.folder}/ops"
    result = stored.lakeplan("import", *endpoint(stored), "--state", url)
    assert result.code == 3
    text = " ".join(result.err.split())
    assert f"nothing was sent. If this address is correct, set LAKEPLAN_STATE_URL to {url} in the" in text


def it_says_what_is_missing_when_it_is_interrupted_while_it_records(stored, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(trees, "record_sightings", interrupted)
    result = stored.lakeplan("import", *endpoint(stored))
    assert result.code == 3
    assert "in the state (the command was interrupted). Run `lakeplan apply`" in " ".join(result.err.split())
    assert stored.lakeplan("plan", "--detailed-exitcode").code == 0

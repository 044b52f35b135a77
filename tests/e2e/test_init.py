"""A tree to begin with."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from lakeplan.tree.tree import load_tree


@pytest.fixture
def empty(world):
    (world.tree / "lakeplan.yaml").unlink()
    return world


def endpoint(world):
    return ("--endpoint", f"prod={world.handle.endpoint_url}")


def it_writes_a_tree_that_can_be_planned_at_once(empty):
    empty.api.repository("analytics")
    empty.handle.faults.forget()
    result = empty.lakeplan("init", *endpoint(empty))
    assert result.code == 0, result.err
    assert not empty.handle.faults.requests
    assert empty.lakeplan("validate").code == 0
    plan = empty.lakeplan("plan", "--detailed-exitcode")
    assert plan.code == 0, plan.err
    assert "prod/analytics" in plan.out


def it_shows_an_example_that_is_valid_without_its_comment_signs(empty):
    empty.api.repository("analytics")
    empty.lakeplan("init", *endpoint(empty), "-q")
    _, example = (empty.tree / "lakeplan.yaml").read_text().split("comment signs:\n")
    lines = [line.removeprefix("# ") for line in example.splitlines()]
    empty.write("repositories/analytics.yaml", "\n".join(lines))
    assert "1 to add" in empty.lakeplan("plan", "--no-simulate").out


def it_writes_the_default_limits_it_says_are_default(empty):
    empty.lakeplan("init", *endpoint(empty), "-q")
    written = load_tree(empty.tree, {}).safety
    text = (empty.tree / "lakeplan.yaml").read_text()
    begin, end = text.index("safety:"), text.index("bounds:")
    (empty.tree / "lakeplan.yaml").write_text(text[:begin] + text[end:])
    assert load_tree(empty.tree, {}).safety == written


@pytest.mark.parametrize(
    ("host", "names"),
    [
        (
            "github",
            {
                ".github/workflows/lakeplan.yml",
                ".github/workflows/lakeplan-nightly.yml",
                ".github/lakeplan/pull_request.py",
            },
        ),
        ("gitlab", {"ci/lakeplan.gitlab-ci.yml", "ci/merge_request.py"}),
    ],
)
def it_brings_the_workflows_with_the_variables_of_the_server(empty, host, names):
    result = empty.lakeplan(
        "init", "--endpoint", "eu-west=https://x.example", "--ci", host, "--state", "s3://ops/x"
    )
    assert result.code == 0, result.err
    files = {p.relative_to(empty.tree).as_posix(): p for p in empty.tree.rglob("*") if p.is_file()}
    assert names <= set(files)
    workflow = next(files[n].read_text() for n in sorted(names) if n.endswith("lakeplan.yml") or "-ci" in n)
    assert yaml.safe_load(workflow)
    assert "LAKEPLAN_EU_WEST_ENDPOINT_URL" in workflow
    assert "LAKEPLAN_PROD_" not in workflow
    assert load_tree(empty.tree, {}).state_url == "s3://ops/x"


def it_changes_no_file_that_is_there(empty):
    empty.write(".gitignore", "mine\n")
    result = empty.lakeplan("init", *endpoint(empty))
    assert result.code == 0
    assert "add .lakeplan/" in result.out
    assert (empty.tree / ".gitignore").read_text() == "mine\n"
    before = {p: p.read_text() for p in empty.tree.rglob("*.yaml")}
    again = empty.lakeplan("init", "--endpoint", "other=https://x.example", "--ci", "github")
    assert again.code == 1
    assert "lakeplan.yaml" in again.err
    assert {p: p.read_text() for p in empty.tree.rglob("*.yaml")} == before
    assert not (empty.tree / ".github").exists()


def it_puts_workflows_nowhere_but_at_the_top(empty):
    subprocess.run(["git", "init", "-q", str(empty.folder)], check=True)
    result = empty.lakeplan("init", *endpoint(empty), "--ci", "github")
    assert result.code == 64
    assert "top of the git repository" in result.err
    assert not list(empty.tree.iterdir())


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ([], 64),
        (["--endpoint", "prod"], 64),
        (["--endpoint", "prod=https://x", "--ci", "jenkins"], 64),
        (["--endpoint", "prod=ftp://x"], 64),
        (["--endpoint", "prod=https://x", "--state", "nonsense"], 64),
        (["--endpoint", "pr od=https://x"], 64),
        (["--endpoint", "prod=https://x", "extra"], 64),
    ],
)
def it_explains_wrong_use(empty, monkeypatch, tmp_path, wrong, code):
    monkeypatch.setenv("HOME", str(tmp_path))
    result = empty.lakeplan("init", *wrong)
    assert result.code == code, result.err
    assert "Traceback" not in result.err
    assert not list(empty.tree.iterdir())

"""The workflows: valid YAML, commands and options that exist, and the rules that make them safe."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakeplan import __version__
from lakeplan.cli.formats import formats_of
from lakeplan.cli.main import whole_command

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples/ci"
WORKFLOWS = ("github/lakeplan.yml", "github/nightly.yml", "gitlab/lakeplan.gitlab-ci.yml")
SECRET = re.compile(r"ACCESS_KEY|secrets\.")


def load(file: str) -> Any:
    return yaml.safe_load((CI / file).read_text())


def scripts_of(workflow: Any) -> Iterator[str]:
    """Every shell text of a GitHub or GitLab workflow."""
    for job in (workflow.get("jobs") or workflow).values():
        if not isinstance(job, dict):
            continue
        yield from (step["run"] for step in job.get("steps", ()) if "run" in step)
        yield from (line for key in ("before_script", "script") for line in job.get(key, ()))


def lakeplan_commands(script: str) -> Iterator[list[str]]:
    """The arguments of every ``lakeplan`` command in a shell text."""
    for line in script.replace("\\\n", " ").splitlines():
        for part in re.split(r"\|\||&&|;", line):
            words = shlex.split(part)
            if words[:1] == ["lakeplan"]:
                yield words[1:]


@pytest.mark.parametrize("file", WORKFLOWS)
def it_runs_only_commands_and_options_that_exist(file):
    group = whole_command()
    found = [c for script in scripts_of(load(file)) for c in lakeplan_commands(script)]
    assert found
    for name, *arguments in found:
        context = group.commands[name].make_context(name, arguments)
        formats = context.params.get("format") or []
        assert set(formats) <= set(formats_of("plan"))
        assert len(context.params.get("out") or []) >= len(formats) - 1


@pytest.mark.parametrize("file", WORKFLOWS)
def it_installs_the_version_it_was_written_for(file):
    workflow = load(file)
    assert (workflow.get("env") or workflow["variables"])["PACKAGE"] == f"lakeplan=={__version__}"


@pytest.mark.parametrize("file", WORKFLOWS)
def it_puts_no_text_of_others_into_a_shell(file):
    assert not any("${{" in script for script in scripts_of(load(file)))


class DescribeGitHub:
    jobs = load("github/lakeplan.yml")["jobs"]

    def it_starts_for_pull_requests_and_never_with_the_rights_of_the_target(self):
        # YAML 1.1 reads the key `on` as true.
        assert set(load("github/lakeplan.yml")[True]) == {"pull_request", "push"}

    def it_gives_forks_validate_and_test_alone_and_no_secret(self):
        assert not SECRET.search(yaml.safe_dump(self.jobs["validate"]))
        assert "head.repo.full_name == github.repository" in self.jobs["plan"]["if"]
        assert self.jobs["apply"]["if"] == "github.event_name == 'push'"
        found = [c for s in self.jobs["validate"]["steps"] for c in lakeplan_commands(s.get("run", ""))]
        assert found == [["validate", "--format", "github"], ["test"]]

    def it_plans_the_merge_commit_against_its_first_parent(self):
        checkout = self.jobs["plan"]["steps"][0]
        assert "ref" not in checkout["with"]
        assert checkout["with"]["fetch-depth"] == 2
        plan, page = [c for s in self.jobs["plan"]["steps"] for c in lakeplan_commands(s.get("run", ""))]
        assert plan[:3] == ["plan", "--base", "HEAD^1"]
        assert page[:2] == ["report", "plan.json"]

    def it_applies_in_a_protected_environment_one_at_a_time_never_cancelled(self):
        apply = self.jobs["apply"]
        assert apply["environment"] == "production"
        assert apply["concurrency"] == {
            "group": "lakeplan-apply",
            "cancel-in-progress": False,
            "queue": "max",
        }

    def it_names_the_plan_by_pull_request_and_head_commit(self):
        upload = next(s for s in self.jobs["plan"]["steps"] if "upload-artifact" in s.get("uses", ""))
        assert upload["with"]["name"] == (
            "lakeplan-${{ github.event.pull_request.number }}-${{ github.event.pull_request.head.sha }}"
        )
        assert "plan.json" in upload["with"]["path"]

    def it_writes_to_pull_requests_only_where_it_comments(self):
        assert load("github/lakeplan.yml")["permissions"] == {"contents": "read"}
        writers = [n for n, j in self.jobs.items() if "write" in (j.get("permissions") or {}).values()]
        assert writers == ["plan"]


class DescribeGitLab:
    jobs = load("gitlab/lakeplan.gitlab-ci.yml")

    def it_gives_forks_validate_and_test_alone(self):
        rule = self.jobs["plan"]["rules"][0]["if"]
        assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_MERGE_REQUEST_PROJECT_ID" in rule
        assert not SECRET.search(yaml.safe_dump(self.jobs["validate"]))

    def it_applies_in_a_protected_environment_one_at_a_time_never_cancelled(self):
        apply = self.jobs["apply"]
        assert (apply["environment"], apply["resource_group"]) == ("production", "lakeplan")
        assert apply["interruptible"] is False


class DescribeThePreCommitHook:
    @pytest.fixture
    def repository(self, tmp_path, runner):
        top = tmp_path / "repository"
        shutil.copytree(ROOT / "examples/single", top)
        script = "git init -q . && git config user.name a && git config user.email a@b.example && git add -A"
        assert runner.run(script, top).returncode == 0
        shutil.copy(CI / "pre-commit", top / ".git/hooks/pre-commit")
        return top

    def it_lets_a_valid_tree_through(self, repository, runner):
        done = runner.run("git commit -qm good", repository)
        assert done.returncode == 0, done.stderr

    def it_validates_what_is_staged_and_not_what_lies_around(self, repository, runner):
        tree = repository / "lakeplan.yaml"
        good = tree.read_text()
        tree.write_text(good.replace("retention_days: 28", "retention_days: 1"))
        assert runner.run("git commit -qm good", repository).returncode == 0
        refused = runner.run("git add -A && git commit -qm bad", repository)
        assert refused.returncode == 1
        assert "outside the tree's bounds" in refused.stderr

    def it_is_offered_to_those_who_name_this_repository(self):
        (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
        (own,) = load("pre-commit-config.yaml")["repos"][0]["hooks"]
        shared = ("id", "name", "entry", "language", "pass_filenames", "files")
        assert {k: hook[k] for k in shared} == {k: own[k] for k in shared}

    def it_is_there_for_pre_commit_too(self):
        (hook,) = load("pre-commit-config.yaml")["repos"][0]["hooks"]
        assert hook["pass_filenames"] is False
        assert hook["additional_dependencies"] == [f"lakeplan=={__version__}"]
        name, *arguments = next(lakeplan_commands(hook["entry"]))
        assert whole_command().commands[name].make_context(name, arguments)
        assert subprocess.run(["sh", "-n", str(CI / "pre-commit")], check=False).returncode == 0

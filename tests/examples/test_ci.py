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
from tests.examples.hosted import PINNED, load_pipeline

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples/ci"
WORKFLOWS = ("github/lakeplan.yml", "github/nightly.yml", "github/comments.yml")
PIPELINE = "gitlab/lakeplan.gitlab-ci.yml"
SECRET = re.compile(r"ACCESS_KEY|secrets\.")


def load(file: str) -> Any:
    return load_pipeline((CI / file).read_text())


ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def scripts_of(workflow: Any) -> Iterator[str]:
    """Every shell text of an action or of a GitLab pipeline."""
    for job in [workflow["runs"]] if "runs" in workflow else workflow.values():
        if isinstance(job, dict):
            yield from (step["run"] for step in job.get("steps", ()) if "run" in step)
            lines = (line for key in ("before_script", "script") for line in job.get(key, ()))
            yield from (line for line in lines if isinstance(line, str))


def lakeplan_commands(script: str) -> Iterator[list[str]]:
    """The arguments of every ``lakeplan`` command in a shell text."""
    for line in script.replace("\\\n", " ").splitlines():
        for part in re.split(r"\|\||&&|;|\) (?=lakeplan)", line):
            if part.strip().startswith("lakeplan "):
                yield shlex.split(part)[1:]


def steps_of(file: str) -> Iterator[Any]:
    for job in load(file)["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("script", [*scripts_of(ACTION), *scripts_of(load(PIPELINE))])
def it_runs_only_commands_and_options_that_exist(script):
    group = whole_command()
    for name, *arguments in lakeplan_commands(script):
        known = [a.replace("$COMMAND", "plan").replace("$quiet", "--no-comment") for a in arguments]
        found = group.commands[name]
        while hasattr(found, "commands"):
            found = found.commands[known.pop(0)]
        context = found.make_context(name, known)
        formats = context.params.get("format") or []
        assert set(formats) <= {*formats_of("plan"), *formats_of("problems")}
        assert len(context.params.get("out") or []) >= len(formats) - 1


def it_finds_the_commands_that_it_checks():
    found = [
        c[:2] for text in (ACTION, load(PIPELINE)) for s in scripts_of(text) for c in lakeplan_commands(s)
    ]
    assert ["ci", "apply"] in found
    assert ["ci", "comment"] in found
    assert len(found) >= 8


@pytest.mark.parametrize("file", WORKFLOWS)
def it_installs_the_version_it_was_written_for(file):
    versions = {step["with"]["version"] for step in steps_of(file) if step.get("uses", "").startswith("./")}
    assert versions == {__version__}
    assert load(PIPELINE)["variables"]["PACKAGE"] == f"lakeplan=={__version__}"


def it_puts_no_text_of_others_into_a_shell():
    """Expressions are filled in before a shell reads the text: the environment carries them instead."""
    scripts = [*scripts_of(ACTION), *scripts_of(load(PIPELINE))]
    assert len(scripts) > 10
    assert not any("${{" in script for script in scripts)
    own = [step["run"] for file in WORKFLOWS for step in steps_of(file) if "run" in step]
    assert not any("${{" in script for script in own)


@pytest.mark.parametrize("file", WORKFLOWS)
def it_pins_every_action_by_its_commit(file):
    used = [step["uses"] for step in [*steps_of(file), *ACTION["runs"]["steps"]] if "uses" in step]
    assert used
    assert all(use.startswith("./") or PINNED.fullmatch(use) for use in used)


@pytest.mark.parametrize("file", WORKFLOWS)
def it_gives_the_action_only_inputs_that_it_has(file):
    for step in steps_of(file):
        if step.get("uses", "").startswith("./"):
            assert set(step["with"]) <= set(ACTION["inputs"])
    for name, about in ACTION["inputs"].items():
        assert about["description"], name
        assert about.get("required") or "default" in about


class DescribeGitHub:
    jobs = load("github/lakeplan.yml")["jobs"]

    def it_starts_for_pull_requests_and_never_with_the_rights_of_the_target(self):
        # YAML 1.1 reads the key `on` as true.
        assert set(load("github/lakeplan.yml")[True]) == {"pull_request", "merge_group", "push"}

    def it_gives_forks_validate_alone_and_no_secret(self):
        _, validate, plan = self.jobs["plan"]["steps"]
        assert validate["with"]["command"] == "validate"
        assert not SECRET.search(yaml.safe_dump(validate))
        assert not SECRET.search(yaml.safe_dump({k: v for k, v in self.jobs["plan"].items() if k != "steps"}))
        assert "head.repo.full_name == github.repository" in plan["if"]
        assert self.jobs["apply"]["if"] == "github.event_name == 'push'"

    def it_plans_the_merge_commit_with_its_history(self):
        checkout = self.jobs["plan"]["steps"][0]
        assert "ref" not in checkout["with"]
        assert checkout["with"]["fetch-depth"] == 0
        assert all(
            job["steps"][0]["with"]["persist-credentials"] is False
            for file in WORKFLOWS
            for job in load(file)["jobs"].values()
        )

    def it_applies_in_a_protected_environment_one_at_a_time_never_cancelled(self):
        apply = self.jobs["apply"]
        assert apply["environment"] == "production"
        assert apply["concurrency"] == {
            "group": "lakeplan-apply",
            "cancel-in-progress": False,
            "queue": "max",
        }

    def it_names_the_plan_by_pull_request_and_head_commit(self):
        upload = next(s for s in ACTION["runs"]["steps"] if "upload-artifact" in s.get("uses", ""))
        assert upload["with"]["name"] == (
            "lakeplan-${{ github.event.pull_request.number }}-${{ github.event.pull_request.head.sha }}"
        )
        assert "plan.json" in upload["with"]["path"]

    def it_has_the_least_permissions_for_everything(self):
        """The stories run with a host that refuses whatever these leave out."""
        for file in WORKFLOWS:
            assert load(file)["permissions"] in ({"contents": "read"}, {})
            for name, job in load(file)["jobs"].items():
                assert job["permissions"]["contents"] == ("write" if name == "pull-request" else "read")
                assert "workflows" not in job["permissions"]

    def it_never_checks_out_code_of_a_pull_request_for_a_comment(self):
        comments = load("github/comments.yml")
        assert comments[True] == {"issue_comment": {"types": ["created"]}}
        for job in comments["jobs"].values():
            assert set(job["steps"][0]["with"]) == {"persist-credentials"}
        assert not SECRET.search(yaml.safe_dump(comments["jobs"]["plan"]))
        assert comments["jobs"]["approve"]["environment"] == "production"


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
        # Nor before it begins, which interruptible does not prevent. Other pipelines remain as they are.
        of_push, others = self.jobs["workflow"]["rules"]
        assert (of_push["if"], of_push["auto_cancel"]) == (apply["rules"][0]["if"], {"on_new_commit": "none"})
        assert others == {"when": "always"}


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
        assert "outside the tree's bounds of" in refused.stderr

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

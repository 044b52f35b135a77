"""The hourly jobs between merges: new branches get their days, new repositories become a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Api
from tests.examples.fake_github import FakeGitHub, serving
from tests.examples.hosted import GitHub, JobEnd, load_pipeline
from tests.examples.hosted import GitLab as Pipeline
from tests.examples.test_nightly import GH
from tests.sandboxes import start_sandbox

FILE = Path(__file__).parents[2] / "examples/ci/github/between.yml"
JOBS = yaml.safe_load(FILE.read_text())["jobs"]
KEYS = ("LAKEPLAN_PROD_ACCESS_KEY_ID", "LAKEPLAN_PROD_SECRET_ACCESS_KEY")
HEAD = "apiVersion: lakeplan/v1\n"
TREE = "repositories:\n  team-1: {}\n  team-*: {gc: {default_retention_days: 9, branches: [RULE]}}\n"
RULE = "{pattern: 'release-*', retention_days: 90}"


class Site:
    """A checkout with a remote, a server with one repository that an apply has seen, and ``gh``."""

    def __init__(self, folder: Path, runner: Any, handle: Any) -> None:
        self.folder, self.runner = folder, runner
        self.top, self.remote = folder / "checkout", folder / "remote.git"
        (self.top / "repositories").mkdir(parents=True)
        endpoint = handle.endpoint_url
        (self.top / "lakeplan.yaml").write_text(f"{HEAD}servers: {{prod: {{endpoint_url: {endpoint}}}}}\n")
        (self.top / "repositories/team.yaml").write_text(HEAD + TREE.replace("RULE", RULE))
        (self.top / ".gitignore").write_text(".lakeplan/\n")
        self.environment = {
            "LAKEPLAN_PROD_ENDPOINT_URL": endpoint,
            "LAKEPLAN_PROD_ACCESS_KEY_ID": "sandbox",
            "LAKEPLAN_PROD_SECRET_ACCESS_KEY": "sandbox-secret",
            "GITHUB_REF_NAME": "main",
            "GH_LOG": str(folder / "gh.log"),
            "GH_OPEN": str(folder / "open"),
        }
        self.sh(f"git init -q --bare {self.remote}")
        self.sh("git init -q -b main . && git config user.name a && git config user.email a@b.example")
        self.sh(f"git add -A && git commit -qm base && git remote add origin {self.remote}")
        tool = runner.tools / "gh"
        tool.write_text(GH)
        tool.chmod(0o755)
        self.api = Api(handle)
        self.api.repository("team-1")
        self.sh("lakeplan apply --auto-approve --no-progress -q")

    def sh(self, script: str) -> str:
        done = self.runner.run(script, self.top, **self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    @property
    def asked(self) -> list[str]:
        log = self.folder / "gh.log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def site(tmp_path: Path, runner: Any) -> Any:
    with start_sandbox(tmp_path / "sandbox") as handle:
        yield Site(tmp_path, runner, handle)


class DescribeGitHub:
    """The workflow that ``init --ci github`` writes, with the action."""

    @pytest.fixture
    def site(self, site: Site) -> Any:
        site.sh("lakeplan init --ci github -q && git add -A && git commit -qm workflows")
        with serving(FakeGitHub()) as fake:
            given = {key: value for key, value in site.environment.items() if key.startswith("GH_")}
            site.host = GitHub(site.top, site.runner, fake, given)
            endpoint = site.environment["LAKEPLAN_PROD_ENDPOINT_URL"]
            site.host.vars = {"LAKEPLAN_PROD_ENDPOINT_URL": endpoint}
            site.host.secrets = {key: site.environment[key] for key in KEYS}
            site.host.environments = {"production": {"secrets": site.host.secrets}}
            yield site

    def run(self, site: Site, job: str) -> JobEnd:
        file = ".github/workflows/lakeplan-between.yml"
        done = site.host.run(file, job, "schedule", {}, sha="", ref_name="main")
        assert done.code == 0, done.output
        return done

    def it_gives_new_branches_the_days_of_their_pattern(self, site: Site) -> None:
        site.api.branch("team-1", "release-1")
        self.run(site, "refresh")
        assert site.api.rules("team-1") == {"*": 9, "release-1": 90}
        assert "Every branch already has the retention" in self.run(site, "refresh").output

    def it_opens_one_pull_request_for_new_repositories(self, site: Site) -> None:
        self.run(site, "adopt")
        assert site.asked == []
        site.api.repository("team-2")
        self.run(site, "adopt")
        proposed = site.sh(f"git --git-dir {site.remote} show --format= lakeplan/adopt")
        assert '+  "team-2": {}' in proposed.splitlines()
        assert proposed.count("+++ ") == 1
        assert any(line.startswith("gh pr create --base main --head lakeplan/adopt") for line in site.asked)
        (site.folder / "gh.log").unlink()
        (site.folder / "open").write_text("12\n")
        site.sh("git switch -q main")
        site.api.repository("team-3")
        self.run(site, "adopt")
        assert not any("pr create" in line for line in site.asked)
        assert site.api.rules("team-2") is None
        # The pull request's plan passes, and its apply sets the rules.
        assert "2 to add" in site.sh("lakeplan plan --no-progress")

    def it_is_as_careful_as_the_merge(self) -> None:
        merge = yaml.safe_load((FILE.parent / "lakeplan.yml").read_text())["jobs"]["apply"]
        for key in ("environment", "concurrency"):
            assert JOBS["refresh"][key] == merge[key]
        assert "environment" not in JOBS["adopt"]
        for job in JOBS.values():
            *_, reads = (step for step in job["steps"] if "lakeplan" in step.get("uses", ""))
            assert reads["with"]["token"] == "none"
        assert "ACCESS_KEY" not in str(JOBS["adopt"]["steps"][-1])


class DescribeGitLab:
    """The same in the pipeline that ``init --ci gitlab`` writes, on a separate schedule."""

    jobs = load_pipeline((FILE.parents[1] / "gitlab/lakeplan.gitlab-ci.yml").read_text())

    def run(self, site: Site, job: str) -> JobEnd:
        given = {
            **site.environment,
            "CI_DEFAULT_BRANCH": "main",
            "CI_PROJECT_URL": str(site.remote).removesuffix(".git"),
            "LAKEPLAN_BOT_TOKEN": "secret-of-the-bot",
        }
        del given["GITHUB_REF_NAME"]
        done = Pipeline(site.top, site.runner, given).run(job)
        assert done.code == 0, done.output
        assert "secret-of-the-bot" not in done.output
        return done

    @pytest.fixture
    def site(self, site: Site) -> Site:
        site.sh("lakeplan init --ci gitlab -q && git add -A && git commit -qm pipeline")
        site.sh(f"git --git-dir {site.remote} config receive.advertisePushOptions true")
        hook = site.remote / "hooks/pre-receive"
        hook.write_text(f'#!/bin/sh\nenv | grep ^GIT_PUSH_OPTION_ >> "{site.folder}/options"\n')
        hook.chmod(0o755)
        return site

    @pytest.mark.extended
    def it_gives_new_branches_the_days_of_their_pattern(self, site: Site) -> None:
        site.api.branch("team-1", "release-1")
        self.run(site, "refresh")
        assert site.api.rules("team-1") == {"*": 9, "release-1": 90}
        assert "Every branch already has the retention" in self.run(site, "refresh").output

    @pytest.mark.extended
    def it_opens_a_merge_request_for_new_repositories(self, site: Site) -> None:
        options = site.folder / "options"
        self.run(site, "adopt-merge-request")
        assert not options.exists()
        site.api.repository("team-2")
        self.run(site, "adopt-merge-request")
        proposed = site.sh(f"git --git-dir {site.remote} show --format= lakeplan/adopt")
        assert '+  "team-2": {}' in proposed.splitlines()
        assert "+++ b/repositories/adopted.yaml" in proposed
        assert proposed.count("+++ ") == 1
        assert "merge_request.create" in options.read_text()
        assert site.api.rules("team-2") is None
        # One that is open is updated.
        site.sh("git switch -q main")
        site.api.repository("team-3")
        self.run(site, "adopt-merge-request")
        assert '+  "team-3": {}' in site.sh(f"git --git-dir {site.remote} show --format= lakeplan/adopt")

    def it_runs_on_its_own_schedule_of_the_reviewed_branch_alone(self) -> None:
        def rule(job: str) -> str:
            (found,) = self.jobs[job]["rules"]
            return " ".join(found["if"].split())

        for job in ("refresh", "adopt-merge-request"):
            assert '$CI_PIPELINE_SOURCE == "schedule" && $LAKEPLAN_SCHEDULE == "between"' in rule(job)
            assert "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH" in rule(job)
        for job in ("drift", "drift-merge-request"):
            assert '$LAKEPLAN_SCHEDULE != "between"' in rule(job)
        for key in ("environment", "resource_group", "interruptible"):
            assert self.jobs["refresh"][key] == self.jobs["apply"][key]
        assert "environment" not in self.jobs["adopt-merge-request"]

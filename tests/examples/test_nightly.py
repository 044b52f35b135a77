"""The nightly jobs that put hand edits of a server into the tree and propose them, run step by step."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import yaml

from tests.examples.hosted import load_pipeline
from tests.sandboxes import start_sandbox

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples/ci"
WRITE, PROPOSE = "Copy edits from the servers into the tree", "Open a pull request"
GH = """#!/bin/sh
echo "gh $*" >> "$GH_LOG"
case "$*" in "pr list"*) cat "$GH_OPEN" 2>/dev/null || true ;; esac
"""


class Site:
    """A checkout with a remote, a server whose rules were applied and then changed by hand, and ``gh``."""

    def __init__(self, folder: Path, runner: Any, handle: Any) -> None:
        self.folder, self.runner = folder, runner
        self.top, self.remote = folder / "checkout", folder / "remote.git"
        shutil.copytree(ROOT / "examples/single", self.top)
        tree = self.top / "lakeplan.yaml"
        tree.write_text(tree.read_text().replace("https://lakefs.example.com", handle.endpoint_url))
        (self.top / ".gitignore").write_text(".lakeplan/\n")
        self.sh(f"git init -q --bare {self.remote}")
        self.sh("git init -q -b main . && git config user.name a && git config user.email a@b.example")
        self.sh(f"git add -A && git commit -qm base && git remote add origin {self.remote}")
        tool = runner.tools / "gh"
        tool.write_text(GH)
        tool.chmod(0o755)
        self.environment = {
            "LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
            "LAKEPLAN_PROD_ACCESS_KEY_ID": handle.access_key_id,
            "LAKEPLAN_PROD_SECRET_ACCESS_KEY": handle.secret_access_key,
            "GITHUB_REF_NAME": "main",
            "GH_LOG": str(folder / "gh.log"),
            "GH_OPEN": str(folder / "open"),
        }
        self.url = f"{handle.endpoint_url}/api/v1/repositories"
        self.session = requests.Session()
        self.session.auth = (handle.access_key_id, handle.secret_access_key)
        body = {"name": "analytics", "storage_namespace": "local://analytics", "default_branch": "main"}
        self.session.post(self.url, json=body, timeout=30).raise_for_status()
        self.set_rules(21, main=28)
        self.sh("lakeplan apply --auto-approve --no-progress -q")

    def sh(self, script: str, **more: str) -> str:
        environment = getattr(self, "environment", {})
        done = self.runner.run(script, self.top, **{**environment, **more})
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def set_rules(self, default: int, **branches: int) -> None:
        rules = [{"branch_id": b, "retention_days": d} for b, d in branches.items()]
        body = {"default_retention_days": default, "branches": rules}
        self.session.put(f"{self.url}/analytics/settings/gc_rules", json=body, timeout=30).raise_for_status()

    def proposed(self) -> str:
        """The diff on the remote's branch; "" without one."""
        found = self.sh(f"git --git-dir {self.remote} branch --list lakeplan/drift").strip()
        return self.sh(f"git --git-dir {self.remote} show --format= lakeplan/drift") if found else ""

    @property
    def asked(self) -> list[str]:
        log = self.folder / "gh.log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def site(tmp_path: Path, runner: Any) -> Any:
    with start_sandbox(tmp_path / "sandbox") as handle:
        yield Site(tmp_path, runner, handle)


def job_with(step: str) -> SimpleNamespace:
    """The job of the nightly workflow that has the step."""
    jobs = yaml.safe_load((CI / "github/nightly.yml").read_text())["jobs"].values()
    (found,) = [job for job in jobs if any(s.get("name") == step for s in job["steps"])]
    return SimpleNamespace(
        permissions=found["permissions"], steps={s.get("name", ""): s for s in found["steps"]}
    )


class DescribeGitHub:
    job = job_with(PROPOSE)

    def run(self, site: Site) -> None:
        """The action's step and the next; the stories run the whole action."""
        given, output = self.job.steps[WRITE]["with"], site.folder / "output"
        output.write_text("")
        line = f"lakeplan ci run {given['command']} --args '{given['args']}'"
        site.runner.run(line, site.top, **site.environment, GITHUB_OUTPUT=str(output))
        told = dict(line.split("=", 1) for line in output.read_text().splitlines())
        site.sh(self.job.steps[PROPOSE]["run"], GH_TOKEN="token", CODE=told["exit-code"])

    def it_proposes_what_somebody_changed_by_hand_once(self, site: Site) -> None:
        site.set_rules(21, main=5)
        self.run(site)
        changed = [line for line in site.proposed().splitlines() if line.startswith(("+ ", "- "))]
        assert changed == [
            "-        - {branch_id: main, retention_days: 28}",
            "+        - {branch_id: main, retention_days: 5}",
        ]
        assert any(line.startswith("gh pr create --base main --head lakeplan/drift") for line in site.asked)
        (site.folder / "gh.log").unlink()
        (site.folder / "open").write_text("12\n")
        site.sh("git switch -q main")
        self.run(site)
        assert not any("pr create" in line for line in site.asked)

    def it_proposes_nothing_when_nothing_changed(self, site: Site) -> None:
        self.run(site)
        assert (site.proposed(), site.asked) == ("", [])

    def it_ends_well_when_nothing_of_an_edit_can_be_written(self, site: Site) -> None:
        site.session.delete(f"{site.url}/analytics/settings/gc_rules", timeout=30).raise_for_status()
        self.run(site)
        assert site.proposed() == ""

    def it_gives_the_step_that_reads_servers_no_token_and_the_other_no_key(self) -> None:
        assert "token" not in str(self.job.steps[WRITE]["env"]).lower()
        assert self.job.steps[WRITE]["with"]["token"] == "none"
        assert "LAKEPLAN_PROD" not in str(self.job.steps[PROPOSE]["env"])
        assert set(self.job.permissions) <= {"contents", "pull-requests", "id-token"}


class DescribeGitLab:
    @pytest.mark.extended
    def it_pushes_a_branch_with_a_merge_request(self, site: Site) -> None:
        job = load_pipeline((CI / "gitlab/lakeplan.gitlab-ci.yml").read_text())["drift-merge-request"]
        site.set_rules(21, main=5)
        site.sh(f"git --git-dir {site.remote} config receive.advertisePushOptions true")
        hook = site.remote / "hooks/pre-receive"
        hook.write_text(f'#!/bin/sh\nenv | grep ^GIT_PUSH_OPTION_ > "{site.folder}/options"\n')
        hook.chmod(0o755)
        given = {
            "LAKEPLAN_BOT_TOKEN": "secret-of-the-bot",
            "TREE": ".",
            "CI_DEFAULT_BRANCH": "main",
            "CI_PROJECT_URL": str(site.remote).removesuffix(".git"),
        }
        output = site.sh("\n".join(job["script"]), **given)
        assert "retention_days: 5" in site.proposed()
        assert "merge_request.create" in (site.folder / "options").read_text()
        assert "secret-of-the-bot" not in output

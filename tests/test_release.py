"""The tools of a release: the workflow's permissions and pinned versions, and the image's steps."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ROOT / ".github/workflows/release.yml"


@pytest.fixture(scope="module")
def image_steps() -> ModuleType:
    spec = importlib.util.spec_from_file_location("image_steps", ROOT / "tools/image_steps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["image_steps"] = module
    spec.loader.exec_module(module)
    return module


def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return found


def it_gives_each_job_only_the_rights_that_it_uses() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    assert workflow["permissions"] == {}
    for name, job in jobs().items():
        text = str(job["steps"])
        rights = job["permissions"]
        assert ("contents" in rights) == ("actions/checkout" in text), name
        assert ("attestations" in rights) == ("attest-build-provenance" in text), name
        assert ("packages" in rights) == ("login-action" in text), name
        assert all(level == "read" for right, level in rights.items() if right == "contents"), name


def it_publishes_only_what_was_tested_and_only_after_somebody_approved() -> None:
    found = jobs()
    assert (found["build"]["needs"], found["publish"]["needs"], found["image"]["needs"]) == (
        "test",
        "build",
        "build",
    )
    for name in ("publish", "image"):
        assert found[name]["environment"] == "release"
    assert "secrets." not in WORKFLOW.read_text()


def it_pins_every_action_by_commit_and_says_which_version_that_is() -> None:
    lines = re.findall(r"uses: (.*)", WORKFLOW.read_text())
    assert len(lines) >= 10
    for line in lines:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), line


def it_checks_that_the_tag_is_the_version(tmp_path: Path) -> None:
    [step] = [
        step
        for step in jobs()["build"]["steps"]
        if step.get("name") == "Check that the tag matches the version"
    ]
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for tag, code in (("v0.2.0", 0), ("v0.2.1", 1)):
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"]],
            cwd=tmp_path,
            env={"PATH": path, "GITHUB_REF_NAME": tag},
            check=False,
        )
        assert done.returncode == code


def it_runs_as_nobody_special_in_an_image_without_a_compiler(image_steps: ModuleType) -> None:
    steps = list(image_steps.instructions((ROOT / "Containerfile").read_text()))
    last = steps[max(n for n, (name, _) in enumerate(steps) if name == "FROM") :]
    assert [rest for name, rest in last if name == "USER"] == ["10001"]
    installed = " ".join(rest for name, rest in last if name == "RUN")
    assert "headless" in installed
    assert not re.search(r"\b(gcc|build-essential|python3-dev|pip install)\b", installed)
    names = [name for name, _ in last]
    assert names.index("USER") < names.index("CMD")


@pytest.mark.skipif(
    not os.environ.get("LAKEPLAN_TEST_IMAGE"), reason="takes minutes and root: set LAKEPLAN_TEST_IMAGE"
)
def it_builds_in_a_clean_root_file_system(tmp_path: Path) -> None:
    command = [sys.executable, "-P", str(ROOT / "tools/image_steps.py"), str(tmp_path / "image")]
    done = subprocess.run([*command, "lakeplan --version"], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.rstrip().splitlines()[-1].startswith("lakeplan ")

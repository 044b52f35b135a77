"""``lakeplan demo`` as a person starts it: from any folder, with whatever the environment says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lakeplan
from lakeplan.cli.commands.demo import Demo
from lakeplan.errors import LakeplanError


def demo(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(lakeplan.__file__).parents[1]), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-P", "-m", "lakeplan", "demo", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def it_runs_without_any_setting_and_leaves_the_tree_where_it_was_told_to(tmp_path: Path) -> None:
    # what a person has set for servers of their own does not reach the demo's commands
    own = {
        "LAKEPLAN_FORMAT": "junit",
        "LAKEPLAN_TARGET": "nothing",
        "LAKECTL_SERVER_ENDPOINT_URL": "http://x",
    }
    done = demo(tmp_path, "--dir", "kept", **own)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^\[exit (\d), ", done.stdout, re.MULTILINE) == list("0040000500")
    assert "tag-loss" in done.stdout
    assert "sandbox-secret" not in done.stdout + done.stderr
    assert "gate: tag-loss" in (tmp_path / "kept/quickstart/lakeplan.yaml").read_text()
    assert (tmp_path / "kept/server/analytics").is_dir()


def it_stops_at_a_command_that_ends_otherwise_than_it_should(tmp_path: Path) -> None:
    shown = Demo(tmp_path, "http://127.0.0.1:1", os.environ)
    with pytest.raises(LakeplanError, match="lakeplan schema exited with code 0 instead of 4"):
        shown.lakeplan("schema", "tree", expect=4)

"""The files of a new tree: settings with their defaults in sight, and the workflows of ``examples/ci``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from lakeplan.config.files import ROOT_FILE
from lakeplan.core.tree_text import quoted

Ci = Literal["github", "gitlab", "none"]

_PACKAGE = Path(__file__).resolve().parent.parent

_PLACES: Mapping[Ci, Mapping[str, str]] = {
    "github": {
        ".github/workflows/lakeplan.yml": "github/lakeplan.yml",
        ".github/workflows/lakeplan-nightly.yml": "github/nightly.yml",
        ".github/lakeplan/pull_request.py": "github/pull_request.py",
    },
    "gitlab": {
        "ci/lakeplan.gitlab-ci.yml": "gitlab/lakeplan.gitlab-ci.yml",
        "ci/merge_request.py": "gitlab/merge_request.py",
    },
    "none": {},
}

_REST = """\
profiles:
  standard:
    gc: {default_retention_days: 30}
safety:                             # gates; these are the defaults
  max_expired_objects_percent: 30
  max_expired_bytes: 5TB
  on_tag_loss: fail
  on_server_divergence: warn        # objects that only the server's early stop lets go
bounds: {min_retention_days: 3}     # a tree with fewer days does not validate
unmanaged: warn                     # repositories that no entry names: ignore, warn or fail
include: ["repositories/**/*.yaml"]
"""

_EXAMPLE = """\

# An entry, to be put into repositories/analytics.yaml without the comment signs:
# apiVersion: lakeplan/v1
# repositories:
#   analytics:                      # exact, a glob ("team-a-*"), or server/name
#     owner: data-platform
#     use: [standard]
#     gc:
#       branches:
#         - {branch_id: main, retention_days: 60}
#         - {pattern: "release-*", retention_days: 365}
"""


def scaffold(endpoints: Mapping[str, str], ci: Ci, state_url: str | None) -> dict[str, str]:
    """Every file of a new tree by its path. Workflows read the variables of the tree's first server."""
    files = {
        ROOT_FILE: _root(endpoints, state_url),
        ".gitignore": ".lakeplan/\nplan.json\nplan.html\n",
    }
    variables = {name: _variable(name) for name in endpoints}
    first = next(iter(variables.values()))
    for place, source in _PLACES[ci].items():
        text = (ci_folder() / source).read_text(encoding="utf-8")
        files[place] = text.replace("LAKEPLAN_PROD_", f"LAKEPLAN_{first}_")
    return files


def ci_folder() -> Path:
    """The workflows: ``lakeplan/examples/ci`` when installed, ``examples/ci`` in a checkout."""
    installed = _PACKAGE / "examples" / "ci"
    return installed if installed.is_dir() else _PACKAGE.parent / "examples" / "ci"


def _root(endpoints: Mapping[str, str], state_url: str | None) -> str:
    lines = ["apiVersion: lakeplan/v1", "servers:"]
    lines += [f"  {quoted(name)}: {{endpoint_url: {quoted(url)}}}" for name, url in endpoints.items()]
    if len(endpoints) > 1:
        lines.append(f"defaults: {{server: {quoted(next(iter(endpoints)))}}}")
    if state_url is None:
        lines.append(
            "# state: {url: s3://bucket/lakeplan}   # a CI runner needs one; else .lakeplan beside this"
        )
    else:
        lines.append(f"state: {{url: {quoted(state_url)}}}")
    return "\n".join(lines) + "\n" + _REST + _EXAMPLE


def _variable(server: str) -> str:
    return re.sub(r"-", "_", server).upper()


def existing(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Which of the files are there already."""
    return [name for name in files if os.path.lexists(folder / name)]

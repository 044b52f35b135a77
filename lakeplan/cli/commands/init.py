"""``lakeplan init``: the files of a new tree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, get_args

import typer

from lakeplan.cli import options
from lakeplan.cli.command import command
from lakeplan.cli.commands.import_ import (
    IGNORE,
    IGNORE_BY_HAND,
    IGNORED,
    Endpoints,
    StateUrl,
    endpoints_of,
    of_options,
    write_files,
)
from lakeplan.cli.console import say, stdout
from lakeplan.cli.git import prefix_of
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.tree.editing import quoted
from lakeplan.tree.files import ROOT_FILE
from lakeplan.tree.tree import load_tree

Ci = Literal["github", "gitlab", "none"]

_PACKAGE = Path(__file__).resolve().parent.parent.parent

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
        IGNORE: IGNORED,
    }
    first = next(iter(endpoints)).replace("-", "_").upper()
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


HELP = """Create a tree: settings with their defaults, an example entry, and CI workflows.

Existing files are never changed, and no server is contacted. If your servers already have retention rules,
start with `lakeplan import` instead.

\b
Examples:
  lakeplan init --endpoint prod=https://lakefs.example.com
  lakeplan init -C retention --ci github --state s3://ops/lakeplan
"""


@command(HELP, without="redact_paths no_progress")
def init(
    *,
    tree: options.TreeDir = Path(),
    endpoint: Endpoints = None,
    ci: Annotated[
        str,
        typer.Option(
            "--ci", help="CI system to write workflows for: github, gitlab or none.", metavar="HOST"
        ),
    ] = "none",
    state: StateUrl = None,
    lakectl_config: options.LakectlConfig = None,
    no_color: bool,
    quiet: bool,
) -> None:
    host: Ci = options.one_of("--ci", ci, get_args(Ci))
    if host != "none" and prefix_of(tree):
        raise UsageError(
            f"workflows must be at the top of the git repository, and {tree} is not",
            hint="Run it there, or use --ci none and copy what you need from examples/ci.",
        )
    files = scaffold(endpoints_of(endpoint, lakectl_config), host, state)
    there = [name for name in files if os.path.lexists(tree / name)]
    if IGNORE in there:
        del files[IGNORE]
        there.remove(IGNORE)
    if there:
        raise LakeplanError(
            f"these files already exist: {', '.join(there)}",
            where=str(tree),
            hint="Nothing was written. Use -C DIR for another folder.",
        )
    with TemporaryDirectory(prefix="lakeplan-init-") as name:
        write_files(Path(name), {k: v for k, v in files.items() if not k.startswith(".")})
        with of_options():
            load_tree(Path(name), os.environ)
    write_files(tree, files)
    if not quiet:
        _report(tree, sorted(files), host, state, no_color=no_color)


def _report(tree: Path, files: list[str], ci: Ci, state: str | None, *, no_color: bool) -> None:
    console = stdout(no_color=no_color)

    def line(text: str) -> None:
        say(console, text)

    for name in files:
        line(f"wrote {tree / name}")
    if IGNORE not in files:
        line(IGNORE_BY_HAND)
    if ci != "none" and state is None:
        line(
            f"a runner starts empty: name a state in {ROOT_FILE}, such as state: {{url: s3://bucket/lakeplan}}"
        )
    if ci != "none":
        line("the first lines of each workflow say which variables and secrets it needs")
    line(f"Next: the entry at the end of {ROOT_FILE} into repositories/, then lakeplan doctor, lakeplan plan")

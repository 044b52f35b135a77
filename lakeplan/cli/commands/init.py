"""``lakeplan init``: the files of a new tree."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, get_args

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
from lakeplan.cli.git import default_branch_of, find_work_folder
from lakeplan.cli.options import option
from lakeplan.cli.workflows import INCLUDED, INCLUDING, Ci, branch_of, cloud_of, source_of, workflows
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.tree.editing import quoted
from lakeplan.tree.files import ROOT_FILE
from lakeplan.tree.tree import load_tree

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

# An example entry. Copy it to repositories/analytics.yaml and remove the comment signs:
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


def scaffold(endpoints: Mapping[str, str], state_url: str | None) -> dict[str, str]:
    """Every file of a new tree by its path."""
    return {ROOT_FILE: _root(endpoints, state_url), IGNORE: IGNORED}


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
start with `lakeplan import` instead. With --ci, a tree that exists gets workflows only.

\b
Examples:
  lakeplan init --endpoint prod=https://lakefs.example.com
  lakeplan init -C retention --ci github --state s3://ops/lakeplan
  lakeplan init -C retention --ci github --source 0.1.0
"""


@command(HELP, without="redact_paths no_progress")
def init(
    *,
    tree: options.TreeDir = Path(),
    endpoint: Endpoints = None,
    ci: Annotated[str, option("CI system to write workflows for: github, gitlab or none.", "HOST")] = "none",
    source: Annotated[
        str | None,
        option(
            "Where jobs install lakeplan from: a version, git+https://…@COMMIT, or a path in the"
            " repository. Default: this version.",
            "SOURCE",
        ),
    ] = None,
    cloud: Annotated[
        str | None,
        option(
            "Cloud that jobs sign in to by OIDC: aws, azure, gcp or none. Default: that of the state.",
            "CLOUD",
        ),
    ] = None,
    branch: Annotated[
        str | None,
        option(
            "Branch whose merges GitHub applies. Default: the default branch of origin, else main.", "BRANCH"
        ),
    ] = None,
    state: StateUrl = None,
    lakectl_config: options.LakectlConfig = None,
    no_color: bool,
    quiet: bool,
) -> None:
    host: Ci = options.one_of("--ci", ci, get_args(Ci))
    files: dict[str, str] = {}
    if host == "none" or endpoint or not (tree / ROOT_FILE).is_file():
        files = scaffold(endpoints_of(endpoint, lakectl_config), state)
        server, url = _checked(files, tree), state
    else:
        loaded = load_tree(tree, os.environ)
        server, url = next(iter(loaded.servers)), state or loaded.state_url
    top, prefix = _top_of(tree)
    applied = branch_of(branch, default_branch_of(tree) if host == "github" else None)
    jobs = workflows(
        host,
        tree=prefix,
        server=server,
        source=source_of(source),
        cloud=cloud_of(cloud, url),
        branch=applied,
    )
    notes = _left_out(jobs, top) + _left_out(files, tree)
    if host == "github":
        notes.append(f"merges into the branch {applied} are applied; --branch names another")
    _refuse_existing(top, jobs)
    _refuse_existing(tree, files)
    write_files(tree, files)
    write_files(top, jobs)
    if not quiet:
        written = [*(tree / name for name in sorted(files)), *(top / name for name in sorted(jobs))]
        _report(written, notes, host, url, has_entry=ROOT_FILE in files, no_color=no_color)


def _top_of(tree: Path) -> tuple[Path, str]:
    """The folder that workflows belong in, and the tree's folder below it: the top of the git repository,
    else where the command runs, where that holds the tree."""
    try:
        work = find_work_folder(tree)
        top, prefix = work.top, work.prefix
    except LakeplanError:
        real, here = Path(os.path.realpath(tree)), Path(os.path.realpath("."))
        inside = real.is_relative_to(here) and not tree.is_absolute()
        top, prefix = (here, real.relative_to(here).as_posix()) if inside else (tree, ".")
    if not re.fullmatch(r"[\w./ -]*", prefix):
        raise UsageError(
            f"a workflow cannot use the folder name {prefix}",
            hint="Use letters, digits, dots, dashes and underscores.",
        )
    return (tree if prefix in ("", ".") else Path(os.path.relpath(top))), prefix


def _checked(files: Mapping[str, str], tree: Path) -> str:
    """The name of the first server of a new tree, which is valid. Raises LakeplanError."""
    _refuse_existing(tree, {name: text for name, text in files.items() if name != IGNORE})
    with TemporaryDirectory(prefix="lakeplan-init-") as name:
        write_files(Path(name), {k: v for k, v in files.items() if not k.startswith(".")})
        with of_options():
            return next(iter(load_tree(Path(name), os.environ).servers))


def _left_out(files: dict[str, str], folder: Path) -> list[str]:
    """Takes out the files that may be there already, and says what to add to them."""
    notes = {
        IGNORE: IGNORE_BY_HAND,
        INCLUDING: f"{INCLUDING} already exists: add the include of {INCLUDED} to it",
    }
    found = [name for name in notes if name in files and os.path.lexists(folder / name)]
    for name in found:
        del files[name]
    return [notes[name] for name in found]


def _refuse_existing(folder: Path, files: Mapping[str, str]) -> None:
    there = [name for name in files if os.path.lexists(folder / name)]
    if there:
        raise LakeplanError(
            f"these files already exist: {', '.join(there)}",
            where=str(folder),
            hint="Nothing was written. Use -C DIR for another folder.",
        )


def _report(
    written: list[Path], notes: list[str], ci: Ci, state: str | None, *, has_entry: bool, no_color: bool
) -> None:
    line = partial(say, stdout(no_color=no_color))
    for path in written:
        line(f"wrote {path}")
    for note in notes:
        line(note)
    if ci != "none" and state is None:
        line(
            f"runners keep no files: set a state in {ROOT_FILE}, such as state: {{url: s3://bucket/lakeplan}}"
        )
    if ci != "none":
        line("the first lines of each workflow say which variables and secrets it needs")
    if has_entry:
        line(
            f"Next: copy the entry at the end of {ROOT_FILE} into repositories/, then run lakeplan doctor"
            " and lakeplan plan"
        )

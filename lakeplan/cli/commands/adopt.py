"""``lakeplan adopt``: entries for repositories that only a glob names, for a pull request."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from lakeplan.cli import options
from lakeplan.cli.command import command
from lakeplan.cli.completing import check_server
from lakeplan.cli.console import say, stdout
from lakeplan.cli.options import option
from lakeplan.cli.wiring import SelectionOptions, Session, SessionOptions
from lakeplan.errors import ConfigError, LakeplanError, UsageError
from lakeplan.limits import read_file
from lakeplan.output.text import count_of
from lakeplan.plan.apply import reviewed_repositories
from lakeplan.review.selection import Selection
from lakeplan.tree.editing import double_quoted
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.local import SHARED, LeadsOut, inside, refuse_links, write_file

HEAD = "# Written by lakeplan adopt. Edit entries, or move them elsewhere.\napiVersion: lakeplan/v1\n"
REPOSITORIES = "repositories:\n"
_TOP_KEY = re.compile(r"^[^\s#].*$", re.MULTILINE)

HELP = """Write an entry for each repository that a glob newly matches.

A plan refuses such repositories with the gate `adoption`. With entries of their own they can be reviewed: a
pull request then shows what their first rules would do. Servers are not changed.

\b
Examples:
  lakeplan adopt
  lakeplan adopt --file repositories/team-a.yaml --target 'team-a-*'
"""


@command(HELP, without="redact_paths")
def adopt(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    file: Annotated[Path, option("File for the entries, relative to the tree.", "FILE")] = Path(
        "repositories/adopted.yaml"
    ),
    opening: SessionOptions,
    no_color: bool,
    quiet: bool,
) -> None:
    session = opening.session(tree)
    check_server(session.tree, selection.server)
    keys = newly_matched(session, selection)
    if keys:
        write_entries(session.tree, file, keys)
    text = f"Wrote {count_of(len(keys), 'entry', 'entries')} into {file}: {', '.join(keys)}"
    if not quiet:
        say(stdout(no_color=no_color), text if keys else "No glob matches a new repository.")


def newly_matched(session: Session, selection: Selection) -> list[str]:
    """``server/name`` of live repositories that a glob names, and that no apply has seen."""
    known = reviewed_repositories(session.state())
    found = []
    for server in session.tree.servers:
        if selection.server not in (None, server):
            continue
        live = {r.id for r in session.reader(server).list_repositories()}
        wanted = [d for d in session.tree.resolve(server, live) if selection.takes(d)]
        found += [d.key for d in wanted if d.by_glob and d.name in live and d.key not in known]
    return found


def write_entries(tree: Tree, file: Path, keys: list[str]) -> None:
    """Adds an empty entry for each to a file of the tree. Raises LakeplanError, with the file as it was,
    where the tree would not name them by it."""
    path = tree.root / file
    try:
        inside(tree.root, path)
    except LeadsOut as error:
        raise UsageError(f"{file} {error}", hint="Name a file of the tree with --file.") from None
    refuse_links(path, below=tree.root)
    before = read_file(path).decode() if path.exists() else None
    text = (before or HEAD + REPOSITORIES).rstrip("\n") + "\n"
    if _TOP_KEY.findall(text)[-1:] != [REPOSITORIES.strip()]:
        raise LakeplanError(
            "entries can only be added to a file whose last key is `repositories`",
            where=str(file),
            hint="Name another file with --file.",
        )
    text += "".join(f"  {_key(tree, key)}: {{}}\n" for key in keys)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text, mode=SHARED)
    try:
        after = load_tree(tree.root, os.environ)
        entries = {(entry.server, entry.name) for entry in after.entries if not entry.is_glob}
        missing = [key for key in keys if tuple(key.split("/", 1)) not in entries]
        if missing:
            raise ConfigError(
                "the tree does not include the file",
                where=str(file),
                hint="Add it to `include`, or name another one with --file.",
            )
    except LakeplanError:
        if before is None:
            path.unlink()
        else:
            write_file(path, before, mode=SHARED)
        raise


def _key(tree: Tree, key: str) -> str:
    server, _, name = key.partition("/")
    shown = name if server == tree.default_server else key
    # A name of digits alone would be read as a number.
    return double_quoted(shown)

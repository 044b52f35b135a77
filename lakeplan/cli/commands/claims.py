"""``lakeplan claim`` and ``lakeplan adopt``: which repositories a tree manages."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from lakeplan.api import find_repository
from lakeplan.cli import options
from lakeplan.cli.commands.trees import write_files
from lakeplan.cli.console import confirm, print_error, require_terminal, say, stdout
from lakeplan.cli.options import command, option
from lakeplan.cli.process import this_run
from lakeplan.cli.wiring import SelectionOptions, Session, SessionOptions
from lakeplan.errors import ConfigError, ExitCode, LakeplanError, UsageError
from lakeplan.plan.apply import reviewed_repositories
from lakeplan.review import claims
from lakeplan.review.selection import Selection, check_server, lost_globs
from lakeplan.tree.editing import double_quoted, read_text
from lakeplan.tree.files import ROOT_FILE
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.local import OutsideFolder, inside, refuse_links
from lakeplan.values.units import count_of


@command(without="redact_paths no_progress quiet")
def claim(
    *,
    repository: options.Repository,
    tree: options.TreeDir = Path(),
    release: Annotated[bool, option("Remove this tree's claim.")] = False,
    take: Annotated[bool, option("Replace other trees' claims. Asks for confirmation.")] = False,
    auto_approve: Annotated[bool, option("With --take: do not ask for confirmation.")] = False,
    opening: SessionOptions,
) -> None:
    """Record that this tree manages a repository, or release the repository.

    If the tree has a name, `lakeplan apply` claims every repository that the tree manages. Use this command
    to move a repository from one tree to another: run it with --release in the old tree, or with --take in
    the new one.

    \b
    Examples:
      lakeplan claim analytics
      lakeplan claim analytics --release
      lakeplan claim prod/analytics --take
    """
    if take and release:
        raise UsageError("--take and --release cannot be combined", hint="Use only one of them.")
    session = opening.session(tree)
    name = session.tree.name
    if not name:
        raise ConfigError(
            "the tree has no name, so it cannot claim repositories",
            where=str(tree / ROOT_FILE),
            hint="Add `name: …` to this file. Each tree needs its own name.",
        )
    server, repo = _named(session, repository, owned=not release)
    key, connection = f"{server}/{repo}", session.connection(server)
    if release:
        done = claims.release(repo, name, connection)
        text = f"Tree {name!r} no longer claims {key}." if done else f"Tree {name!r} has not claimed {key}."
    elif take:
        others = [n for n in claims.claims_in(connection.reader.metadata(repo)) if n != name]
        if others and not auto_approve:
            _ask(key, others)
        claims.take(repo, name, connection, this_run(tree))
        text = f"Tree {name!r} claims {key}."
    else:
        new = claims.claim(repo, key, name, connection, this_run(tree))
        text = f"Tree {name!r} claims {key}." if new else f"Tree {name!r} has already claimed {key}."
    say(stdout(), text)


def _ask(key: str, others: list[str]) -> None:
    """Ask for ``yes``. Raises UsageError without a terminal, and Exit for another answer."""
    require_terminal("claim --take")
    question = f"{key} is claimed by {', '.join(map(repr, others))}. Take it over? Only 'yes' is accepted"
    if not confirm(question, otherwise="Nothing was changed.", no_color=False):
        raise typer.Exit(1)


def _named(session: Session, repository: str, *, owned: bool) -> tuple[str, str]:
    """The server and name of a repository. If ``owned``, the tree must have an entry for it. A claim to be
    released may be on a repository without an entry. Raises UsageError."""
    server, slash, name = repository.rpartition("/")
    tree = session.tree
    if slash and not owned:
        check_server(tree, server)
        return server, name
    if not owned and tree.default_server is not None and not tree.servers_of(repository):
        return tree.default_server, name
    desired = find_repository(tree, repository)
    return desired.server, desired.name


HEAD = "# Written by lakeplan adopt. Edit entries, or move them elsewhere.\napiVersion: lakeplan/v1\n"
REPOSITORIES = "repositories:\n"
_TOP_KEY = re.compile(r"^[^\s#].*$", re.MULTILINE)


@command(without="redact_paths")
def adopt(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    file: Annotated[
        Path, option("File to write the entries to, relative to the tree's folder.", "FILE")
    ] = Path("repositories/adopted.yaml"),
    opening: SessionOptions,
    no_color: bool,
    quiet: bool,
) -> ExitCode:
    """Add an entry to the tree for each new repository that matches a glob.

    The `adoption` gate refuses a plan that contains such repositories. Once the repositories have entries, a
    pull request shows what their first rules would do. Servers are not changed.

    \b
    Examples:
      lakeplan adopt
      lakeplan adopt --file repositories/team-a.yaml --target 'team-a-*'
    """
    session = opening.session(tree)
    check_server(session.tree, selection.server)
    keys, lost = newly_matched(session, selection)
    if keys:
        write_entries(session.tree, file, keys)
    text = f"Wrote {count_of(len(keys), 'entry', 'entries')} to {file}: {', '.join(keys)}"
    if not quiet:
        say(stdout(no_color=no_color), text if keys else "No glob matches a new repository.")
    for error in lost:
        print_error(error.message, where=error.where, hint=error.hint)
    return ExitCode.PARTLY_DONE if lost else ExitCode.OK


def newly_matched(session: Session, selection: Selection) -> tuple[list[str], list[LakeplanError]]:
    """The live repositories (``server/name``) that only a glob names and that no apply recorded, and why
    servers with selected globs did not answer. Raises the error of a server if no server answered."""
    known = reviewed_repositories(session.state())
    keys: list[str] = []
    lost: list[LakeplanError] = []
    answered = False
    for server in session.tree.servers:
        if selection.server not in (None, server):
            continue
        try:
            live = {r.id for r in session.reader(server).list_repositories()}
            answered = True
        except LakeplanError as error:
            lost += [error] if lost_globs(session.tree, server, selection) else []
            continue
        wanted = [d for d in session.tree.resolve(server, live) if selection.takes(d)]
        keys += [d.key for d in wanted if d.by_glob and d.name in live and d.key not in known]
    if lost and not answered:
        raise lost[0]
    return keys, lost


def write_entries(tree: Tree, file: Path, keys: list[str]) -> None:
    """Adds an empty entry for each repository to a file of the tree. Raises LakeplanError, and writes
    nothing if the tree would not contain the entries."""
    path = tree.root / file
    try:
        real = inside(tree.root, path)
    except OutsideFolder as error:
        raise UsageError(f"{file} {error}", hint="Specify a file in the tree with --file.") from None
    refuse_links(path, below=tree.root)
    before = read_text(path) if path.exists() else None
    text = (before or HEAD + REPOSITORIES).rstrip("\n") + "\n"
    if _TOP_KEY.findall(text)[-1:] != [REPOSITORIES.strip()]:
        raise LakeplanError(
            "entries can only be added to a file whose last key is `repositories`",
            where=str(file),
            hint="Specify another file with --file.",
        )
    text += "".join(f"  {_key(tree, key)}: {{}}\n" for key in keys)
    # The file is written last, so a command that is killed leaves no entries that were not checked.
    after = load_tree(tree.root, os.environ, edited={real: text})
    entries = {(entry.server, entry.name) for entry in after.entries if not entry.is_glob}
    if any(tuple(key.split("/", 1)) not in entries for key in keys):
        raise ConfigError(
            "the tree does not include the file",
            where=str(file),
            hint="Add it to `include`, or specify another file with --file.",
        )
    if (read_text(path) if path.exists() else None) != before:
        hint = "Run the command again. Nothing was written."
        raise LakeplanError("the file was changed while the command was running", where=str(file), hint=hint)
    write_files(tree.root, {file.as_posix(): text})


def _key(tree: Tree, key: str) -> str:
    server, _, name = key.partition("/")
    shown = name if server == tree.default_server else key
    # A name of digits alone would be read as a number.
    return double_quoted(shown)

"""``lakeplan claim``: which tree manages a repository, where several trees share a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakeplan.cli import completing, options
from lakeplan.cli.command import command
from lakeplan.cli.console import confirm, require_terminal, say, stdout
from lakeplan.cli.options import option
from lakeplan.cli.process import this_run
from lakeplan.cli.wiring import Session, SessionOptions
from lakeplan.errors import ConfigError, UsageError
from lakeplan.review import claims
from lakeplan.tree.files import ROOT_FILE

HELP = """Record that this tree manages a repository, or end that.

`lakeplan apply` claims every repository that it manages when the tree has a name. Use this command to move a
repository from one tree to another: release it with the old tree, or take it over with the new one.

\b
Examples:
  lakeplan claim analytics
  lakeplan claim analytics --release
  lakeplan claim prod/analytics --take
"""


@command(HELP, without="redact_paths no_progress quiet")
def claim(
    *,
    repository: options.Repository,
    tree: options.TreeDir = Path(),
    release: Annotated[bool, option("Remove this tree's claim.")] = False,
    take: Annotated[bool, option("Remove the claims of other trees. Asks for confirmation.")] = False,
    auto_approve: Annotated[bool, option("With --take: do not ask for confirmation.")] = False,
    opening: SessionOptions,
) -> None:
    if take and release:
        raise UsageError("--take and --release exclude each other", hint="Use one of them.")
    session = opening.session(tree)
    name = session.tree.name
    if not name:
        raise ConfigError(
            "the tree has no name to claim repositories with",
            where=str(tree / ROOT_FILE),
            hint="Add `name: …` to it. Each tree needs its own name.",
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
    """Raises UsageError without a terminal, Exit when the answer is not yes."""
    require_terminal("claim --take")
    question = f"{key} belongs to {', '.join(map(repr, others))}. Only the answer yes takes it over"
    if not confirm(question, otherwise="Nothing was changed.", no_color=False):
        raise typer.Exit(1)


def _named(session: Session, repository: str, *, owned: bool) -> tuple[str, str]:
    """Server and name. ``owned``: an entry of the tree has to name it; a claim that is released may be of one
    that no entry names any more. Raises UsageError."""
    server, slash, name = repository.rpartition("/")
    tree = session.tree
    if owned or not slash:
        found = tree.servers_of(repository)
        if not found and not owned and tree.default_server is not None:
            return tree.default_server, name
        if len(found) != 1:
            what = "no entry of the tree names it" if not found else f"it is on {', '.join(found)}"
            raise UsageError(f"{repository!r}: {what}", hint="Name it as server/name, as the tree does.")
        return found[0], name
    completing.check_server(tree, server)
    return server, name

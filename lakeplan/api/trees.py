"""Trees and rules: what is asked for, resolved for one repository, and GC rules from lakectl's file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from lakeplan.errors import UsageError
from lakeplan.limits import read_file, why_unreadable
from lakeplan.retention.patterns import expand
from lakeplan.simulation import verdicts
from lakeplan.tree import tree
from lakeplan.tree.tree import Tree
from lakeplan.values.desired import DesiredRepository, GcDesired
from lakeplan.values.rules import GcRules


def load_tree(folder: Path | str, environ: Mapping[str, str] | None = None) -> Tree:
    """Reads ``lakeplan.yaml`` in ``folder`` and every file it includes; asks no server.

    ``environ`` is where ``${X}`` in the settings of servers is read from (``LAKEPLAN_VAR_X``); by default the
    process's own. Raises ConfigError with every problem of the tree.
    """
    return tree.load_tree(Path(folder), os.environ if environ is None else environ)


def find_repository(loaded: Tree, repository: str) -> DesiredRepository:
    """What the tree asks for one repository, given as ``name`` or ``server/name``: profiles, globs and the
    exact entry merged. It need not exist on a server; a glob is enough.

    Raises UsageError when no entry names it, or entries on several servers do.
    """
    servers = loaded.servers_of(repository)
    if len(servers) != 1:
        what = "no entry of the tree names it" if not servers else f"it is on {', '.join(servers)}"
        raise UsageError(f"{repository!r}: {what}", hint="name it as server/name, as the tree does")
    name = repository.rpartition("/")[2]
    (found,) = (d for d in loaded.resolve(servers[0], [name]) if d.name == name)
    return found


def read_rules(path: Path | str) -> GcRules:
    """The rules in a file as ``lakectl gc set-config`` takes it.

    Raises UsageError when it cannot be read, ConfigError when it holds no rules.
    """
    try:
        data = read_file(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the rules: {why_unreadable(error)}", where=str(path), hint="name a file of GC rules"
        ) from None
    return verdicts.read_rules(data, name=str(path))


def rules_of(desired: DesiredRepository, branches: Iterable[str] = ()) -> GcRules | None:
    """The rules that a plan would set, patterns expanded over ``branches``. None where the tree does not
    manage them, or clears them (``desired.gc`` tells which)."""
    return expand(desired.gc, branches).rules if isinstance(desired.gc, GcDesired) else None

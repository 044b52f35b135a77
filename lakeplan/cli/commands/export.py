"""``lakeplan export``: a repository's rules as a file for lakectl."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lakeplan.api import find_repository
from lakeplan.cli import options
from lakeplan.cli.options import command
from lakeplan.cli.outputs import Outputs, pair_outputs
from lakeplan.cli.wiring import Session, SessionOptions
from lakeplan.errors import LakeplanError
from lakeplan.output.text import json_text
from lakeplan.retention.patterns import expand
from lakeplan.values.desired import Cleared, DesiredRepository
from lakeplan.values.rules import GcRules

LAKECTL = "lakectl"
FORMATS = (LAKECTL,)


@command(without="redact_paths no_progress quiet")
def export(
    *,
    repository: options.Repository,
    tree: options.TreeDir = Path(),
    format: Annotated[options.Formats, options.formats(FORMATS)] = None,
    out: options.Outs = None,
    opening: SessionOptions,
) -> None:
    """Print a repository's rules as JSON for `lakectl gc set-config`.

    Patterns are expanded to the branches on the server. If there are no patterns, no server is contacted.

    \b
    Examples:
      lakeplan export analytics > rules.json
      lakeplan export prod/analytics --format lakectl --out rules.json
      lakectl gc set-config lakefs://analytics -f rules.json
    """
    named = format or [LAKECTL] * max(1, len(out or ()))
    outputs = Outputs(pair_outputs(named, out, FORMATS, quiet=True))
    session = opening.session(tree)
    rules = rules_of(session, find_repository(session.tree, repository))
    outputs.write({LAKECTL: lambda: json_text(rules.to_body())}, lambda _: None)


def rules_of(session: Session, desired: DesiredRepository) -> GcRules:
    """The rules that a plan would set. Raises LakeplanError if there are none to write."""
    if desired.gc is None:
        raise LakeplanError("the tree does not manage the GC rules of this repository", where=desired.key)
    if desired.gc is Cleared.CLEAR:
        raise LakeplanError(
            "the tree clears the GC rules of this repository, and a rules file cannot express that",
            where=desired.key,
            hint=f"Run `lakectl gc delete-config lakefs://{desired.name}`.",
        )
    branches: list[str] = []
    if any(rule.is_pattern for rule in desired.gc.branches):
        branches = [b.id for b in session.reader(desired.server).list_branches(desired.name)]
    return expand(desired.gc, branches).rules

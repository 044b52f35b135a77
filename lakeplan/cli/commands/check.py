"""``lakeplan check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lakeplan.cli import options
from lakeplan.cli.command import command
from lakeplan.cli.outputs import Outputs
from lakeplan.cli.sweeping import open_checker, sweep_ports
from lakeplan.cli.wiring import Connecting, Selected, Waiting
from lakeplan.output.check import render_check
from lakeplan.sweep.check import check_all, exit_code_of

HELP = """Check that storage holds every object that commits name. Changes nothing.

Reads the metadata of every HEAD, every commit that the stored rules keep, every tag and every hold from the
storage itself, compares ids and checksums, and lists what is stored. Exits with 3 if something is missing.

\b
Examples:
  lakeplan check
  lakeplan check --target analytics --format csv --out missing.csv
"""


@command(HELP)
def check(
    *,
    tree: options.TreeDir = Path(),
    selection: Selected,
    outputs: Annotated[Outputs, options.documents("check")],
    opening: Connecting,
    runners: options.Running,
    timeouts: Waiting,
) -> int:
    session = opening.session(tree, runners=runners, timeouts=timeouts)
    with sweep_ports(session) as ports, open_checker(session) as checker:
        document = check_all(session.tree, selection, ports, checker)
    return outputs.emit(document, render_check, code=exit_code_of(document))

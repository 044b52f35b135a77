"""``lakeplan check``."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

from lakeplan.cli import options
from lakeplan.cli.options import command, option
from lakeplan.cli.outputs import Outputs
from lakeplan.cli.sweeping import open_checker, sweep_ports
from lakeplan.cli.wiring import SelectionOptions, SessionOptions, TimeoutOptions
from lakeplan.errors import UsageError
from lakeplan.output.check import render_check
from lakeplan.sweep.check import ReadData, check_all, exit_code_of
from lakeplan.values.units import parse_percent


@command()
def check(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    read: Annotated[
        str | None,
        option(
            "Also read this percentage of the objects (for example, 5%), and compare their checksums.",
            "N%",
            names=("--read-data",),
        ),
    ] = None,
    outputs: Annotated[Outputs, options.documents("check")],
    opening: SessionOptions,
    runners: options.RunnerOptions,
    timeouts: TimeoutOptions,
) -> int:
    """Check that storage contains every object that commits reference. Changes nothing.

    The check covers the HEAD of every branch, and every commit that the stored rules, a tag or a hold keeps.
    The command reads the metadata of these commits directly from storage, compares ids and checksums, and
    lists the stored objects. If anything is missing, the command exits with code 3.

    \b
    Examples:
      lakeplan check
      lakeplan check --target analytics --format csv --out missing.csv
      lakeplan check --read-data 5%
    """
    sample = None if read is None else ReadData(parse_share("--read-data", read), secrets.token_hex(8))
    session = opening.session(tree, runners=runners, timeouts=timeouts)
    with sweep_ports(session) as ports, open_checker(session) as checker:
        document = check_all(session.tree, selection, ports, checker, read=sample)
    return outputs.emit(document, render_check, code=exit_code_of(document))


def parse_share(option: str, text: str) -> float:
    """Parse a percentage into a share between 0 and 1. Raises UsageError."""
    try:
        percent = parse_percent(text.strip())
    except ValueError:
        percent = 0.0
    if not percent:
        raise UsageError(
            f"{option} {text!r} is not a percentage above 0",
            hint=f"Use a percentage, for example {option} 5%",
        )
    return percent / 100

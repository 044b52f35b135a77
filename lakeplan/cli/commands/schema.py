"""``lakeplan schema`` and ``lakeplan spark``: write the parts of lakeplan that other programs need."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from lakeplan.cli.options import CommandGroup, argument, command, option
from lakeplan.cli.outputs import STANDARD_OUTPUT
from lakeplan.errors import ExitCode, UsageError
from lakeplan.simulation.archive import EXECUTOR_PACKAGES, write_archive
from lakeplan.tree.schemas import bundled_schema, schema_folder, schema_names

HELP = f"""Print a JSON Schema as a single document, for use in an editor or to validate lakeplan's output.

NAME is one of {", ".join(schema_names())}.

\b
Examples:
  lakeplan schema > tree.schema.json
  lakeplan schema repository
"""


@command(help=HELP, common="")
def schema(
    *,
    name: Annotated[
        str, argument("Schema to print.", "[NAME]", autocompletion=lambda: list(schema_names()))
    ] = "tree",
) -> None:
    sys.stdout.write(json.dumps(bundled_schema(name), indent=2, ensure_ascii=False) + "\n")


@command("Write the zip file that Spark executors need.", without="redact_paths no_color no_progress")
def package(
    *,
    out: Annotated[Path, option("Zip file to write, for spark-submit --py-files.", "FILE")] = Path(
        "lakeplan.zip"
    ),
    quiet: bool,
) -> int:
    """Write the zip file that Spark executors need, and list the packages to install.

    \b
    Examples:
      lakeplan spark package
      lakeplan spark package --out build/lakeplan.zip
    """
    if out == STANDARD_OUTPUT:
        raise UsageError("the zip file cannot be written to standard output", hint="Pass a file to --out.")
    needed = write_archive(out, schemas=schema_folder())
    if not quiet:
        count = len(EXECUTOR_PACKAGES)
        typer.echo(f"Wrote {out}. Run spark-submit with --py-files {out}.")
        typer.echo("Install these packages on every machine of the cluster:")
        typer.echo("".join(f"  {line}\n" for line in needed[:count]), nl=False)
        typer.echo("Also install these packages on the driver's machine:")
        typer.echo("".join(f"  {line}\n" for line in needed[count:]), nl=False)
    return ExitCode.OK


spark = CommandGroup({"package": package})

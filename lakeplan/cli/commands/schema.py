"""``lakeplan schema``: prints a JSON Schema that lakeplan ships, as a single document."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from lakeplan.cli.options import argument, command
from lakeplan.tree.schemas import bundled_schema, schema_names

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

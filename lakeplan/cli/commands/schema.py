"""``lakeplan schema``: prints a JSON Schema that lakeplan ships, whole in one document."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from lakeplan.config.schemas import bundled_schema


def register(app: typer.Typer) -> None:
    @app.command("schema", help="Print a JSON Schema: of lakeplan.yaml, of repository files, and others.")
    def schema(
        name: Annotated[
            str, typer.Argument(metavar="[NAME]", help="tree, repository, or another one that ships.")
        ] = "tree",
    ) -> None:
        sys.stdout.write(json.dumps(bundled_schema(name), indent=2, ensure_ascii=False) + "\n")

"""One module a command; each has ``register(app)``, listed here in the order help shows them."""

from __future__ import annotations

from collections.abc import Callable

import typer

from lakeplan.cli.commands import sandbox, schema, simulate, validate

COMMANDS: tuple[Callable[[typer.Typer], None], ...] = (
    validate.register,
    simulate.register,
    schema.register,
    sandbox.register,
)

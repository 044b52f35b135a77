"""One module a command; each has ``register(app)``, listed here in the order help shows them."""

from __future__ import annotations

from collections.abc import Callable

import typer

from lakeplan.cli.commands import sandbox, simulate

COMMANDS: tuple[Callable[[typer.Typer], None], ...] = (simulate.register, sandbox.register)

"""One module a command; each has ``register(app)``, listed here in the order help shows them."""

from __future__ import annotations

from collections.abc import Callable

import typer

from lakeplan.cli.commands import (
    apply,
    drift,
    explain,
    history,
    plan,
    sandbox,
    schema,
    show,
    simulate,
    validate,
)

COMMANDS: tuple[Callable[[typer.Typer], None], ...] = (
    validate.register,
    plan.register,
    show.register,
    apply.register,
    explain.register,
    drift.register,
    history.register,
    simulate.register,
    schema.register,
    sandbox.register,
)

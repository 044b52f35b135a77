"""One module a command; each has ``register(app)``, listed here in the order help shows them."""

from __future__ import annotations

from collections.abc import Callable

import typer

from lakeplan.cli.commands import (
    apply,
    curve,
    doctor,
    drift,
    explain,
    export,
    history,
    import_,
    init,
    lifecycle,
    plan,
    report,
    sandbox,
    schema,
    show,
    simulate,
    spark,
    sweep,
    test,
    validate,
)

COMMANDS: tuple[Callable[[typer.Typer], None], ...] = (
    init.register,
    validate.register,
    test.register,
    plan.register,
    show.register,
    report.register,
    apply.register,
    lifecycle.register,
    sweep.register,
    explain.register,
    drift.register,
    history.register,
    import_.register,
    export.register,
    doctor.register,
    simulate.register,
    curve.register,
    spark.register,
    schema.register,
    sandbox.register,
)

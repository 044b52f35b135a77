"""Makes a command: a function with its help and its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Signature, getdoc
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from lakeplan.cli import click
from lakeplan.cli.console import configure_logging
from lakeplan.cli.options import Options, common_options

COMMON = "redact_paths no_color no_progress log_level quiet"
"""Options of nearly every command. Help shows them after its own."""


class _Command(TyperCommand):
    """Prints the usage line with arguments as they are declared, because releases of typer differ in where
    they put brackets."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        arguments = [each for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        return ["[OPTIONS]", *(each.metavar or (each.name or "").upper() for each in arguments)]


@dataclass(frozen=True)
class Command:
    function: Callable[..., int | None]
    help: str
    short_help: str
    common: Sequence[str]

    def add(self, app: typer.Typer, name: str, short_help: str) -> None:
        group = Options(self.function)
        of_all = {parameter.name: parameter for parameter in Options(common_options).declared}
        parameters = [*group.declared, *(of_all[name] for name in self.common)]

        def run(**given: Any) -> int | None:
            if "log_level" in given:
                configure_logging(given["log_level"])
            code: int | None = group.value(given)
            return code

        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer looks for it
        app.command(name, cls=_Command, help=self.help, short_help=short_help)(run)


@dataclass(frozen=True)
class CommandGroup:
    """Commands that consist of two words, by the second word."""

    commands: Mapping[str, Command]
    help: str = ""
    """Set if it is longer than in the list of commands."""
    cls: type[TyperGroup] | None = None
    """What the first word alone does; None: print its help."""

    def add(self, app: typer.Typer, name: str, short_help: str) -> None:
        group = typer.Typer(
            cls=self.cls or TyperGroup, help=self.help or short_help, no_args_is_help=self.cls is None
        )
        for word, command in self.commands.items():
            command.add(group, word, command.short_help)
        app.add_typer(group, name=name)


def command(
    short_help: str = "", *, help: str = "", common: str = COMMON, without: str = ""
) -> Callable[[Callable[..., int | None]], Command]:
    """Makes a command of a function, whose docstring is its help unless ``help`` is given. ``common`` names
    shared options in the order of help, ``without`` those of them that the command lacks. ``short_help`` is
    for commands of two words; others have theirs in ``SHORT_HELP``."""
    kept = tuple(name for name in common.split() if name not in without.split())

    def made(function: Callable[..., int | None]) -> Command:
        return Command(function, help or getdoc(function) or "", short_help, kept)

    return made

"""One module a command, with a ``Command`` or a ``CommandGroup`` of its name. It is imported when it runs or
its help is asked for: most import much, and a line of the command line needs one of them."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING

import click
import typer
from typer.main import get_command

if TYPE_CHECKING:
    from lakeplan.cli.command import Command, CommandGroup

SHORT_HELP = {
    "init": "Write a tree to begin with, and its workflows.",
    "validate": "Check a tree, with file, line and column.",
    "test": "Run the tree's policy tests.",
    "plan": "Show what would change, and what that does.",
    "show": "Show a plan file, or a resolved configuration.",
    "report": "Write a plan as one HTML page.",
    "apply": "Push what a plan file says, and no more.",
    "explain": "Say why data is kept or not, and until when.",
    "drift": "Compare the servers with what was applied last.",
    "import": "Write a tree from live servers or lakectl's files.",
    "export": "Print a repository's rules for lakectl.",
    "doctor": "Check all that a command needs, one by one.",
    "simulate": "Show what rules would delete; needs no server.",
    "curve": "Show what goes at how many days of retention.",
    "schema": "Print a JSON Schema.",
    "branches": "Delete branches by policy: plan, run, undo.",
    "sweep": "Reclaim storage: mark, approve, run, restore.",
    "history": "Who applied what and when; plans that take it back.",
    "spark": "What a cluster needs to run the same job.",
    "sandbox": "An embedded lakeFS: start one, fill one.",
}
"""In the order in which help shows the commands; a test holds each against the command's own."""

RENAMED = {
    "lifecycle": "run `lakeplan branches` instead",
    "sweep report": "run `lakeplan sweep list`, or `lakeplan sweep show MARK` for one mark",
}
"""Commands of earlier releases, and what to run now."""


class Commands(UserDict[str, click.Command | None]):
    """Every command by name, in that order; its module is imported when it is taken out."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(SHORT_HELP))

    def __getitem__(self, name: str) -> click.Command:
        command = self.data[name]
        if command is None:
            command = self.data[name] = _imported(name)
        return command


def _imported(name: str) -> click.Command:
    word = "import_" if name == "import" else name  # Python keeps the word for itself
    found: Command | CommandGroup = getattr(import_module(f"{__name__}.{word}"), word)
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lambda: None)  # with one, typer makes a group also of a single command
    found.add(app, name, SHORT_HELP[name])
    group = get_command(app)
    assert isinstance(group, click.Group)
    return with_environment(group.commands[name])


ENVIRONMENT = "LAKEPLAN_LOG_LEVEL=info in the environment is --log-level info, and so on."


def with_environment(command: click.Command) -> click.Command:
    """``LAKEPLAN_*`` sets any option: each long option reads ``LAKEPLAN_<OPTION>``, dashes as underscores.
    Help says so once, not at every option."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.envvar is None and not parameter.is_eager:
            long = [o for o in parameter.opts if o.startswith("--")]
            if long:
                parameter.envvar = "LAKEPLAN_" + max(long, key=len)[2:].upper().replace("-", "_")
                parameter.show_envvar = False
    if isinstance(command, click.Group):
        for child in command.commands.values():
            with_environment(child)
    elif any(parameter.envvar for parameter in command.params):
        command.epilog = ENVIRONMENT
    return command

"""Every command is a ``Command`` or a ``CommandGroup`` of its name, in a module of its name or in one of
``MODULES``. It is imported only when it runs or its help is requested, because most of these imports are slow
and an invocation needs one command."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_command

from lakeplan.cli import click

if TYPE_CHECKING:
    from lakeplan.cli.options import Command, CommandGroup

PANELS: Mapping[str, Mapping[str, str]] = {
    "Everyday": {
        "validate": "Check the tree and report every problem.",
        "test": "Run the tree's policy tests.",
        "plan": "Show which rules would change and what would be deleted.",
        "show": "Show a plan file, or the settings of a repository.",
        "report": "Write a plan as an HTML page.",
        "apply": "Apply a reviewed plan to the servers.",
        "drift": "Compare the servers with the last apply.",
    },
    "Understand": {
        "audit": "Show what retention does on a server, and what it costs.",
        "storage": "Show what is stored, which branches and tags keep it, and what could be deleted.",
        "explain": "Explain why data is kept or deleted.",
        "simulate": "Show what GC rules would delete, without contacting a server.",
        "curve": "Show how many objects would expire at each retention period.",
        "history": "List past runs, show one, or plan a rollback.",
    },
    "Delete": {
        "branches": "Delete branches by policy, and restore them.",
        "sweep": "Delete expired objects from storage, and restore them.",
    },
    "Operate": {
        "check": "Check that storage contains every object that commits reference.",
        "doctor": "Check that a command has everything it needs.",
        "adopt": "Add entries for new repositories that match a glob.",
        "claim": "Record which tree manages a repository.",
        "pins": "Bring pins up to date.",
        "export": "Print a repository's GC rules in lakectl's format.",
        "ci": "Run lakeplan's CI jobs on GitHub or GitLab.",
        "spark": "Prepare a Spark cluster for lakeplan.",
    },
    "Set up": {
        "init": "Create a tree and CI workflows.",
        "import": "Write a tree that matches the servers.",
        "demo": "Run the quickstart on a local stand-in for lakeFS.",
        "sandbox": "Run a local stand-in for lakeFS to try lakeplan.",
        "schema": "Print a JSON Schema.",
    },
}
"""Every command, as ``lakeplan --help`` groups them."""
SHORT_HELP = {name: text for panel in PANELS.values() for name, text in panel.items()}

MODULES = {
    "adopt": "claims",
    "audit": "fleet",
    "check": "sweep",
    "claim": "claims",
    "export": "trees",
    "import": "trees",
    "init": "trees",
    "pins": "drift",
    "spark": "schema",
    "storage": "fleet",
    "test": "validate",
}
"""Modules with several commands."""

RENAMED = {
    "lifecycle": "Run `lakeplan branches` instead.",
    "sweep report": "Run `lakeplan sweep list`, or `lakeplan sweep show MARK` for one mark.",
}
"""Commands of earlier releases, and what to run now."""


class Commands(UserDict[str, click.Command | None]):
    """Every command by name, in the order of ``SHORT_HELP``. Its module is imported on access."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(SHORT_HELP))

    def __getitem__(self, name: str) -> click.Command:
        command = self.data[name]
        if command is None:
            command = self.data[name] = _imported(name)
        return command


def _imported(name: str) -> click.Command:
    word = "import_" if name == "import" else name  # import is a keyword of Python
    module = import_module(f"{__name__}.{MODULES.get(name, name)}")
    loaded: Command | CommandGroup = getattr(module, word)
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lambda: None)  # with one, typer makes a group also of a single command
    loaded.add(app, name, SHORT_HELP[name])
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return with_environment(group.commands[name])


def hide_types(parameters: Iterable[object]) -> None:
    """Hides the Python type of every argument and flag, which typer's help shows from 0.26 on."""
    for parameter in parameters:
        if isinstance(parameter, TyperArgument) or getattr(parameter, "is_flag", False):
            vars(parameter)["display_type_rich"] = lambda ctx: None


ENVIRONMENT = (
    "Environment variables can also set options. For example, LAKEPLAN_LOG_LEVEL=info sets --log-level info."
)


def with_environment(command: click.Command) -> click.Command:
    """``LAKEPLAN_*`` sets any option: each long option reads ``LAKEPLAN_<OPTION>``, dashes as underscores.
    Help says so once, not at every option."""
    hide_types(command.params)
    for parameter in command.params:
        if isinstance(parameter, TyperOption) and parameter.envvar is None and not parameter.is_eager:
            long = [o for o in parameter.opts if o.startswith("--")]
            if long:
                parameter.envvar = "LAKEPLAN_" + max(long, key=len)[2:].upper().replace("-", "_")
                parameter.show_envvar = False
    if isinstance(command, TyperGroup):
        for child in command.commands.values():
            with_environment(child)
    elif any(parameter.envvar for parameter in command.params):
        command.epilog = ENVIRONMENT
    return command

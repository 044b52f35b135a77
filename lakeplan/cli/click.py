"""The classes of click below typer: up to 0.25 typer imports click, later releases have their own copy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from typer._click.core import Command, Context, ParameterSource
    from typer._click.exceptions import (
        BadParameter,
        ClickException,
        NoArgsIsHelpError,
        NoSuchOption,
        UsageError,
    )
    from typer._click.formatting import HelpFormatter
    from typer._click.shell_completion import CompletionItem
else:
    _home = typer.BadParameter.__module__.removesuffix(".exceptions")
    _core = import_module(f"{_home}.core")
    _exceptions = import_module(f"{_home}.exceptions")
    Command, Context, ParameterSource = _core.Command, _core.Context, _core.ParameterSource
    UsageError = _exceptions.UsageError
    BadParameter = _exceptions.BadParameter
    ClickException = _exceptions.ClickException
    # click 8.1 prints the help itself
    NoArgsIsHelpError = getattr(
        _exceptions, "NoArgsIsHelpError", type("NoArgsIsHelpError", (UsageError,), {})
    )
    NoSuchOption = _exceptions.NoSuchOption
    HelpFormatter = import_module(f"{_home}.formatting").HelpFormatter
    CompletionItem = import_module(f"{_home}.shell_completion").CompletionItem

__all__ = [
    "BadParameter",
    "ClickException",
    "Command",
    "CompletionItem",
    "Context",
    "HelpFormatter",
    "NoArgsIsHelpError",
    "NoSuchOption",
    "ParameterSource",
    "UsageError",
]

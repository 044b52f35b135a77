"""The ``lakeplan`` command: builds the command tree and turns every error into one readable message."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from types import FrameType
from typing import NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from lakeplan import __version__
from lakeplan.cli import click
from lakeplan.cli.commands import PANELS, RENAMED, SHORT_HELP, Commands, hide_types
from lakeplan.cli.console import print_error, redacted_message, text_of, trace_of
from lakeplan.errors import ConfigError, ExitCode, LakeplanError, UsageError
from lakeplan.values.local import safe_environment, set_environment

_log = logging.getLogger("lakeplan")


class _Lakeplan(TyperGroup):
    """The command line, whose commands are imported when they are needed."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Typer's panels, from the commands' names alone, so that nothing is imported."""
        shown = TyperGroup(
            name=self.name,
            help=self.help,
            params=self.params,
            commands={
                name: TyperCommand(name, short_help=text, rich_help_panel=panel)
                for panel, commands in PANELS.items()
                for name, text in commands.items()
            },
            rich_markup_mode="rich",
        )
        hide_types(shown.get_params(ctx))
        shown.format_help(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.CompletionItem]:
        items = [
            click.CompletionItem(name, help=SHORT_HELP[name])
            for name in SHORT_HELP
            if name.startswith(incomplete)
        ]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


def build_app() -> typer.Typer:
    app = typer.Typer(
        name="lakeplan",
        cls=_Lakeplan,
        help="See what lakeFS garbage collection will delete, and change retention rules by pull request.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
    ) -> None:
        if version:
            typer.echo(f"lakeplan {__version__}")
            raise typer.Exit
        if context.invoked_subcommand is None:
            raise click.UsageError("Missing command.", ctx=context)

    return app


@cache
def whole_command() -> click.Command:
    """The command line, built once per process."""
    command = get_command(build_app())
    assert isinstance(command, TyperGroup)
    command.commands = Commands()  # type: ignore[assignment]  # it gives commands only, whatever lies in it
    return command


_NO_THREAD = "can't start new thread"
"""Python's text when a limit of processes is reached."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Never raises, never prints a traceback unless
    ``--log-level debug`` asked for it."""
    try:
        command = whole_command()
        code = command.main(args=list(arguments), prog_name="lakeplan", standalone_mode=False)
        sys.stdout.flush()  # a failure to write is an error of the command
    except click.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.UsageError as error:
        _explain_usage(error, whole_command(), arguments)
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        print_error(error.format_message())
        return ExitCode.ERROR
    except LakeplanError as error:
        _explain(error)
        return error.exit_code
    except (BrokenPipeError, SystemExit):
        # The reader of our output (head, less) has exited; typer turns that into SystemExit. Nothing more can
        # be printed. The code is not 0, because a gate may have refused after the reader exited.
        return ExitCode.ERROR
    except Exception as error:  # noqa: BLE001 - the last resort: people never see a traceback
        _log.debug("unexpected error\n%s", trace_of(error))
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            print_error(
                f"cannot write the output: {error.strerror}",
                hint="Check the space and permissions at the output location, then run the command again.",
            )
            return ExitCode.ERROR
        if isinstance(error, MemoryError) or str(error) == _NO_THREAD:
            print_error(
                "this machine ran out of memory or processes, so the command stopped partway",
                hint="Free up memory or raise the limit on processes, then run the same command again.",
            )
            return ExitCode.ERROR
        print_error(
            redacted_message(f"unexpected {type(error).__name__}: {text_of(error)}"),
            hint="This is a bug in lakeplan. Run the command again with --log-level debug, and report its"
            " output.",
        )
        return ExitCode.ERROR
    if code == ExitCode.INTERRUPTED:  # typer returns this code after Ctrl-C, and prints nothing
        print_error("interrupted", hint="Run the same command again to continue.")
    return code if isinstance(code, int) else ExitCode.OK


def _explain_usage(error: click.UsageError, command: click.Command, arguments: Sequence[str]) -> None:
    for old, hint in RENAMED.items():
        words = old.split()
        if [*arguments[: len(words)]] == words:
            print_error(f"the command `lakeplan {old}` was renamed", hint=hint)
            return
    where = error.ctx.command_path if error.ctx and error.ctx.parent else _named(command, arguments)
    message, meant = error.format_message(), ""
    if isinstance(error, click.NoSuchOption):
        near = get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.75)
        message, meant = error.message, f"Did you mean {near[0]}? " if near else ""
    elif isinstance(error, click.BadParameter):
        message += _from_environment(error)
    print_error(message, where=where, hint=f"{meant}Run `{where or 'lakeplan'} --help` for usage.")


def _named(command: click.Command, arguments: Sequence[str]) -> str:
    """The command at the start of a line, because the error for a missing value does not name it."""
    words = ["lakeplan"]
    for argument in arguments:
        if not isinstance(command, TyperGroup) or argument not in command.commands:
            break
        command = command.commands[argument]
        words.append(argument)
    return " ".join(words) if len(words) > 1 else ""


def _from_environment(error: click.BadParameter) -> str:
    """Names the variable that has a wrong value, because the person who reads this may not have set it."""
    context, parameter = error.ctx, error.param
    if context is None or parameter is None or parameter.name is None:
        return ""
    source = context.get_parameter_source(parameter.name)
    return f" (from {parameter.envvar})" if source is click.ParameterSource.ENVIRONMENT else ""


def _explain(error: LakeplanError) -> None:
    if error.detail:
        _log.debug("%s", error.detail)
    _log.debug("raised at\n%s", trace_of(error))
    problems = error.problems if isinstance(error, ConfigError) else ()
    print_error(
        redacted_message(error.message),
        where=redacted_message(error.where),
        hint=redacted_message(error.hint),
        problems=[redacted_message(problem) for problem in problems],
    )


def interrupt_on_sigterm() -> None:
    """On a terminal, SIGTERM ends a command like Ctrl-C: bars disappear and the cursor comes back. A second
    SIGTERM ends it immediately. Elsewhere, SIGTERM has its default effect."""
    if not sys.stderr.isatty():
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def open_standard_streams() -> None:
    """Opens standard streams that the caller closed, such as with ``2>&-``, so that no other file gets their
    numbers."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115 - until the end
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def main() -> None:
    open_standard_streams()
    interrupt_on_sigterm()
    try:
        set_environment(safe_environment(os.environ))
    except UsageError as error:
        _explain(error)
        sys.exit(error.exit_code)
    _end_at_once(run(sys.argv[1:]))


def _end_at_once(code: int) -> NoReturn:
    """Ends the process without waiting for threads. After Ctrl-C, some still read, and Python would wait for
    them. Threads of libraries can also fail while Python shuts down, so that a successful apply would end
    with an error."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)

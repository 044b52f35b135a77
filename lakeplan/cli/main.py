"""The ``lakeplan`` command: builds the command tree and turns every error into one readable message."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache

import click
import typer
from click.core import ParameterSource
from typer.main import get_command

from lakeplan import __version__
from lakeplan.cli import redaction
from lakeplan.cli.commands import COMMANDS
from lakeplan.cli.console import print_error
from lakeplan.cli.stopping import interrupt_on_sigterm
from lakeplan.core.processes import safe_environment, set_environment
from lakeplan.errors import ConfigError, ExitCode, LakeplanError, UsageError

_log = logging.getLogger("lakeplan")
ENVIRONMENT = "LAKEPLAN_LOG_LEVEL=info in the environment is --log-level info, and so on."


def build_app() -> typer.Typer:
    app = typer.Typer(
        name="lakeplan",
        help="Retention of lakeFS repositories as reviewed code: plan, simulate, apply.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def root(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
    ) -> None:
        if version:
            typer.echo(f"lakeplan {__version__}")
            raise typer.Exit
        if context.invoked_subcommand is None:
            raise click.UsageError("Missing command.", ctx=context)

    for register in COMMANDS:
        register(app)
    return app


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


@cache
def whole_command() -> click.Command:
    """The command line, built once a process."""
    return with_environment(get_command(build_app()))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Never raises, never prints a traceback unless
    ``--log-level debug`` asked for it."""
    redaction.forget()
    try:
        command = whole_command()
        code = command.main(args=list(arguments), prog_name="lakeplan", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.UsageError as error:
        _explain_usage(error, whole_command(), arguments)
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        print_error(error.format_message())
        return ExitCode.ERROR
    except LakeplanError as error:
        _explain(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output (head, less) went away: not an error, and nothing more can be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception as error:  # noqa: BLE001 - the last resort: a person never meets a traceback
        _log.debug("unexpected error\n%s", traceback.format_exc())
        print_error(
            f"unexpected {type(error).__name__}: {error}",
            hint="this is a bug in lakeplan: run again with --log-level debug and report what it prints",
        )
        return ExitCode.ERROR
    if code == ExitCode.INTERRUPTED:  # typer makes this code of Ctrl-C, and says nothing
        print_error("interrupted", hint="run the same command again to go on")
    return code if isinstance(code, int) else ExitCode.OK


def _explain_usage(error: click.UsageError, command: click.Command, arguments: Sequence[str]) -> None:
    where = error.ctx.command_path if error.ctx and error.ctx.parent else _named(command, arguments)
    message, meant = error.format_message(), ""
    if isinstance(error, click.NoSuchOption):
        near = get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.75)
        message, meant = error.message, f"did you mean {near[0]}? " if near else ""
    elif isinstance(error, click.BadParameter):
        message += _from_environment(error)
    print_error(message, where=where, hint=f"{meant}{where or 'lakeplan'} --help lists what it takes")


def _named(command: click.Command, arguments: Sequence[str]) -> str:
    """The command that a line begins with; an option without its value is an error that does not say."""
    words = ["lakeplan"]
    for argument in arguments:
        if not isinstance(command, click.Group) or argument not in command.commands:
            break
        command = command.commands[argument]
        words.append(argument)
    return " ".join(words) if len(words) > 1 else ""


def _from_environment(error: click.BadParameter) -> str:
    """Names the variable that holds a wrong value: who set it may not be who reads this."""
    context, parameter = error.ctx, error.param
    if context is None or parameter is None or parameter.name is None:
        return ""
    source = context.get_parameter_source(parameter.name)
    return f" (from {parameter.envvar})" if source is ParameterSource.ENVIRONMENT else ""


def _explain(error: LakeplanError) -> None:
    if error.detail:
        _log.debug("%s", error.detail)
    _log.debug("raised at\n%s", "".join(traceback.format_exception(error)))
    problems = error.problems if isinstance(error, ConfigError) else ()
    told = redaction.told
    print_error(
        told(error.message),
        where=told(error.where),
        hint=told(error.hint),
        problems=[told(problem) for problem in problems],
    )


def main() -> None:
    interrupt_on_sigterm()
    try:
        set_environment(safe_environment(os.environ))
    except UsageError as error:
        _explain(error)
        sys.exit(error.exit_code)
    sys.exit(run(sys.argv[1:]))

"""Makes commands of functions, and declares the options that several commands share. Options that make one
value together are a group."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from lakeplan.cli import click
from lakeplan.cli.console import configure_logging, remember_redaction
from lakeplan.cli.formats import formats_of
from lakeplan.cli.outputs import Outputs, pair_outputs
from lakeplan.cli.progress import progress_for
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.simulation.runners import Runners
from lakeplan.values.gates import GATES
from lakeplan.values.progress import Progress

if TYPE_CHECKING:
    from lakeplan.tree.tree import Tree


@dataclass(frozen=True)
class Options:
    """A group: a parameter ``Annotated[Value, Options(make)]`` is the value that ``make`` returns, and
    declares the options that ``make`` takes. A parameter of ``make`` that declares no option is an option of
    the same command by its name; where the command has none, the default."""

    make: Callable[..., Any]

    @property
    def declared(self) -> list[Parameter]:
        """The options that typer reads, one parameter each, in the order of help."""
        parameters = []
        for parameter in self._parameters():
            declaration = _declaration(parameter)
            if isinstance(declaration, Options):
                parameters += declaration.declared
            elif declaration is not None:
                parameters.append(_named(parameter, declaration))
        return parameters

    def value(self, given: Mapping[str, Any]) -> Any:
        """``given``: every option of the command by its name."""
        values = {}
        for parameter in self._parameters():
            declaration = _declaration(parameter)
            if isinstance(declaration, Options):
                values[parameter.name] = declaration.value(given)
            elif parameter.name in given:
                values[parameter.name] = given[parameter.name]
        return self.make(**values)

    def _parameters(self) -> Iterator[Parameter]:
        hints = get_type_hints(self.make, include_extras=True)
        for name, parameter in inspect.signature(self.make).parameters.items():
            yield parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)


def _declaration(parameter: Parameter) -> Options | ParameterInfo | None:
    metadata = getattr(parameter.annotation, "__metadata__", ())
    return next((one for one in metadata if isinstance(one, (Options, ParameterInfo))), None)


def _named(parameter: Parameter, declaration: ParameterInfo) -> Parameter:
    """Return the parameter with the name of its option, made of the parameter's name if the declaration gives
    none. typer would do the same, but it also adds ``--no-NAME`` to every flag."""
    if not isinstance(declaration, OptionInfo) or declaration.param_decls or declaration.default is not ...:
        return parameter
    named = copy(declaration)
    named.param_decls = (f"--{parameter.name.replace('_', '-')}",)
    return parameter.replace(annotation=Annotated[parameter.annotation.__origin__, named])


def option(help: str, metavar: str | None = None, names: tuple[str, ...] = (), **more: Any) -> OptionInfo:
    """An option of a command, which has the name of its parameter (``--min-age`` of ``min_age``) unless
    ``names`` gives others. ``more``: further arguments of ``typer.Option``."""
    declared: OptionInfo = typer.Option(..., *names, help=help, metavar=metavar, **more)
    return declared


def argument(help: str, metavar: str, **more: Any) -> ArgumentInfo:
    """An argument of a command. ``more``: further arguments of ``typer.Argument``."""
    declared: ArgumentInfo = typer.Argument(help=help, metavar=metavar, **more)
    return declared


# ---- names of a tree, for shells
def complete_repositories(context: typer.Context) -> list[str]:
    """Entries of the tree by name, with their server if two servers have the name."""
    tree = _tree(context)
    if tree is None:
        return []
    names = [entry.name for entry in tree.entries if not entry.is_glob]
    return sorted({n for name in names for n in _written(tree, name)})


def complete_targets(context: typer.Context) -> list[str]:
    """Return the values of ``--target``: repositories, and the globs of the tree."""
    tree = _tree(context)
    globs = [] if tree is None else [entry.name for entry in tree.entries if entry.is_glob]
    return [*complete_repositories(context), *sorted(set(globs))]


def complete_allow(context: typer.Context) -> list[str]:
    """Return the values of ``--allow``: gates, and gates of one repository."""
    gates = [gate.name for gate in GATES.values() if gate.allow]
    return [
        *gates,
        *(f"{repository}={gate}" for repository in complete_repositories(context) for gate in gates),
    ]


def complete_servers(context: typer.Context) -> list[str]:
    tree = _tree(context)
    return [] if tree is None else list(tree.servers)


def _written(tree: Tree, name: str) -> list[str]:
    servers = tree.servers_of(name)
    return [name] if len(servers) < 2 else [f"{server}/{name}" for server in servers]


def _tree(context: typer.Context) -> Tree | None:
    """None for a tree with problems: a shell cannot show them."""
    # Imported here because every command has these completions, but most invocations complete nothing.
    from lakeplan.tree.tree import load_tree

    try:
        return load_tree(Path(context.params.get("tree") or "."), os.environ)
    except LakeplanError:
        return None


# ---- options of several commands
Repository = Annotated[
    str, argument("Repository: name or server/name.", "REPO", autocompletion=complete_repositories)
]
TreeDir = Annotated[Path, option("Folder that contains lakeplan.yaml.", "DIR", names=("-C", "--tree"))]
Targets = Annotated[
    list[str] | None,
    option(
        "Only repositories that match this glob. Repeatable.", "REPO_GLOB", autocompletion=complete_targets
    ),
]
Owner = Annotated[str | None, option("Only repositories of this owner.", "OWNER")]
Server = Annotated[
    str | None, option("Only repositories on this server.", "NAME", autocompletion=complete_servers)
]
Formats = list[str] | None
Outs = Annotated[
    list[Path] | None,
    option("File to write, or - for standard output. Pass one --out for each --format.", "FILE"),
]
AsOf = Annotated[
    str | None, option("Point in time to evaluate: ISO 8601 or epoch seconds. Default: now.", "TIME")
]
RedactPaths = Annotated[bool, option("Replace object paths, prefixes and storage URLs with short digests.")]
LakectlConfig = Annotated[
    Path | None,
    option("lakectl configuration file to read credentials from, for a tree with one server.", "FILE"),
]
ReadOnly = Annotated[
    bool, option("Send only GET requests. No refs dump is requested, so dangling commits are omitted.")
]
Master = Annotated[str | None, option("Spark master. Default: local[*].", "URL")]
SparkConf = Annotated[list[str] | None, option("Spark setting in the form KEY=VALUE. Repeatable.", "K=V")]
SparkHome = Annotated[
    str | None,
    option(
        "Folder of a Spark installation whose version matches pyspark's. The environment variable"
        " SPARK_HOME is ignored.",
        "FOLDER",
    ),
]
ConnectTimeout = Annotated[
    float, option("Seconds to wait for a connection to a server or a store.", "SECONDS", min=0.1)
]
ReadTimeout = Annotated[
    float, option("Seconds to wait for a response from a server or a store.", "SECONDS", min=0.1)
]


def formats(names: Sequence[str]) -> OptionInfo:
    """The option ``--format`` of a command with these formats."""
    option: OptionInfo = typer.Option(
        "--format",
        help=f"Output format: {', '.join(names)}. Repeatable. If you pass several formats, pass one --out for"
        " each.",
        metavar="FORMAT",
        autocompletion=lambda: list(names),
    )
    return option


def documents(kind: str, *others: str) -> Options:
    """The options ``--format`` and ``--out`` of a command whose documents are of this ``kind``. ``others``
    are kinds that the command writes with some of its options. It refuses their formats without these
    options."""
    names = tuple(dict.fromkeys(name for each in (kind, *others) for name in formats_of(each)))

    def outputs(
        format: Formats = None,
        out: Outs = None,
        no_color: bool = False,
        redact_paths: bool = False,
        quiet: bool = False,
    ) -> Outputs:
        return Outputs(pair_outputs(format, out, names, quiet=quiet), no_color, redact_paths, kind, quiet)

    outputs.__annotations__["format"] = Annotated[Formats, formats(names)]
    return Options(outputs)


def common_options(
    redact_paths: RedactPaths = False,
    no_color: Annotated[bool, option("Disable colors.")] = False,
    no_progress: Annotated[bool, option("Disable progress bars.")] = False,
    log_level: Annotated[str, option("Log level: debug, info, warning or error.", "LEVEL")] = "warning",
    quiet: Annotated[
        bool, option("Print only errors and the documents requested with --format.", names=("-q", "--quiet"))
    ] = False,
) -> None:
    """The options that nearly every command has, after those of the command."""


def _bars(no_progress: bool, quiet: bool, no_color: bool = False) -> Progress:
    return progress_for(shown=not (no_progress or quiet), no_color=no_color)


ProgressOptions = Annotated[Progress, Options(_bars)]


def check_spark_home(folder: str | None) -> str | None:
    """Return the path if it is absolute. Raises UsageError for a relative path: it could name a program in
    the checkout, which is untrusted."""
    if folder is not None and not os.path.isabs(folder):
        raise UsageError(f"--spark-home {folder!r} is a relative path", hint="Use an absolute path.")
    return folder


def one_of(what: str, text: str, words: Sequence[Any]) -> Any:
    """Return the text if it is one of these words. Raises UsageError otherwise."""
    if text not in words:
        raise UsageError(f"unknown {what} {text!r}", hint=f"Use one of {', '.join(words)}.")
    return text


def parse_spark_conf(settings: Sequence[str] | None, option: str = "--spark-conf") -> dict[str, str]:
    """Parse the ``KEY=VALUE`` pairs of an option. Raises UsageError."""
    values = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"{option} {setting!r} is not in the form KEY=VALUE",
                hint=f"For example, use {option} spark.executor.memory=4g.",
            )
        values[key.strip()] = value
    return values


def runners(
    runner: Annotated[
        str | None,
        option(
            "Where data is read: local (threads of this process), spark or auto. Default: the tree's"
            " setting, or auto if it has none.",
            "RUNNER",
        ),
    ] = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    spark_home: SparkHome = None,
) -> Runners:
    """The runner and its Spark options. Raises UsageError for a setting that Spark cannot use."""
    return Runners(runner, master, tuple(parse_spark_conf(spark_conf).items()), check_spark_home(spark_home))


RunnerOptions = Annotated[Runners, Options(runners)]


_IN_THE_TREE = "Add the gate to `overrides` in the tree, and have the change reviewed."


def _allow_option(text: str) -> Any:
    return typer.Option("--allow", help=text, metavar="[REPOSITORY=]GATE", autocompletion=complete_allow)


def _check_allowed(allow: Sequence[str] | None) -> frozenset[str]:
    """The gates to override, each as given. Raises UsageError for an unknown gate, with the nearest
    name. The command checks whether the repositories are in the run."""
    for given in allow or ():
        repository, separator, name = given.rpartition("=")
        if separator and not repository:
            raise UsageError(
                f"--allow {given!r} has no repository before the equals sign",
                hint=f"Use --allow {name} or --allow REPOSITORY={name}",
            )
        if name not in GATES:
            near = difflib.get_close_matches(name, GATES, n=1)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(f"unknown gate {name!r}", hint=f"{meant}Use one of {', '.join(GATES)}.")
        if not GATES[name].allow:
            raise UsageError(f"--allow cannot override the {name} gate", hint=_IN_THE_TREE)
    return frozenset(allow or ())


def _allowed_in_preview(
    allow: Annotated[
        list[str] | None,
        _allow_option("Preview the plan with this gate overridden. Has no effect on apply. Repeatable."),
    ] = None,
) -> frozenset[str]:
    return _check_allowed(allow)


def _allowed_here(
    allow: Annotated[
        list[str] | None,
        _allow_option(
            "Override this gate. Works only at a terminal. If the gate refuses several repositories, pass"
            " REPOSITORY=GATE for each of them. Repeatable."
        ),
    ] = None,
) -> frozenset[str]:
    allowed = _check_allowed(allow)
    if allowed and not sys.stdin.isatty():
        raise UsageError("--allow works only at a terminal", hint=_IN_THE_TREE)
    return allowed


AllowedInPreview = Annotated[frozenset[str], Options(_allowed_in_preview)]
"""``--allow`` of commands that only plan."""
AllowedHere = Annotated[frozenset[str], Options(_allowed_here)]
"""``--allow`` of commands that write or delete."""


# ---- commands
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
            remember_redaction(given.get("redact_paths", False))
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
        return Command(function, help or inspect.getdoc(function) or "", short_help, kept)

    return made

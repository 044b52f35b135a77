"""``commands.md``: every command, out of the command line itself.

What the exit codes of a command mean is declared here. Codes that every command may return (0 success,
1 error, 64 usage error, 130 interrupted) are listed only where they mean something more specific.
"""

from __future__ import annotations

import inspect
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from typer.core import TyperArgument, TyperGroup, TyperOption

from lakeplan.cli import click
from lakeplan.cli.main import whole_command
from lakeplan.errors import ExitCode
from tools.reference.markdown import GENERATED, anchor, block, code, table

EVERY: Mapping[ExitCode, str] = {
    ExitCode.OK: "success",
    ExitCode.ERROR: "error",
    ExitCode.CHANGES_PENDING: "changes are pending, or drift was found; only with an option that enables it",
    ExitCode.PARTLY_DONE: "partly done: some repositories, branches or objects failed",
    ExitCode.REFUSED: "refused by a gate",
    ExitCode.STALE: "stale: something changed since it was read, or another run holds the lease",
    ExitCode.USAGE: "usage error, or no such repository, run or mark",
    ExitCode.INTERRUPTED: "interrupted",
}

_PLANNED = {
    ExitCode.ERROR: "no repository could be planned",
    ExitCode.PARTLY_DONE: "some repositories could not be planned",
    ExitCode.REFUSED: "a gate refused",
}

EXITS: Mapping[str, Mapping[ExitCode, str]] = {
    "validate": {ExitCode.ERROR: "the tree has problems"},
    "test": {ExitCode.ERROR: "a test failed"},
    "plan": {**_PLANNED, ExitCode.CHANGES_PENDING: "with `--detailed-exitcode`: changes are pending"},
    "report": {ExitCode.PARTLY_DONE: "some histories or curves are missing from the page"},
    "apply": {
        ExitCode.ERROR: "not approved, or nothing could be written",
        ExitCode.PARTLY_DONE: "some writes failed, and the other writes succeeded",
        ExitCode.REFUSED: "a gate refused, or more would be deleted than was reviewed; nothing was written",
        ExitCode.STALE: "the tree or the stored rules have changed since the plan, or another run is writing",
    },
    "branches plan": {
        **_PLANNED,
        ExitCode.CHANGES_PENDING: "with `--detailed-exitcode`: branches would be deleted",
    },
    "branches run": {
        ExitCode.ERROR: "every repository failed",
        ExitCode.PARTLY_DONE: "some repositories or branches failed, or the run was stopped",
        ExitCode.REFUSED: "a gate refused; no branch of that repository was deleted",
        ExitCode.STALE: "another run holds the lease",
    },
    "branches undo": {
        ExitCode.ERROR: "nothing could be restored",
        ExitCode.PARTLY_DONE: "some branches could not be restored",
    },
    "sweep mark": {
        ExitCode.PARTLY_DONE: "some repositories were not marked",
        ExitCode.STALE: "every selected repository changed while it was marked",
    },
    "sweep approve": {
        ExitCode.REFUSED: "a gate refused, or the mark cannot be approved",
        ExitCode.STALE: "the files of the mark were changed",
    },
    "sweep run": {
        ExitCode.ERROR: "the sweep could not start",
        ExitCode.PARTLY_DONE: "a deletion failed, a deleted object is needed, or the sweep is not finished",
        ExitCode.REFUSED: "the mark is not approved, it is too early to delete, a gate refused, or lakeFS's"
        " own collector would delete a needed object",
        ExitCode.STALE: "the mark has changed or is too old, or the rules have changed or another collector"
        " has run since the mark",
    },
    "sweep abort": {
        ExitCode.PARTLY_DONE: "a deleted object is needed again, or could not be inspected",
        ExitCode.STALE: "another run holds the lease",
    },
    "sweep restore": {
        ExitCode.PARTLY_DONE: "some objects could not be restored",
        ExitCode.STALE: "the files of the mark were changed, or another run holds the lease",
    },
    "sweep purge": {
        ExitCode.ERROR: "not approved",
        ExitCode.PARTLY_DONE: "some copies could not be deleted, or a needed object is missing",
        ExitCode.STALE: "another run holds the lease",
    },
    "sweep list": {ExitCode.PARTLY_DONE: "with `--collector-runs`: some repositories could not be read"},
    "drift": {
        ExitCode.ERROR: "no repository could be compared",
        ExitCode.CHANGES_PENDING: "drift of a class in `--fail-on` was found",
        ExitCode.PARTLY_DONE: "some repositories could not be compared",
    },
    "history list": {ExitCode.PARTLY_DONE: "a record is damaged; the other records are listed"},
    "history rollback": {
        **_PLANNED,
        ExitCode.STALE: "the tree must be edited first; the edits are printed",
    },
    "import": {ExitCode.PARTLY_DONE: "the rules of some repositories cannot be read or expressed in a tree"},
    "doctor": {ExitCode.ERROR: "a check failed; warnings do not count"},
}
"""By the command's name without ``lakeplan``."""


AS_IT_STANDS = "\b"
"""The first line of a paragraph that click does not wrap."""
EXAMPLES = "Examples:"


@dataclass(frozen=True)
class HelpText:
    """``paragraphs``: text, and whether it is shown as it stands. ``examples``: command lines."""

    paragraphs: tuple[tuple[str, bool], ...]
    examples: str = ""

    @property
    def summary(self) -> str:
        """The first paragraph in one line."""
        return " ".join(self.paragraphs[0][0].split()) if self.paragraphs else ""

    def markdown(self) -> Iterator[str]:
        for text, as_it_stands in self.paragraphs:
            yield block(text) if as_it_stands else text


def split_help(text: str) -> HelpText:
    paragraphs: list[tuple[str, bool]] = []
    prose, _, examples = inspect.cleandoc(text).partition(EXAMPLES)
    for paragraph in prose.split("\n\n"):
        as_it_stands = paragraph.startswith(AS_IT_STANDS)
        body = paragraph.removeprefix(AS_IT_STANDS).strip("\n")
        if body.strip():
            paragraphs.append((body, as_it_stands))
    lines = [line for line in examples.splitlines() if line.strip()]
    return HelpText(tuple(paragraphs), textwrap.dedent("\n".join(lines)))


PROGRAM = "lakeplan"
COMMON = 4
"""An option that so many commands share, word for word, is described once."""

_HEAD = f"""{GENERATED}

# Commands

`lakectl lakeplan …` is the same as `lakeplan …` if `lakectl-lakeplan` is on the PATH.
[Concepts](concepts.md) explains terms such as *gate* and *mark*. [Settings](settings.md) lists every key
in the tree.

Each option can also be set with the environment variable in its row. The command line takes precedence.
For a repeatable option, the variable can hold several values, separated by spaces, or by `:` if the values
are file paths. [Settings](settings.md#environment-variables) lists other variables.

Each `--out` belongs to the `--format` in the same position: `--format json --out plan.json --format
markdown` writes JSON to a file and prints Markdown. `--out FILE` alone writes JSON. If every format goes to
a file, the result is also printed for people, unless `--quiet` is given."""


@dataclass(frozen=True)
class Leaf:
    """A command that does something. ``name`` is without the program's."""

    name: str
    command: click.Command
    usage: str
    help: HelpText

    @property
    def options(self) -> list[TyperOption]:
        return [p for p in self.command.params if isinstance(p, TyperOption) and not p.hidden]

    @property
    def arguments(self) -> list[TyperArgument]:
        return [p for p in self.command.params if isinstance(p, TyperArgument)]


def leaves(command: click.Command, parents: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Every command that is not a group, in the order in which help lists them."""
    path = (*parents, command.name or "") if parents else (PROGRAM,)
    if isinstance(command, TyperGroup):
        for child in command.commands.values():
            yield from leaves(child, path)
        return
    context = click.Context(command, info_name=" ".join(path))
    usage = " ".join([*path, *command.collect_usage_pieces(context)])
    yield Leaf(" ".join(path[1:]), command, usage, split_help(command.help or ""))


def commands_page() -> str:
    """The page as it is in ``docs``."""
    whole = whole_command()
    every = list(leaves(whole))
    shared = _shared(every)
    parts = [_HEAD, "## Index", _index(every), "## Shared options", _options(shared.values())]
    parts += ["## Exit codes", _exits(EVERY)]
    groups = _groups(whole)
    for leaf in every:
        if (group := leaf.name.split()[0]) in groups:
            parts += [f"## {PROGRAM} {group}", groups.pop(group)]
        parts += _command(leaf, shared)
    return "\n\n".join(parts) + "\n"


def _groups(command: click.Command) -> dict[str, str]:
    """The help of every group of commands, by its name."""
    assert isinstance(command, TyperGroup)
    return {n: c.help or "" for n, c in command.commands.items() if isinstance(c, TyperGroup)}


def _shared(every: Iterable[Leaf]) -> Mapping[str, TyperOption]:
    """Options that are the same in many commands, by ``_identity``, in the order of their names."""
    found = [(_identity(option), option) for leaf in every for option in leaf.options]
    options, often = dict(found), Counter(key for key, _ in found)
    return {key: options[key] for key in sorted(options, key=_by_name) if often[key] >= COMMON}


def _by_name(identity: str) -> str:
    return identity[identity.index("--") :]


def _identity(option: TyperOption) -> str:
    return "|".join((*option.opts, str(option.metavar), str(option.help)))


def _index(every: Iterable[Leaf]) -> str:
    rows = [(f"[{leaf.name}](#{anchor(_heading(leaf))})", leaf.help.summary) for leaf in every]
    return table(("command", "what it does"), rows)


def _heading(leaf: Leaf) -> str:
    return f"{PROGRAM} {leaf.name}"


def _command(leaf: Leaf, shared: Mapping[str, TyperOption]) -> Iterator[str]:
    yield f"## {_heading(leaf)}"
    yield block(leaf.usage)
    yield from leaf.help.markdown()
    if leaf.help.examples:
        yield "Examples:\n\n" + block(leaf.help.examples)
    if leaf.arguments:
        yield table(("argument", "meaning"), [(code(_shown(a)), _meaning(a)) for a in leaf.arguments])
    own = [o for o in leaf.options if _identity(o) not in shared]
    if own:
        yield _options(own)
    common = [o for o in leaf.options if _identity(o) in shared]
    if common:
        names = ", ".join(code(_names(o)) for o in common)
        yield f"[Shared options](#shared-options): {names}."
    if leaf.name in EXITS:
        yield _exits(EXITS[leaf.name])


def _shown(argument: TyperArgument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _meaning(parameter: TyperOption | TyperArgument) -> str:
    return str(getattr(parameter, "help", None) or "")


def _options(options: Iterable[TyperOption]) -> str:
    headers = ("option", "default", "variable", "meaning")
    rows = [(code(_with_metavar(o)), _default(o), code(str(o.envvar or "")), _text(o)) for o in options]
    return table(headers, rows)


def _names(option: TyperOption) -> str:
    return ", ".join(option.opts)


def _with_metavar(option: TyperOption) -> str:
    if option.is_flag:
        return _names(option)
    return f"{_names(option)} {option.metavar}"


def _default(option: TyperOption) -> str:
    if option.required:
        return "required"
    hidden = option.is_flag or option.show_default is False or option.default is None
    return "" if hidden else code(str(option.default))


def _text(option: TyperOption) -> str:
    if "--format" in option.opts:  # the page's head says how formats and files go together
        return _meaning(option).partition(" Repeatable")[0]
    limits = getattr(option, "type", option)  # from 0.26 on typer's options have them themselves
    least, most = (getattr(limits, name, None) for name in ("min", "max"))
    if least is not None:
        ends = "" if most is None else f", at most {most}"
        return f"{_meaning(option)} At least {least}{ends}."
    return _meaning(option)


def _exits(codes: Mapping[ExitCode, str]) -> str:
    return table(("exit", "when"), [(str(int(number)), codes[number]) for number in sorted(codes)])

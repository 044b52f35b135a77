"""``commands.md``: every command, out of the command line itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import click

from lakeplan.cli.main import whole_command
from lakeplan.errors import ExitCode
from tools.reference.help_text import HelpText, split_help
from tools.reference.markdown import GENERATED, anchor, block, code, table
from tools.reference.outcomes import EVERY, EXITS

PROGRAM = "lakeplan"
COMMON = 10
"""An option that so many commands share, word for word, is described once."""

_HEAD = f"""{GENERATED}

# Commands

`lakectl lakeplan …` is the same as `lakeplan …` where `lakectl` finds `lakectl-lakeplan` on the PATH.
What a word such as *gate* or *mark* means stands in [concepts](concepts.md), each key of the tree in
[settings](settings.md).

An option can also be set by the variable beside it; the command line wins. Where an option is repeatable
its variable takes several values with white space between them, and of files those that the PATH's sign
(`:`) stands between. All other variables stand in [settings](settings.md#environment-variables).

`--format` and `--out` go in pairs: `--format json --out plan.json --format markdown` writes one to a file
and prints the other. `--out FILE` alone is JSON. Where all goes to files people are shown it too, unless
`--quiet`."""


@dataclass(frozen=True)
class Leaf:
    """A command that does something. ``name`` is without the program's."""

    name: str
    command: click.Command
    usage: str
    help: HelpText

    @property
    def options(self) -> list[click.Option]:
        return [p for p in self.command.params if isinstance(p, click.Option)]

    @property
    def arguments(self) -> list[click.Argument]:
        return [p for p in self.command.params if isinstance(p, click.Argument)]


def leaves(command: click.Command, parents: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Every command that is no group, in the order in which help lists them."""
    path = (*parents, command.name or "") if parents else (PROGRAM,)
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from leaves(child, path)
        return
    context = click.Context(command, info_name=" ".join(path))
    usage = " ".join([*path, *command.collect_usage_pieces(context)])
    yield Leaf(" ".join(path[1:]), command, usage, split_help(command.help or ""))


def commands_page() -> str:
    """The page as it lies in ``docs``."""
    whole = whole_command()
    every = list(leaves(whole))
    shared = _shared(every)
    parts = [_HEAD, "## Index", _index(every), "## Options of many commands", _options(shared.values())]
    parts += ["## Exit codes", _exits(EVERY)]
    groups = _groups(whole)
    for leaf in every:
        if (group := leaf.name.split()[0]) in groups:
            parts += [f"## {PROGRAM} {group}", groups.pop(group)]
        parts += _command(leaf, shared)
    return "\n\n".join(parts) + "\n"


def _groups(command: click.Command) -> dict[str, str]:
    """The help of every group of commands, by its name."""
    assert isinstance(command, click.Group)
    return {n: c.help or "" for n, c in command.commands.items() if isinstance(c, click.Group)}


def _shared(every: Iterable[Leaf]) -> Mapping[str, click.Option]:
    """Options that are the same in many commands, by ``_identity``, in the order of their names."""
    found = [(_identity(option), option) for leaf in every for option in leaf.options]
    options, often = dict(found), Counter(key for key, _ in found)
    return {key: options[key] for key in sorted(options, key=_by_name) if often[key] >= COMMON}


def _by_name(identity: str) -> str:
    return identity[identity.index("--") :]


def _identity(option: click.Option) -> str:
    return "|".join((*option.opts, str(option.metavar), str(option.help)))


def _index(every: Iterable[Leaf]) -> str:
    rows = [(f"[{leaf.name}](#{anchor(_heading(leaf))})", leaf.help.summary) for leaf in every]
    return table(("command", "what it does"), rows)


def _heading(leaf: Leaf) -> str:
    return f"{PROGRAM} {leaf.name}"


def _command(leaf: Leaf, shared: Mapping[str, click.Option]) -> Iterator[str]:
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
        yield f"Also, as [many commands](#options-of-many-commands): {names}."
    if leaf.name in EXITS:
        yield _exits(EXITS[leaf.name])


def _shown(argument: click.Argument) -> str:
    # click's own way to say which arguments may be left out or repeated
    return argument.make_metavar(click.Context(click.Command("")))


def _meaning(parameter: click.Parameter) -> str:
    return str(getattr(parameter, "help", None) or "")


def _options(options: Iterable[click.Option]) -> str:
    headers = ("option", "default", "variable", "meaning")
    rows = [(code(_with_metavar(o)), _default(o), code(str(o.envvar or "")), _text(o)) for o in options]
    return table(headers, rows)


def _names(option: click.Option) -> str:
    return ", ".join(option.opts)


def _with_metavar(option: click.Option) -> str:
    if option.is_flag:
        return _names(option)
    return f"{_names(option)} {option.metavar or option.type.name.upper().split(' ')[0]}"


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    hidden = option.is_flag or option.show_default is False or option.default is None
    return "" if hidden else code(str(option.default))


def _text(option: click.Option) -> str:
    limits = option.type
    if isinstance(limits, click.IntRange | click.FloatRange) and limits.min is not None:
        most = "" if limits.max is None else f", at most {limits.max}"
        return f"{_meaning(option)} At least {limits.min}{most}."
    return _meaning(option)


def _exits(codes: Mapping[ExitCode, str]) -> str:
    return table(("exit", "when"), [(str(int(number)), codes[number]) for number in sorted(codes)])

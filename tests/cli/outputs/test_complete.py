"""No command is left out: each has outputs, wrong uses, and help that a person can go by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from typer.core import TyperGroup

from lakeplan.cli import click
from lakeplan.cli.main import whole_command
from tests.cli.outputs.cases import CASES
from tests.cli.outputs.looks import looks
from tests.cli.outputs.site import Site
from tests.cli.outputs.wrong import WRONG


def _commands(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Name and command, groups first and then what is in them."""
    yield " ".join(path), command
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            yield from _commands(child, *path, name)


EVERY = dict(_commands(whole_command()))
LEAVES = [name for name, command in EVERY.items() if not isinstance(command, TyperGroup)]


def it_shows_the_output_of_every_command() -> None:
    assert {*CASES, "demo"} == set(
        LEAVES
    )  # its commands run in processes of their own: tests/e2e/test_demo.py


def it_uses_every_command_wrong_in_five_ways() -> None:
    assert set(WRONG) == set(LEAVES)
    few = {name: len(uses) for name, uses in WRONG.items() if len({u.line for u in uses.values()}) < 5}
    assert few == {}


def it_never_takes_a_wrong_use_for_a_right_one() -> None:
    assert all(use.code != 0 for uses in WRONG.values() for use in uses.values())


@pytest.mark.parametrize("name", EVERY)
def it_has_help_as_reviewed(
    name: str, open_site: Callable[[str], Site], golden_file: Callable[[str, str], None]
) -> None:
    told = open_site("empty").lakeplan(f"{name} --help".strip())
    assert (told.code, told.err) == (0, "")
    assert looks(told.out, 80) == []
    if name in LEAVES:
        assert f"\n    lakeplan {name.removesuffix(' list')}" in told.out, "an example"
    golden_file(f"{name.replace(' ', '-') or 'lakeplan'}/help", told.out)


@pytest.mark.parametrize("name", LEAVES)
def it_shows_examples_with_options_that_there_are(name: str) -> None:
    there = {option for parameter in EVERY[name].params for option in parameter.opts}
    examples = [
        line for line in (EVERY[name].help or "").splitlines() if line.startswith(f"  lakeplan {name} ")
    ]
    named = {word for line in examples for word in re.findall(r"(?<= )--?[a-zA-Z][a-z-]*", line)}
    assert named <= there

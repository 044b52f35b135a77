"""The page of commands has all of the command line."""

from __future__ import annotations

import pytest

from lakeplan.cli.main import whole_command
from lakeplan.errors import ExitCode
from tools.reference.commands import EVERY, EXITS, Leaf, commands_page, leaves, split_help

LEAVES = list(leaves(whole_command()))
PAGE = commands_page()


def section(leaf: Leaf) -> str:
    return PAGE.partition(f"\n## lakeplan {leaf.name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
class DescribeCommand:
    def it_has_a_section_and_a_line_of_the_index(self, leaf: Leaf) -> None:
        assert leaf.usage in section(leaf)
        assert f"| [{leaf.name}](#lakeplan-{leaf.name.replace(' ', '-')}) | {leaf.help.summary}" in PAGE

    def it_names_every_option_with_its_help_and_variable(self, leaf: Leaf) -> None:
        shared = PAGE.partition("## Shared options")[2].partition("\n## ")[0]
        for option in leaf.options:
            assert option.help, f"{leaf.name} {option.opts[0]} has no help"
            assert ", ".join(option.opts) in section(leaf)
            assert f"`{option.envvar}`" in section(leaf) + shared

    def it_says_what_every_argument_is(self, leaf: Leaf) -> None:
        for argument in leaf.arguments:
            assert getattr(argument, "help", None), f"{leaf.name} {argument.name} has no help"


def it_knows_every_exit_code() -> None:
    assert set(EVERY) == set(ExitCode)


def it_tells_exit_codes_of_commands_that_there_are() -> None:
    assert set(EXITS) <= {leaf.name for leaf in LEAVES}


def it_takes_help_apart() -> None:
    found = split_help("Does it.\n\n\b\nas it\n  stands\n\nMore\nwords.\n\n\b\nExamples:\n  a b\n  c\n")
    assert found.summary == "Does it."
    assert found.paragraphs == (("Does it.", False), ("as it\n  stands", True), ("More\nwords.", False))
    assert found.examples == "a b\nc"

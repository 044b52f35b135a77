"""The README is held against the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakeplan.cli.main import whole_command
from lakeplan.errors import ExitCode
from lakeplan.values.gates import GATES

FOLDER = Path(__file__).parents[2]
README = (FOLDER / "README.md").read_text()
COMMANDS = sorted(whole_command().commands)


@pytest.mark.parametrize("name", COMMANDS)
def it_documents_every_command(name):
    assert re.search(rf"lakeplan {name}\b", README), f"README.md does not mention lakeplan {name}"


@pytest.mark.parametrize("name", COMMANDS)
def it_has_help_for_every_command_and_option(name):
    command = whole_command().commands[name]
    assert command.help
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert parameter.help, f"{name} {parameter.opts[0]} has no help"


def it_names_no_command_that_does_not_exist():
    named = set(re.findall(r"(?:^|`|\n)lakeplan ([a-z]+)", README))
    assert named <= set(COMMANDS)


@pytest.mark.parametrize("gate", GATES)
def it_documents_every_gate_on_a_page_that_it_links_to(gate):
    assert "[Gates](docs/gates.md)" in README
    assert f"| `{gate}` |" in (FOLDER / "docs" / "gates.md").read_text()


@pytest.mark.parametrize("code", ExitCode)
def it_documents_every_exit_code_on_a_page_that_it_links_to(code):
    assert "[Commands](docs/commands.md)" in README
    assert f"| {int(code)} |" in (FOLDER / "docs" / "commands.md").read_text()

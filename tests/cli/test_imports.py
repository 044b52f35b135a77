"""A command line imports what it needs and no more: what is heavy, and which commands may have it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

from lakeplan.cli.commands import SHORT_HELP, Commands

HEAVY = {"azure", "boto3", "botocore", "cramjam", "jsonschema", "numba", "numpy", "obstore", "pandas"} | {
    "py4j",
    "pyarrow",
    "pyspark",
    "requests",
    "yaml",
}
TREE = {"jsonschema", "yaml"}
SERVER = TREE | {"numpy", "cramjam", "requests"}
MAY_IMPORT = {
    "--version": set(),
    "--help": set(),
    "schema": {"jsonschema"},
    "validate": TREE,
    "test": TREE,
    "spark": TREE,
    "simulate": TREE | {"numpy", "cramjam"},
    "show": TREE | {"numpy", "cramjam"},
    "apply": SERVER | {"pyarrow"},
    "audit": SERVER | {"pyarrow"},
    "check": SERVER | {"pyarrow"},
    "storage": SERVER | {"pyarrow"},
    "explain": SERVER | {"pyarrow"},
    "sweep": SERVER | {"pyarrow"},
    "sandbox": SERVER | {"pyarrow"},
    "demo": SERVER | {"pyarrow"},
}
"""For its help; all commands that are not here may have what speaking with a server needs."""


def imported(code: str) -> set[str]:
    code += "\nimport sys; print('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    return set(output_of(code).splitlines()[-1].split()) & HEAVY


def output_of(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


LINES = sorted(SHORT_HELP.keys() | MAY_IMPORT.keys())
EACH = """
import json, sys
from lakeplan.cli.main import run
found, before = {}, set()
for line in LINES:
    run([line] if line.startswith("-") else [line, "--help"])
    after = {name.partition(".")[0] for name in sys.modules}
    found[line], before = sorted(after - before), after
print("\\n" + json.dumps(found))
"""


@functools.cache
def imported_by_each(allowed: frozenset[str]) -> dict[str, set[str]]:
    """What each line that may import just these adds to what those before it imported. Lines that share an
    allowance share a process: together they import no more than that if, and only if, none of them does."""
    lines = [line for line in LINES if MAY_IMPORT.get(line, SERVER) == allowed]
    added: dict[str, list[str]] = json.loads(output_of(f"LINES = {lines}\n{EACH}").splitlines()[-1])
    return {line: set(names) & HEAVY for line, names in added.items()}


@pytest.mark.parametrize("line", LINES)
def it_imports_only_what_a_command_may(line: str) -> None:
    allowed = frozenset(MAY_IMPORT.get(line, SERVER))
    assert imported_by_each(allowed)[line] <= allowed


def it_reads_a_tree_without_more_than_that() -> None:
    code = "from lakeplan.cli.main import run; assert run(['validate', '-C', 'examples/teams']) == 0"
    assert imported(code) <= TREE


def it_marks_and_sweeps_without_spark() -> None:
    code = "import lakeplan.sweep.rounds, lakeplan.sweep.rounds, lakeplan.simulation.marking"
    assert not imported(f"{code}, lakeplan.simulation.local") & {"py4j", "pyspark", "pandas"}


def it_completes_a_command_without_importing_any() -> None:
    code = (
        "from typer._completion_classes import BashComplete; from lakeplan.cli.main import whole_command;"
        "shell = BashComplete(whole_command(), {}, 'lakeplan', '_LAKEPLAN_COMPLETE');"
        "found = shell.get_completions([], 'pl');"
        "assert [each.value for each in found] == ['plan']"
    )
    assert not imported(code)


@pytest.mark.parametrize("name", SHORT_HELP)
def it_says_of_a_command_what_the_command_says_of_itself(name: str) -> None:
    command = Commands()[name]
    assert (command.name, SHORT_HELP[name]) == (name, command.get_short_help_str(60))

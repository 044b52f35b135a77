"""Pages name only commands, options, keys and variables that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeplan.cli.main import whole_command
from lakeplan.values.gates import GATES
from tools.reference.commands import leaves
from tools.reference.settings import SECTIONS, keys_of, variables

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(p.name for p in DOCS.glob("*.md"))
LEAVES = {leaf.name: leaf for leaf in leaves(whole_command())}
GROUPS = {name.split()[0] for name in LEAVES if " " in name}
NAMED = re.compile(r"(?:lakectl )?lakeplan ([a-z][a-z ]*[a-z])")
CODE = re.compile(r"^```\w*\n(.*?)^```|`([^`]+)`", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OTHERS = {"--class", "--conf", "--deploy-mode", "--help", "--no-cache-dir", "--py-files", "--requirement"}
OTHERS |= {"--all", "--create", "--git", "--message"}
OTHERS |= {"--clear-soft-delete", "--member", "--permissions", "--project", "--role"}
"""Of spark-submit, pip, git and gcloud, and what every command has."""


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def commands_in(page: str) -> Iterator[list[str]]:
    """The words after ``lakeplan`` where code begins with it."""
    for block, inline in CODE.findall(page):
        for line in (block or inline).splitlines():
            if found := NAMED.match(line.strip().removeprefix("$ ")):
                yield found.group(1).split()


@pytest.mark.parametrize("name", PAGES)
def it_names_commands_that_there_are(name: str) -> None:
    for words in commands_in(text(name)):
        known = " ".join(words[:2]) in LEAVES or words[0] in LEAVES
        assert known or words in ([group] for group in GROUPS), f"{name}: there is no lakeplan {words}"


@pytest.mark.parametrize("name", PAGES)
def it_names_options_that_there_are(name: str) -> None:
    there = {o for leaf in LEAVES.values() for option in leaf.options for o in option.opts}
    assert set(OPTION.findall(text(name))) - OTHERS - there == set()


@pytest.mark.parametrize("page", [*DOCS.glob("*.md"), DOCS.parent / "README.md"], ids=lambda page: page.name)
def it_gives_commands_only_options_of_their_own(page: Path) -> None:
    for block, inline in CODE.findall(page.read_text(encoding="utf-8")):
        for line in (block.replace("\\\n", " ") or inline.replace("\n", " ")).splitlines():
            if found := re.match(r"\s*lakeplan (\w+)(?: (\w+))?", line):
                leaf = LEAVES.get(f"{found[1]} {found[2]}") or LEAVES.get(found[1])
                own = {o for option in leaf.options for o in option.opts} | {"--help"} if leaf else set()
                assert not leaf or set(OPTION.findall(line.partition(" #")[0])) <= own, line


@pytest.mark.parametrize("name", PAGES)
def it_names_variables_that_there_are(name: str) -> None:
    there = set(variables()) | {str(o.envvar) for leaf in LEAVES.values() for o in leaf.options}
    named = set(re.findall(r"LAKEPLAN_(?:<SERVER>_)?[A-Z_]+[A-Z]\b", text(name)))
    example = re.compile(
        r"LAKEPLAN_(AWS|AZURE|GCP|NOTIFY|PROD|SANDBOX|VAR|TEST|REGENERATE)_"
    )  # or of workflows and tests
    assert {n for n in named if not example.match(n)} - there == set()


@pytest.mark.parametrize("name", ["lakectl.md", "operations.md", "concepts.md"])
def it_names_keys_that_there_are(name: str) -> None:
    there = {re.sub(r"<\w+>", "<>", key.path) for section in SECTIONS for key in keys_of(section)}
    dotted = re.findall(r"`((?:servers|safety|sweep|state|bounds|lifecycle)\.[\w.<>]+)", text(name))
    assert dotted
    assert {re.sub(r"<\w+>", "<>", key) for key in dotted} - there == set()


@pytest.mark.parametrize("gate", GATES)
def it_has_every_gate_in_the_table_of_gates(gate: str) -> None:
    assert f"| `{gate}` |" in text("gates.md")
    assert "[Gates](gates.md)" in text("concepts.md")

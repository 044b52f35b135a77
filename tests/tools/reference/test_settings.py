"""The page of settings has every key and every variable, each with a meaning."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakeplan
from lakeplan.cli.main import whole_command
from lakeplan.tree.schemas import load_schema
from tools.reference.commands import leaves
from tools.reference.settings import SECTIONS, Section, keys_of, settings_page, variables

NOT_OURS = {
    *("HOME", "PATH", "PWD", "PYSPARK_GATEWAY_PORT", "AZURE_CONFIG_DIR", "AZURE_FEDERATED_TOKEN_FILE"),
    "CLOUDSDK_CONFIG",
    *("LAKEPLAN_VAR", "LAKEPLAN_SANDBOX"),
}
"""What the user's shell, spark-submit and Azure's library have, and how a tree's variables begin. What
runners of GitHub and GitLab set is theirs, too."""
PACKAGE = Path(lakeplan.__file__).parent


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def it_says_what_every_key_is(section: Section) -> None:
    keys = keys_of(section)
    assert keys
    assert [k.path for k in keys if not k.meaning or not k.kind] == []


def it_has_keys_at_every_depth() -> None:
    page = settings_page()
    for path in (
        "servers.<name>.storages.<name>.region",
        "gc.branches[].pattern",
        "overrides[].expires",
        "sweep.margin",
        "tests[].commits.<name>.age",
    ):
        assert f"| `{path}` |" in page


def it_leaves_out_of_profiles_only_what_entries_tell() -> None:
    definitions = load_schema("repository")["$defs"]
    (profiles,) = (s for s in SECTIONS if s.definition == "profile")
    entry, profile = (definitions[name]["properties"] for name in ("entry", "profile"))
    assert {name: entry[name] for name in profiles.without} == {n: profile[n] for n in profiles.without}


def it_names_every_variable_that_is_read() -> None:
    read = set(_read())
    known = set(variables()) | {o.envvar for leaf in leaves(whole_command()) for o in leaf.options}
    hosts = {name for name in read if re.match(r"(GITHUB|GITLAB|CI)_", name)}
    assert read - NOT_OURS - known - hosts == set()


def _read() -> Iterator[str]:
    """Names of variables in the package's code: of ``environ.get("X")``, and texts that are one."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="get", value=ast.Name("environ") | ast.Attribute(attr="environ")),
                    args=[ast.Constant(str() as name), *_],
                ):
                    yield name
                case ast.Constant(str() as text) if re.fullmatch(r"(LAKEPLAN|LAKECTL|AZURE)(_[A-Z]+)+", text):
                    yield text

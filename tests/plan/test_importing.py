"""Trees made from stored rules."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.plan.drift import Imported, Owners, SkippedRepository, make_tree
from lakeplan.retention.patterns import expand
from lakeplan.tree.tree import load_tree
from lakeplan.values.rules import GcRules

ONE = {"prod": "https://lakefs.example.com"}
TWO = {"eu": "https://eu.example.com", "us": "https://us.example.com"}


def it_factors_equal_rules_into_profiles():
    shared = GcRules(21, {"main": 28})
    made = make_tree(
        ONE,
        [Imported("prod", "a", shared), Imported("prod", "b", shared), Imported("prod", "c", GcRules(9))],
        [],
        "server",
    )
    assert made.profiles == ("days-21-main-28",)
    assert made.files["repositories/prod.yaml"] == (
        "apiVersion: lakeplan/v1\nrepositories:\n  a:\n    use: [days-21-main-28]\n"
        "  b:\n    use: [days-21-main-28]\n  c:\n    gc:\n      default_retention_days: 9\n"
    )


def it_names_profiles_apart():
    rules = [GcRules(21, {"a": 1, "b": 2}), GcRules(21, {"a": 3, "b": 2}), GcRules(21)]
    made = make_tree(
        ONE, [Imported("prod", f"r{i}-{j}", r) for i, r in enumerate(rules) for j in (0, 1)], [], "server"
    )
    assert made.profiles == ("days-21", "days-21-2", "days-21-3")


@pytest.mark.parametrize(
    ("split", "files"),
    [
        ("repository", ["repositories/eu/a.yaml", "repositories/us/a.yaml"]),
        ("server", ["repositories/eu.yaml", "repositories/us.yaml"]),
        ("owner", ["repositories/team-a.yaml", "repositories/unowned.yaml"]),
    ],
)
def it_splits_into_files(split, files):
    owners = Owners((("eu/*", "team a"), ("x", "y")))
    found = [Imported(s, "a", GcRules(1), owners.of(s, "a")) for s in TWO]
    made = make_tree(TWO, found, [], split)
    assert sorted(made.files) == ["lakeplan.yaml", *files]


def it_writes_no_two_files_that_differ_only_in_case_and_no_name_that_is_too_long():
    owners = ("Data", "data", "x" * 300)
    found = [Imported("prod", f"r{i}", GcRules(1), owner) for i, owner in enumerate(owners)]
    made = make_tree(ONE, found, [], "owner")
    assert sorted(made.files) == ["lakeplan.yaml", "repositories/Data.yaml", f"repositories/{'x' * 100}.yaml"]
    assert "r0:" in made.files["repositories/Data.yaml"]
    assert "r1:" in made.files["repositories/Data.yaml"]


@pytest.mark.parametrize("days", [-1, 0, 36501])
def it_leaves_out_what_no_tree_may_ask_for_and_says_so(days):
    made = make_tree(
        ONE,
        [Imported("prod", "a", GcRules(21, {"main": days}))],
        [SkippedRepository("prod/b", "it has no GC rules", is_problem=False)],
        "server",
    )
    assert made.imported == ()
    (a, b) = made.left_out
    assert (a.repository, a.is_problem, b.is_problem) == ("prod/a", True, False)
    assert (
        f"#   prod/a: no tree can express the stored rules: {days} days for main"
        in made.files["lakeplan.yaml"]
    )


BRANCH = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_-]{0,6}\Z")
NAME = st.from_regex(r"\A[a-z0-9][a-z0-9-]{2,8}\Z")
RULES = st.builds(GcRules, st.integers(1, 3), st.dictionaries(BRANCH, st.integers(1, 36500), max_size=3))


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.tuples(st.sampled_from(sorted(TWO)), NAME), RULES, max_size=6),
    st.sampled_from(["repository", "server", "owner"]),
    st.sampled_from([None, "null", "Team: A # x", "data"]),
)
def it_asks_for_exactly_what_was_stored(stored, split, owner):
    made = make_tree(TWO, [Imported(s, n, r, owner) for (s, n), r in stored.items()], [], split)
    with tempfile.TemporaryDirectory() as folder:
        for path, text in made.files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(text)
        tree = load_tree(Path(folder), {})
        found = {(s, d.name): d for s in TWO for d in tree.resolve(s, ())}
    assert {k: expand(d.gc, ()).rules for k, d in found.items()} == stored
    assert all(d.owner == owner for d in found.values())


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028", "\x85"], ids=ascii)
def it_keeps_a_name_of_a_server_in_its_comment(end):
    """A tree may name commands to run (``checks``): no server may write into it."""
    evil = f"prod/b{end}checks: [{{name: evil, run: [sh, evil.sh]}}]{end}#"
    made = make_tree(
        ONE, [Imported("prod", "a", GcRules(9))], [SkippedRepository(evil, "it has no GC rules")], "server"
    )
    document = yaml.safe_load(made.files["lakeplan.yaml"])
    assert set(document) == {"apiVersion", "servers", "unmanaged", "include"}

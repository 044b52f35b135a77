"""Policy tests over trees with profiles, globs and patterns. Every mistake in a test file is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from lakeplan.errors import ConfigError, UsageError
from lakeplan.explain.policy_test import find_tests, read_tests, run_tests
from lakeplan.output.explain import render_tests_junit
from lakeplan.tree.tree import load_tree
from tests.cpu import at_most_cpu_seconds

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "test.v1.json").read_text())
TREE = """
apiVersion: lakeplan/v1
servers:
  prod: {endpoint_url: https://lakefs.example.com}
  lab: {endpoint_url: https://lab.example.com, time_zone: America/New_York}
defaults: {server: prod}
profiles:
  standard: {gc: {default_retention_days: 21, branches: [{pattern: "release-*", retention_days: 90}]}}
repositories:
  "team-*":
    use: [standard]
    gc: {branches: [{branch_id: main, retention_days: 28}]}
  bare: {owner: nobody}
  cleared: {gc: clear}
  lab/team-a: {use: [standard]}
  lab/only-here: {gc: {default_retention_days: 1}}
"""

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``run(body)``: the results of one test with this body, a flow map without braces."""
    (tmp_path / "lakeplan.yaml").write_text(TREE.lstrip())

    def run(body: str, repository: str = "prod/team-a") -> dict[str, Any]:
        (tmp_path / "tests").mkdir(exist_ok=True)
        text = f"apiVersion: lakeplan/v1\ntests:\n- {{name: it, repository: {repository}, {body}}}\n"
        (tmp_path / "tests" / "one.yaml").write_text(text)
        tests = read_tests(find_tests(tmp_path, ()), tmp_path)
        document = run_tests(load_tree(tmp_path, {}), tests)
        jsonschema.validate(document, SCHEMA)
        return document

    return run


HISTORY = (
    "commits: {a: {age: 100d, objects: [x]}, b: {age: 50d, parents: [a], removes: [x], objects: [y]}, "
    "c: {age: 25d, parents: [b]}, d: {age: 1d, parents: [c]}}, tags: {t: a}, "
)


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        ("main: d", "survives: {commits: [d, c, b]}, goes: {commits: [a, t], objects: [x]}"),
        ("main: d, release-1: c", "survives: {commits: [a], objects: [x, y]}, days: {release-1: 90}"),
        ("dev: d", "survives: {commits: [c]}, goes: {commits: [b]}, days: {dev: 21}"),
        # c and d dangle: default days, and only while younger
        ("main: b", "survives: {commits: [d, c, b]}, goes: {commits: [a]}"),
    ],
)
def it_judges_by_the_trees_own_rules(run: Run, branches: str, expected: str) -> None:
    document = run(f"{HISTORY}branches: {{{branches}}}, {expected}")
    assert document["failed"] == 0, document["tests"][0]["failures"]


def it_resolves_patterns_over_the_drawn_branches(run: Run) -> None:
    test = run(f"{HISTORY}branches: {{main: d, release-7: c}}, survives: {{commits: [d]}}")["tests"][0]
    days = {b["branch_id"]: b["retention_days"] for b in test["rules"]["branches"]}
    assert days == {"main": 28, "release-7": 90}
    assert test["entry"] == "team-*"


def it_keeps_staged_data_and_what_another_path_holds(run: Run) -> None:
    document = run(
        "commits: {a: {age: 100d, objects: [x, z]}, b: {age: 90d, parents: [a], removes: [x, z]}, "
        "c: {age: 1d, parents: [b], objects: [{path: copy, same_as: x@a}]}}, "
        "branches: {main: c}, staged: {main: [new, {path: again, same_as: z@a}]}, "
        "survives: {objects: [x@a, copy@main, new@main, z@a, again@main]}, goes: {commits: [a]}"
    )
    assert document["failed"] == 0, document["tests"][0]["failures"]


def it_keeps_everything_where_the_tree_clears_the_rules(run: Run) -> None:
    document = run(f"{HISTORY}branches: {{main: d}}, survives: {{commits: [a]}}", "cleared")
    assert document["failed"] == 0


STOP = (
    "commits: {p: {age: 190d, objects: [x]}, old: {age: 150d, parents: [p], removes: [x]}, "
    "new: {age: 3d, parents: [p], removes: [x]}}, branches: {main: old, dev: new}, "
)


def it_tells_what_an_early_stop_may_cost_whatever_the_ids(run: Run) -> None:
    assert run(f"{STOP}at_risk: {{commits: [p], objects: [x]}}")["failed"] == 0
    failed = run(f"{STOP}survives: {{commits: [p], objects: [x]}}")["tests"][0]
    assert [f["found"] for f in failed["failures"]] == ["at_risk", "at_risk"]
    assert "depending on the ids" in failed["failures"][0]["why"]
    assert run(f"{STOP}judge: documented, survives: {{commits: [p], objects: [x]}}")["failed"] == 0
    assert run(f"{STOP}judge: documented, goes: {{commits: [p]}}")["failed"] == 1


def it_shows_the_drawn_graph_with_the_difference(run: Run) -> None:
    test = run(f"{HISTORY}branches: {{main: d, dev: b}}, survives: {{commits: [t], objects: [x]}}")["tests"][
        0
    ]
    assert not test["passed"]
    assert [f["kind"] for f in test["failures"]] == ["commit", "object"]
    assert test["failures"][0]["message"] == "commit a (t): expected 'survives', but the result is 'goes'"
    assert "branch main, 28 days (branch main)" in test["failures"][0]["why"]
    assert [(r["commit"], r["expected"]) for r in test["graph"]] == [
        ("d", None),
        ("c", None),
        ("b", None),
        ("a", "survives"),
    ]
    assert [r["lanes"] for r in test["graph"]] == ["*"] * 4


def it_draws_lanes_that_come_together(run: Run) -> None:
    test = run(f"{STOP}goes: {{commits: [p]}}")["tests"][0]
    assert [(r["lanes"], r["commit"]) for r in test["graph"]] == [("*", "new"), ("| *", "old"), ("* /", "p")]


@pytest.mark.parametrize(
    ("repository", "message"),
    [
        ("nobody-names-it", "the tree has no entry for 'nobody-names-it'"),
        ("bare", "does not manage the GC rules of 'bare'"),
        ("team-a", "is on several servers: prod, lab"),
        ("staging/team-a", "no server 'staging'"),
    ],
)
def it_fails_a_test_without_rules(run: Run, repository: str, message: str) -> None:
    test = run(f"{HISTORY}branches: {{main: d}}, survives: {{commits: [d]}}", repository)["tests"][0]
    assert not test["passed"]
    assert message in test["failures"][0]["message"]


def it_takes_the_servers_time_zone(run: Run) -> None:
    # One calendar day before 2026-03-09T00:30 in New York is 23 hours: its clocks went forward on the 8th.
    body = (
        "as_of: 2026-03-09T04:30:00Z, commits: {a: {age: 40d}, b: {age: 23h30m, parents: [a]}}, "
        "branches: {main: b}, goes: {commits: [a]}"
    )
    assert run(body, "lab/only-here")["failed"] == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("commits: {a: {age: 1d}}, branches: {main: b}, goes: {commits: [a]}", "no commit 'b'"),
        ("commits: {a: {age: 1d, parents: [z]}}, branches: {main: a}, goes: {commits: [a]}", "no commit 'z'"),
        ("commits: {a: {age: 1x}}, branches: {main: a}, goes: {commits: [a]}", "expected an age such as"),
        ("commits: {a: {age: 1d}}, branches: {main: a}, goes: {commits: [q]}", "commit, branch or tag 'q'"),
        ("commits: {a: {age: 1d}}, branches: {main: a}, goes: {objects: [q@a]}", "does not match any object"),
        ("commits: {a: {age: 1d}}, branches: {main: a}", "has no expectations"),
        ("commits: {a: {age: 1d}}, branches: {main: a}, survive: {commits: [a]}", "did you mean survives?"),
        (
            "commits: {a: {age: 1d, parents: [b]}, b: {age: 1d, parents: [a]}}, branches: {main: a}, "
            "goes: {commits: [a]}",
            "its own ancestor",
        ),
        (
            "commits: {a: {age: 1d, removes: [x]}}, branches: {main: a}, goes: {commits: [a]}",
            "does not exist",
        ),
        (
            "as_of: soon, commits: {a: {age: 1d}}, branches: {main: a}, goes: {commits: [a]}",
            "not a valid time",
        ),
        (
            "commits: {a: {age: 1d}}, branches: {a: a}, goes: {commits: [a]}",
            "the same name as a branch or tag",
        ),
        ("commits: {a: {age: 1d}}, branches: {main: a}, days: {dev: 1}", "no branch 'dev'"),
        (
            "commits: {a: {age: 1d}}, branches: {main: a}, staged: {dev: [x]}, days: {main: 1}",
            "there is no branch",
        ),
    ],
)
def it_tells_what_is_wrong_with_a_test(run: Run, body: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        run(body)
    assert message in "\n".join(raised.value.problems)
    assert "tests/one.yaml:3:" in raised.value.problems[0]


def it_reports_every_problem_at_once(run: Run) -> None:
    with pytest.raises(ConfigError) as raised:
        run("commits: {a: {age: 1d, parents: [y]}}, branches: {main: b}, tags: {t: c}, goes: {commits: [a]}")
    assert len(raised.value.problems) == 3


def it_refuses_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the tests"):
        read_tests([tmp_path / "gone.yaml"], tmp_path)


def it_writes_junit_for_ci(run: Run) -> None:
    failed = render_tests_junit(run(f"{HISTORY}branches: {{main: d}}, survives: {{commits: [a]}}"), tree="t")
    root = ElementTree.fromstring(failed)
    assert (root.get("tests"), root.get("failures")) == ("1", "1")
    case = next(root.iter("testcase"))
    assert (case.get("file"), case.get("line")) == ("t/tests/one.yaml", "3")
    assert "<- expected: survives" in (next(case.iter("failure")).text or "")


def it_draws_no_history_that_takes_minutes(tmp_path: Path) -> None:
    """Every commit of a long branch has the objects of all before it."""
    commits = "".join(
        f"      c{n}: {{age: 1h, parents: [{f'c{n - 1}' if n else ''}], objects: [o{n}]}}\n"
        for n in range(1_500)
    )
    (tmp_path / "long.yaml").write_text(
        f"apiVersion: lakeplan/v1\ntests:\n  - name: long\n    repository: team-a\n    commits:\n{commits}"
        "    branches: {main: c1499}\n    survives: {commits: [main]}\n"
    )
    with at_most_cpu_seconds(10), pytest.raises(ConfigError) as caught:
        read_tests([tmp_path / "long.yaml"], tmp_path)
    assert "use fewer commits" in caught.value.problems[0]

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.output.annotations import render_junit_plan, render_junit_problems
from lakeplan.values.plan_document import to_document

PROBLEM = {"file": "a.yaml", "line": 2, "column": 4, "path": "gc", "message": "no"}


def read(text: str) -> ET.Element:
    return ET.fromstring(text.encode())


def it_looks_as_reviewed(plans: Any, golden_output: Any) -> None:
    golden_output("plan-full-junit", render_junit_plan(to_document(plans.full()), tree="deploy"))


def it_fails_refused_gates_and_repositories_that_could_not_be_planned(plans: Any) -> None:
    root = read(render_junit_plan(to_document(plans.full())))
    failed = {
        (c.get("classname"), c.get("name")) for c in root.iter("testcase") if c.find("failure") is not None
    }
    assert failed == {
        ("prod/analytics", "tag-loss"),
        ("prod/raw-landing-zone-eu-central", "unknown-impact"),
    }
    errors = [c.get("classname") for c in root.iter("testcase") if c.find("error") is not None]
    assert errors == ["prod/ml-models"]


def it_counts_every_gate_and_repository_once(plans: Any) -> None:
    plan = plans.full()
    root = read(render_junit_plan(to_document(plan)))
    expected = sum(1 + len(r.gates) for r in plan.repositories) + len(plan.gates)
    assert int(root.get("tests", 0)) == len(list(root.iter("testcase"))) == expected
    assert (root.get("failures"), root.get("errors")) == ("2", "1")
    assert sum(int(s.get("failures", 0)) for s in root) == 2


def it_says_who_opened_a_gate_that_passes(plans: Any) -> None:
    root = read(render_junit_plan(to_document(plans.full())))
    (adoption,) = [c for c in root.iter("testcase") if c.get("name") == "adoption"]
    assert adoption.find("failure") is None
    assert "moved here in March" in (adoption.findtext("system-out") or "")


def it_makes_a_failure_of_every_problem_and_passes_the_other_files() -> None:
    document = {"problems": [PROBLEM, {**PROBLEM, "line": 9}]}
    root = read(render_junit_problems(document, files=["a.yaml", "b.yaml"], tree="deploy"))
    assert (root.get("tests"), root.get("failures")) == ("3", "2")
    assert {c.get("file") for c in root.iter("testcase")} == {"deploy/a.yaml", "deploy/b.yaml"}


@given(st.text(st.characters() | st.sampled_from("\x00\x1b\ud800\ufffe]]>&<\"'"), max_size=30))
def it_is_xml_whatever_the_names_are(text: str) -> None:
    problem = {**PROBLEM, "file": text, "path": text, "message": text}
    root = read(
        render_junit_problems({"problems": [problem]}, files=[text]).encode("utf-8", "strict").decode()
    )
    assert root.get("failures") == "1"

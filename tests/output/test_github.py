from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.output.annotations import (
    Annotation,
    Place,
    leading_place,
    place_of,
    plan_annotations,
    problem_annotations,
    render_github,
)
from lakeplan.values.plan import GateOutcome, GateResult, WeakenedSetting
from lakeplan.values.plan_document import to_document
from lakeplan.values.rules import GcRules


def lines(plan: Any, tree: str = "") -> list[str]:
    return render_github(plan_annotations(to_document(plan)), tree=tree).splitlines()


def it_looks_as_reviewed(plans: Any, golden_output: Any) -> None:
    golden_output("plan-full-github", "\n".join(lines(plans.full(), "deploy")) + "\n")


def it_puts_refused_gates_on_the_line_of_their_entry(plans: Any) -> None:
    gate = GateResult("clear", "prod/a", GateOutcome.REFUSED, "all rules go", opens_with="--allow clear")
    made = plans.repository("a", GcRules(7), None, gates=(gate,), source="repositories/a.yaml:3:5")
    first = lines(plans.make(made), "deploy")[0]
    assert first == (
        "::error file=deploy/repositories/a.yaml,line=3,col=5,title=lakeplan%3A BLOCKED by clear::"
        "prod/a: all rules go%0Aoverride with --allow clear"
    )


def it_warns_where_a_warning_stands_and_sums_up_at_the_end(plans: Any) -> None:
    found = lines(plans.full())
    assert any(line.startswith("::warning file=repositories/analytics.yaml,line=9,") for line in found)
    assert found[-1].startswith("::notice title=lakeplan%3A plan::Plan: 1 to add")
    levels = [line.split(" ")[0] for line in found]
    assert levels == sorted(levels, key=["::error", "::warning", "::notice"].index)


def it_warns_of_every_loosening_on_its_line(plans: Any) -> None:
    loose = WeakenedSetting("tree", "safety.on_tag_loss", "fail", "warn", "lakeplan.yaml:9:3")
    (warning,) = [w for w in lines(replace(plans.make(), loosenings=(loose,))) if w.startswith("::warning")]
    assert warning.startswith("::warning file=lakeplan.yaml,line=9,col=3,title=lakeplan%3A weakened::")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a.yaml:3:5", Place("a.yaml", 3, 5)),
        ("my file.yaml:3", Place("my file.yaml", 3)),
        ("", None),
        ("a.yaml", None),
        ("a.yaml:x", None),
        ("a.yaml:1:2: text", None),
    ],
)
def it_reads_places(text: str, place: Place | None) -> None:
    assert place_of(text) == place


def it_reads_a_place_that_a_warning_begins_with() -> None:
    assert leading_place("a.yaml:3:5: rule for a branch") == Place("a.yaml", 3, 5)
    assert leading_place("the server stores 0 days: a.yaml") is None


def it_annotates_the_problems_of_a_tree() -> None:
    problem = {"file": "a.yaml", "line": 2, "column": 4, "path": "gc, x", "message": "50% of\nnothing"}
    assert render_github(problem_annotations([problem])) == (
        "::error file=a.yaml,line=2,col=4,title=lakeplan%3A gc%2C x::50%25 of%0Anothing\n"
    )


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def it_is_one_command_a_line_whatever_the_names_are(title: str, message: str, file: str) -> None:
    shown = render_github([Annotation("error", title, message, Place(file, 1, 2))])
    assert len(shown.splitlines()) == 1
    head, _, _ = shown.removeprefix("::error ").partition("::")
    assert [p.partition("=")[0] for p in head.split(",")] == ["file", "line", "col", "title"]

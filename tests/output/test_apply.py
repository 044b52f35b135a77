from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakeplan.output.comments import render_apply_markdown
from lakeplan.output.plan import render_apply
from lakeplan.plan.apply import report_document
from lakeplan.review.run import PINS, Applied, ApplyReport, Outcome

A, B = "1a" * 32, "2b" * 32


def a_report() -> ApplyReport:
    return ApplyReport(
        "20260331T120000Z-4f2a",
        (
            Applied("prod/raw-landing-zone-eu-central", "add", Outcome.APPLIED, "absent", A),
            Applied("prod/team-1", "change", Outcome.ALREADY, A, B),
            Applied("prod/scratch", "clear", Outcome.APPLIED, A, "absent"),
            Applied(
                "prod/analytics",
                "change",
                Outcome.FAILED,
                A,
                B,
                "prod/analytics: the rules have changed since the plan (ETag 77aa instead of 1a1a)",
                "Run `lakeplan plan` again and have it reviewed. --force skips this check.",
                5,
            ),
        ),
        not_written=("prod/new-one",),
        unexpanded={"prod/team-1": tuple(f"feature-[{i}]" for i in range(12))},
    )


@pytest.mark.parametrize("width", [80, 160])
def it_looks_as_reviewed(show: Any, golden_output: Any, width: int) -> None:
    golden_output(f"apply-{width}", show(render_apply, report_document(a_report()), width))


def it_sums_up_in_its_last_line(show: Any) -> None:
    text = show(render_apply, report_document(a_report()), 100)
    assert text.splitlines()[-1] == (
        "Apply: 2 applied, 1 already as planned, 1 failed. Run 20260331T120000Z-4f2a."
    )


def it_says_why_a_repository_failed_and_what_to_do(show: Any) -> None:
    text = " ".join(show(render_apply, report_document(a_report()), 80).split())
    assert "x prod/analytics (rules: change) the rules have changed since the plan" in text
    assert "hint: Run `lakeplan plan` again and have it reviewed" in text


def it_never_lists_a_failed_repository_as_applied(show: Any) -> None:
    text = show(render_apply, report_document(a_report()), 80)
    applied = text.split("Not written")[0]
    assert "prod/scratch" in applied
    assert "prod/analytics" not in applied


@pytest.mark.parametrize(
    ("outcomes", "note"),
    [
        ([Outcome.FAILED], "nothing was applied"),
        ([Outcome.FAILED, Outcome.ALREADY], "all other changes were applied"),
        ([Outcome.FAILED, Outcome.UNCERTAIN], "other changes may have been applied"),
        ([Outcome.FAILED, Outcome.APPLIED, Outcome.UNCERTAIN], "other changes may have been applied"),
    ],
)
def it_says_beside_failures_whether_others_were_applied(
    show: Any, outcomes: list[Outcome], note: str
) -> None:
    results = tuple(Applied(f"prod/{n}", "change", outcome, A, B) for n, outcome in enumerate(outcomes))
    text = show(render_apply, report_document(ApplyReport("run-1", results)), 100)
    assert f"Failed  {note}; plan again to see the current state" in text


def it_does_not_deny_what_a_failed_change_may_have_written(show: Any) -> None:
    failed = Applied("prod/lake", "change", Outcome.FAILED, A, A, "pins were written before", "", 3, PINS)
    document = report_document(ApplyReport("run-1", (failed,)))
    text = show(render_apply, document, 100)
    assert "Failed  some changes may have been applied; plan again to see the current state" in text
    assert document["end"] == "partly"


def it_has_one_line_for_nothing_to_do(show: Any) -> None:
    text = show(render_apply, report_document(ApplyReport("run-1", ())), 80)
    assert text.strip() == "Apply: 0 applied, 0 already as planned, 0 failed. Run run-1."


def it_reports_pins_that_failed_in_a_comment_too(show: Any) -> None:
    failed = Applied("prod/lake", "change", Outcome.FAILED, A, A, "no permission", "Grant it.", 1, PINS)
    document = report_document(ApplyReport("run-1", (failed,)))
    assert "- prod/lake, pins: failed: no permission Grant it.\n" in render_apply_markdown(document)
    assert "x prod/lake (pins: change) no permission" in " ".join(show(render_apply, document, 80).split())


def it_lets_no_long_message_push_out_another_failure_of_a_comment() -> None:
    made = a_report()
    long = replace(made.results[3], repository="prod/a", message="x" * 70_000)
    text = render_apply_markdown(report_document(replace(made, results=(long, *made.results))))
    assert "- prod/analytics, " in text
    assert "What to do" in text


def it_gives_no_check_mark_to_a_comment_if_the_tree_was_not_written() -> None:
    """As after a quick revert: the plan had nothing to write, but since then, the change has been applied."""
    for keys, title in (
        ((), ":white_check_mark: nothing to write"),
        (("prod/a",), ":warning: **nothing was"),
    ):
        text = render_apply_markdown(report_document(ApplyReport("run-1", (), not_written=keys)))
        assert f"**lakeplan**: {title}" in text

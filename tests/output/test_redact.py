"""``--redact-paths``: nothing of a path comes through, and everything else does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.output.annotations import plan_annotations, render_github, render_junit_plan
from lakeplan.output.comments import render_markdown
from lakeplan.output.explain import render_repository
from lakeplan.output.plan import render_plan
from lakeplan.output.redact import redact_plan, redact_text, redacted
from lakeplan.review.ceiling import stale_reasons
from lakeplan.values.desired import ObjectRule, Safety
from lakeplan.values.plan import ObjectRulesPlan, SettingChange, SweepGuard, WeakenedSetting
from lakeplan.values.plan_document import dump_plan, load_plan, to_document
from lakeplan.values.rules import Action
from lakeplan.values.sweep import Hold, SweepSettings
from lakeplan.values.urls import is_digest, path_digest

KEY = "prod/analytics"
NAMESPACE = "s3://secret-bucket/lake"
SECRETS = ("secret-bucket", "raw/", "events", "tmp/", "3f9a", "audit", "payroll")


def secret_plan(plans: Any) -> Any:
    """The plan that says everything, with a path in every place that can hold one."""
    plan = plans.full()
    first, *rest = plan.repositories
    rule = ObjectRule("old", ("main",), "payroll/2020/", 90)
    change = SettingChange("old", Action.ADD, {}, {"prefix": "payroll/2020/", "expire_after_days": "90"})
    rules = ObjectRulesPlan(Action.ADD, changes=(change,), after=(rule,))
    first = replace(
        first,
        storage_namespace=NAMESPACE,
        creation_date=7,
        object_lifecycle=rules,
        warnings=(*first.warnings, f"object raw/events/2026.csv is gone from {NAMESPACE}/data/x/y"),
    )
    weakened_settings = WeakenedSetting(KEY, "holds[prefix audit/2026/]", "no end date", "absent")
    return replace(plan, repositories=(first, *rest), loosenings=(weakened_settings,), base="ab" * 20)


def leaks(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


class DescribeDigests:
    def it_keeps_what_lies_in_what(self) -> None:
        outer, inner = path_digest(KEY, "raw/"), path_digest(KEY, "raw/events/")
        assert re.fullmatch(r"path-[0-9a-f]{8}/", outer)
        assert inner.startswith(outer)
        assert inner.count("/") == 2
        assert path_digest(KEY, "raw/events/a.csv").startswith(inner)

    def it_is_of_one_repository(self) -> None:
        assert path_digest(KEY, "raw/") != path_digest("prod/other", "raw/")
        assert path_digest(KEY, "raw/a/") != path_digest(KEY, "tmp/a/")
        assert path_digest(KEY, "") == ""

    @given(st.text(min_size=1, max_size=30))
    def it_knows_its_own_and_no_path_that_looks_like_one(self, path: str) -> None:
        assert is_digest(path_digest(KEY, path))
        assert not is_digest(path) or re.fullmatch("path-[0-9a-f/]+", path)

    def it_does_not_take_a_path_for_a_digest(self) -> None:
        assert not is_digest("path-to/payroll.csv")
        assert not leaks(json.dumps(redacted({"prefix": "path-to/payroll/"})))


class DescribeAPlan:
    def it_shows_no_path_in_any_format(self, plans: Any, show: Any) -> None:
        document = redacted(to_document(redact_plan(secret_plan(plans))))
        texts = [
            show(render_plan, document, 80),
            show(render_plan, document, 160),
            *(show(render_repository, r, 160) for r in document["repositories"]),
            render_markdown(document),
            render_github(plan_annotations(document)),
            render_junit_plan(document),
            json.dumps(document),
        ]
        for text in texts:
            assert not leaks(text), text

    def it_leaves_everything_else_as_it_was(self, plans: Any, show: Any) -> None:
        plan = secret_plan(plans)
        before = show(render_plan, to_document(plan), 160)
        after = show(render_plan, redacted(to_document(plan)), 160)
        for text in ("prod/analytics", "branch release-2026-03", "v2025.12", "1,204,331", "lakeplan.yaml:30"):
            assert text in before
            assert text in after
        assert len(before.splitlines()) == len(after.splitlines())  # folders in folders are still told apart

    def it_can_be_compared_line_by_line(self, plans: Any, show: Any) -> None:
        document = redacted(to_document(redact_plan(secret_plan(plans))))
        again = redacted(document)
        assert again == document
        prefixes = [p["prefix"] for p in document["repositories"][0]["impact"]["prefixes"]]
        assert prefixes == ["", *(path_digest(KEY, p) for p in ("raw/", "raw/events/", "tmp/"))]

    def it_makes_a_plan_file_that_is_whole(self, plans: Any) -> None:
        text = dump_plan(redact_plan(secret_plan(plans)))
        assert dump_plan(load_plan(text, where="plan.json")) == text
        # what an apply compares with the tree stays, and is in the tree for whoever reads it
        assert leaks(text) == ["payroll"]

    def it_says_of_a_hold_that_a_sweep_keeps_to_what_is_held_and_not_why(self, plans: Any) -> None:
        hold = Hold("prefix", "raw/", date(2027, 1, 1), "the lawsuit about payroll/2020")
        guard = SweepGuard(Safety(), (hold,), SweepSettings())
        plan = replace(secret_plan(plans), sweep_guards={KEY: guard})
        assert redact_plan(plan).sweep_guards == {KEY: replace(guard, holds=(replace(hold, reason=""),))}

    def it_makes_a_plan_file_that_an_apply_takes(self, plans: Any) -> None:
        live = secret_plan(plans).repositories[0]
        reviewed = redact_plan(secret_plan(plans)).repositories[0]
        assert reviewed.storage_namespace != live.storage_namespace
        assert stale_reasons(reviewed, live, check_etag=True) == []
        other = replace(live, storage_namespace="s3://another/lake")
        assert stale_reasons(reviewed, other, check_etag=True)
        assert (reviewed.before_etag, reviewed.after_etag) == (live.before_etag, live.after_etag)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("s3://bucket/a/b: access denied", ": access denied"),
        ("cannot read https://acct.blob.core.windows.net/c/lake/_lakefs/x.", "cannot read ."),
        ("abfss://c@acct.dfs.core.windows.net/x is there", " is there"),
        ("data/3f9a/77: the block checksum is wrong", ": the block checksum is wrong"),
        ("(local://lake/data/x)", "()"),
        ("see _lakeplan/marks/m1/mark.json, again", "see , again"),
        ("repositories/data/x.yaml:3:1: no such key", "repositories/data/x.yaml:3:1: no such key"),
        ("the hold on prefix 'a/b c/' matches nothing", "the hold on prefix  matches nothing"),
        ('the path "it\'s/x" is not in any commit', "the path  is not in any commit"),
        ("the hold on tag 'v1' keeps nothing", "the hold on tag 'v1' keeps nothing"),
        ("https://lakefs.example.com does not answer", "https://lakefs.example.com does not answer"),
    ],
)
def it_redacts_storage_in_messages_and_nothing_else(text: str, left: str) -> None:
    assert re.sub(r"path-[0-9a-f/]+", "", redact_text(text)) == left


def it_keeps_the_same_path_the_same_in_figures_and_messages() -> None:
    document = {
        "repository": KEY,
        "prefixes": [{"prefix": "raw/"}],
        "warnings": ["raw/x.csv is missing; raw/", "drawraw/ is another"],
        "failures": {"data/ab/cd": "gone"},
    }
    made = redacted(document)
    inner, outer = path_digest(KEY, "raw/x.csv"), path_digest(KEY, "raw/")
    assert made["warnings"] == [f"{inner} is missing; {outer}", "drawraw/ is another"]
    assert made["failures"] == {path_digest(KEY, "data/ab/cd"): "gone"}


@pytest.mark.parametrize("key", ["branches", "tags", "start", "source"])
def it_looks_into_lists_of_maps_that_stand_under_a_key_of_names(key: str) -> None:
    item = {"name": "main", "prefix": "payroll/", "note": f"see {NAMESPACE}/data/x", "more": ["payroll/a"]}
    made = redacted({"repository": KEY, key: [item, [item]], "also": {key: ["payroll/", NAMESPACE]}})
    assert made[key][0]["name"] == made[key][1][0]["name"] == "main"
    assert made[key][0]["prefix"] == path_digest(KEY, "payroll/")
    assert not leaks(json.dumps(made[key]))
    # names stay names: only URLs of storage go
    assert made["also"][key] == ["payroll/", path_digest(KEY, NAMESPACE)]


def it_redacts_the_question_of_an_explanation_but_no_branch_or_commit() -> None:
    def explained(kind: str, text: str) -> Any:
        what = {"kind": kind, "text": text, "ref": "main", "ref_commit": None}
        return redacted(
            {"name": KEY, "what": what, "subjects": [{"address": "data/a/b", "paths": ["x.csv"]}]}
        )

    made = explained("path", "payroll/x.csv")
    assert made["what"]["text"] == path_digest(KEY, "payroll/x.csv")
    assert made["what"]["ref"] == "main"
    assert made["subjects"] == [
        {"address": path_digest(KEY, "data/a/b"), "paths": [path_digest(KEY, "x.csv")]}
    ]
    assert explained("branch", "release-1")["what"]["text"] == "release-1"

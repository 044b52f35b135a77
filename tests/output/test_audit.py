"""An audit as text and Markdown; names in it are other people's."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from lakeplan.output.audit import audit_markdown, render_audit
from lakeplan.output.redact import redacted

NOTHING = {"objects": 0, "size_bytes": 0}
SOME = {"objects": 3, "size_bytes": 3_000_000_000}
UNKNOWN = {
    "noncurrent": None,
    "delete_markers": None,
    "unfinished_uploads": None,
    "oldest_upload": "",
    "complete": True,
}


def document(**more: Any) -> Any:
    row = {
        "repository": "prod/lake",
        "storage_namespace": "s3://bucket/lake",
        "as_of": "2026-03-31T12:00:00+00:00",
        "rules": {"default_retention_days": 7, "branches": [{"branch_id": "main", "retention_days": 9}]},
        "commits": {
            "total": 5,
            "branches": 2,
            "tags": 0,
            "kept_by_server": 3,
            "kept_by_rule": 4,
            "at_risk": 1,
            "dangling_seen": True,
        },
        "objects": SOME,
        "estimated": False,
        "not_listed": "",
        "destroyed": None,
        "destroyed_tagged": None,
        "policies": None,
        "not_sampled": "",
        "next_run": {
            "expired": SOME,
            "at_risk": SOME,
            "tagged": NOTHING,
            "min_age_seconds": 86_400,
            "too_young": None,
        },
        "freeable": NOTHING,
        "periods": [{"days": 1, "expired": SOME}, {"days": 7, "expired": NOTHING}],
        "leftovers": None,
        "uncommitted": {"asked": 2, "branches": 1, "changes": 5, "more": True},
        "remnants": None,
        "stale_branches": [{"branch": "old", "days": 99}],
        "stale_count": 4,
        "nonsense": ["-3 retention days by default"],
        "unknown_branches": [],
        "collector_runs": None,
        "advice": [{"severity": "data-loss", "problem": "it loses data", "command": "lakeplan check"}],
        "cost_per_gb_month": {"amount": 2.0, "currency": "EUR"},
        **more,
    }
    return {
        "format": "lakeplan.audit/v1",
        "at": "",
        "servers": {},
        "repositories": [row],
        "failed": {"prod/other": {"message": "denied", "where": "", "hint": "ask"}},
        "unfinished": ["prod/third"],
    }


def shown(made: Any) -> str:
    console = Console(file=io.StringIO(), width=120, no_color=True)
    render_audit(made, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def it_shows_figures_money_and_what_to_do() -> None:
    text = shown(document())
    for part in (
        "3.0 GB",
        "6.00",
        "at risk",
        "DATA LOSS",
        "old (99 days) and 3 more",
        "5 or more changes on 1 of 2 branches",
        "-3 retention days",
    ):
        assert part in text, part
    assert "denied" in text
    assert "stopped before prod/third; to continue, run it with --resume" in text
    made = audit_markdown(document())
    for part in ("3.0 GB", "DATA LOSS", "lakeplan check", "-3 retention days", "denied\n\nask\n"):
        assert part in made, part


def it_says_what_of_tags_is_gone() -> None:
    gone = {
        "how": "listing",
        "amount": SOME,
        "asked": None,
        "gone": None,
        "low_percent": 60.0,
        "high_percent": 60.0,
        "examples": [],
    }
    sample = {**gone, "how": "sample", "amount": None, "asked": 9, "gone": 3}
    words = "3 of 9 sampled objects from tags: 60 to 60 % of all objects, with 95 % confidence"
    for found, expected in ((gone, "3 objects, 3.0 GB (60 %) from tags"), (sample, words)):
        made = document(destroyed_tagged=found)
        for text in (shown(made), audit_markdown(made)):
            assert expected in text
    assert "from tags" not in shown(document(destroyed_tagged={**gone, "amount": NOTHING}))


def it_says_what_the_next_collection_leaves_out() -> None:
    run = document()["repositories"][0]["next_run"]
    assert "younger than 24 hours now" not in shown(document(next_run={**run, "too_young": NOTHING}))
    text = shown(document(next_run={**run, "too_young": SOME, "min_age_seconds": 3 * 86_400}))
    assert "later: younger than 72 hours now" in text
    text = shown(document(estimated=True, not_listed="no credentials"))
    assert "collectors skip objects younger than 24 hours, but these figures include them" in text


@pytest.mark.parametrize(
    ("namespace", "remnants", "words"),
    [
        (
            "https://lake.blob.core.windows.net/data/x",
            None,
            "older versions and unfinished uploads are not counted: Azure does not list unfinished uploads",
        ),
        (
            "gs://bucket/x",
            {**UNKNOWN, "noncurrent": NOTHING},
            "unfinished uploads are not counted: lakeplan",
        ),
        ("s3://bucket/x", None, "older versions and unfinished uploads are not counted: the store"),
        ("s3://bucket/x", UNKNOWN, "older versions and unfinished uploads are not counted: the store"),
        (
            "s3://bucket/x",
            {**UNKNOWN, "noncurrent": NOTHING},
            "unfinished uploads are not counted: the store",
        ),
        ("s3://bucket/x", {**UNKNOWN, "noncurrent": NOTHING, "unfinished_uploads": 0}, ""),
        ("local://x", None, ""),
    ],
)
def it_says_what_of_a_store_was_not_counted(namespace: str, remnants: Any, words: str) -> None:
    text = " ".join(shown(document(storage_namespace=namespace, remnants=remnants)).split())
    assert words in text
    assert words or "not counted" not in text


def it_shows_a_sample_with_its_interval() -> None:
    sample = {
        "how": "sample",
        "amount": None,
        "asked": 30,
        "gone": 2,
        "low_percent": 1.85,
        "high_percent": 21.32,
        "examples": ["secret/path.bin"],
    }
    for text in (shown(document(destroyed=sample)), audit_markdown(document(destroyed=sample))):
        assert "2 of 30 sampled objects: 1.85 to 21.32 % of all objects, with 95 % confidence" in text
    assert "secret" not in str(redacted(document(destroyed=sample)))


def it_lets_no_name_act() -> None:
    name = "\x1b[2Jx | [a](http://example.com) <img src=x>"
    made = document(
        nonsense=[name],
        stale_branches=[{"branch": name, "days": 3}],
        rules={"default_retention_days": 7, "branches": [{"branch_id": name, "retention_days": 1}]},
    )
    for text in (shown(made), audit_markdown(made)):
        assert "\x1b" not in text
    assert "<img" not in audit_markdown(made)
    assert "](http" not in audit_markdown(made)


def it_shows_what_a_bucket_keeps_besides() -> None:
    remnants = {
        "noncurrent": SOME,
        "delete_markers": 7,
        "unfinished_uploads": 2,
        "oldest_upload": "2026-01-01T00:00:00Z",
        "complete": False,
    }
    text = shown(document(remnants=remnants))
    assert "older versions (lower bound)" in text
    assert "7 delete markers, 2 unfinished uploads, the oldest from 2026-01-01T00:00Z" in text

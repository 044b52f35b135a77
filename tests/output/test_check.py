"""Findings of a check as text, Markdown and CSV; names in them are other people's."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from rich.console import Console

from lakeplan.output.check import (
    CSV_COLUMNS,
    MOST_BRANCHES,
    MOST_PATHS,
    check_csv,
    check_markdown,
    render_check,
)
from lakeplan.output.redact import redacted
from lakeplan.simulation.checking import NAMED_PATHS
from lakeplan.sweep.check import BRANCHES_NAMED

NOTHING = {"objects": 0, "size_bytes": 0}
ONE = {"objects": 1, "size_bytes": 6}


def finding(**more: Any) -> dict[str, Any]:
    return {
        "problem": "missing",
        "branches": ["main"],
        "tags": [],
        "commit_id": "c" * 64,
        "paths": ["a/b.bin"],
        "address": "data/x/y",
        "size_bytes": 6,
        "stored_bytes": None,
        "named_by": ["head"],
        "collector_run": {"run_id": "r1", "by": "lakeplan", "started": "2026-03-31T12:00:00+00:00"},
        "quarantine": "m1",
        **more,
    }


def document(*findings: dict[str, Any], **more: Any) -> Any:
    row = {
        "repository": "prod/lake",
        "storage_namespace": "s3://bucket/lake",
        "as_of": "2026-03-31T12:00:00+00:00",
        "rules": True,
        "commits": {"total": 3, "heads": 1, "rules": 2, "tags": 0, "holds": 0},
        "metaranges": 2,
        "ranges": 2,
        "named": {"objects": 5, "size_bytes": 50},
        "outside": NOTHING,
        "missing": ONE if findings else NOTHING,
        "resized": NOTHING,
        "unusual": 0,
        "unconfirmed": 0,
        "findings": list(findings),
        "damaged": [],
        "quarantine": [],
        "holds": [],
        "read": None,
        "runner": None,
        "complete": not findings,
        **more,
    }
    return {"format": "lakeplan.check/v1", "at": "", "repositories": [row], "failed": {}}


def shown(made: Any) -> str:
    console = Console(file=io.StringIO(), width=160, no_color=True)
    render_check(made, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def rows(made: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(check_csv(made))))


DAMAGED = {
    "kind": "range",
    "id": "f" * 64,
    "message": "a checksum differs",
    "branches": ["main"],
    "commit_id": "c" * 64,
    "named_by": ["head"],
    "entries": 7,
    "paths": ["a", "z"],
}
LOST = {
    "mark_id": "m2",
    "readable": True,
    "recorded": ONE,
    "present": NOTHING,
    "restored": NOTHING,
    "purged": NOTHING,
    "lost": ONE,
    "resized": NOTHING,
    "addresses": ["data/q/w"],
    "note": "",
}


def it_names_everything_in_every_form() -> None:
    made = document(finding(), damaged=[DAMAGED], quarantine=[LOST], holds=["a hold that names nothing"])
    for text in (shown(made), check_markdown(made), check_csv(made)):
        for part in ("a/b.bin", "main", "r1", "m1", "f" * 64, "data/q/w", "m2", "a hold that names nothing"):
            assert part in text, part
    assert [row["problem"] for row in rows(made)] == ["missing", "damaged range", "quarantine", "hold"]


def it_says_what_was_not_checked() -> None:
    made = document(outside={"objects": 3, "size_bytes": 9}, unusual=2, unconfirmed=4)
    for text in (shown(made), check_markdown(made)):
        assert "3 objects, 9 B at addresses outside the namespace" in text
        assert "2 objects whose keys contain empty segments, . or .." in text
        assert "4 objects are reported as missing" in text


def it_says_that_tags_do_not_protect_data() -> None:
    assert "tags do not protect data" in shown(document(finding(named_by=["tag"])))
    assert "tags do not protect data" not in shown(document(finding(named_by=["tag", "head"])))


def it_names_every_line_of_a_csv_alike() -> None:
    made = document(finding(), damaged=[DAMAGED], quarantine=[LOST], holds=["x"])
    made["failed"] = {"prod/other": {"message": "denied", "where": "", "hint": ""}}
    lines = list(csv.reader(io.StringIO(check_csv(made))))
    assert {len(line) for line in lines} == {len(CSV_COLUMNS)}
    assert lines[-1][:2] == ["prod/other", "not checked"]


def it_says_in_a_comment_why_a_repository_was_not_checked_and_what_to_do() -> None:
    failed = {"prod/other": {"message": "denied", "where": "", "hint": "Ask @org for it."}}
    text = check_markdown({**document(finding()), "failed": failed})  # type: ignore[arg-type]
    assert "not checked\ndenied\n\nAsk &#64;&#8203;org for it.\n" in text


def it_lets_no_name_act() -> None:
    path = "=cmd|'/c calc'!A0\x1b[2J\n| x | [link](http://example.com) <img src=x>"
    made = document(finding(paths=[path], branches=["@SUM(1)"]))
    (row,) = rows(made)
    assert row["path"].startswith("'=cmd")
    assert row["branch"].startswith("'@")
    assert "\x1b" not in check_csv(made) + shown(made) + check_markdown(made)
    assert "<img" not in check_markdown(made)
    assert "](http" not in check_markdown(made)


def it_redacts_paths_and_addresses() -> None:
    made = redacted(document(finding(), quarantine=[LOST]))
    for text in (shown(made), check_markdown(made), check_csv(made)):
        assert "a/b.bin" not in text
        assert "data/x/y" not in text
        assert "data/q/w" not in text


def it_says_what_was_read() -> None:
    read = {
        "percent": 5.0,
        "read": {"objects": 4, "size_bytes": 40},
        "matched": 2,
        "differs": 1,
        "incomparable": 1,
        "unreadable": 3,
    }
    made = document(finding(problem="checksum", stored_bytes=6), read=read)
    for text in (shown(made), check_markdown(made)):
        assert "4 objects, 40 B: 2 match their checksums, 1 differ" in text
        assert "checksum differs" in text
    assert rows(made)[0]["problem"] == "checksum"


def narrow(made: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=80, no_color=True)
    render_check(made, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def it_keeps_paths_and_names_whole_where_no_table_fits() -> None:
    path = "warehouse/orders/date=2026-03-31/part-00000-of-00128.parquet"
    lines = narrow(document(finding(paths=[path], tags=["v1"], named_by=["head", "rules"])))
    assert max(map(len, lines)) <= 80
    shown = [line.strip() for line in lines]
    for line in (
        f"x  {path}",
        "missing, 6 B",
        "referenced by HEAD, rules",
        "in commit cccccccccccc, tag v1, branch main",
        "last collected by lakeplan r1, 2026-03-31T12:00Z",
        "copy in quarantine of m1",
    ):
        assert line in shown, line


def it_has_a_line_for_nothing_that_is_not_known() -> None:
    path = "warehouse/orders/date=2026-03-31/part-00000-of-00128.parquet"
    text = "\n".join(narrow(document(finding(paths=[path], collector_run=None, quarantine=""))))
    assert "collected by" not in text
    assert "copy in" not in text


@pytest.mark.parametrize("width", [80, 200])
def it_says_that_a_list_was_cut(width: int) -> None:
    branches, paths = [f"b{n}" for n in range(BRANCHES_NAMED)], [f"p{n}" for n in range(NAMED_PATHS)]
    assert (MOST_BRANCHES, MOST_PATHS) == (BRANCHES_NAMED, NAMED_PATHS)
    shown, more = (3, 2) if width == 80 else (2, 3)
    cut = f"{', '.join(branches[:shown])} and at least {more} more"
    whole = f"{', '.join(branches[:shown])} and {more} more"
    for named_by, text in (["tag"], cut), (["head", "rules"], whole):
        made = document(finding(branches=branches, paths=paths, named_by=named_by))
        stream = io.StringIO()
        render_check(made, Console(file=stream, width=width))
        printed = " ".join(stream.getvalue().split())
        assert text in printed
        assert "p0, p1 and at least 8 more" in printed
    assert "and at least 8 more" in check_markdown(made)

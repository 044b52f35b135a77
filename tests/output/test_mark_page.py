"""The page of a mark: safe, without requests, with folders that open, close and sort."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lakeplan.output.redact import redacted
from lakeplan.output.report import render_mark_page
from tests.output.chromium import Page

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e/"


def amount(objects: int, size_bytes: int = 0) -> dict[str, int]:
    return {"objects": objects, "size_bytes": size_bytes or objects * 1000}


def row(prefix: str | None, objects: int, kept: int = 0) -> dict[str, Any]:
    depth = (prefix or "").count("/")
    return {"prefix": prefix, "goes": amount(objects), "kept": amount(kept), "depth": depth}


def document(**more: Any) -> Any:
    classes = ("backlog", "newly_expired", "never_committed", "at_risk", "protected")
    mark = {
        "mark_id": "20260331T120000-1a2b3c4d",
        "server": "prod",
        "repository": "lake",
        "marked_at": "2026-03-31T12:00:00Z",
        "cutoff": "2026-03-30T12:00:00Z",
        "sweep_from": "2026-03-31T12:00:00Z",
        "sweep_until": "2026-04-03T12:00:00Z",
        "tree_commit": "c" * 40,
        "settings": {"never_committed": "keep", "mode": "quarantine"},
        "rules_before": {"known": "rules", "rules": None},
        "goes": amount(70),
        "candidates": amount(900),
        "classes": {
            **dict.fromkeys((*classes, "uncertain_address", "near_limit"), amount(0)),
            "newly_expired": amount(70),
            "protected": amount(6),
        },
        "unreadable": {},
        "gates": [],
        "contents": {
            "ages": [{"from_days": 7, "to_days": 30, **amount(70)}],
            "last_commits": [{"commit_id": "d" * 64, "created": "2026-01-01T00:00:00Z", **amount(70)}],
            "more_last_commits": 0,
            "kept_by": [
                {"kind": "tag", "name": HOSTILE, "prefix": None, "class": "protected", **amount(6)},
                {"kind": "hold", "name": "prefix", "prefix": "audit/", "class": "protected", **amount(2)},
            ],
            "more_kept_by": 4,
            "forecast": {
                "plan_digest": "f" * 64,
                "as_of": "2026-03-30T12:00:00Z",
                "least": amount(3),
                "most": amount(60),
                "found": amount(70),
                "differs": "more",
            },
            "digest": "e" * 64,
        },
        **more,
    }
    tree = [
        *(row("", 70, 6), row("audit/", 0, 6), row("raw/", 60), row("raw/2025/", 10), row("raw/2026/", 50)),
        *(row("raw/2026/01/", 20), row("raw/2026/02/", 30), row(HOSTILE, 10)),
    ]
    return {"mark": mark, "tree": tree}


def it_says_what_would_be_deleted_and_what_keeps_the_rest() -> None:
    page = render_mark_page(document())
    text = re.sub(r"<[^>]+>", " ", page.partition("<main")[2])
    for words in (
        "sweep.mode: quarantine",
        "70 objects",
        "newly expired",
        "7 to 30 days",
        "hold on prefix audit/",
        "More than forecast: plan ffffffffffff",
    ):
        assert words in text
    assert "The JSON document has 4 more rows." in text


def it_says_that_what_was_never_committed_is_an_upper_bound() -> None:
    """Only a sweep finds objects that were uploaded again unchanged."""
    made = document()
    made["mark"]["classes"]["never_committed"] = amount(7)
    assert "not listed as uncommitted (upper bound)" in render_mark_page(made)


def it_holds_no_markup_of_others_and_loads_nothing() -> None:
    page = render_mark_page(document())
    assert "<img" not in page
    assert "\u202e" not in page
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"(src|href)=\"(?!#)", page)


def it_says_what_blocks_it() -> None:
    refused = {
        "gate": "sweep-limit",
        "scope": "prod/lake",
        "outcome": "refused",
        "message": "too much",
        "opens_with": "--allow sweep-limit",
    }
    page = render_mark_page(document(gates=[refused], unreadable={"other": "403"}))
    assert "sweep-limit" in page
    assert "could not be read and may refer to objects in this namespace: other" in page


def it_can_be_redacted() -> None:
    page = render_mark_page(redacted(document()))  # type: ignore[arg-type]
    for name in ("raw/", "audit/", "2026/01"):
        assert name not in page.partition("<main")[2]


def shown(page: Page) -> list[str]:
    script = "[...document.querySelectorAll('.folders tbody tr')].filter(r => !r.hidden).map(r => r.cells[0]"
    return [text.strip("▸▾ ") for text in page.evaluate(f"{script}.textContent)")]


def click(page: Page, folder: str) -> None:
    found = "[...document.querySelectorAll('.folders button')].find(b => b.textContent.startsWith"
    page.evaluate(f"{found}('{folder}')).click()")


def it_opens_and_sorts_folders_among_their_siblings(browser: Page, tmp_path: Path) -> None:
    path = tmp_path / "mark.html"
    path.write_text(render_mark_page(document()), encoding="utf-8")
    browser.console.clear()
    browser.requests.clear()
    browser.open(path)
    assert browser.console == []
    assert browser.requests == [path.as_uri()]
    top = [name for name in shown(browser) if name in ("(all paths)", "audit/", "raw/")]
    assert top == ["(all paths)", "audit/", "raw/"]
    assert "2026/" not in shown(browser)
    click(browser, "raw/")
    assert [name for name in shown(browser) if name.startswith("202")] == ["2025/", "2026/"]
    click(browser, "objects")
    names = [name for name in shown(browser) if "script" not in name]
    assert names == ["(all paths)", "raw/", "2026/", "2025/", "audit/"], "largest first, below their folder"
    click(browser, "raw/")
    assert "2026/" not in shown(browser)

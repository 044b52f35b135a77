"""The page of an audit: as text, and in a real Chromium."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from lakeplan.output.audit import render_audit_page
from tests.output.chromium import Page
from tests.output.test_audit import SOME, document

LARGE = {"objects": 9, "size_bytes": 9_000_000_000}
LISTED = {
    "how": "listing",
    "asked": None,
    "gone": None,
    "low_percent": 9.0,
    "high_percent": 9.0,
    "examples": [],
}


def several() -> Any:
    """Three repositories: ``lake``, a larger one, and one that was sampled."""
    made = document()
    (row,) = made["repositories"]
    large, sampled = copy.deepcopy(row), copy.deepcopy(row)
    gone = {**LISTED, "amount": LARGE}
    large |= {"destroyed": gone, "destroyed_tagged": {**gone, "amount": SOME}}
    large |= {"repository": "prod/a-larger-one", "freeable": LARGE, "objects": LARGE}
    sampled |= {
        "repository": "prod/sampled",
        "estimated": True,
        "not_listed": "no credentials",
        "objects": SOME,
        "destroyed": {
            "how": "sample",
            "amount": None,
            "asked": 30,
            "gone": 2,
            "low_percent": 1.85,
            "high_percent": 21.32,
            "examples": [],
        },
    }
    made["repositories"] = [row, large, sampled]
    made["servers"] = {"prod": "https://lakefs.example.com"}
    made["at"] = "2026-03-31T12:00:00+00:00"
    return made


def it_has_totals_findings_and_details_of_each_repository() -> None:
    page = render_audit_page(several())
    for part in (
        "Gone from tags",
        "3.0 GB (9 %) from tags",
        "9.0 GB",
        "1.85 to 21.32 %",
        "lakeplan check",
        "-3 retention days by default",
        "prod/third",
    ):
        assert part in page, part
    targets = set(re.findall(r'href="#(repository-[^"]+)"', page))
    assert targets == set(re.findall(r'id="(repository-[^"]+)"', page))
    assert len(targets) == 3


def it_asks_no_network_and_lets_no_name_act() -> None:
    made = several()
    evil = "</script><script>alert(1)</script>\x1b[2J"
    made["repositories"][0] |= {"nonsense": [evil], "repository": f"prod/{evil}"}
    page = render_audit_page(made)
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "default-src &#x27;none&#x27;" in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)


@pytest.fixture
def opened(show_page: Callable[[str], Page]) -> Page:
    return show_page(render_audit_page(several()))


def order(page: Page) -> str:
    rows = "document.querySelectorAll('#summary tbody th')"
    return str(page.evaluate(f"[...{rows}].map((one) => one.textContent).join(' ')"))


def it_sorts_and_asks_for_nothing_else(opened: Page) -> None:
    assert order(opened) == "prod/lake prod/a-larger-one prod/sampled"
    opened.evaluate("document.querySelectorAll('#summary thead button')[6].click()")
    first = order(opened).split()
    opened.evaluate("document.querySelectorAll('#summary thead button')[6].click()")
    assert "prod/a-larger-one" in (first[0], order(opened).split()[0])
    assert first != order(opened).split()
    assert opened.console == []
    assert all(one.startswith("file:") for one in opened.requests)


@pytest.mark.parametrize("colours", ["light", "dark"])
def it_fits_a_window_in_both_colours(opened: Page, colours: str) -> None:
    opened.prefer(colours)
    for width in (1280, 400):
        opened.size(width, 900)
        wide = opened.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
    opened.size(1280, 900)
    assert opened.console == []


def it_is_used_by_keyboard(opened: Page) -> None:
    reached = []
    for _ in range(40):
        opened.press("Tab")
        reached.append(opened.evaluate("document.activeElement.tagName"))
    assert {"SELECT", "BUTTON", "A", "SUMMARY"} <= set(reached)


def it_names_every_landmark_apart(opened: Page) -> None:
    """Where the window is narrow, tables that scroll are landmarks beside the sections."""
    opened.size(400, 900)
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; }); 1")
    opened.evaluate("new Promise((done) => setTimeout(done, 300))")  # observers of sizes come later
    names = opened.evaluate(
        "[...document.querySelectorAll('[role=region], section, nav')].map((one) => one.ariaLabel"
        " || document.getElementById(one.getAttribute('aria-labelledby'))?.textContent)"
    )
    opened.size(1280, 900)
    assert len(names) > 8
    assert all(names)
    assert len(set(names)) == len(names)


def it_asks_no_price_for_what_is_gone() -> None:
    card = render_audit_page(several()).partition("Already gone")[2].partition("</dd>")[0]
    assert "9.0 GB" in card
    assert "a month" not in card

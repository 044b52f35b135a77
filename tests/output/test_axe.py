"""Every page, in light and dark, wide and narrow, against axe's rules of accessibility."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from lakeplan.output.audit import render_audit_page
from lakeplan.output.report import render_mark_page, render_report
from lakeplan.output.storage import render_storage_page
from tests.output import report_pages, test_audit_page, test_mark_page, test_storage, test_storage_page
from tests.output.chromium import Page


def classed() -> Any:
    """A document with owners, and with storage classes of each repository."""
    found = test_storage_page.several()
    rows = [{**row, "classes": test_storage.CLASSES} for row in found["repositories"]]
    return {**found, "repositories": rows, "owners": test_storage.OWNERS}


PAGES: dict[str, Callable[[], str]] = {
    "audit": lambda: render_audit_page(test_audit_page.several()),
    "mark": lambda: render_mark_page(test_mark_page.document()),
    "report": lambda: render_report(report_pages.full()),
    "storage": lambda: render_storage_page(classed()),
}


@pytest.fixture(scope="module")
def axe() -> str:
    return files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def violations(page: Page, axe: str) -> list[list[str]]:
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; }); 1")
    page.evaluate(f"{axe}; 1")
    found: list[list[str]] = page.evaluate(
        "axe.run().then((r) => r.violations.map((v) => [v.id, v.nodes[0].html.slice(0, 200)]))"
    )
    return found


@pytest.mark.parametrize(
    ("colours", "width"),
    [
        ("light", 1280),
        ("dark", 400),
        pytest.param("light", 400, marks=pytest.mark.extended),
        pytest.param("dark", 1280, marks=pytest.mark.extended),
    ],
)
@pytest.mark.parametrize("name", PAGES)
def it_breaks_no_rule(browser: Page, axe: str, tmp_path: Path, name: str, colours: str, width: int) -> None:
    file = tmp_path / f"{name}.html"
    file.write_text(PAGES[name](), encoding="utf-8")
    browser.size(width, 900)
    browser.prefer(colours)
    browser.open(file)
    assert violations(browser, axe) == []


def it_notices_a_page_that_breaks_some(browser: Page, axe: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text(
        "<!doctype html><title>x</title><p style='color: #ccc'>pale<img src=''>", encoding="utf-8"
    )
    browser.prefer("light")
    browser.open(file)
    assert {name for name, _ in violations(browser, axe)} >= {"color-contrast", "html-has-lang", "image-alt"}

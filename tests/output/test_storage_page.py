"""The page of what is stored: as text, its treemap, and in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from lakeplan.output.storage import HEIGHT, WIDTH, render_storage_page, split
from tests.output.chromium import Page
from tests.output.test_storage import NOTHING, document

EVIL = "<script>alert(1)\x1b[2J\u202e/"


def amount(size: int) -> dict[str, int]:
    return {"objects": 1, "size_bytes": size}


def place(prefix: str, held: int, reclaimable: int = 0) -> dict[str, Any]:
    parts = {"held": amount(held), "reclaimable": amount(reclaimable)}
    return {"prefix": prefix, "depth": prefix.count("/"), **parts} | {
        "young": NOTHING,
        "uncommitted": NOTHING,
        "unreferenced": NOTHING,
    }


PLACES = [
    place("", 1_000, 400),
    place("models/", 600),
    place("models/a/", 500),
    place("models/b/", 90),
    place("raw/", 300, 200),
    place(EVIL, 20, 180),
]
AGES = [{"from_days": 0, "to_days": 7, **amount(900)}, {"from_days": 365, "to_days": None, **amount(500)}]


def several(**more: Any) -> Any:
    made = document(
        listed=True, stored=amount(1_400), prefixes=PLACES, prefixes_left_out=2, ages=AGES, **more
    )
    (row,) = made["repositories"]
    made["repositories"].append({**row, "repository": "prod/other-lake"})
    made["servers"] = {"prod": "https://lakefs.example.com"}
    made["at"] = "2026-03-31T12:00:00+00:00"
    return made


def it_has_totals_figures_prefixes_and_ages() -> None:
    page = render_storage_page(several())
    for part in (
        "raw/: 500 B, 200 B reclaimable now",
        "365 days ago or more",
        "Smaller folders not shown: 2",
        "prod/third",
        "unknown",
    ):
        assert part in page, part
    targets = set(re.findall(r'href="#(repository-[^"]+)"', page))
    assert targets == set(re.findall(r'<section id="(repository-[^"]+)"', page))
    assert len(targets) == 2


def it_colours_by_what_could_be_deleted() -> None:
    tiles = re.findall(r'<rect class="(\w+)"[^>]*><title>([^:]*):', render_storage_page(several()))
    classes = {name: cls for cls, name in tiles}
    assert classes["models/a/"] == "held"
    assert classes["raw/"] == "some"
    assert [cls for name, cls in classes.items() if "script" in name] == ["most"]
    assert classes["directly in models/"] == classes["directly in no folder"] == "own"


def it_draws_a_folder_without_a_name_in_the_folder_above_it() -> None:
    places = [place("", 90), place("a/", 90), place("a//", 60), place("a//b/", 40)]
    made = document(listed=True, stored=amount(90), prefixes=places, prefixes_left_out=0, ages=[])
    titles = re.findall(r"<rect [^>]*><title>([^<]*)<", render_storage_page(made))
    assert titles == ["a//: 60 B, 0 B reclaimable now", "directly in a/: 30 B"]


def it_asks_no_network_and_lets_no_name_act() -> None:
    page = render_storage_page(several(branches=[{"name": EVIL, "held": NOTHING, "exclusive": NOTHING}]))
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "default-src &#x27;none&#x27;" in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)


def it_has_no_treemap_without_prefixes() -> None:
    assert "treemap of" not in render_storage_page(document()).lower()


@pytest.mark.parametrize("weights", [[1], [3, 2, 1], [5, 5, 5, 5, 5], [1000, 1, 1], [7, 0, 2]])
def it_divides_a_box_in_proportion(weights: list[int]) -> None:
    boxes = split(weights, (0.0, 0.0, WIDTH, HEIGHT))
    areas = [width * height for _, _, width, height in boxes]
    for weight, area in zip(weights, areas, strict=True):
        assert area == pytest.approx(WIDTH * HEIGHT * weight / sum(weights))
    for number, (left, top, width, height) in enumerate(boxes):
        assert 0 <= left <= left + width <= WIDTH + 0.01
        assert 0 <= top <= top + height <= HEIGHT + 0.01
        for other in boxes[number + 1 :]:
            across = min(left + width, other[0] + other[2]) - max(left, other[0])
            down = min(top + height, other[1] + other[3]) - max(top, other[1])
            assert min(across, down) < 0.01


@pytest.fixture
def opened(show_page: Callable[[str], Page]) -> Page:
    return show_page(render_storage_page(several()))


def it_draws_tiles_whose_names_fit(opened: Page) -> None:
    outside = opened.evaluate(
        "[...document.querySelectorAll('svg[role=img] g')].filter((g) => g.querySelector('text') &&"
        " g.querySelector('text').getBBox().width > g.querySelector('rect').getBBox().width).length"
    )
    assert outside == 0
    assert opened.evaluate("document.querySelectorAll('svg[role=img] rect').length") >= 10
    assert opened.console == []
    assert all(one.startswith("file:") for one in opened.requests)


def it_opens_folders_and_sorts_them(opened: Page) -> None:
    rows = (
        "[...document.querySelector('.folders').querySelectorAll('tbody tr')].filter((r) => !r.hidden).length"
    )
    before = opened.evaluate(rows)
    opened.evaluate(
        "document.querySelector('.folders').querySelectorAll('button.fold').forEach((b) =>"
        " b.ariaExpanded === 'true' || b.click()); 1"
    )
    assert opened.evaluate(rows) == len(PLACES) > before


@pytest.mark.parametrize("colours", ["light", "dark"])
def it_fits_a_window_in_both_colours(opened: Page, colours: str) -> None:
    opened.prefer(colours)
    for width in (1280, 400):
        opened.size(width, 900)
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.size(1280, 900)
    assert opened.console == []


def it_is_used_by_keyboard_and_names_every_landmark_apart(opened: Page) -> None:
    reached = []
    for _ in range(40):
        opened.press("Tab")
        reached.append(opened.evaluate("document.activeElement.tagName"))
    assert {"SELECT", "BUTTON", "A"} <= set(reached)
    opened.size(400, 900)
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; }); 1")
    opened.evaluate("new Promise((done) => setTimeout(done, 300))")  # observers of sizes come later
    names = opened.evaluate(
        "[...document.querySelectorAll('[role=region], section, nav')].map((one) => one.ariaLabel"
        " || document.getElementById(one.getAttribute('aria-labelledby'))?.textContent)"
    )
    opened.size(1280, 900)
    assert all(names)
    assert len(set(names)) == len(names) > 8

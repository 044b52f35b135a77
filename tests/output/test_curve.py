"""A curve as a person sees it: tables at two widths, and the picture."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from lakeplan.output.drawing import nice_ceiling
from lakeplan.output.simulate import curve_svg, render_curve

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "curve.v1.json").read_text())
SVG = "{http://www.w3.org/2000/svg}"


def amount(objects: int, size_bytes: int) -> dict[str, int]:
    return {"objects": objects, "size_bytes": size_bytes}


def point(days: int, objects: int, size_bytes: int, risk: tuple[int, int] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"days": days, **amount(objects, size_bytes)}
    return found if risk is None else {**found, "at_risk": amount(*risk)}


@pytest.fixture
def document() -> dict[str, Any]:
    default = {
        "branch_id": None,
        "days_now": 21,
        "now": amount(7400, 740_000_000_000),
        "points": [
            point(0, 20_000, 2_000_000_000_000),
            *(point(n, 20_000 - 600 * n, 2_000_000_000_000 - 60_000_000_000 * n) for n in range(1, 30)),
            point(180, 30, 2_000_000_000),
        ],
        "kept_at_any_days": amount(180_000, 7_000_000_000_000),
        "kept_at_no_days": amount(30, 2_000_000_000),
        "server": [
            point(7, 15_800, 1_580_000_000_000, (0, 0)),
            point(21, 7_650, 775_000_000_000, (250, 35_000_000_000)),
            point(365, 30, 2_000_000_000, (0, 0)),
        ],
    }
    branch = {
        "branch_id": "release-\u202e<7> & \x1b[31m",
        "days_now": 90,
        "now": amount(0, 0),
        "points": [point(0, 12, 900_000), point(60, 2, 500_000), point(80, 0, 0)],
        "kept_at_any_days": amount(200_000, 9_000_000_000_000),
        "kept_at_no_days": amount(0, 0),
        "server": [point(90, 0, 0, (0, 0))],
    }
    found = {
        "schema": "curve.v1",
        "versions": {"lakeplan": "0.1.0"},
        "repository": "prod/analytics",
        "as_of": "2026-03-31T12:00:00Z",
        "time_zone": "UTC",
        "listing": False,
        "at_most": True,
        "runner": {"name": "local", "reason": "100 entries do not exceed the threshold of 20,000,000"},
        "uncommitted_run": None,
        "rules": {
            "default_retention_days": 21,
            "branches": [{"branch_id": branch["branch_id"], "retention_days": 90}],
        },
        "etag": "5f" * 32,
        "refs": {"commits": 300, "dangling_commits": 2, "branches": 4},
        "read": {"metaranges": 300, "ranges": 2100, "entries": 10_400_000, "size_bytes": 1_200_000_000},
        "committed": amount(200_012, 9_000_000_900_000),
        "never_committed": amount(9, 90_000),
        "curves": [default, branch],
        "horizon": {
            "days": 90,
            "until": "2026-06-29T12:00:00Z",
            "gone_now": amount(7400, 740_000_000_000),
            "later_or_never": amount(190_000, 8_000_000_000_000),
            "total": amount(600, 60_000_000_000),
            "days_with_losses": [
                {
                    "day": n,
                    "until": f"2026-04-{n:02d}T12:00:00Z",
                    "objects": 30,
                    "size_bytes": 3_000_000_000,
                }
                for n in range(2, 22)
            ],
        },
        "warnings": [
            "storage was not listed, so the numbers are upper bounds and do not take the minimum age into"
            " account"
        ],
    }
    jsonschema.validate(found, SCHEMA)
    return found


@pytest.mark.parametrize("width", [80, 160])
def it_shows_curves_and_the_horizon(document, show, golden_output, width):
    golden_output(f"curve-{width}", show(render_curve, document, width))


def it_marks_the_days_that_stand_now(document, show):
    lines = [" ".join(line.split()) for line in show(render_curve, document, 160).splitlines()]
    assert [line for line in lines if line.startswith("→ 21 7,400")]


def it_says_where_the_server_takes_more(document, show):
    assert "+250 objects, 35.0 GB" in show(render_curve, document, 80)


def it_has_no_bars_of_nothing(document, show):
    for curve in document["curves"]:
        curve["points"] = [point(0, 0, 0)]
    document["committed"] = amount(0, 0)
    assert "█" not in show(render_curve, document, 160)


class DescribeThePicture:
    def it_is_well_formed_and_says_in_words_what_it_shows(self, document):
        root = ElementTree.fromstring(curve_svg(document))
        assert root.tag == f"{SVG}svg"
        said = root.findtext(f"{SVG}desc")
        assert said is not None
        assert "at 21 days 7,400 objects of 740.0 GB expire" in said

    def it_takes_names_for_text_and_nothing_else(self, document):
        text = curve_svg(document)
        assert "&lt;7&gt; &amp;" in text
        assert "\x1b" not in text
        assert "\u202e" not in text

    def it_draws_the_server_only_where_it_differs(self, document):
        root = ElementTree.fromstring(curve_svg(document))
        titles = [t.text or "" for t in root.iter(f"{SVG}title")]
        marks = [t for t in titles if "the server deletes" in t]
        assert marks == [
            "21 days: the server deletes 775.0 GB, 35.0 GB more than documented",
            "21 days: the server deletes 7,650, 250 more than documented",
        ]
        calm = copy.deepcopy(document)
        calm["curves"][0]["server"][1]["at_risk"] = amount(0, 0)
        assert "deletes more" not in curve_svg(calm)

    def it_steps_through_every_point(self, document):
        root = ElementTree.fromstring(curve_svg(document))
        steps = [p.get("d", "") for p in root.iter(f"{SVG}path") if p.get("class") == "step"]
        # one in the legend, then bytes and objects of both rules: a move, a step a point, and the rest
        assert [path.count("V") for path in steps[1:]] == [30, 30, 2, 2]
        heights = [float(v) for v in re.findall(r"V([0-9.]+)", steps[1])]
        assert heights == sorted(heights)  # downwards: less goes at more days

    def it_suits_light_and_dark_pages(self, document):
        style = ElementTree.fromstring(curve_svg(document)).findtext(f"{SVG}style")
        assert style is not None
        assert "prefers-color-scheme: dark" in style

    def it_draws_no_horizon_that_was_not_asked_for(self, document):
        document["horizon"] = None
        assert "if nobody writes" not in curve_svg(document)

    def it_draws_nothing_where_nothing_goes(self, document):
        for curve in document["curves"]:
            curve["points"] = [point(0, 0, 0)]
        document["horizon"]["days_with_losses"] = []
        assert ElementTree.fromstring(curve_svg(document)).tag == f"{SVG}svg"


@pytest.mark.parametrize(
    ("value", "ceiling"), [(1, 1), (3, 4), (5, 6), (80, 80), (81, 100), (123_456, 200_000)]
)
def test_a_scale_ends_at_a_round_number(value, ceiling):
    assert nice_ceiling(value) == ceiling

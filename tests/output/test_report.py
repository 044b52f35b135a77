"""The report page as text: structure, safety, and what it says without a script."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from lakeplan.output.drawing import Markup, el
from lakeplan.output.html import SCRIPTS, STYLES, asset, data_block, impact_section, script, styles, table
from lakeplan.output.report import render_report
from lakeplan.plan.page import report_page_document
from lakeplan.values.pins import PinRow, PinsPlan, PinState
from lakeplan.values.plan_document import to_document
from lakeplan.values.rules import GcRules
from tests.output import report_pages

VOID = {"meta", "input", "br", "hr", "col", "img", "link"}


class Reader(HTMLParser):
    """Elements in order, checked to be well nested, with the text of the page outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page() -> str:
    return render_report(report_pages.full())


@pytest.fixture(scope="module")
def read(page: str) -> Reader:
    return Reader(page)


class DescribeSafety:
    def it_lets_no_name_become_markup(self, read: Reader) -> None:
        assert read.all("img") == []
        assert len(read.all("script")) == 2, "one block of data, one script"
        assert not any(name.startswith("on") for _, attributes in read.elements for name in attributes)
        assert "</script><img src=x" in read.text, "it is shown as the text it is"

    def it_shows_characters_that_reorder_text_as_escapes(self, page: str) -> None:
        assert "\u202e" not in page
        assert "\\u202e" in page

    def it_asks_nothing_of_any_network(self, page: str, read: Reader) -> None:
        assert read.all("link") == []
        fetching = {"src", "srcset", "data", "action", "poster", "background", "formaction", "ping"}
        assert not [(t, a) for t, a in read.elements if fetching & set(a)]
        assert all((a["href"] or "").startswith("#") for a in read.all("a"))
        assert "@import" not in page
        assert "url(" not in styles()
        assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|import\(|sendBeacon|innerHTML", script())

    def it_forbids_what_it_does_not_need(self, read: Reader) -> None:
        policy = next(a["content"] for a in read.all("meta") if a.get("http-equiv"))
        assert policy is not None
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "unsafe" not in policy
        assert not [a for _, a in read.elements if "style" in a], "a style attribute would be refused"

    def it_writes_text_that_any_file_can_hold(self) -> None:
        document = report_pages.full()
        document["missing"].append("a lone \udcff surrogate")
        assert render_report(document).encode("utf-8")

    def it_can_always_end_a_data_block(self) -> None:
        block = data_block("x", {"name": report_pages.NASTY, "more": "\u2028 <!-- <script>"})
        inside = block[block.index(">") + 1 : block.rindex("</script>")]
        assert not set("<>&\u2028") & set(inside)
        assert json.loads(inside)["name"] == report_pages.NASTY


class DescribeStructure:
    def it_has_landmarks_and_a_way_past_them(self, read: Reader) -> None:
        tags = [tag for tag, _ in read.elements]
        assert [tags.count(tag) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
        assert read.all("html") == [{"lang": "en"}]
        first = read.all("a")[0]
        assert (first["href"], first["class"]) == ("#content", "skip")

    def it_leaves_out_no_level_of_headings(self, read: Reader) -> None:
        levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))

    def it_names_every_section_by_its_heading(self, read: Reader) -> None:
        titles = {a["id"] for tag, a in read.elements if tag == "h2"}
        sections = read.all("section")
        assert {a["aria-labelledby"] for a in sections} == titles
        assert {f"#{a['id']}" for a in sections} <= {a["href"] for a in read.all("a")}

    def it_gives_no_id_twice_and_labels_every_control(self, read: Reader) -> None:
        ids = [a["id"] for _, a in read.elements if "id" in a]
        assert len(ids) == len(set(ids))
        labelled = {a.get("for") for a in read.all("label")}
        controls = [a for tag in ("select", "input") for a in read.all(tag)]
        assert {a["id"] for a in controls} <= labelled

    def it_gives_every_table_a_caption_and_every_header_a_scope(self, read: Reader) -> None:
        assert len(read.all("caption")) == len(read.all("table")) > 5
        assert all(a.get("scope") in ("row", "col") for a in read.all("th"))

    def it_says_in_words_what_every_picture_shows(self, read: Reader) -> None:
        pictures = [a for a in read.all("svg") if a.get("aria-hidden") != "true"]
        assert len(pictures) >= 4
        assert all(a["role"] == "img" and len(a["aria-label"] or "") > 20 for a in pictures)


class DescribeWhatItSays:
    @pytest.mark.parametrize(
        "words",
        [
            "Plan: 0 to add, 1 to change",
            "data-platform",
            "Commits of prod/shop by verdict",
            "stored: 30 days",
            "proposed: 7 days",
            "3 branches; policies delete 1 of them within 30 days.",
            "2026-04-05T00:00Z by quiet, newly",
            "a warning of the curve",
            "at least 10 days",
            "What this page does not show",
        ],
    )
    def it_says(self, read: Reader, words: str) -> None:
        assert words in read.text

    def it_says_when_the_history_has_moved(self) -> None:
        document = report_pages.full()
        assert "it has changed since" not in render_report(document)
        document["graphs"][0]["same_as_plan"] = False
        assert "This history differs from the one that the plan evaluated" in render_report(document)

    def it_shows_a_plan_without_a_history(self) -> None:
        read = Reader(render_report(report_pages.alone()))
        assert "graph" not in {a.get("id") for a in read.all("section")}
        assert "The plan file has dates only for branches" in read.text
        assert "3 branches; policies delete 1 of them" in read.text
        assert len(read.all("script")) == 1

    def it_shows_every_part_of_a_plan(self, plans: Any) -> None:
        read = Reader(render_report(report_page_document(plans.full())))
        for words in (
            "BLOCKED by tag-loss, unknown-impact",
            "BLOCKED by 2 gates: see Gates",
            "tag-loss",
            "REFUSED",
            "v2025.12",
            "prod/ml-models",
            "not set",
        ):
            assert words in read.text
        assert "3.1 TB1,204,331 objectsand unknown in 1 repository" in read.text

    def it_never_shows_what_is_unknown_as_nothing(self, read: Reader) -> None:
        """The plan of this page judged nothing at all."""
        for card in ("Expires now", "In 30 days, assuming no new commits", "At risk", "Expiring commits"):
            assert f"{card}unknownin every repository" in read.text

    def it_shows_a_plan_that_changes_nothing(self, plans: Any) -> None:
        read = Reader(render_report(report_page_document(plans.make(plans.unchanged("a")))))
        assert "No repository changes." in read.text
        assert "Plan: no changes, 1 unchanged." in read.text

    def it_says_that_nothing_was_asked_of_what_does_not_change(self, plans: Any) -> None:
        document = report_page_document(plans.make(plans.unchanged("a")), targets=["prod/a"])
        assert "The impact was not computed" in Reader(render_report(document)).text

    def it_is_rendered_from_json_alone(self, page: str) -> None:
        assert render_report(json.loads(json.dumps(report_pages.full()))) == page

    def it_says_that_a_curve_is_of_other_rules(self) -> None:
        document = report_pages.full()
        document["curves"][0]["rules"] = None
        assert "computed with rules that are neither" in render_report(document)


class DescribeParts:
    def it_escapes_text_and_attributes(self) -> None:
        assert el("p", '<b>"&', title='"><i>') == '<p title="&quot;&gt;&lt;i&gt;">&lt;b&gt;&quot;&amp;</p>'
        assert (
            el("p", Markup("<b>x</b>"), None, ["y", 1], hidden=True, lang=None) == "<p hidden><b>x</b>y1</p>"
        )

    def it_takes_attributes_of_cells(self) -> None:
        made = table("t", ("a", "b"), [["x", ("1 kB", {"data_sort": 1000, "cls": "some"})]], figures=(1,))
        assert '<td class="num some" data-sort="1000">1 kB</td>' in made

    def it_ships_every_script_and_style(self) -> None:
        for name in (*STYLES, *SCRIPTS):
            assert asset(name).strip(), name
            assert "</script" not in asset(name)
            assert "</style" not in asset(name)


def _luminance(colour: str) -> float:
    channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


PALETTES = [
    dict(re.findall(r"--([a-z_-]+): (#[0-9a-f]{6})", rule))
    for rule in re.findall(r"\{[^{}]*--paper: #[^{}]*\}", styles())
]


class DescribeContrast:
    def it_has_a_light_palette_and_one_dark_one_in_two_places(self) -> None:
        light, dark, chosen = PALETTES
        assert dark == chosen
        assert _luminance(light["paper"]) > 0.9 > 0.02 > _luminance(dark["paper"])

    @pytest.mark.parametrize("palette", PALETTES[:2], ids=["light", "dark"])
    @pytest.mark.parametrize("on", ["paper", "panel", "select"])
    @pytest.mark.parametrize("ink", ["ink", "dim", "link", "kept", "expires", "at_risk", "released"])
    def it_is_readable(self, palette: dict[str, str], ink: str, on: str) -> None:
        """WCAG AA for text: 4.5."""
        assert _contrast(palette[ink], palette[on]) >= 4.5

    @pytest.mark.parametrize("palette", PALETTES[:2], ids=["light", "dark"])
    def it_is_readable_where_it_warns(self, palette: dict[str, str]) -> None:
        assert _contrast(palette["alert"], palette["alert-paper"]) >= 4.5
        assert min(_contrast(palette["alert"], palette[on]) for on in ("paper", "panel")) >= 4.5

    @pytest.mark.parametrize("palette", PALETTES[:2], ids=["light", "dark"])
    @pytest.mark.parametrize("mark", ["kept", "expires", "at_risk", "released", "gone", "bar", "focus"])
    def it_can_be_seen_in_pictures(self, palette: dict[str, str], mark: str) -> None:
        """WCAG AA for graphics and focus: 3."""
        assert min(_contrast(palette[mark], palette[on]) for on in ("paper", "panel")) >= 3


def it_shows_pins_that_an_apply_would_make(plans: Any) -> None:
    rules = GcRules(21, {"main": 28})
    missing = PinRow("a1" * 32, "lakeplan-pin-a1a1a1a1a1a1", PinState.MISSING, reasons=("tag <v1>",))
    repository = plans.repository("lake", rules, rules, pins=PinsPlan(plans.as_of, (missing,)))
    section = impact_section({"repositories": to_document(plans.make(repository))["repositories"]})
    assert "lakeplan-pin-a1a1a1a1a1a1" in section.body
    assert "tag &lt;v1&gt;" in section.body


def it_says_why_prefixes_may_add_up_to_more_than_all() -> None:
    page = render_report(report_pages.full())
    assert (
        page.count("An object with several paths is counted at each path.")
        == page.count("Data that expires now")
        > 0
    )


@pytest.mark.parametrize(("left", "text"), [(1, "has 1 more curve."), (2, "has 2 more curves.")])
def it_counts_the_curves_that_it_leaves_out(left: int, text: str) -> None:
    document = report_pages.full()
    one = document["curves"][0]["curve"]
    one["curves"] = [one["curves"][0]] * (12 + left)
    assert text in render_report(document)

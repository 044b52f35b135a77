"""The report page in a real Chromium: by keyboard and mouse, in both colours, and without any network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timezone
from pathlib import Path

import pytest

from lakeplan.output.report import render_report
from lakeplan.plan.page import History, report_page_document
from lakeplan.values.repository import Branch, Refs
from lakeplan.values.rules import GcRules
from tests.output import report_pages as pages
from tests.output.chromium import Page, chromium, find_chromium

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium: on Debian, apt-get install chromium"
)
MANY = 10_000
D, C, Z = (pages.commit_id(name) for name in "dcz")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        page.size(1280, 900)
        yield page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_report(pages.full()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trunk with a branch off it every hundred commits."""
    commits, heads, tip = [pages.commit("0", 730)], {}, "0"
    for n in range(1, MANY):
        name = str(n)
        commits.append(
            pages.commit(name, 730 * (1 - n / MANY), tip, message=f"load number {n} of the orders")
        )
        if n % 100 == 50:
            heads[f"feature-{n}"] = name
        else:
            tip = name
    branches = tuple(Branch(b, pages.commit_id(c)) for b, c in sorted({**heads, "main": tip}.items()))
    read = History(Refs(tuple(commits), branches, ()), "the server prod", timezone.utc)
    document = report_page_document(
        pages.plan(pages.repository(read, branch_lifecycle=None)), histories={"prod/shop": read}
    )
    path = tmp_path_factory.mktemp("large") / "report.html"
    path.write_text(render_report(document), encoding="utf-8")
    return path


def why(page: Page) -> dict[str, str]:
    """The reasons of the chosen commit, by title."""
    pairs = page.evaluate(
        "[...document.querySelectorAll('#graph-why dt')].map(t => [t.innerText, t.nextSibling.innerText])"
    )
    return dict(pairs)


def rows(page: Page) -> list[str]:
    return list(page.evaluate("[...document.querySelectorAll('#graph-list .row')].map(r => r.textContent)"))


def focus(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id"))


def it_begins_without_a_word_on_the_console_and_asks_only_for_itself(browser: Page, file: Path) -> None:
    browser.console.clear()
    browser.requests.clear()
    browser.open(file)
    assert browser.evaluate("Number(document.documentElement.dataset.ready) >= 0")
    assert browser.console == []
    assert browser.requests == [file.as_uri()]


def it_runs_nothing_that_a_name_brings(browser: Page, file: Path) -> None:
    browser.open(file, f"commit={C}")
    assert browser.evaluate("document.title").startswith("lakeplan report")
    assert browser.evaluate("document.images.length + document.querySelectorAll('main script').length") == 0
    assert "</script><img src=x" in why(browser)["Created"]
    shown = browser.text("body")
    assert not any(harmful in shown for harmful in ("\u202e", "\u3164", "\u0302" * 5))


def it_refuses_what_a_stranger_would_add(browser: Page, file: Path) -> None:
    browser.open(file)
    browser.evaluate(
        "const made = document.createElement('script'); made.textContent = 'window.owned = 1'; "
        "document.body.append(made); 1"
    )
    assert browser.evaluate("typeof window.owned") == "undefined"
    refused = browser.evaluate("fetch('http://127.0.0.1:1/').then(() => 'sent', e => String(e))")
    assert "Failed to fetch" in refused
    assert "http://127.0.0.1:1/" not in browser.requests


def it_tells_the_reasons_of_the_commit_in_the_address(browser: Page, file: Path) -> None:
    browser.open(file, f"repository=prod/shop&commit={Z}")
    told = why(browser)
    assert told["Verdict"].startswith("expires. The stored rules keep it, but the proposed")
    said = "Nothing has kept it since 2026-03-26. The last to keep it was a commit of a"
    assert told["Proposed rules"].startswith(said)
    assert told["Stored rules"].startswith("Kept until 2026-04-18 by a commit of a deleted branch, 30 days")
    browser.open(file, f"commit={C}")
    assert why(browser)["Proposed rules"] == (
        "Kept until 2026-04-15 by branch main, 20 days (its own rule): "
        f"{D[:12]} followed it there on 2026-03-26, and the days count from then."
    )


def it_never_says_kept_of_what_the_server_lets_go(browser: Page, tmp_path: Path) -> None:
    """At risk: the documented rule keeps it, and that is said second."""
    old = (pages.commit("p", 200, "a"), pages.commit("q", 190, "p"), pages.commit("r", 2, "p"))
    read = pages.history(*old, hold="q", quick="r")
    rules = {"before": GcRules(30, {"hold": 250}), "after": GcRules(7, {"hold": 100})}
    document = report_page_document(
        pages.plan(pages.repository(read, **rules)), histories={"prod/shop": read}
    )
    path = tmp_path / "report.html"
    path.write_text(render_report(document), encoding="utf-8")
    browser.open(path, f"commit={pages.commit_id('p')}")
    told = why(browser)
    assert told["Verdict"].startswith("at risk. ")
    assert told["Proposed rules"].startswith(
        "The server deletes it because its walk stops early. The documented rule"
    )
    assert "keeps it until 2026-04-05 by branch quick, 7 days" in told["Proposed rules"]
    assert told["Stored rules"].startswith("Kept until")


def it_shows_the_verdicts_of_another_moment(browser: Page, file: Path) -> None:
    browser.open(file, f"commit={C}&moment=plus_30_days")
    assert why(browser)["Verdict"].startswith("expires.")


def it_can_be_walked_by_the_keyboard_alone(browser: Page, file: Path) -> None:
    browser.open(file)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    for _ in range(80):
        if focus(browser) == "graph-list":
            break
        browser.press("Tab")
    assert focus(browser) == "graph-list"
    browser.press("ArrowDown")
    assert why(browser)["Commit"] == D
    active = browser.evaluate("document.getElementById('graph-list').getAttribute('aria-activedescendant')")
    assert browser.evaluate(f"document.getElementById({json.dumps(active)}).ariaSelected") == "true"
    browser.press("ArrowDown", 2)
    assert why(browser)["Commit"] == Z
    browser.press("End")
    assert why(browser)["Commit"] == pages.commit_id("a")
    browser.press("Home")
    assert why(browser)["Commit"] == D
    browser.press("Enter")
    assert focus(browser) == "graph-reasons"
    browser.press("Escape")
    assert focus(browser) == "graph-list"


def test_the_address_leads_to_the_chosen_commit(browser: Page, file: Path) -> None:
    browser.open(file, "theme=dark")
    browser.evaluate("document.getElementById('graph-list').focus()")
    browser.press("ArrowDown", 3)
    browser.evaluate("new Promise(done => addEventListener('hashchange', done, {once: true}))")
    address = browser.evaluate("location.hash")
    assert address == f"#repository=prod%2Fshop&commit={Z}&theme=dark"
    browser.evaluate(f"location.hash = 'commit={C}'; 1")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    assert why(browser)["Commit"] == C


def it_says_in_every_entry_what_becomes_of_it_and_why(browser: Page, file: Path) -> None:
    browser.open(file)
    said = rows(browser)
    assert len(said) == 9
    assert said[0].startswith(f"kept {D[:12]} 2026-03-26 branch main load d . It is the HEAD of branch main")
    assert all(re.match(r"(kept|expires|gone) [0-9a-f]{12} .* \. [A-Z]", words) for words in said)


def it_filters_by_verdict_and_words(browser: Page, file: Path) -> None:
    browser.open(file, "show=expires,at_risk")
    assert browser.text("#graph-found") == "4 commits of 9"
    browser.open(file, "find=LOAD+X")
    assert [words.split()[1] for words in rows(browser)] == [pages.commit_id("x")[:12]]


def it_goes_from_change_to_change(browser: Page, file: Path) -> None:
    browser.open(file)
    found = []
    for _ in range(5):
        browser.evaluate("document.getElementById('graph-next').click()")
        found.append(bytes.fromhex(why(browser)["Commit"]).decode().rstrip("\0"))
    assert found == ["z", "x", "b", "a", "z"]


def it_tells_the_reason_under_the_mouse(browser: Page, file: Path) -> None:
    browser.open(file)
    place = browser.evaluate(
        "(() => { const list = document.getElementById('graph-list'); list.scrollIntoView({block: 'center', "
        "behavior: 'instant'}); const r = list.querySelectorAll('.row')[2].getBoundingClientRect(); "
        "return [r.x + 400, r.y + 10]; })()"
    )
    browser.point(*place)
    assert browser.text("#graph-hint").startswith(f"{Z[:12]}, 2026-03-19: expires. Nothing has kept it since")


@pytest.mark.parametrize(
    ("system", "fragment", "paper"),
    [
        ("light", "", "rgb(255, 255, 255)"),
        ("dark", "", "rgb(13, 17, 23)"),
        ("light", "theme=dark", "rgb(13, 17, 23)"),
        ("dark", "theme=light", "rgb(255, 255, 255)"),
    ],
)
def it_has_the_colours_of_the_system_or_the_chosen_ones(
    browser: Page, file: Path, system: str, fragment: str, paper: str
) -> None:
    browser.prefer(system)
    browser.open(file, fragment)
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == paper
    browser.prefer("light")


def it_draws_the_colours_of_verdicts(browser: Page, file: Path) -> None:
    """The picture of the whole history holds the very colours that the legend has."""
    script = (
        "(() => { const c = document.getElementById('graph-overview'); const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; const seen = new Set(); for (let i = 0; i < d.length; "
        "i += 4) if (d[i + 3] === 255) seen.add([d[i], d[i + 1], d[i + 2]].join()); return [...seen]; })()"
    )
    for theme, kept, expires in (("light", "27,101,166", "179,71,0"), ("dark", "108,176,245", "255,166,87")):
        browser.open(file, f"theme={theme}")
        assert {kept, expires} <= set(browser.evaluate(script))


def it_sorts_a_table_by_its_figures(browser: Page, file: Path) -> None:
    browser.open(file)
    sort = (
        "(() => { const t = [...document.querySelectorAll('table')].find(t => t.caption.innerText.startsWith("
        "'Branches of')); t.tHead.rows[0].cells[2].querySelector('button').click(); "
        "const found = [...t.tBodies[0].rows].map(r => r.cells[2].innerText); "
        "return [t.tHead.rows[0].cells[2].ariaSort, ...found]; })()"
    )
    assert browser.evaluate(sort) == ["descending", "40 days", "10 days", "5 days"]
    assert browser.evaluate(sort) == ["ascending", "5 days", "10 days", "40 days"]


def it_works_on_a_narrow_screen(browser: Page, file: Path) -> None:
    browser.size(360, 740)
    browser.open(file)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    browser.size(1280, 900)


def it_takes_ten_thousand_commits(browser: Page, large: Path) -> None:
    assert large.stat().st_size < 5_000_000
    browser.open(large)
    assert browser.text("#graph-found") == "10,000 commits"
    assert len(rows(browser)) < 60, "only what is in sight is in the page"
    browser.evaluate("document.getElementById('graph-list').focus()")
    browser.press("End")
    assert why(browser)["Commit"] == pages.commit_id("0")
    assert browser.evaluate("document.querySelector('.row[aria-selected=true]').ariaPosInSet") == "10000"
    picture = browser.evaluate("document.getElementById('graph-overview').ariaLabel")
    assert picture.startswith("10,000 commits of prod/shop")


def it_reads_without_a_script(browser: Page, file: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.go(file.as_uri())
        assert browser.evaluate("document.documentElement.dataset.ready") is None
        assert "The list of commits needs JavaScript" in browser.text("#graph")
        assert "Commits of prod/shop by verdict" in browser.text("#graph")
        assert browser.evaluate("document.getElementById('graph-list').clientHeight") == 0
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)

"""Every relative link of the documentation leads to a file, and to a heading in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.reference.markdown import anchor

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "bench").rglob("*.md"),
    ]
)
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def links(page: Path) -> Iterator[str]:
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {anchor(re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading)) for heading in HEADING.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=named)
def it_leads_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, heading = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{named(page)} links to {target}, which is not there"
        assert ROOT in (there, *there.parents), f"{named(page)} links to {target}, outside the repository"
        if heading:
            assert heading in anchors(there), f"{named(page)} links to {target}, which has no such heading"


def it_finds_every_page_from_the_index() -> None:
    docs = ROOT / "docs"
    linked = {(docs / t.partition("#")[0]).resolve() for t in links(docs / "README.md")}
    pages = {p for p in docs.rglob("*.md") if p.name != "README.md"}
    missing = {named(p) for p in pages - linked}
    assert not missing, f"docs/README.md leads to none of {sorted(missing)}"

"""The site's pages link only to each other. ``make site`` builds them, strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.reference.markdown import anchor
from tools.site import FENCED, LINK, main, page_text, pages, write_pages


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    write_pages(folder)
    return folder / "pages"


def without_code(page: Path) -> str:
    return "".join(t for t in FENCED.split(page.read_text(encoding="utf-8")) if not t.startswith("```"))


def headings(page: Path) -> Iterator[str]:
    for heading in re.findall(r"^#+ +(.+?) *$", without_code(page), re.MULTILINE):
        yield anchor(LINK.sub(r"\1", heading))


def it_links_to_pages_and_headings_that_exist(built: Path) -> None:
    every = sorted(built.rglob("*.md"))
    assert len(every) == len(pages())
    links = 0
    for page in every:
        for _, target in LINK.findall(without_code(page)):
            path, _, heading = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page.relative_to(built)} links to {target}"
            assert not heading or heading in headings(there), f"{page.relative_to(built)} links to {target}"
            links += 1
    assert links > 100


def it_lists_every_page_once_in_its_navigation(built: Path) -> None:
    nav = (built.parent / "zensical.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"([^"]+\.md)"', nav)
    assert sorted(listed) == sorted(pages().values())


def it_turns_a_link_to_a_file_of_the_repository_into_text() -> None:
    index = next(path for path in pages() if path.name == "limits.md")
    assert "lakeplan/limits.py`](" in index.read_text(encoding="utf-8")
    text = page_text(index, pages())
    assert "`lakeplan/limits.py`" in text
    assert "lakeplan/limits.py`](" not in text


def it_replaces_no_folder_that_is_no_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").touch()
    assert main([str(tmp_path)]) == 64
    assert "is not a site" in capsys.readouterr().err
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def it_is_written_so_that_the_site_shows_lists(page: Path) -> None:
    """Code in a list is indented by four spaces, and a list follows an empty line."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"^ {1,3}```", text, re.MULTILINE)
    before = ""
    for line in FENCED.sub("", text).splitlines():
        if re.match(r"(-|1\.) ", line):
            assert not before or before.startswith((" ", "- ", "#")), line
        before = line.strip("\n") if line.strip() else ""

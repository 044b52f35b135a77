"""The pages of docs that are made from the program are what the program makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.reference.__main__ import PAGES, main

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", PAGES)
def it_is_what_the_program_makes(name: str) -> None:
    lies = (ROOT / name).read_text(encoding="utf-8")
    assert lies == PAGES[name](), f"{name} is out of date: run make docs"


def it_writes_every_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")} == set(PAGES)
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in PAGES]


def it_asks_for_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 64
    assert "usage" in capsys.readouterr().err

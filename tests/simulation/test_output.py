from __future__ import annotations

from pathlib import Path

import pytest

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.simulation.output import check_target, written


def write(target: Path, text: str, *, overwrite: bool = False) -> None:
    with written(target, overwrite=overwrite) as folder:
        (folder / "summary.json").write_text(text)


def write_half(target: Path, *, overwrite: bool = False) -> None:
    with written(target, overwrite=overwrite) as folder:
        (folder / "half").write_text("x")
        raise ValueError("stop")


def it_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    write(target, "1")
    assert [p.name for p in tmp_path.joinpath("deep").iterdir()] == ["out"]
    assert (target / "summary.json").read_text() == "1"


def it_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"):
        write_half(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def it_keeps_old_results_until_the_new_ones_are_there(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write(target, "old")
    with pytest.raises(ValueError, match="stop"):
        write_half(target, overwrite=True)
    assert (target / "summary.json").read_text() == "old"
    write(target, "new", overwrite=True)
    assert (target / "summary.json").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def it_takes_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", "1")
    assert (tmp_path / "out" / "summary.json").exists()


@pytest.mark.parametrize("names", [["letter"], ["objects"], ["summary.json", "letter"]])
def it_never_replaces_what_is_not_its_own(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("x")
    with pytest.raises(UsageError):
        check_target(tmp_path, overwrite=True)


def it_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LakeplanError, match="cannot write"):
        write(tmp_path / "file" / "out", "1")

"""Groups of options: what typer reads of them, and the values that they make."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer

from lakeplan.cli.options import Options, command, option

Width = Annotated[int, option("Width of the box.", "CM")]
Height = Annotated[int, option("Height of the box.", "CM")]
Loud = Annotated[bool, option("Say it loudly.")]


def _size(width: Width = 1, height: Height = 2, loud: bool = False, unit: str = "cm") -> str:
    return f"{width}x{height} {unit}{'!' if loud else ''}"


def _titled(
    size: Annotated[str, Options(_size)],
    title: Annotated[str, option("Title of the box.", names=("-t", "--title"))] = "box",
) -> str:
    return f"{title} {size}"


def _show(*, loud: Loud = False, box: Annotated[str, Options(_titled)], width: int) -> int:
    print(box, width, loud)
    return 0


def it_stands_for_its_options_in_their_order() -> None:
    assert [parameter.name for parameter in Options(_show).declared] == ["loud", "width", "height", "title"]


def it_makes_one_value_of_what_is_given_and_takes_other_options_by_their_names() -> None:
    given = {"loud": True, "width": 3, "height": 4, "title": "crate"}
    assert Options(_titled).value(given) == "crate 3x4 cm!"
    assert Options(_titled).value({}) == "box 1x2 cm"


def it_gives_a_command_what_typer_read(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()
    command("Shows a box.", common="")(_show).add(app, "show", "")
    app(["--height", "9", "--loud"], standalone_mode=False)
    assert capsys.readouterr().out == "box 1x9 cm! 1 True\n"


def it_names_an_option_as_its_parameter_and_gives_a_flag_no_opposite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = typer.Typer()
    command("Shows a box.", common="")(_show).add(app, "show", "")
    app(["--help"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("--width", "--height", "--loud", "-t", "--title"))
    assert "--no-loud" not in shown

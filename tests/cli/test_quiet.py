"""With ``-q`` a command prints no report, but says why it failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from lakeplan.cli.outputs import Outputs, pair_outputs
from lakeplan.errors import ExitCode

FAILURES = (ExitCode.ERROR, ExitCode.PARTLY_DONE, ExitCode.REFUSED, ExitCode.STALE)


def _emitted(code: int, *outs: Path, quiet: bool = True) -> None:
    outputs = pair_outputs(None, outs, ("json",), quiet=quiet)
    Outputs(outputs, no_color=True).emit({"why": "a clock is wrong"}, _render, code=code)


def _render(document: dict[str, str], console: Console) -> None:
    console.print(f"FAILED {document['why']}")


@pytest.mark.parametrize("code", FAILURES)
def it_says_on_standard_error_why_a_command_failed(
    code: ExitCode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _emitted(code)
    assert capsys.readouterr() == ("", "FAILED a clock is wrong\n")
    _emitted(code, tmp_path / "report.json")
    assert capsys.readouterr() == ("", "FAILED a clock is wrong\n")


@pytest.mark.parametrize("code", [ExitCode.OK, ExitCode.CHANGES_PENDING])
def it_says_nothing_of_what_is_fine(code: ExitCode, capsys: pytest.CaptureFixture[str]) -> None:
    _emitted(code)
    assert capsys.readouterr() == ("", "")


def it_says_it_once_without_q(capsys: pytest.CaptureFixture[str]) -> None:
    _emitted(ExitCode.ERROR, quiet=False)
    assert capsys.readouterr() == ("FAILED a clock is wrong\n", "")

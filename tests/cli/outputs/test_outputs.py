"""The real output of every command, at 80 and at 160 columns."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping

import pytest

from tests.cli.outputs.cases import CASES
from tests.cli.outputs.cases import typed as typed_at
from tests.cli.outputs.looks import looks
from tests.cli.outputs.site import Site, Told

at_both_widths = pytest.mark.parametrize("width", [80, pytest.param(160, marks=pytest.mark.extended)])


@at_both_widths
@pytest.mark.parametrize("command", CASES)
def it_looks_as_reviewed(
    command: str,
    width: int,
    open_site: Callable[[str], Site],
    golden_file: Callable[[str, str], None],
    request: pytest.FixtureRequest,
) -> None:
    case = CASES[command]
    site = open_site(case.stage)
    if case.prepare is not None:
        case.prepare(site)
    told = [_told(site, line, width, case.environment) for line in case.lines]
    text = "\n".join(map(shown, told))
    assert looks(text, width) == []
    golden_file(f"{command.replace(' ', '-')}/{width}", text)
    assert told[-1].code == case.code


def _told(site: Site, line: str, width: int, environment: Mapping[str, str]) -> Told:
    words = typed_at(site, line)
    if not line.startswith("sandbox up"):
        return site.lakeplan(words, width, **environment)
    over = threading.Event()
    stopper = threading.Thread(target=_stop_when_up, args=(signal.getsignal(signal.SIGTERM), over))
    stopper.start()
    try:
        return site.lakeplan(words, width)
    finally:
        over.set()
        stopper.join()


def _stop_when_up(before: object, over: threading.Event) -> None:
    """Ends ``sandbox up`` as a person does, once it listens to that."""
    while not over.wait(0.01):
        if signal.getsignal(signal.SIGTERM) is not before:
            os.kill(os.getpid(), signal.SIGTERM)
            return


def shown(told: Told) -> str:
    parts = [f"$ lakeplan {told.line}\n", told.out]
    if told.err:
        parts += ["(standard error)\n", told.err]
    return "".join([*parts, f"(exit {told.code})\n"])

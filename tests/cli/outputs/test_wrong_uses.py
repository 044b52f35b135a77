"""Every command, used wrong in at least five ways: what it says, at 80 and at 160 columns."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.cli.outputs.cases import typed
from tests.cli.outputs.looks import looks
from tests.cli.outputs.site import Site
from tests.cli.outputs.test_outputs import at_both_widths, shown
from tests.cli.outputs.wrong import WRONG
from tests.cli.outputs.wrong.kinds import Wrong

PLACE = re.compile(r"\.yaml:\d+:\d+: ")


class Sites:
    """The site of each wrong use. They change nothing, so they share a site unless one needs preparation."""

    def __init__(self, open_site: Callable[[str], Site]) -> None:
        self._open = open_site
        self._clean: tuple[str, Site] | None = None

    def of(self, wrong: Wrong) -> Site:
        if self._clean is not None and self._clean[0] == wrong.stage:
            site = self._clean[1]
        else:
            site = self._open(wrong.stage)
        self._clean = (wrong.stage, site) if wrong.prepare is None else None
        if wrong.prepare is not None:
            wrong.prepare(site)
        return site


@at_both_widths
@pytest.mark.parametrize("command", WRONG)
def it_says_what_where_and_what_to_do(
    command: str,
    width: int,
    open_site: Callable[[str], Site],
    golden_file: Callable[[str, str], None],
) -> None:
    sites = Sites(open_site)
    told: list[str] = []
    problems: list[str] = []
    for name, wrong in WRONG[command].items():
        text, found = _told(wrong, sites.of(wrong), width)
        told.append(f"# {name}\n{text}")
        problems += found
    assert not problems, "\n".join(problems)
    golden_file(f"{command.replace(' ', '-')}/wrong-{width}", "\n".join(told))


def _told(wrong: Wrong, site: Site, width: int) -> tuple[str, list[str]]:
    """The output, and what is wrong with it."""
    told = site.lakeplan(typed(site, wrong.line), width, **wrong.environment)
    text = shown(told)
    problems = looks(text, width)
    if told.code != wrong.code:
        problems.append(f"exit {told.code}, not {wrong.code}:\n{text}")
    if not _tells(told.out + told.err):
        problems.append(f"what is to be done?\n{text}")
    return text, problems


def _tells(text: str) -> bool:
    """Whether it says what went wrong and what to do: a hint, every mistake's place, or a gate's words."""
    return any(words in text for words in ("hint:", "override with")) or bool(PLACE.search(text))

"""Fixes of issue 13, each taken back by one patch, to show that the suite would have noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from lakeplan.adapters.lakefs import transport
from lakeplan.app.sweep import run as sweep_run
from tests.chaos.campaign import Counts, Lost, campaign


@dataclass(frozen=True)
class Fix:
    """``take_back`` puts the old behaviour in place for as long as it is entered."""

    line: str
    take_back: Callable[[], AbstractContextManager[Any]]


def _settings_of_the_mark() -> AbstractContextManager[Any]:
    """A1: what the tree says today changes nothing."""

    def held(site: Any, mark: Any, approval: Any) -> Any:
        return replace(site, desired=replace(site.desired, sweep=mark.settings))

    return mock.patch.object(sweep_run, "held_to_approval", held)


def _gates_once() -> AbstractContextManager[Any]:
    """A2: gates are judged when a mark is approved, and never again."""
    return mock.patch.object(sweep_run, "judge_again", return_value=None)


def _writes_are_repeated() -> AbstractContextManager[Any]:
    """A13: PUT and DELETE are sent again after a lost answer."""
    methods = frozenset({*transport.READ_METHODS, "PUT", "DELETE"})
    return mock.patch.object(transport, "READ_METHODS", methods)


FIXES: Mapping[str, Fix] = {
    "settings-of-the-mark": Fix("A1", _settings_of_the_mark),
    "gates-once": Fix("A2", _gates_once),
    "writes-are-repeated": Fix("A13", _writes_are_repeated),
}


def steps_until_caught(name: str, seed: int, steps: int) -> tuple[int, str] | None:
    """At which step the checker noticed that a fix is missing, and what it said; None when it did not."""
    counts = Counts()
    with FIXES[name].take_back():
        try:
            campaign(seed, steps, counts=counts)
        except Lost as lost:
            return counts.steps, re.split(r"\n", str(lost))[0]
    return None

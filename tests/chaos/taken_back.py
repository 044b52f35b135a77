"""Fixes of issue 13, each taken back by one patch, to show that the suite would have noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from unittest import mock

from lakeplan.branches import notices, recall, survey
from lakeplan.formats import namespace
from lakeplan.lakefs import transport
from lakeplan.plan import attempts
from lakeplan.state.clocks import Clocks
from lakeplan.sweep import deleting, inspection, observed_rules, purge, service
from lakeplan.sweep import run as sweep_run
from lakeplan.sweep.inspection import Needed
from lakeplan.values.simulation import Status
from tests.chaos.campaign import Counts, Lost, campaign


@dataclass(frozen=True)
class Fix:
    """``take_back`` puts the old behaviour in place for as long as it is entered."""

    line: str
    take_back: Callable[[], AbstractContextManager[Any]]


def _patch(target: Any, name: str, new: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: mock.patch.object(target, name, new)


def _held_to_the_mark(site: Any, mark: Any, approval: Any) -> Any:
    return replace(site, desired=replace(site.desired, sweep=mark.settings))


def _trust_the_record(part: Any, rows: Any) -> dict[str, Any]:
    """What is saved was never deleted, whatever the store shows; so it was before A3."""
    left = _left(part, rows)
    for row in rows:
        if why := part._work.saved.get(row.address):
            part._status[row.address] = (Status.SAVED, why)
    return left


def _as_marked(part: Any, row: Any, now: Any, before: Any) -> str:
    """Nobody asks whether an object is the one that was marked; so it was before A17."""
    saved: str = _saves(part, row, now, before)
    return "" if saved == deleting.CHANGED else saved


def _our_clock(now: Callable[[], datetime], others: Any, *, where: str) -> Clocks:
    return Clocks(now(), now())


def _nothing_is_needed(site: Any, mark: Any, ports: Any, **_: Any) -> Needed:
    return Needed(frozenset(), ports.now())


def _one_read(read: Callable[[], Any], is_expected: Any, sleep: Any) -> Any:
    return read()


def _without_exemptions(notice: Any, outlook: Any, exemption: Any) -> bool:
    return _is_about(notice, outlook, None)


_is_about = notices.is_about
_left, _saves = deleting._Part._left, deleting._Part._saves
WRITES_TOO = frozenset({*transport.READ_METHODS, "PUT", "DELETE"})
FIXES: Mapping[str, Fix] = {
    "today's settings count": Fix("A1", _patch(sweep_run, "held_to_approval", _held_to_the_mark)),
    "gates are judged again": Fix("A2", _patch(sweep_run, "judge_again", lambda *args: None)),
    "results are what the store shows": Fix("A3", _patch(deleting._Part, "_left", _trust_the_record)),
    "purge inspects": Fix("A4", _patch(purge, "needed_now", _nothing_is_needed)),
    "holds keep branches": Fix("A5", _patch(survey, "held_branches", lambda *args: set())),
    "holds are recorded": Fix("A5", _patch(inspection, "keep_held", lambda *args: ())),
    "clocks are compared": Fix("A6", _patch(observed_rules, "read_clocks", _our_clock)),
    "automatic compares sets": Fix("A7", _patch(service, "_not_shown", lambda *args: "")),
    "an older ledger is not trusted": Fix("A8", _patch(recall, "_distrust", lambda *args: "")),
    "a notice is about a HEAD": Fix("16 C5", _patch(notices, "is_about", lambda *args: True)),
    "an exemption voids a notice": Fix("16 C5", _patch(notices, "is_about", _without_exemptions)),
    "a notice takes its time": Fix(
        "16 C5", _patch(notices.Notice, "deletes_at", lambda self, period: self.accepted_at)
    ),
    "exemptions keep branches": Fix("16 C5", _patch(notices.Exemption, "holds", lambda self, moment: False)),
    "writes are sent once": Fix("A13", _patch(transport, "READ_METHODS", WRITES_TOO)),
    "writes are read back for seconds": Fix("A14", _patch(attempts, "read_back", _one_read)),
    "lost answers are read back": Fix("A14", _patch(attempts, "may_have_acted", lambda error: False)),
    "what keeps is fresh": Fix("A15", _patch(survey.Keeping, "is_fresh", lambda self: self._snapshot)),
    "addresses mean what servers make of them": Fix(
        "A16", _patch(namespace, "possible_keys", lambda address, folders: [])
    ),
    "objects are as marked": Fix("A17", _patch(deleting._Part, "_saves", _as_marked)),
}
"""By what each of them says. A9 to A12 delete nothing: their tests are where the fix is."""


def steps_until_caught(name: str, seed: int, steps: int) -> tuple[int, str] | None:
    """The step at which the checker noticed that a fix is missing, and its message, or None if it did not."""
    counts = Counts()
    with FIXES[name].take_back():
        try:
            campaign(seed, steps, counts=counts)
        except Lost as lost:
            return counts.steps, re.split(r"\n", str(lost))[0]
    return None

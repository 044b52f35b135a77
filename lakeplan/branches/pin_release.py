"""The rule of a pin, before the last branch at its commit is deleted.

A pin of 0 days on a commit that nothing follows lets its ancestors expire. So a branch at such a commit is
deleted only once the pin has the default days (``lakeplan.branches.pins``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta, tzinfo

from lakeplan.branches.pin_records import (
    StoredRules,
    read_pin_record,
    read_stored,
    replace_rules,
    write_pin_record,
)
from lakeplan.branches.pin_steps import Change, losses
from lakeplan.branches.pins import History, with_entries, without_pins
from lakeplan.errors import GateRefused
from lakeplan.lakefs.protocols import GcRulesWriter, LakeFSReader
from lakeplan.retention.graph import CommitGraph
from lakeplan.review.run import Run
from lakeplan.review.selection import read_all_refs
from lakeplan.stores.protocols import StateWriter
from lakeplan.values.pins import Pin
from lakeplan.values.plan import Horizon
from lakeplan.values.repository import Refs
from lakeplan.values.rules import GcRules


@dataclass(frozen=True)
class PinRelease:
    """Of one repository (``key`` is ``server/name``)."""

    key: str
    reader: LakeFSReader
    writer: GcRulesWriter
    state: StateWriter
    run: Run
    zone: tzinfo

    def before_deleting(self, branch_id: str, commit_id: str) -> None:
        """Takes the rule of 0 days out where the commit would be left to its pin. Raises GateRefused when the
        branch must stay, because something would be kept less without it."""
        record = read_pin_record(self.state, self.key)
        if commit_id not in record.commit_ids:
            return
        stored = read_stored(self.reader, self.name)
        own = stored.own(record)
        pinned = next((pin for pin in own if pin.commit_id == commit_id), None)
        if pinned is None or stored.raw is None or stored.entries.get(pinned.name) is None:
            return
        refs = without_pins(read_all_refs(self.reader, self.name, read_only=False)[0], own)
        if not _is_left_alone(refs, branch_id, commit_id):
            return
        rules = self._safe_rules(branch_id, stored, own, refs, commit_id)
        replace_rules(
            self,
            self.name,
            (stored.raw, rules),
            sleep=self.run.sleep,
            where=self.key,
            again="the command again",
        )
        pins = (replace(pin, days=None) if pin.commit_id == commit_id else pin for pin in record.pins)
        released = replace(record, pins=tuple(pins))
        write_pin_record(self.state, self.key, released, run_id=self.run.run_id, at=self.run.now())

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    def _safe_rules(
        self, branch_id: str, stored: StoredRules, own: Iterable[Pin], refs: Refs, commit_id: str
    ) -> GcRules:
        assert stored.raw is not None
        there = tuple(replace(pin, days=stored.entries.get(pin.name)) for pin in own)
        want = tuple(replace(pin, days=None) if pin.commit_id == commit_id else pin for pin in there)
        names = {pin.name for pin in there}
        left = {branch: days for branch, days in stored.raw.branches.items() if branch not in names}
        bare = GcRules(stored.raw.default_retention_days, left)
        now = self.run.now()
        moments = [now + timedelta(days=horizon.days) for horizon in Horizon]
        history = History(refs, CommitGraph.from_refs(refs), bare, moments, self.zone)
        if (loss := next(losses(history, Change(stored.raw, bare, there, want)), None)) is not None:
            raise GateRefused(
                f"branch {branch_id} is at a pinned commit: {loss}",
                where=self.key,
                hint="Run `lakeplan pins sync`, then run the command again.",
            )
        return with_entries(bare, want)


def _is_left_alone(refs: Refs, branch_id: str, commit_id: str) -> bool:
    """Whether the commit is no branch's HEAD and nobody's main parent once the branch is deleted."""
    graph = CommitGraph.from_refs(refs).without_branches({branch_id})
    number = graph.index.get(commit_id)
    return number is not None and number in set(graph.server_dangling)

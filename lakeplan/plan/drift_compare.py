"""Compares one repository with what was applied last, HEADs too where a server deletes branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakeplan.branches.fates import takes
from lakeplan.branches.memory import drop_observed, last_observed, record_heads
from lakeplan.branches.pin_records import PinRecord, StoredRules, read_pin_record, read_stored
from lakeplan.errors import FeatureMissing, LakeplanError, RepositoryNotFound
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.plan.baselines import read_last_applied
from lakeplan.plan.drift_rules import (
    DriftClass,
    DriftedItem,
    DriftedValue,
    LastApplied,
    drift_of,
    pins_missing,
    released,
    setting_drift,
    setting_released,
)
from lakeplan.plan.gather_settings import server_policies
from lakeplan.review.differences import same_setting
from lakeplan.review.run import HeadsReader, Run
from lakeplan.state.sweeps import SweepRecord
from lakeplan.stores.protocols import StateReader, StateWriter
from lakeplan.values.desired import DesiredRepository, PoliciesDesired, ServerConfig
from lakeplan.values.plan import Failure
from lakeplan.values.settings import Policy, SettingItem, SettingKind


@dataclass(frozen=True)
class HeadPorts:
    """Where heads are read from and recorded; nothing else of drift can write. ``useless`` says why records
    would be of no use, if so: then none is made."""

    branches: Callable[[str], HeadsReader]
    state: StateWriter
    run: Run
    useless: str = ""


def record_server_heads(desired: DesiredRepository, reader: LakeFSReader, ports: HeadPorts) -> str:
    """Records the HEAD of every branch that a policy of the tree or of the server names, unless the newest
    record says the same. Returns why it could not be done, or ""."""
    try:
        policies = _policies(desired, reader)
        if not policies:
            return ""
        live = ports.branches(desired.server).list_live(desired.name)
        named = [branch for branch in live if any(takes(policy, branch.id) for policy in policies)]
        if last_observed(ports.state, desired.key) != {b.id: (b.commit_id, b.hidden) for b in named}:
            record_heads(ports.state, desired.key, named, ports.run)
    except LakeplanError as error:
        return f"{desired.key}: the HEADs of its branches could not be recorded for undo: {error}"
    try:
        drop_observed(ports.state, desired.key, ports.run.now())
    except LakeplanError as error:
        return f"{desired.key}: old records of HEADs could not be removed: {error}"
    return ""


def _policies(desired: DesiredRepository, reader: LakeFSReader) -> Sequence[Policy]:
    """Both: the job follows those that are stored, and an apply may push the tree's at any time."""
    wanted = desired.branch_lifecycle
    stored = reader.get_policies(desired.name).items or ()
    return (*(wanted.policies if isinstance(wanted, PoliciesDesired) else ()), *stored)


RELEASED_NOTE = "the tree manages {} no more; they stay on the server as they are"
GC_RULES = "its GC rules"
Items = Sequence[SettingItem] | None


@dataclass(frozen=True)
class RepositoryDrift:
    """One repository: how it drifted (nothing: it did not), or why that is unknown. ``values`` are of
    its GC rules, ``items`` of its policies and object rules, ``stored`` the whole lists of those on the
    server. ``state_note``: what of the state could not be read, beside what was applied last."""

    repository: str
    owner: str | None = None
    source: str = ""
    classes: tuple[DriftClass, ...] = ()
    values: tuple[DriftedValue, ...] = ()
    items: tuple[DriftedItem, ...] = ()
    stored: Mapping[SettingKind, Items] = field(default_factory=dict)
    last: LastApplied | None = None
    note: str = ""
    failure: Failure | None = None
    sweeps: SweepRecord | None = None
    state_note: str = ""


def manages(desired: DesiredRepository, server: ServerConfig) -> bool:
    """Whether the tree asks anything of the server for this repository."""
    return desired.gc is not None or desired.object_lifecycle is not None or server_policies(desired, server)


def compare(
    key: str,
    desired: DesiredRepository | None,
    server: ServerConfig,
    reader: LakeFSReader,
    state: StateReader,
    owner: str | None,
) -> RepositoryDrift:
    """A repository that the tree manages, or that was applied or imported once. ``desired`` is None without
    an entry. Raises LakeplanError when it cannot be compared."""
    last = read_last_applied(state, key)
    managed = desired is not None and manages(desired, server)
    looker = _Looker(key.partition("/")[2], desired, server, reader, last, read_pin_record(state, key))
    try:
        values = (*looker.values(), *looker.pins())
        items = [item for kind in SettingKind for item in looker.items(kind)]
    except RepositoryNotFound:
        if managed:
            raise
        return RepositoryDrift(key, owner=owner, last=last)  # nothing is left to hold anything
    notes = ["no apply of it is recorded"] if last is None and managed else []
    notes += looker.notes
    if looker.left:
        notes.append(RELEASED_NOTE.format(", ".join(looker.left)))
    found = {v.drift for v in values} | {i.drift for i in items}
    return RepositoryDrift(
        key,
        owner=owner,
        source=str(desired.source) if desired is not None and managed and desired.source else "",
        classes=tuple(c for c in DriftClass if c in found),
        values=values,
        items=tuple(items),
        stored=looker.stored,
        last=last,
        note="; ".join(notes),
    )


class _Looker:
    """Asks the server for what the tree manages or an apply recorded, and for nothing else. ``left`` is what
    was found to be released, in words."""

    def __init__(
        self,
        name: str,
        desired: DesiredRepository | None,
        server: ServerConfig,
        reader: LakeFSReader,
        last: LastApplied | None,
        pins: PinRecord,
    ) -> None:
        self._name, self._desired, self._server = name, desired, server
        self._reader, self._last, self._pins = reader, last, pins
        self._rules: StoredRules | None = None
        self.stored: dict[SettingKind, Items] = {}
        self.left: list[str] = []
        self.notes: list[str] = []

    def values(self) -> tuple[DriftedValue, ...]:
        last = self._last
        if self._desired is not None and self._desired.gc is not None:
            stored = self._stored_rules().bare
            last = last.with_rules(stored) if last is not None else None
            last = last if last is not None and last.rules_recorded else None
            branches = [b.id for b in self._reader.list_branches(self._name)]
            return drift_of(self._desired, stored, branches, last)
        if last is None or not (last.rules_recorded or None in last.attempts):
            return ()
        found = released(self._stored_rules().bare, last)
        self.left += [GC_RULES] if found else []
        return found

    def pins(self) -> tuple[DriftedValue, ...]:
        """Pins on record, also where the tree does not require them any more."""
        if not self._pins.pins:
            return ()
        self.notes += [f"the pin {pin.name} is gone" for pin in self._stored_rules().gone(self._pins)]
        return pins_missing(self._stored_rules(), self._pins)

    def _stored_rules(self) -> StoredRules:
        if self._rules is None:
            self._rules = read_stored(self._reader, self._name, look=bool(self._pins.pins))
        return self._rules

    def items(self, kind: SettingKind) -> tuple[DriftedItem, ...]:
        applied = self._last.settings.get(kind) if self._last is not None else None
        attempts = self._last.attempts.get(kind, ()) if self._last is not None else ()
        if self._desired is not None and self._manages(kind):
            wanted, stored = self._desired.wanted_items(kind), self._stored(kind)
            self.stored[kind] = stored
            applied = next((items for items in attempts if same_setting(items, stored)), applied)
            return setting_drift(kind, wanted, stored, applied, recorded=applied is not None)
        if applied is None and not attempts:
            return ()
        try:
            found = setting_released(kind, self._stored(kind), applied or attempts[-1])
        except FeatureMissing:
            return ()  # a server without the feature has none
        self.left += [f"its {kind.label}"] if found else []
        return found

    def _manages(self, kind: SettingKind) -> bool:
        """Whether the tree manages a list on the server."""
        if self._desired is None:
            return False
        if kind is SettingKind.BRANCH_LIFECYCLE:
            return server_policies(self._desired, self._server)
        return self._desired.object_lifecycle is not None

    def _stored(self, kind: SettingKind) -> Items:
        if kind is SettingKind.BRANCH_LIFECYCLE:
            return self._reader.get_policies(self._name).items
        return self._reader.get_object_rules(self._name).items

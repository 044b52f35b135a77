"""A folder with objects, parts of a mark that name some of them, and runs over these."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lakeplan.errors import LakeplanError
from lakeplan.simulation.requests import DeleteRequest, DeleteSettings
from lakeplan.sweep import deleting
from lakeplan.sweep.deleting import sweep_parts
from lakeplan.values.simulation import MarkClass, Part, PartResult
from lakeplan.values.sweep import Versions
from tests.sweeping.stores import (
    MARK_PREFIX,
    QUARANTINE_PREFIX,
    SWEEP_PREFIX,
    FakeTime,
    folder_store,
    put_object,
    put_part,
    records,
)

CUTOFF = 1_000.0
SETTINGS = DeleteSettings("delete", Versions.MARKER, verify_all=True, cutoff_us=int(CUTOFF * 1_000_000))


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power cuts have tests of their own; thousands of small files are quicker without the disk."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(deleting, "time", fake)
    return fake


@dataclass
class Sweep:
    """A folder with objects, parts that name some of them, and runs over these."""

    folder: Path
    settings: DeleteSettings = SETTINGS
    saved: Mapping[str, str] = field(default_factory=dict)
    never: str = ""
    parts: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = folder_store(self.folder)

    def mark(self, *parts: Sequence[str], kind: MarkClass = MarkClass.BACKLOG) -> None:
        for keys in parts:
            for key in keys:
                put_object(self.folder, key, key[-1:].encode())
            self.parts.append(put_part(self.store, len(self.parts), keys, kind=kind))

    def work(self, store: object = None, **changes: object) -> DeleteRequest:
        work = DeleteRequest(
            store=store or self.store,  # type: ignore[arg-type]
            parts=(),
            mark_prefix=MARK_PREFIX,
            prefix=SWEEP_PREFIX,
            quarantine_prefix=QUARANTINE_PREFIX,
            settings=self.settings,
            saved=self.saved,
            keep_never_committed=self.never,
        )
        if (until := changes.get("until")) is not None:
            changes["until"] = datetime.fromtimestamp(until, timezone.utc)  # type: ignore[arg-type]
        return replace(work, **changes)  # type: ignore[arg-type]

    def run(self, store: object = None, **changes: object) -> list[PartResult | LakeplanError]:
        return list(sweep_parts(self.parts, self.work(store, **changes)))

    def there(self, prefix: str = "data/") -> set[str]:
        return {found.key for found in self.store.list_objects(prefix)}

    @property
    def records(self) -> dict[str, tuple[str, str]]:
        return records(self.store, self.parts)


@pytest.fixture
def sweep(tmp_path: Path, time: FakeTime) -> Sweep:
    return Sweep(tmp_path / "ns")


def ends(answer: Sequence[PartResult | LakeplanError]) -> list[PartResult]:
    assert all(isinstance(end, PartResult) for end in answer), answer
    return [end for end in answer if isinstance(end, PartResult)]

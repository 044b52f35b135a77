"""Records of deleted branches (``deletions/<server>/<repository>/<run>.json``), one for each run. A run
stores its record before the first deletion."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from urllib.parse import unquote

from lakeplan.review.history import began_at
from lakeplan.review.run import Run
from lakeplan.state.store import repository_key
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.values import records
from lakeplan.values.branches import LiveBranch
from lakeplan.values.documents import decode, encode
from lakeplan.values.plan import Failure
from lakeplan.values.records import moment_in, utc_second_text

DELETIONS_FORMAT = "lakeplan.deletions/v1"
SEEN_KEPT = timedelta(days=90)
"""HEADs that were only observed stay on record this long after a newer inspection."""


class Fate(str, Enum):
    """The fate of a branch that a run was to delete. ``INTENDED``: the run was stopped before it recorded the
    outcome. ``SEEN``: no run was to delete it, but a server may, so its HEAD was recorded."""

    INTENDED = "intended"
    DELETED = "deleted"
    KEPT = "kept"
    RESTORED = "restored"
    SEEN = "seen"


@dataclass(frozen=True)
class Deletion:
    """One branch of a record. ``uncommitted`` counts the uncommitted changes, which cannot be restored
    (``uncommitted_more``: there were more). ``safe_until`` is ISO 8601. ``found`` is the different HEAD that
    a branch of this name had afterwards."""

    head: str
    hidden: bool = False
    fate: Fate = Fate.INTENDED
    policy: str | None = None
    since: str | None = None
    safe_until: str | None = None
    uncommitted: int = 0
    uncommitted_more: bool = False
    message: str = ""
    found: str | None = None

    def deleted_at(self, head: str) -> bool:
        """Whether the run has deleted it at this HEAD. An intended deletion may still take effect."""
        return self.fate is Fate.DELETED and self.head == head


@dataclass
class DeletionRecord:
    """The record of one run on one repository, stored again as the run proceeds. ``finished`` False: the run
    was stopped, so branches that are still ``intended`` may or may not be deleted. ``ledger`` and
    ``generation`` identify the ledger that the run was to store afterwards; "" and 0 if there was none."""

    state: StateWriter
    repository: str
    run_id: str
    at: str
    by: Mapping[str, Any]
    branches: dict[str, Deletion]
    finished: bool = False
    ledger: str = ""
    generation: int = 0
    version: str | None = None

    @property
    def key(self) -> str:
        return f"{_folder(self.repository)}{self.run_id}.json"

    @property
    def only_observed(self) -> bool:
        """Whether its branches were only observed, and no run was to delete one."""
        return all(deletion.fate is Fate.SEEN for deletion in self.branches.values())

    def save(self) -> None:
        """Stores the record. Raises WriteConflict if somebody else wrote it."""
        document = {
            "format": DELETIONS_FORMAT,
            "repository": self.repository,
            "run_id": self.run_id,
            "at": self.at,
            "by": dict(self.by),
            "finished": self.finished,
            "ledger": self.ledger,
            "generation": self.generation,
            "branches": {name: encode(d) for name, d in sorted(self.branches.items())},
        }
        data = (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        self.version = self.state.write(self.key, data, if_version=self.version)

    def settle(self, branch_id: str, fate: Fate, message: str = "", found: str | None = None) -> None:
        before = self.branches[branch_id]
        self.branches[branch_id] = replace(before, fate=fate, message=message, found=found or before.found)


def record_heads(state: StateWriter, repository: str, branches: Iterable[LiveBranch], run: Run) -> None:
    """Records the HEADs of branches that a server's own job may delete, so that undo can restore them by name
    or run. Stores nothing if there are none."""
    deletions = {b.id: Deletion(b.commit_id, b.hidden, Fate.SEEN) for b in branches}
    if deletions:
        at = utc_second_text(run.now())
        DeletionRecord(state, repository, run.run_id, at, dict(run.holder), deletions, finished=True).save()


def last_observed(state: StateWriter, repository: str) -> dict[str, tuple[str, bool]] | None:
    """Branch → (HEAD, hidden) of the newest record that contains only observed branches, or None if there is
    none. Raises FormatError for a damaged record."""
    for run_id in reversed(list_runs(state, repository)):
        record = read_deletions(state, repository, run_id)
        if record is not None and record.only_observed:
            return {name: (d.head, d.hidden) for name, d in record.branches.items()}
    return None


def drop_observed(state: StateWriter, repository: str, now: datetime) -> None:
    """Removes records of observed HEADs that a newer one replaced more than ``SEEN_KEPT`` ago. Records of
    deletions are kept. Records that are too new by their run id are not read."""
    limit = now - SEEN_KEPT
    aged = [run_id for run_id in list_runs(state, repository) if (began_at(run_id) or limit) <= limit]
    old: list[DeletionRecord] = []
    for run_id in aged if len(aged) > 1 else ():
        record = read_deletions(state, repository, run_id)
        if record is None or not record.only_observed:
            continue
        if moment_in(record.at) > limit:
            break
        old.append(record)
    for record in old[:-1]:  # the last one was the newest for at least a part of that time
        state.delete(record.key, if_version=record.version or "")


def repositories_on_record(state: StateReader, run_id: str | None = None) -> list[str]:
    """``server/name`` of every repository with records of deletions, or with one of this run, sorted."""
    paths = (key.removesuffix(".json").split("/") for key in state.list_keys("deletions/"))
    return sorted({"/".join(map(unquote, path[1:3])) for path in paths if run_id in (None, path[-1])})


def list_runs(state: StateReader, repository: str) -> list[str]:
    """The ids of the runs with a record of a repository, oldest first."""
    folder = _folder(repository)
    return sorted(key[len(folder) : -len(".json")] for key in state.list_keys(folder))


_DELETION = records.record(
    {
        "head": records.text,
        "hidden": records.flag,
        "fate": records.exactly(*(fate.value for fate in Fate)),
        "uncommitted": records.count,
        "uncommitted_more": records.flag,
        "message": records.text,
    },
    {"policy": records.text, "since": records.text, "safe_until": records.any_moment, "found": records.text},
)
_DELETIONS = records.record(
    {
        "format": records.exactly(DELETIONS_FORMAT),
        "at": records.moment,
        "by": records.record({}),
        "finished": records.flag,
        "branches": records.map_of(_DELETION),
        "ledger": records.text,
        "generation": records.count,
    }
)


def read_deletions(state: StateWriter, repository: str, run_id: str) -> DeletionRecord | None:
    """The record of a run on a repository, if any. Raises FormatError for a damaged one."""
    key = f"{_folder(repository)}{run_id}.json"
    stored = state.read(key)
    if stored is None:
        return None
    what, hint = (
        "the record of deleted branches",
        "Restore the record from a backup. It contains the HEADs of deleted branches.",
    )
    document = records.read_record(stored.data, _DELETIONS, what=what, where=key, hint=hint)
    return DeletionRecord(
        state,
        repository,
        run_id,
        at=document["at"],
        by=document["by"],
        branches={name: decode(row, Deletion) for name, row in document["branches"].items()},
        finished=document["finished"],
        ledger=document["ledger"],
        generation=document["generation"],
        version=stored.version,
    )


def history_step(
    branches: Mapping[str, tuple[str, str]], failure: Failure | None, failed: Collection[str] = ()
) -> dict[str, Any]:
    """The history's entry for one repository. ``branches`` maps names to HEAD and outcome. ``failed`` are the
    outcomes that count as failures."""
    counts = Counter(outcome for _, outcome in branches.values())
    return {
        "status": "failed" if failure is not None or counts.keys() & set(failed) else "applied",
        "message": "" if failure is None else failure.message,
        "counts": dict(sorted(counts.items())),
        "branches": {n: {"head": head, "outcome": outcome} for n, (head, outcome) in branches.items()},
    }


def last_runs(state: StateWriter, repository: str) -> tuple[list[DeletionRecord], DeletionRecord | None]:
    """The records of stopped runs, newest first, and the newest record of a finished run. Older records are
    settled, because each run settles the records that it finds before it finishes its own."""
    stopped: list[DeletionRecord] = []
    for run_id in reversed(list_runs(state, repository)):
        record = read_deletions(state, repository, run_id)
        if record is None or record.only_observed:
            continue
        if record.finished:
            return stopped, record
        stopped.append(record)
    return stopped, None


def maybe_new(records: Iterable[DeletionRecord]) -> set[str]:
    """Names of branches that stopped runs may have deleted: a branch of that name now may be a new one."""
    return {n for record in records for n, d in record.branches.items() if d.fate is not Fate.KEPT}


def _folder(repository: str) -> str:
    return repository_key("deletions", repository).removesuffix(".json") + "/"

"""What is remembered of a repository's branches (``branches/<server>/<repository>.json``), and whether that
may be trusted.

A ledger that is lost, of another repository, or an older copy put back must not make a branch older than it
was seen to be. So the repository carries a witness in its metadata on the server: which ledger is its, and
which generation of it. A run sets the witness before it deletes anything, and before it stores its ledger.
Where the two disagree every branch's age counts anew, and no age is assumed from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from lakeplan.branches.deletion_records import DeletionRecord
from lakeplan.branches.ledger import Ledger, Mark, check_clock, dump_ledger, load_ledger
from lakeplan.branches.notices import Spared, read_spared
from lakeplan.errors import (
    FeatureMissing,
    LakeplanError,
    PermissionDenied,
    ReadOnlyRepository,
    may_have_acted,
)
from lakeplan.lakefs.protocols import BranchReader, BranchWriter, LakeFSReader
from lakeplan.review.claims import check_claims
from lakeplan.review.run import Run, read_back
from lakeplan.state.store import repository_key
from lakeplan.stores.protocols import StateReader, StateWriter
from lakeplan.values.desired import DesiredRepository

WITNESS = "lakeplan.branch-ledger"
"""The key of the witness in the repository's metadata. Its value: version, ledger, generation."""
_VERSION = "v1"

NOT_ASSUMED = "assume_created does not apply"
FIRST = "first run on this repository: branches that only assume_created makes old are kept"
UNWITNESSED = (
    f"the repository's metadata cannot be set, so lakeplan would not notice an older record: {NOT_ASSUMED};"
    " grant fs:UpdateRepository on it"
)


@dataclass(frozen=True)
class Readers:
    """One server, read only."""

    refs: LakeFSReader
    branches: BranchReader


@dataclass(frozen=True)
class Recalled:
    """``ledger`` None: every branch counts as seen for the first time. ``version`` is what a write of the
    ledger must present, ``mark`` what it is to carry; ``notes`` are for people."""

    ledger: Ledger | None
    version: str | None
    mark: Mark
    may_assume: bool = False
    notes: tuple[str, ...] = ()
    spared: Spared = field(default_factory=Spared)


@dataclass(frozen=True)
class _Witness:
    id: str
    generation: int


@dataclass(frozen=True)
class Runs:
    """The run that asks, and records of others: those that were ``stopped`` since the ledger was stored, and
    the newest that ``finished``."""

    run_id: str = ""
    stopped: Sequence[DeletionRecord] = ()
    finished: DeletionRecord | None = None


def read_ledger(state: StateReader, repository: str) -> tuple[Ledger | None, str | None]:
    """The ledger, and the version that a write must present; None where there is none. Raises FormatError on
    a damaged one."""
    key = repository_key("branches", repository)
    found = state.read(key)
    if found is None:
        return None, None
    return load_ledger(found.data, f"{repository}: {key} in the state"), found.version


def write_ledger(state: StateWriter, repository: str, ledger: Ledger, version: str | None) -> None:
    """Raises WriteConflict when another run stored its own meanwhile: nothing of it is lost."""
    state.write(repository_key("branches", repository), dump_ledger(ledger), if_version=version)


def recall(
    state: StateReader,
    readers: Readers,
    desired: DesiredRepository,
    endpoint: str,
    now: datetime,
    runs: Runs = Runs(),
) -> Recalled:
    """The ledger of a repository, or none where it may not be trusted. Raises FormatError for a ledger that
    no run can have written or a damaged record, and ServerError."""
    recalled = _recall_ledger(state, readers, desired, endpoint, now, runs)
    return replace(recalled, spared=read_spared(state, desired.key))


def _recall_ledger(
    state: StateReader, readers: Readers, desired: DesiredRepository, endpoint: str, now: datetime, runs: Runs
) -> Recalled:
    stopped, finished = runs.stopped, runs.finished
    ledger, version = read_ledger(state, desired.key)
    if ledger is not None:
        check_clock(ledger, now, f"{desired.key}: {repository_key('branches', desired.key)} in the state")
    repository = readers.refs.get_repository(desired.name)
    metadata = readers.branches.metadata(desired.name)
    check_claims(metadata, desired.tree, desired.key)
    witness = _parsed(metadata.get(WITNESS))
    new = Mark(runs.run_id, 1, plain_endpoint(endpoint), repository.storage_namespace)
    if ledger is not None and ledger.repository_created != repository.creation_date:
        # Made again: what is remembered is of the one that had its name before.
        ledger, stopped, finished = None, (), None
    if ledger is None:
        lost = witness is not None or bool(stopped) or finished is not None
        why = "it was removed, or is in another state store" if lost else ""
    else:
        why = _distrust(ledger, desired.key, new, witness, stopped, finished)
    if why:
        text = f"the record of its branches cannot be trusted ({why}): ages count from now, and {NOT_ASSUMED}"
        return Recalled(None, version, new, notes=(text,))
    assumes = desired.lifecycle_settings.assume_created != "never"
    if ledger is None or ledger.mark is None:
        return Recalled(ledger, version, replace(new, assumable=True), notes=(FIRST,) if assumes else ())
    reached = max(ledger.mark.generation, witness.generation if witness else 0)
    mark = replace(ledger.mark, generation=reached + 1)
    unsure = assumes and not mark.witnessed
    return Recalled(ledger, version, mark, mark.assumable, (UNWITNESSED,) if unsure else ())


def _distrust(
    ledger: Ledger,
    key: str,
    described: Mark,
    witness: _Witness | None,
    stopped: Sequence[DeletionRecord],
    finished: DeletionRecord | None,
) -> str:
    """Why a ledger may be another repository's or an older copy; "" when nothing says so."""
    mark = ledger.mark
    if mark is None:  # nothing was written by this version of lakeplan yet, or the ledger is older than that
        if ledger.repository != key:
            return f"it describes {ledger.repository}"
        return "" if witness is None else "it is an older copy"
    if (ledger.repository, mark.endpoint, mark.namespace) != (key, described.endpoint, described.namespace):
        return f"it describes {ledger.repository} at {mark.endpoint}, {mark.namespace}"
    if witness is None and mark.witnessed:
        return f"{WITNESS} was removed from the repository's metadata"
    if witness is not None and witness.id != mark.id:
        return f"run {witness.id or 'unknown'} began another record"
    # A run that was stopped before it could store the ledger left a record of the generation that is missing.
    left = {record.generation for record in stopped if record.ledger == mark.id}
    reached = witness.generation if witness is not None else mark.generation
    if finished is not None and finished.ledger == mark.id:
        reached = max(reached, finished.generation)
    if reached - mark.generation > sum(1 for number in left if mark.generation < number <= reached):
        return f"it is an older copy: generation {mark.generation}, and there was {reached}"
    return ""


def _parsed(text: str | None) -> _Witness | None:
    if text is None:
        return None
    match text.split(" "):
        case [version, id, generation] if (
            version == _VERSION and generation.isascii() and generation.isdigit()
        ):
            return _Witness(id, int(generation[:18]))
        case _:
            return _Witness("", 0)  # of nothing that is known here


def plain_endpoint(url: str) -> str:
    """One spelling of a server's address."""
    return url.strip().rstrip("/").removesuffix("/api/v1").rstrip("/").lower()


def bear_witness(repository: str, mark: Mark, reader: BranchReader, writer: BranchWriter, run: Run) -> Mark:
    """Marks the repository with the generation that a run is about to reach; the mark as the ledger is to
    carry it. Raises ServerError when it is not known whether that took effect."""
    value = f"{_VERSION} {mark.id} {mark.generation}"
    try:
        writer.set_metadata(repository, {WITNESS: value})
    except (PermissionDenied, FeatureMissing, ReadOnlyRepository):
        return replace(mark, witnessed=False, assumable=False)
    except LakeplanError as error:
        if not may_have_acted(error):
            raise
        found = read_back(
            lambda: reader.metadata(repository).get(WITNESS), lambda text: text == value, run.sleep
        )
        if found != value:
            raise
    return replace(mark, witnessed=True)

"""Reads a repository's ledger (``branches/<server>/<repository>.json``) and decides whether to trust it.

A ledger that was lost, belongs to another repository, or is an old copy must not make a branch older than it
is. So the repository's metadata on the server has a witness: the id and the generation of its ledger. A run
sets the witness before it deletes anything and before it stores its ledger. If the two disagree, every
branch's age counts anew, and no age is assumed from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from urllib.parse import unquote

from lakeplan.branches.deletion_records import DeletionRecord
from lakeplan.branches.ledger import Ledger, Mark, check_clock, dump_ledger, load_ledger
from lakeplan.branches.notices import Exemption, Spared, read_exemptions, read_spared, with_newest
from lakeplan.errors import (
    FeatureMissing,
    FormatError,
    LakeplanError,
    PermissionDenied,
    ReadOnlyRepository,
    may_have_acted,
)
from lakeplan.lakefs.protocols import BranchReader, BranchWriter, LakeFSReader
from lakeplan.review.claims import check_claims
from lakeplan.review.run import Run, read_back
from lakeplan.state.store import repository_key
from lakeplan.stores.open import StateReader, StateWriter
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.repository import Repository

WITNESS = "lakeplan.branch-ledger"
"""The key of the witness in the repository's metadata. Its value: version, id and generation."""
_VERSION = "v1"

NOT_ASSUMED = "assume_created does not apply"
FIRST = (
    "this is the first run on this repository, so branches that are old enough only because of assume_created"
    " are kept"
)
UNWITNESSED = (
    "lakeplan cannot write the repository's metadata, so it would not notice an outdated record of branches."
    f" Therefore, {NOT_ASSUMED}. Grant fs:UpdateRepository on the repository"
)


@dataclass(frozen=True)
class Readers:
    """One server, read only."""

    refs: LakeFSReader
    branches: BranchReader


@dataclass(frozen=True)
class Recalled:
    """The ledger that a run uses. ``ledger`` None: every branch counts as seen for the first time. A run
    stores its ledger with ``mark`` and must present ``version``. ``notes`` are for people."""

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
    """The current run, and records of earlier ones: those that were ``stopped`` since the ledger was stored,
    and the newest that ``finished``."""

    run_id: str = ""
    stopped: Sequence[DeletionRecord] = ()
    finished: DeletionRecord | None = None


@dataclass(frozen=True)
class StoredLedger:
    ledger: Ledger
    mark: Mark
    version: str
    """What a write must present."""


def read_ledger(state: StateReader, repository: str) -> StoredLedger | None:
    """The stored ledger of ``server/name``, if any. Raises FormatError for a damaged one."""
    key = repository_key("branches", repository)
    stored = state.read(key)
    if stored is None:
        return None
    return StoredLedger(*load_ledger(stored.data, f"{repository}: {key} in the state"), stored.version)


def write_ledger(
    state: StateWriter, repository: str, ledger: Ledger, mark: Mark, version: str | None
) -> None:
    """Stores a ledger. Raises WriteConflict when another run stored one since ``version``."""
    state.write(repository_key("branches", repository), dump_ledger(ledger, mark), if_version=version)


def recall(
    state: StateReader,
    readers: Readers,
    desired: DesiredRepository,
    endpoint: str,
    now: datetime,
    runs: Runs = Runs(),
) -> Recalled:
    """The ledger of a repository, or none where it cannot be trusted. Raises FormatError for a damaged record
    and ServerError."""
    repository = readers.refs.get_repository(desired.name)
    recalled = _recall_ledger(state, readers, desired, repository, endpoint, now, runs)
    spared, new = read_spared(state, desired.key), recalled.ledger is None
    others = {n: e for n, e in _of_other_names(state, desired, repository, new).items() if e.is_kept(now)}
    return replace(recalled, spared=replace(spared, exemptions=with_newest(spared.exemptions, others)))


def _of_other_names(
    state: StateReader, desired: DesiredRepository, repository: Repository, new: bool
) -> Mapping[str, Exemption]:
    """The exemptions of the same repository under other names of its server, as before the server was renamed
    in the tree, or from an older checkout of the tree. The newest one of each branch counts. If the other
    name has no readable record of branches, exemptions count only if this name has none either (``new``)."""
    exemptions: dict[str, Exemption] = {}
    own = repository_key("exemptions", desired.key)
    for record in state.list_keys("exemptions/"):
        if record == own or not record.endswith(own[own.rindex("/") :]):
            continue
        server = unquote(record.split("/")[1])
        key = f"{server}/{desired.name}"
        same = new
        with suppress(FormatError):
            if (stored := read_ledger(state, key)) is not None:
                there = (stored.mark.namespace, stored.ledger.repository_created)
                same = there == (repository.storage_namespace, repository.creation_date)
        if not same:
            continue
        try:
            exemptions = with_newest(exemptions, read_exemptions(state, key)[0])
        except FormatError as error:
            hint = f"{server} may be a former name of the server {desired.server}. {error.hint}"
            raise error.replaced(hint=hint) from None
    return exemptions


def _recall_ledger(
    state: StateReader,
    readers: Readers,
    desired: DesiredRepository,
    repository: Repository,
    endpoint: str,
    now: datetime,
    runs: Runs,
) -> Recalled:
    stored = read_ledger(state, desired.key)
    version = None if stored is None else stored.version
    if stored is not None:
        where = f"{desired.key}: {repository_key('branches', desired.key)} in the state"
        check_clock(stored.ledger, now, where)
    metadata = readers.branches.metadata(desired.name)
    check_claims(metadata, desired.tree, desired.key)
    witness = _parsed(metadata.get(WITNESS))
    new = Mark(runs.run_id, 1, plain_endpoint(endpoint), repository.storage_namespace)
    if stored is not None and stored.ledger.repository_created != repository.creation_date:
        # The repository was created again, so the records belong to its predecessor of the same name.
        stored, runs = None, Runs(runs.run_id)
    if why := _distrust(stored, desired.key, new, witness, runs):
        text = f"its record of branches cannot be trusted ({why}), so ages are counted from now"
        return Recalled(None, version, new, notes=(f"{text} and {NOT_ASSUMED}",))
    assumes = desired.branch_settings.assume_created != "never"
    if stored is None:
        return Recalled(None, version, replace(new, assumable=True), notes=(FIRST,) if assumes else ())
    reached = max(stored.mark.generation, witness.generation if witness else 0)
    mark = replace(stored.mark, generation=reached + 1)
    unsure = assumes and not mark.witnessed
    return Recalled(stored.ledger, version, mark, mark.assumable, (UNWITNESSED,) if unsure else ())


def _distrust(
    stored: StoredLedger | None, key: str, described: Mark, witness: _Witness | None, runs: Runs
) -> str:
    """Return why a ledger may be lost, another repository's or an older copy, or "". ``described`` has the
    repository's address."""
    if stored is None:
        lost = witness is not None or runs.stopped or runs.finished is not None
        return "it was deleted, or it is in a different state store" if lost else ""
    ledger, mark = stored.ledger, stored.mark
    if (ledger.repository, mark.endpoint, mark.namespace) != (key, described.endpoint, described.namespace):
        return f"it belongs to {ledger.repository} at {mark.endpoint}, in the namespace {mark.namespace}"
    if witness is None and mark.witnessed:
        return f"{WITNESS} was removed from the repository's metadata"
    if witness is not None and witness.id != mark.id:
        return f"run {witness.id or 'unknown'} started a new record"
    # A run that was stopped before it stored its ledger left a record with the missing generation.
    left = {record.generation for record in runs.stopped if record.ledger == mark.id}
    reached = witness.generation if witness is not None else mark.generation
    if runs.finished is not None and runs.finished.ledger == mark.id:
        reached = max(reached, runs.finished.generation)
    if reached - mark.generation > sum(1 for number in left if mark.generation < number <= reached):
        return f"it is an outdated copy: its generation is {mark.generation}, but the latest is {reached}"
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
            return _Witness("", 0)  # of an unknown ledger


def plain_endpoint(url: str) -> str:
    """A server's address in its canonical spelling."""
    return url.strip().rstrip("/").removesuffix("/api/v1").rstrip("/").lower()


def write_witness(repository: str, mark: Mark, reader: BranchReader, writer: BranchWriter, run: Run) -> Mark:
    """Writes the witness of the generation that a run is about to store. Returns the mark for its ledger.
    Raises ServerError if it is unknown whether the write took effect."""
    value = f"{_VERSION} {mark.id} {mark.generation}"
    try:
        writer.set_metadata(repository, {WITNESS: value})
    except (PermissionDenied, FeatureMissing, ReadOnlyRepository):
        return replace(mark, witnessed=False, assumable=False)
    except LakeplanError as error:
        if not may_have_acted(error):
            raise
        stored = read_back(
            lambda: reader.metadata(repository).get(WITNESS), lambda text: text == value, run.sleep
        )
        if stored != value:
            raise
    return replace(mark, witnessed=True)

"""Requests of plans, sweeps and checks to a simulation, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from itertools import zip_longest
from operator import or_
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from lakeplan.errors import LakeplanError
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.stores.open import NamespaceReader, SweepStore
from lakeplan.values.plan import Bit
from lakeplan.values.progress import Progress
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import (
    Amount,
    ImpactResult,
    Marked,
    Part,
    PartResult,
    RunnerChoice,
    Transition,
    UncommittedRun,
)
from lakeplan.values.sweep import Deletion, Versions
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.simulation.verdicts import ObjectClass


@dataclass(frozen=True)
class ImpactRequest:
    """Asks what changes of rules do to one repository.

    - ``key`` is ``server/name``, ``storage_namespace`` the URL that the server uses for it (full addresses
      inside it count as relative)
    - ``metaranges``: the metarange id of every commit that any verdict keeps, with its mask (OR over the
      commits that share it)
    - ``transitions``: the changes, by name. Amounts by prefix are those of ``detail``
    - ``tags``: tags with the metarange of their commit. What each loses in any of ``tag_transitions`` is
      counted
    - ``shown``: transitions whose objects are named one by one, with their ``Bit``
    """

    key: str
    storage_namespace: str
    metadata: MetadataReader
    metaranges: Mapping[str, int]
    transitions: Mapping[str, Transition]
    detail: str
    tags: Mapping[str, str] = field(default_factory=dict)
    tag_transitions: tuple[str, ...] = ()
    shown: Mapping[str, Bit] = field(default_factory=dict)
    storage_id: str | None = None
    """The storage whose inventory says which objects are stored; None if that is not asked."""


class Simulator(Protocol):
    def impact(self, requests: Sequence[ImpactRequest]) -> Mapping[str, ImpactResult | LakeplanError]:
        """The results of all repositories, from one job. A repository that cannot be read gets its error, and
        the others get their results."""


def simulate(
    requests: Sequence[ImpactRequest], simulator: Simulator, progress: Progress
) -> Mapping[str, ImpactResult | LakeplanError]:
    """The answers to requests, by their keys. Without requests the simulator is not called."""
    if not requests:
        return {}
    repositories = len({request.key.partition("#")[0] for request in requests})
    with progress.task(f"simulating {count_of(repositories, 'repository')}", None):
        return simulator.impact(requests)


class UncommittedPreparer(Protocol):
    """The two requests of a mark besides the refs dump."""

    def prepare_uncommitted(self, repository: str) -> tuple[UncommittedRun, ...]:
        """Have the server list every uncommitted address, up to the last continuation token. Returns the
        run of each page, usually the same, with its folder. Raises ServerError."""

    def grace_period_seconds(self) -> int | None:
        """Return how long the server asks collectors to keep young objects, or None if it does not say."""


Holders = tuple[int, ...]
"""Holders as bits, one integer for each rule set."""


class Facts(NamedTuple):
    """The facts that ranges inherit from a metarange: the verdict bits of its commits, the position of the
    last of them (-1: none), and their holders. ``|`` joins two."""

    mask: int = 0
    last: int = -1
    holders: Holders = ()

    def __or__(self, other: Facts) -> Facts:
        return Facts(self.mask | other.mask, max(self.last, other.last), union((self.holders, other.holders)))


def union(sets: Iterable[Holders]) -> Holders:
    """The union of sets of holders."""
    return tuple(reduce(or_, bits) for bits in zip_longest(*sets, fillvalue=0))


@dataclass(frozen=True)
class ForeignRanges:
    """Another repository. Full addresses in its metaranges may be in this namespace. ``may_lack``: the tree
    accepts that some of its metadata files are missing."""

    name: str
    metadata: MetadataReader
    metaranges: tuple[str, ...]
    may_lack: bool = False


@dataclass(frozen=True)
class MarkRequest:
    """Asks for a mark of one repository.

    - ``prefix``: the mark's folder in the namespace, with its final slash
    - ``storage_namespace``: the URL that the server uses
    - ``listing``: the parts that ``list_candidates`` wrote; ``uncommitted``: keys of the server's run
    - ``metaranges``: those of all commits, with their ``Keep`` bits
    - ``last_commits``: commit ids by position; ``last_commits_us``: when each was created
    - ``collect_never_committed``: otherwise objects that were never committed are kept
    - ``protectors``: names of the bits from ``FIRST_BIT`` on (``retention.keep.protectors``)
    """

    store: SweepStore
    prefix: str
    storage_namespace: str
    metadata: MetadataReader
    listing: tuple[Part, ...]
    uncommitted: tuple[str, ...]
    metaranges: Mapping[str, Facts]
    last_commits: Mapping[int, str]
    held_prefixes: tuple[str, ...] = ()
    foreign: tuple[ForeignRanges, ...] = ()
    collect_never_committed: bool = False
    last_commits_us: Mapping[int, int] = field(default_factory=dict)
    protectors: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecheckRequest:
    """Asks which objects of a mark's ``parts`` something holds now. ``metaranges`` are those of kept commits,
    ``foreign`` those of other repositories: all, or those that the mark did not know. In
    ``other_metaranges``, of commits that nothing keeps, only objects below ``held_prefixes`` count. With
    ``copies``, a folder of copies, also asks which of these something holds by the copy's own address."""

    store: SweepStore
    parts: tuple[Part, ...]
    prefix: str
    storage_namespace: str
    metadata: MetadataReader
    uncommitted: tuple[str, ...]
    metaranges: tuple[str, ...]
    foreign: tuple[ForeignRanges, ...] = ()
    other_metaranges: tuple[str, ...] = ()
    held_prefixes: tuple[str, ...] = ()
    copies: str = ""


@dataclass(frozen=True)
class PresenceRequest:
    """Asks whether objects that commits name are stored. ``metaranges`` are those of these commits, with a
    mask other than 0 and the position of the last of them, and with the mask 0 those of other commits that
    may name an object below ``held_prefixes``. The storage is listed after the request was made. At most
    ``limit`` objects are named in the answer."""

    store: SweepStore
    storage_namespace: str
    metaranges: Mapping[str, Facts]
    held_prefixes: tuple[str, ...] = ()
    limit: int = 10_000


@dataclass(frozen=True)
class NamedObject:
    """An object that commits name and that was not listed, or was listed in another size (``resized``).
    ``address`` is relative. ``mask`` and ``last`` are those of its metaranges, ``size_bytes`` is the entry's.
    ``held``: it is below a held prefix."""

    address: str
    paths: tuple[str, ...]
    mask: int
    last: int
    size_bytes: int
    held: bool
    resized: bool


@dataclass(frozen=True)
class DamagedFile:
    """A range or metarange that is missing or whose content does not have its id. ``mask`` and ``last`` are
    its facts. ``paths`` are the first and last path of a range, ``entries`` their number."""

    kind: Literal["meta_range", "range"]
    id: str
    message: str
    mask: int
    last: int
    entries: int = 0
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Presence:
    """The answer to a presence request. ``named`` are the objects of the commits, ``lacking`` those that were
    not listed, and ``resized`` those listed in another size. ``outside``: addresses outside the namespace,
    which were not checked. What damaged files name is unknown."""

    metaranges: int
    ranges: int
    named: Amount
    lacking: Amount
    resized: Amount
    outside: Amount
    objects: tuple[NamedObject, ...] = ()
    damaged: tuple[DamagedFile, ...] = ()
    runner: RunnerChoice | None = None


@dataclass(frozen=True)
class SampledEntry:
    """An object as its entry describes it. ``e_tag`` is "" if it has none."""

    address: str
    path: str
    size_bytes: int
    e_tag: str
    mask: int
    last: int


AGES = (0, 7, 30, 90, 365)
"""The least age of each group of stored objects, in days since they were written."""


@dataclass(frozen=True)
class SurveyRequest:
    """Asks where the objects of a repository are seen. ``metaranges`` are those of all commits, with any
    mask. ``namespace`` is listed if given. Objects stored at ``young_from_us`` or later are too young to be
    deleted. ``staged`` are keys of a run of uncommitted addresses. About ``sample`` entries of ranges with a
    bit of ``sampled_mask`` are drawn by ``seed``, and as many of ranges with a bit of ``also_sampled`` and
    none of ``sampled_mask``."""

    name: str
    storage_namespace: str
    metadata: MetadataReader
    metaranges: Mapping[str, Facts]
    namespace: NamespaceReader | None = None
    young_from_us: int = 0
    staged: tuple[str, ...] = ()
    sample: int = 0
    sampled_mask: int = 0
    also_sampled: int = 0
    seed: str = ""
    part_of: Callable[[ObjectClass], str] | None = None
    """If objects are to be counted by prefix and age too, returns the part that an object is in.
    Picklable."""
    as_of_us: int = 0


@dataclass(frozen=True)
class Surveyed:
    """The answer to a survey. ``classes`` of all objects, including those that no commit names if storage was
    ``listed``. ``holder_sets`` are the sets that ``ObjectClass.holders`` number."""

    classes: Sequence[ObjectClass]
    listed: bool
    sample: Sequence[SampledEntry] = ()
    holder_sets: Sequence[Holders] = ()
    by_part: Mapping[str, Mapping[str, Amount]] = field(default_factory=dict)
    """With ``part_of``: amounts by part, then by prefix. ``by_age``: amounts by least age in days."""
    by_age: Mapping[int, Amount] = field(default_factory=dict)


class Surveyor(Protocol):
    def survey(self, request: SurveyRequest) -> Surveyed:
        """The places of all objects of the repository. Raises LakeplanError for what cannot be read."""


class Checker(Protocol):
    def presence(self, request: PresenceRequest) -> Presence:
        """Read ranges and metaranges from the storage itself, compare their ids with their bytes, then list.
        Raises LakeplanError for what cannot be read. What is missing or damaged is in the answer."""

    def sample(self, request: PresenceRequest, share: float, seed: str) -> Iterator[SampledEntry]:
        """About this share (0 to 1) of the objects that the commits name in the namespace, chosen by the
        seed, each once. Objects that only a held prefix keeps, and those of damaged files, are left out."""


class Marker(Protocol):
    def list_candidates(self, store: SweepStore, prefix: str, *, older_than: datetime) -> tuple[Part, ...]:
        """List the namespace in parallel and write old candidates for deletion into parts below ``prefix``.
        Returns when everything is listed and written."""

    def mark(self, request: MarkRequest) -> Marked:
        """Write the mark's parts. Raises LakeplanError for anything that cannot be read."""

    def held_again(self, request: RecheckRequest, *, limit: int) -> frozenset[str]:
        """Addresses of the mark that something holds now, at most ``limit + 1`` of them."""


@dataclass(frozen=True)
class DeleteSettings:
    """Settings of a round of deletions. ``mode`` ``close`` deletes nothing, and records what an interrupted
    sweep deleted. ``cutoff_us``: the objects of the mark were last modified before it, so a younger one is
    another object. ``rate`` is objects per second over all workers. Waits are in seconds."""

    mode: Literal["delete", "quarantine", "close"]
    versions: Versions
    verify_all: bool
    cutoff_us: int
    rate: float | None = None
    least_wait: float = 1.0
    most_wait: float = 120.0
    tries: int = 10


@dataclass(frozen=True)
class DeleteRequest:
    """Asks for a round of deletions.

    - ``prefix``: the sweep's folder; ``quarantine_prefix``: where copies are put
    - ``saved``: addresses of these parts that must be kept, with the reason
    - ``keep_never_committed``: why objects that were never committed may not be deleted yet; "" if they may
    - ``attempts``: parts that already have records with objects that failed, with the number of the next
      record
    - ``until``: no part is begun later
    - ``keep``: called regularly by what takes longer than a round; raises if the sweep must stop
    """

    store: SweepStore
    parts: tuple[Part, ...]
    mark_prefix: str
    prefix: str
    quarantine_prefix: str
    settings: DeleteSettings
    saved: Mapping[str, str]
    keep_never_committed: str = ""
    attempts: Mapping[str, int] = field(default_factory=dict)
    until: datetime | None = None
    keep: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class RoundEnd:
    """The finished parts of a round. ``problem``: why it stopped early, or "". ``prepared``: it deleted
    nothing, and needs a new inspection before it does. ``runner``: the runner that deleted."""

    results: Sequence[PartResult]
    problem: str = ""
    prepared: bool = False
    runner: RunnerChoice | None = None


class Sweeper(Protocol):
    def delete_objects(
        self,
        store: SweepStore,
        objects: Sequence[StoredObject],
        settings: DeleteSettings,
        *,
        before_each: Callable[[], None],
    ) -> list[Deletion]:
        """Delete objects that no mark names, such as copies in a quarantine, if they are still as listed.

        Runs in this process, in the order given, and waits while the store is busy. ``before_each`` is called
        before every request and may raise. Returns one answer for each object. Raises StorageError."""

    def delete(self, request: DeleteRequest) -> RoundEnd:
        """Delete in parallel what the parts name, except ``saved``. A part counts as finished once its record
        below ``prefix`` is written. Parts that could not be finished are not in the answer."""

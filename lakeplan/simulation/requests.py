"""What planning and sweeps ask of a simulation."""

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
from lakeplan.stores.protocols import NamespaceReader, SweepStore
from lakeplan.values.objects import StoredObject
from lakeplan.values.plan_parts import Bit
from lakeplan.values.progress import Progress
from lakeplan.values.simulation import Amount, ImpactResult, RunnerChoice, Transition
from lakeplan.values.sweep import Deletion, Marked, Part, PartResult, UncommittedRun, Versions

if TYPE_CHECKING:
    from lakeplan.simulation.verdicts import ObjectClass


@dataclass(frozen=True)
class ImpactRequest:
    """One repository. ``key`` is ``server/name``; ``storage_namespace`` the URL the server uses for it (full
    addresses inside it count as relative); ``metaranges`` maps the metarange id of every commit that any
    verdict keeps to its mask (OR over the commits that share it); ``transitions`` are the changes asked
    about, by name. ``tags`` maps a tag to the metarange
    of its commit: for these, what they lose in any of ``tag_transitions`` is counted. Prefixes are broken
    down for ``detail``. ``shown``: transitions whose objects are named one by one, with their ``Bit``."""

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
    """Whose inventory says which of the objects are stored; None: that is not asked."""


class Simulator(Protocol):
    def impact(self, requests: Sequence[ImpactRequest]) -> Mapping[str, ImpactResult | LakeplanError]:
        """All repositories in one job. A repository that cannot be read gets its error; the others
        continue."""


def simulate(
    requests: Sequence[ImpactRequest], simulator: Simulator, progress: Progress
) -> Mapping[str, ImpactResult | LakeplanError]:
    """The answers to requests, by their keys. Without requests the simulator is not called."""
    if not requests:
        return {}
    repositories = len({request.key.partition("#")[0] for request in requests})
    with progress.task(f"simulating {repositories} repositories", None):
        return simulator.impact(requests)


class UncommittedPreparer(Protocol):
    """The two requests of a mark beside the refs dump."""

    def prepare_uncommitted(self, repository: str) -> tuple[UncommittedRun, ...]:
        """Has the server list every uncommitted address, to its last continuation token. Returns the
        distinct runs and folders of its answers (usually one). Raises ServerError."""

    def grace_period_seconds(self) -> int | None:
        """How long the server asks collectors to leave young objects alone; None when it does not say."""


Holders = tuple[int, ...]
"""Bits of holders, one integer for each rule set."""


class Facts(NamedTuple):
    """What a metarange passes on to its ranges: verdict bits of its commits, the position of the last of them
    (-1: none), and who holds them. ``|`` joins two."""

    mask: int = 0
    last: int = -1
    holders: Holders = ()

    def __or__(self, other: Facts) -> Facts:
        return Facts(self.mask | other.mask, max(self.last, other.last), union((self.holders, other.holders)))


def union(sets: Iterable[Holders]) -> Holders:
    """Everyone in any of some sets."""
    return tuple(reduce(or_, bits) for bits in zip_longest(*sets, fillvalue=0))


@dataclass(frozen=True)
class ForeignRanges:
    """Another repository of the server: full addresses in its metaranges may lie in this namespace."""

    name: str
    metadata: MetadataReader
    metaranges: tuple[str, ...]


@dataclass(frozen=True)
class MarkRequest:
    """``prefix`` is the mark's own folder in the namespace, with its final slash. ``listing`` are the parts
    that ``list_candidates`` wrote; ``uncommitted`` keys of the server's run. ``metaranges`` are those of all
    commits, with their ``Keep`` bits; ``last_commits`` maps a position to a commit id.
    ``last_commits_us`` when that commit was created. ``protectors``: names of the bits from ``FIRST_BIT`` on
    (``retention.keep.protectors``). ``storage_namespace`` is the URL the server uses. Unless
    ``collect_never_committed``, what was never
    committed stands among what is kept."""

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
    """What a later inspection asks: which objects of the mark's ``parts`` does anything hold? ``metaranges``
    are those of kept commits, ``foreign`` those of other repositories: all, or what the mark did not know.
    ``other_metaranges``, of commits that nothing keeps, hold what is below ``held_prefixes``."""

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


@dataclass(frozen=True)
class PresenceRequest:
    """Whether what some commits name is stored. ``metaranges``: of these commits, with a mask that is not 0
    and the position of the last of them; of all other commits those that may name an object below
    ``held_prefixes``, with the mask 0. The storage is listed after this was made. At most ``limit`` objects
    are named."""

    store: SweepStore
    storage_namespace: str
    metaranges: Mapping[str, Facts]
    held_prefixes: tuple[str, ...] = ()
    limit: int = 10_000


@dataclass(frozen=True)
class NamedObject:
    """An object that commits name, and that was not listed, or (``resized``) listed in another size.
    ``address`` is relative; ``mask`` and ``last`` are those of its metaranges; ``size_bytes`` is the entry's.
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
    """A range or metarange that is missing, or is not what its id says; with its facts. ``paths``: the first
    and the last path of a range, ``entries`` how many it has."""

    kind: Literal["meta_range", "range"]
    id: str
    message: str
    mask: int
    last: int
    entries: int = 0
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Presence:
    """``named``: objects of the commits, ``lacking`` those of them that were not listed, ``resized`` those
    listed in another size. ``outside``: addresses outside the namespace, which were not checked. Nothing is
    known of what damaged files name."""

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
    """An object as its entry describes it. ``e_tag`` is "" for none."""

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
    """Where objects of a repository are seen. ``metaranges``: of all commits, with any mask. ``namespace`` is
    listed where there is one; objects that were stored at ``young_from_us`` or later are too young to be
    deleted. ``staged``: keys of a run of uncommitted addresses. ``sample``: about so many entries with a bit
    of ``sampled_mask`` are drawn by ``seed``, and as many of ranges with a bit of ``also_sampled`` and
    none of it."""

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
    """Where objects are to be counted by prefix and age, too: the part that each is in. Picklable."""
    as_of_us: int = 0


@dataclass(frozen=True)
class Surveyed:
    """``classes`` of all objects; of the ``listed`` ones also those that no commit names. ``holder_sets``:
    what the numbers of ``ObjectClass.holders`` mean."""

    classes: Sequence[ObjectClass]
    listed: bool
    sample: Sequence[SampledEntry] = ()
    holder_sets: Sequence[Holders] = ()
    by_part: Mapping[str, Mapping[str, Amount]] = field(default_factory=dict)
    """Where ``part_of`` was given: by part, then by prefix; and ``by_age``, by the least age in days."""
    by_age: Mapping[int, Amount] = field(default_factory=dict)


class Surveyor(Protocol):
    def survey(self, request: SurveyRequest) -> Surveyed:
        """Raises LakeplanError of what cannot be read."""


class Checker(Protocol):
    def presence(self, request: PresenceRequest) -> Presence:
        """Reads ranges and metaranges from the storage itself and compares their ids with their bytes, then
        lists. Raises LakeplanError for what cannot be read; what is missing or damaged is in the answer."""

    def sample(self, request: PresenceRequest, share: float, seed: str) -> Iterator[SampledEntry]:
        """About this share (0 to 1) of the objects that the commits name in the namespace, chosen by the
        seed, each once. Objects that only a held prefix names, and those of damaged files, are left out."""


class Marker(Protocol):
    def list_candidates(self, store: SweepStore, prefix: str, *, older_than: datetime) -> tuple[Part, ...]:
        """Lists the namespace in parallel and writes what may be garbage at all and is older into parts
        below ``prefix``. Returns when everything is listed and written."""

    def mark(self, request: MarkRequest) -> Marked:
        """Writes the mark's parts. Raises the error of anything that cannot be read."""

    def held_again(self, request: RecheckRequest, *, limit: int) -> frozenset[str]:
        """Addresses of the mark that something holds; at most ``limit + 1`` of them."""


@dataclass(frozen=True)
class DeleteSettings:
    """``mode`` ``close`` deletes nothing: it looks what an interrupted sweep deleted. ``cutoff_us``: objects
    of the mark were last modified before it; one that is younger is another. ``rate`` is objects a second
    over all workers. Waits are seconds."""

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
    """A round of deletions. ``prefix`` is the sweep's folder, ``quarantine_prefix`` where copies are put.
    ``saved`` maps addresses of these parts that must stay to why. ``attempts`` maps the names of parts that
    have records already, with objects that failed, to the number of the record that is written now.
    ``until``: no part is begun later. ``keep_never_committed``: why nothing that was never committed may be
    deleted yet; "" when it may. ``keep``: to be called now and then by who takes longer than a round; it
    raises when the sweep must not go on."""

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
    """What a round did: ends of finished parts. ``problem``: why it stopped early; "" when it did not.
    ``prepared``: it deleted nothing, and asks for a fresh look before it does. ``runner``: who deleted."""

    ends: Sequence[PartResult]
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
        """Deletes objects that no mark names (a quarantine's), as they were listed and in that order, from
        here, waiting while the store is busy. ``before_each`` is called before every request, and may raise.
        One answer an object. Raises StorageError."""

    def delete(self, request: DeleteRequest) -> RoundEnd:
        """Deletes in parallel what the parts name, but ``saved``; every finished part has its record below
        ``prefix`` before it counts. Parts that could not be finished are not in the answer."""

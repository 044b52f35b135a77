"""Pure rules of a sweep: gates, rate, settling, shared storage, the official collector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from urllib.parse import unquote

from lakeplan.errors import GateRefused, LakeplanError, UsageError
from lakeplan.formats.namespace import resolved
from lakeplan.review.gates import GateOverrides, Named, Verdict, by_limit, percent_text
from lakeplan.sweep.mark_record import Mark, settings_row
from lakeplan.values.desired import Safety
from lakeplan.values.gates import EXPIRED_BYTES, EXPIRED_OBJECTS, MIN_AGE, SWEEP_LIMIT
from lakeplan.values.plan import GateOutcome, GateResult
from lakeplan.values.repository import Repository
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount, MarkClass
from lakeplan.values.sweep import MARK_MAX_AGE_SECONDS, OFFICIAL_ENGINE, SweepSettings, unknown_to_official
from lakeplan.values.units import count_of
from lakeplan.values.urls import STORAGES, UrlForm


def with_hint(error: LakeplanError) -> str:
    """The error and its hint as one text."""
    return f"{error}" + (f" ({error.hint})" if error.hint else "")


MIN_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 120.0


def backoff_seconds(
    failures: int, jitter: float, *, least: float = MIN_BACKOFF_SECONDS, most: float = MAX_BACKOFF_SECONDS
) -> float:
    """The wait in seconds after this many consecutive failures (1 or more). Each failure doubles the wait,
    and ``jitter``, a random number in [0, 1), subtracts up to half, so that workers do not retry together."""
    doubled = min(most, least * 2.0 ** min(failures - 1, 30))
    return doubled * (0.5 + jitter / 2)


@dataclass
class Throttle:
    """Spreads deletions over time. ``rate`` is in objects per second for this worker (None: no limit). Times
    are seconds of a monotonic clock."""

    rate: float | None
    _free_at: float = 0.0

    def wait_seconds(self, objects: int, now: float) -> float:
        """The wait in seconds before a batch of this many objects. Call it once for each batch."""
        if not self.rate:
            return 0.0
        start = max(now, self._free_at)
        self._free_at = start + objects / self.rate
        return start - now


GRACE_SECONDS = 86_400
"""The default of servers (lakefs/api.md), for one that does not report its own."""


def mark_gates(
    repository: Named,
    goes: Amount,
    candidates: Amount,
    settings: SweepSettings,
    safety: Safety,
    *,
    grace_period_seconds: int | None,
    overrides: GateOverrides,
) -> tuple[GateResult, ...]:
    """The results of a mark's gates. ``candidates``: stored objects that are old enough to be deleted, of
    which ``goes`` would be."""
    percent = 100.0 * goes.objects / candidates.objects if candidates.objects else 0.0
    judged = {
        EXPIRED_OBJECTS: (_limit(percent, safety.max_expired_objects_percent, "percent"),),
        EXPIRED_BYTES: (_limit(goes.size_bytes, safety.max_expired_bytes, "bytes"),),
        SWEEP_LIMIT: (
            _limit(goes.objects, settings.max_objects, "objects"),
            _limit(goes.size_bytes, settings.max_bytes, "bytes"),
        ),
        MIN_AGE: (_min_age(settings, grace_period_seconds),),
    }
    verdicts = [v.of(gate, repository.key) for gate, vs in judged.items() for v in vs if v is not None]
    return overrides.decide_each(verdicts, repository)


def _limit(value: float, limit: float | None, unit: str) -> Verdict | None:
    if limit is None:
        return None
    shown = (
        f"{percent_text(value, limit)} percent of the objects older than sweep.min_age"
        if unit == "percent"
        else f"{value:,} {unit}"
    )
    text = f"{shown} would be deleted; the limit is {limit:,}"
    return Verdict(by_limit(value, limit), text, value, limit, unit)


def _min_age(settings: SweepSettings, grace: int | None) -> Verdict | None:
    if grace is None:
        grace = GRACE_SECONDS
    if settings.min_age_seconds >= grace:
        return None
    text = (
        f"objects may be deleted after {settings.min_age_seconds:,} seconds, but the server requires"
        f" collectors to wait {grace:,} seconds"
    )
    return Verdict(GateOutcome.REFUSED, text, settings.min_age_seconds, grace)


START_SECONDS = 300
"""How long the job may take from its start until it reads the clock, from which it counts ages. Its marks
leave out objects that are older than the cutoff by less than this: the next mark has them."""

_UNKNOWN_TO_IT = {
    MarkClass.AT_RISK: "at risk (the documented rule keeps them, the server does not)",
    MarkClass.PROTECTED: "protected by a tag, a hold or another repository",
    MarkClass.UNCERTAIN_ADDRESS: "that an address with an unusual spelling may refer to",
    MarkClass.NEAR_LIMIT: "near a cutoff (sweep.margin)",
    MarkClass.NEVER_COMMITTED: "that were never committed (sweep.never_committed is keep)",
}


def check_engine(settings: SweepSettings, where: str) -> None:
    """Raises UsageError for settings that the official collector does not support."""
    if settings.engine != OFFICIAL_ENGINE:
        return
    for key, value in settings_row(settings).items():
        if why := unknown_to_official(key, value):
            raise UsageError(
                f"the official collector does not support sweep.{key}: {value}, because {why}",
                where=where,
                hint="Use sweep.engine: builtin.",
            )


def check_collectable(mark: Mark) -> None:
    """Raises GateRefused when the mark keeps objects that the official collector would delete."""
    if mark.settings.engine != OFFICIAL_ENGINE:
        return
    kept = []
    for kind, words in _UNKNOWN_TO_IT.items():
        if kind is MarkClass.NEVER_COMMITTED and mark.settings.never_committed == "collect":
            continue
        if objects := mark.marked.amount(kind).objects:
            kept.append(f"{kind.value}: {count_of(objects, 'object')} {words}")
    if kept:
        raise GateRefused(
            f"the official collector would delete objects that lakeplan keeps: {'; '.join(kept)}",
            where=mark.where,
            hint="Use sweep.engine: builtin.",
        )


def candidate_age_seconds(settings: SweepSettings) -> int:
    """The least age of objects in a mark. The official collector deletes none that is younger, and its mark
    can be swept only once."""
    later = START_SECONDS + 1 if settings.engine == OFFICIAL_ENGINE else 0  # ages are whole seconds
    return settings.min_age_seconds + later


def min_age_seconds(*, cutoff: datetime, now: datetime) -> int:
    """The minimum age, at least 1, for a job that starts now to delete nothing that was modified after a
    mark's cutoff."""
    return max(1, ceil((now - cutoff).total_seconds()) + START_SECONDS)


_KIND_BY_SCHEME = {scheme: kind.name for kind in STORAGES for scheme in (*kind.schemes, *kind.hadoop_schemes)}
_BY_ACCOUNT = frozenset(kind.name for kind in STORAGES if kind.form is UrlForm.WEB)


@dataclass(frozen=True)
class Place:
    """The parts of a namespace's URL. ``kind`` is the storage's, or an unknown scheme. ``store`` is the
    account of an Azure URL, else "" (S3 URLs have no endpoint). ``parts`` begin with the bucket or
    container."""

    kind: str
    store: str
    parts: tuple[str, ...]

    def how(self, other: Place, *, any_store: bool) -> str:
        """Return how another namespace overlaps this one, in words, or "" if it does not."""
        if self.kind != other.kind or not (any_store or self.store == other.store):
            return ""
        shorter = min(len(self.parts), len(other.parts))
        if self.parts[:shorter] != other.parts[:shorter]:
            return ""
        if len(self.parts) == len(other.parts):
            return "has the same storage namespace"
        if len(self.parts) < len(other.parts):
            return "has its storage namespace inside this repository's namespace"
        return "has a storage namespace that contains this repository's namespace"


def overlapping(
    repository: Repository, others: Iterable[Repository], *, any_store: bool = False
) -> list[tuple[Repository, str]]:
    """The repositories whose namespace equals, contains or is inside this one's in any spelling, and how.
    ``any_store`` includes those that overlap only if another endpoint or account is the same storage."""
    mine = places(repository.storage_namespace)
    neighbours = []
    for other in others:
        if other.id == repository.id:
            continue
        theirs = places(other.storage_namespace)
        hows = (a.how(b, any_store=any_store) for a in mine for b in theirs)
        if how := next(filter(None, hows), ""):
            neighbours.append((other, how))
    return neighbours


@lru_cache(maxsize=4096)
def places(url: str) -> tuple[Place, ...]:
    """The places that a namespace may refer to: a server drops a query and decodes escapes, and some stores
    resolve ``..``."""
    kind, rest = _split_scheme(url)
    cut = rest.partition("?")[0]
    texts = (rest, cut, unquote(cut))
    both = [parts for text in texts for parts in (_plain(text), resolved(text))]
    return tuple(dict.fromkeys(_place(kind, parts) for parts in both))


@lru_cache(maxsize=4096)
def place_of(url: str) -> Place:
    """The place that a namespace most probably refers to."""
    kind, rest = _split_scheme(url)
    return _place(kind, resolved(unquote(rest.partition("?")[0])))


def _split_scheme(url: str) -> tuple[str, str]:
    scheme, separator, rest = url.partition("://")
    return (_KIND_BY_SCHEME.get(scheme.lower(), scheme.lower()), rest) if separator else ("", url)


def _plain(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _place(kind: str, parts: list[str]) -> Place:
    if not parts:
        return Place(kind, "", ())
    user, at, host = parts[0].lower().rpartition("@")
    if kind not in _BY_ACCOUNT:
        return Place(kind, "", (host, *parts[1:]))
    name = host.partition(":")[0]
    if (
        name == "localhost" or name.replace(".", "").isdigit() or "[" in name
    ):  # Azurite: the account is in the path
        return Place(kind, *((parts[1], tuple(parts[2:])) if len(parts) > 1 else ("", ())))
    container = (user,) if at else ()
    return Place(kind, name.partition(".")[0], (*container, *parts[1:]))


def lowered(before: GcRules | None, after: GcRules) -> bool:
    """Whether a branch, named or by the default, is kept for fewer days than before. If the rules before are
    not known, they may have been longer."""
    if before is None:
        return True
    if after.default_retention_days < before.default_retention_days:
        return True
    names = {*before.branches, *after.branches}
    return any(after.days_for(name) < before.days_for(name) for name in names)


@dataclass(frozen=True)
class Window:
    """The times between which a mark may be swept."""

    opens: datetime
    closes: datetime

    def problem(self, *, earliest: datetime, latest: datetime) -> str:
        """Return why the mark may not be swept now, by the earliest and the latest clock, or "" if it may."""
        if latest >= self.closes:
            hours = MARK_MAX_AGE_SECONDS // 3600
            return (
                f"the mark is older than the limit of {hours} hours, so too much may have changed since it"
                " was created"
            )
        if earliest < self.opens:
            at = f"{self.opens:%Y-%m-%d %H:%M}"
            return f"retention was shortened less than sweep.settle ago: the mark can be swept from {at} UTC"
        return ""


def window(mark: Mark, settle_seconds: int, *, lowered_at: datetime | None = None) -> Window:
    """When a mark may be swept: after its rules have settled and before it is too old. ``lowered_at``: when a
    rule was last lowered, if that is known to be later than the mark says."""
    since = max(mark.lowered_at, lowered_at or mark.lowered_at)
    return Window(
        opens=since + timedelta(seconds=settle_seconds) if settle_seconds else mark.marked_at,
        closes=mark.marked_at + timedelta(seconds=MARK_MAX_AGE_SECONDS),
    )


def proven_absent(*, first_seen: datetime, now: datetime, settle_seconds: int) -> bool:
    """Whether two inspections of uncommitted data and refs that both missed an object are far enough apart.
    One alone proves nothing (lakefs/retention.md, "What a safe mark must respect")."""
    return now - first_seen >= timedelta(seconds=settle_seconds)

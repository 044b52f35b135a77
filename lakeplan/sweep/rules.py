"""Pure rules of a sweep: gates, rate, settling, overlap of storage, the official collector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from urllib.parse import unquote

from lakeplan.errors import GateRefused, LakeplanError, UsageError
from lakeplan.review.gates import GateOverrides, Named, Verdict, by_limit
from lakeplan.sweep.mark_record import Mark, settings_row
from lakeplan.values.desired import Safety
from lakeplan.values.gates import EXPIRED_BYTES, EXPIRED_OBJECTS, MIN_AGE, SWEEP_LIMIT
from lakeplan.values.plan import GateOutcome, GateResult
from lakeplan.values.repository import Repository
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount
from lakeplan.values.storages import STORAGES, UrlForm
from lakeplan.values.sweep import (
    MARK_MAX_AGE_SECONDS,
    OFFICIAL_ENGINE,
    MarkClass,
    SweepSettings,
    unknown_to_official,
)


def with_hint(error: LakeplanError) -> str:
    """Why a sweep stopped, for its document."""
    return f"{error}" + (f" ({error.hint})" if error.hint else "")


MIN_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 120.0


def backoff_seconds(
    failures: int, jitter: float, *, least: float = MIN_BACKOFF_SECONDS, most: float = MAX_BACKOFF_SECONDS
) -> float:
    """The wait after so many failures in a row (1 or more); ``jitter`` is a random number in [0, 1) that
    keeps workers from coming back at the same moment. Between half of the doubled wait and all of it."""
    doubled = min(most, least * 2.0 ** min(failures - 1, 30))
    return doubled * (0.5 + jitter / 2)


@dataclass
class Throttle:
    """Spreads deletions over time. ``rate`` is objects a second for this worker (None: as fast as it goes).
    Times are seconds of a clock that only goes forward."""

    rate: float | None
    _free_at: float = 0.0

    def wait_seconds(self, objects: int, now: float) -> float:
        """How long to wait before a batch of so many objects; call it once a batch."""
        if not self.rate:
            return 0.0
        start = max(now, self._free_at)
        self._free_at = start + objects / self.rate
        return start - now


GRACE_SECONDS = 86_400
"""A server's default (lakefs/api.md), where it does not say."""


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
    """``candidates``: what is stored and old enough to go at all, of which ``goes`` would."""
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
    found = [v.of(gate, repository.key) for gate, vs in judged.items() for v in vs if v is not None]
    return overrides.decide_each(found, repository)


def _limit(value: float, limit: float | None, unit: str) -> Verdict | None:
    if limit is None:
        return None
    shown = f"{value:,.1f} percent of the old objects" if unit == "percent" else f"{value:,} {unit}"
    text = f"{shown} would be deleted; the limit is {limit:,}"
    return Verdict(by_limit(value, limit), text, value, limit, unit)


def _min_age(settings: SweepSettings, grace: int | None) -> Verdict | None:
    if grace is None:
        grace = GRACE_SECONDS
    if settings.min_age_seconds >= grace:
        return None
    text = (
        f"objects may be deleted after {settings.min_age_seconds:,} seconds, but the server requires"
        f" collectors to wait for {grace:,}"
    )
    return Verdict(GateOutcome.REFUSED, text, settings.min_age_seconds, grace)


START_SECONDS = 300
"""How long the job may take from its command line to its first look at the clock: it counts ages from then.
Its marks leave out objects that are older than their cutoff by less than that: they wait for the next."""

_UNKNOWN_TO_IT = {
    MarkClass.AT_RISK: "at risk (the documented rule keeps them, the server does not)",
    MarkClass.PROTECTED: "protected by a tag, a hold or another repository",
    MarkClass.UNCERTAIN_ADDRESS: "that an address in an unusual spelling may mean",
    MarkClass.NEAR_LIMIT: "near a limit (sweep.margin)",
    MarkClass.NEVER_COMMITTED: "never committed, and sweep.never_committed is keep",
}


def check_engine(settings: SweepSettings, where: str) -> None:
    """Raises UsageError for settings that the official collector has no notion of."""
    if settings.engine != OFFICIAL_ENGINE:
        return
    for key, value in settings_row(settings).items():
        if why := unknown_to_official(key, value):
            raise UsageError(
                f"the official collector does not support sweep.{key}: {value}: {why}",
                where=where,
                hint="Use sweep.engine: builtin.",
            )


def check_collectable(mark: Mark) -> None:
    """Raises GateRefused, by name, while the mark keeps objects that the official collector would delete."""
    if mark.settings.engine != OFFICIAL_ENGINE:
        return
    kept = []
    for kind, words in _UNKNOWN_TO_IT.items():
        if kind is MarkClass.NEVER_COMMITTED and mark.settings.never_committed == "collect":
            continue
        if count := mark.marked.amount(kind).objects:
            kept.append(f"{kind.value}: {count:,} objects {words}")
    if kept:
        raise GateRefused(
            f"the official collector would delete objects that lakeplan keeps: {'; '.join(kept)}",
            where=mark.where,
            hint="Use sweep.engine: builtin.",
        )


def candidate_age_seconds(settings: SweepSettings) -> int:
    """How old an object must be to stand in a mark. The official collector would leave alone what is younger,
    and its mark serves only once."""
    later = START_SECONDS + 1 if settings.engine == OFFICIAL_ENGINE else 0  # ages are whole seconds
    return settings.min_age_seconds + later


def min_age_seconds(*, cutoff: datetime, now: datetime) -> int:
    """The minimum age with which a job that is started now takes nothing that was modified after a mark's
    cutoff. At least 1."""
    return max(1, ceil((now - cutoff).total_seconds()) + START_SECONDS)


_KIND_BY_SCHEME = {scheme: kind.name for kind in STORAGES for scheme in (*kind.schemes, *kind.hadoop_schemes)}
_BY_ACCOUNT = frozenset(kind.name for kind in STORAGES if kind.form is UrlForm.WEB)


@dataclass(frozen=True)
class Place:
    """A namespace taken apart. ``kind`` is the storage's, or a scheme that none has. ``store`` is the account
    of an Azure URL, else ""; an endpoint of S3 is not in its URL. ``parts`` begin with the bucket or
    container."""

    kind: str
    store: str
    parts: tuple[str, ...]

    def how(self, other: Place, *, any_store: bool) -> str:
        """How another namespace lies to this one, in words; "" where they have nothing in common."""
        if self.kind != other.kind or not (any_store or self.store == other.store):
            return ""
        shorter = min(len(self.parts), len(other.parts))
        if self.parts[:shorter] != other.parts[:shorter]:
            return ""
        if len(self.parts) == len(other.parts):
            return "has the same storage namespace"
        if len(self.parts) < len(other.parts):
            return "has its storage namespace inside this one"
        return "has a storage namespace that contains this one's"


def overlapping(
    repository: Repository, others: Iterable[Repository], *, any_store: bool = False
) -> list[tuple[Repository, str]]:
    """Repositories whose namespace equals, contains or lies inside this one's, in any spelling, and how, in
    words. ``any_store``: also those that do so only if another endpoint or account means the same storage."""
    own = places(repository.storage_namespace)
    found = []
    for other in others:
        if other.id == repository.id:
            continue
        theirs = places(other.storage_namespace)
        hows = (a.how(b, any_store=any_store) for a in own for b in theirs)
        if how := next(filter(None, hows), ""):
            found.append((other, how))
    return found


@lru_cache(maxsize=4096)
def places(url: str) -> tuple[Place, ...]:
    """The place that a namespace means, and others that it may mean: a server drops a query and decodes
    escapes, and some stores resolve ``..``."""
    kind, rest = _taken_apart(url)
    cut = rest.partition("?")[0]
    texts = (rest, cut, unquote(cut))
    both = [parts for text in texts for parts in (_plain(text), resolved(text))]
    return tuple(dict.fromkeys(_place(kind, parts) for parts in both))


@lru_cache(maxsize=4096)
def place_of(url: str) -> Place:
    """The place that a namespace most probably means."""
    kind, rest = _taken_apart(url)
    return _place(kind, resolved(unquote(rest.partition("?")[0])))


def _taken_apart(url: str) -> tuple[str, str]:
    scheme, separator, rest = url.partition("://")
    return (_KIND_BY_SCHEME.get(scheme.lower(), scheme.lower()), rest) if separator else ("", url)


def resolved(path: str) -> list[str]:
    """The parts of a path without empty and dot segments."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


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
    """Whether some branch, named or by the default, is kept for fewer days than before. Rules where none
    were known may have been lowered from anything."""
    if before is None:
        return True
    if after.default_retention_days < before.default_retention_days:
        return True
    names = {*before.branches, *after.branches}
    return any(after.days_for(name) < before.days_for(name) for name in names)


@dataclass(frozen=True)
class Window:
    """When a mark may be swept, as moments."""

    opens: datetime
    closes: datetime

    def problem(self, *, earliest: datetime, latest: datetime) -> str:
        """Why it may not be swept now, by the earliest and the latest clock; "" when it may."""
        if latest >= self.closes:
            hours = MARK_MAX_AGE_SECONDS // 3600
            return f"the mark is older than {hours} hours: too much may have happened since"
        if earliest < self.opens:
            at = f"{self.opens:%Y-%m-%d %H:%M}"
            return f"a rule was lowered less than sweep.settle ago: the mark may be swept from {at} UTC"
        return ""


def window(mark: Mark, settle_seconds: int, *, lowered_at: datetime | None = None) -> Window:
    """When a mark may be swept: its rules have settled, and it has not grown old. ``lowered_at``: when a rule
    was last lowered, as far as that is known by now."""
    since = max(mark.lowered_at, lowered_at or mark.lowered_at)
    return Window(
        opens=since + timedelta(seconds=settle_seconds) if settle_seconds else mark.marked_at,
        closes=mark.marked_at + timedelta(seconds=MARK_MAX_AGE_SECONDS),
    )


def proven_absent(*, first_seen: datetime, now: datetime, settle_seconds: int) -> bool:
    """Whether two looks at uncommitted data and refs, far enough apart, both missed an object: one
    sighting is no proof (lakefs/retention.md, "What a safe mark must respect")."""
    return now - first_seen >= timedelta(seconds=settle_seconds)

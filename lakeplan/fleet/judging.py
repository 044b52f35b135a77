"""What an audit judges: the rows of its document (``schemas/audit.v1.json``, times in ISO 8601 and UTC), and
the figures and advice in them. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import IntFlag
from typing import Literal, NotRequired, TypedDict

from lakeplan.retention.rules import DAY_US, to_us
from lakeplan.simulation.verdicts import ObjectClass, Sighting
from lakeplan.sweep.documents import CollectorRunRow
from lakeplan.values.desired import Policy, PriceRow
from lakeplan.values.documents import ErrorRow
from lakeplan.values.repository import Refs
from lakeplan.values.rules import MAX_DAYS, GcRules, RulesBody
from lakeplan.values.simulation import Amount, AmountRow, total_of


class AuditCommits(TypedDict):
    """The number of commits, and the numbers that each rule keeps. ``at_risk`` counts those that the
    documented rule keeps but the server's walk does not. ``dangling_seen`` says whether commits that no
    branch or tag reaches were read."""

    total: int
    branches: int
    tags: int
    kept_by_server: int
    kept_by_rule: int
    at_risk: int
    dangling_seen: bool


class DestroyedRow(TypedDict):
    """Objects that should be stored but are gone. A ``listing`` counts all of them. A ``sample`` finds that
    ``gone`` of ``asked`` objects are gone. The share of all objects lies between the two percentages, with a
    confidence of 95 %."""

    how: Literal["listing", "sample"]
    amount: AmountRow | None
    asked: int | None
    gone: int | None
    low_percent: float
    high_percent: float
    examples: list[str]


class NextRunRow(TypedDict):
    """The objects that the server's collector would delete next, with ``at_risk`` and ``tagged`` as parts of
    it. ``too_young`` counts expired objects younger than ``min_age_seconds``, which a later run would delete.
    It is None if ages are unknown. ``expired`` then contains these objects."""

    expired: AmountRow
    at_risk: AmountRow
    tagged: AmountRow
    min_age_seconds: int
    too_young: AmountRow | None


class PeriodRow(TypedDict):
    """The objects that would expire if every branch had this many days."""

    days: int
    expired: AmountRow


class LeftoversRow(TypedDict):
    """Stored objects in no commit that are older than a day. ``staged`` is None without a recent list of
    uncommitted objects. ``never_committed`` then contains staged objects."""

    never_committed: AmountRow
    staged: AmountRow | None


class UncommittedRow(TypedDict):
    """Uncommitted changes that the server reports: how many ``changes``, and on how many ``branches`` of
    those ``asked`` about. ``more`` says that not all changes of some branch were counted."""

    asked: int
    branches: int
    changes: int
    more: bool


class RemnantsRow(TypedDict):
    """The data in a bucket other than current objects. None means unknown, and "" means no upload.
    ``complete`` says whether everything was counted."""

    noncurrent: AmountRow | None
    delete_markers: int | None
    unfinished_uploads: int | None
    oldest_upload: str
    complete: bool


class PolicyRow(TypedDict):
    """A stored branch policy as the server writes it, with ages in seconds."""

    name_patterns: list[str]
    id: NotRequired[str]
    max_age: NotRequired[int]
    max_inactivity_time: NotRequired[int]
    description: NotRequired[str]


class StaleRow(TypedDict):
    branch: str
    days: int


Severity = Literal["data-loss", "cost", "settings"]


class AdviceRow(TypedDict):
    """A problem, and the command that helps, or ""."""

    severity: Severity
    problem: str
    command: str


class AuditedRow(TypedDict):
    """One repository. If ``estimated``, storage was not listed (``not_listed`` says why), so figures come
    from metadata and include objects that are gone. ``destroyed`` is about objects that the documented rule
    keeps, and ``destroyed_tagged`` about objects that only tags name. Both are also None if there are no such
    objects. ``policies`` is None if the server has none or they cannot be read."""

    repository: str
    storage_namespace: str
    as_of: str
    rules: RulesBody | None
    policies: list[PolicyRow] | None
    commits: AuditCommits
    objects: AmountRow
    estimated: bool
    not_listed: str
    destroyed: DestroyedRow | None
    destroyed_tagged: DestroyedRow | None
    not_sampled: str
    next_run: NextRunRow
    freeable: AmountRow
    periods: list[PeriodRow]
    leftovers: LeftoversRow | None
    uncommitted: UncommittedRow | None
    remnants: RemnantsRow | None
    stale_branches: list[StaleRow]
    stale_count: int
    nonsense: list[str]
    unknown_branches: list[str]
    collector_runs: list[CollectorRunRow] | None
    advice: list[AdviceRow]
    cost_per_gb_month: NotRequired[PriceRow]


class AuditDocument(TypedDict):
    """The document of an audit. ``failed`` has repositories that could not be read, by ``server/name``.
    ``unfinished`` has those that were not tried, because the audit was stopped."""

    format: Literal["lakeplan.audit/v1"]
    at: str
    servers: Mapping[str, str]
    repositories: list[AuditedRow]
    failed: Mapping[str, ErrorRow]
    unfinished: list[str]


PERIODS = (1, 7, 14, 30, 60, 90, 180, 365)
STALE_NAMED = 20
Z = 1.96
"""Standard deviations for a confidence of 95 %."""


class Bit(IntFlag):
    """Verdict bits of a commit."""

    ALL = 1
    SERVER = 2
    DOCUMENTED = 4
    TAG = 8


def period_bit(number: int) -> int:
    """Return the bit of a period, by its place in ``PERIODS``."""
    return 16 << number


def total(classes: Iterable[ObjectClass], *, listed: bool) -> Amount:
    """Return all stored objects, or without a listing all objects that commits name."""
    return total_of(each.amount for each in classes if each.counts(listed))


def expired(classes: Iterable[ObjectClass], keeps: int, *, listed: bool, among: int = Bit.ALL) -> Amount:
    """Return committed objects that are in a commit with a bit of ``among`` and in no commit with a bit of
    ``keeps``. Uncommitted and too young objects are omitted."""
    return total_of(
        each.amount
        for each in classes
        if each.is_candidate(listed)
        and each.is_committed
        and each.any_mask & among
        and not each.any_mask & keeps
        and not each.flags & Sighting.UNCOMMITTED
    )


def too_young(classes: Iterable[ObjectClass]) -> Amount:
    """Return stored objects that ``expired`` omits only because they are too young."""
    return total_of(
        each.amount
        for each in classes
        if each.flags & Sighting.LISTED
        and not each.flags & (Sighting.OLD | Sighting.UNCOMMITTED)
        and each.is_committed
        and not each.any_mask & Bit.SERVER
    )


def destroyed(classes: Iterable[ObjectClass], wanted: int = Bit.DOCUMENTED, unwanted: int = 0) -> Amount:
    """Return objects that ``named`` counts but that are not in the listing."""
    return named((each for each in classes if not each.flags & Sighting.LISTED), wanted, unwanted)


def named(classes: Iterable[ObjectClass], wanted: int, unwanted: int = 0) -> Amount:
    """Return objects in the namespace that a commit with a bit of ``wanted`` names, and no commit with a bit
    of ``unwanted``."""
    return total_of(
        each.amount
        for each in classes
        if each.flags & Sighting.CANDIDATE and each.mask & wanted and not each.mask & unwanted
    )


def never_committed(classes: Iterable[ObjectClass], *, staged: bool) -> Amount:
    return total_of(
        each.amount
        for each in classes
        if each.flags & Sighting.OLD
        and not each.is_committed
        and bool(each.flags & Sighting.UNCOMMITTED) == staged
    )


def share_percent(gone: int, total: int) -> float:
    """Return the percentage with two decimals. It is 0 only if nothing is gone, and 100 only if everything
    is."""
    if not gone or gone == total:
        return 100.0 if gone else 0.0
    return min(max(round(100 * gone / total, 2), 0.01), 99.99)


def interval(gone: int, asked: int) -> tuple[float, float]:
    """Return the percentages between which the share of all objects lies according to a sample (Wilson's
    score interval)."""
    if not asked:
        return 0.0, 100.0
    share, square = gone / asked, Z * Z
    middle = (share + square / (2 * asked)) / (1 + square / asked)
    half = Z * math.sqrt(share * (1 - share) / asked + square / (4 * asked * asked)) / (1 + square / asked)
    low = 0.0 if not gone else max(0.0, middle - half)
    high = 1.0 if gone == asked else min(1.0, middle + half)
    return round(100 * low, 2), round(100 * high, 2)


def nonsense_of(rules: GcRules | None, refs: Refs, policies: Sequence[Policy]) -> list[str]:
    """Return descriptions of stored settings that make no sense."""
    oddities = [] if rules is None else rules.oddities([branch.id for branch in refs.branches])
    by_pattern: dict[str, list[Policy]] = {}
    for policy in policies:
        for pattern in policy.patterns:
            by_pattern.setdefault(pattern, []).append(policy)
    return sorted(oddities) + [
        f"{len(several)} branch policies for the pattern {pattern!r} set different ages"
        for pattern, several in sorted(by_pattern.items())
        if len({(one.max_age_seconds, one.max_idle_seconds) for one in several}) > 1
    ]


def sound_policies(policies: Sequence[Policy]) -> tuple[Policy, ...]:
    """Return policies without clashes that do not delete more branches. Of several policies with the same
    pattern, only the most patient keeps it. A policy without patterns is dropped."""

    def patience(policy: Policy) -> tuple[int, int]:
        age, idle = policy.max_age_seconds or 0, policy.max_idle_seconds or 0
        return max(age, idle), age + idle

    holders: dict[str, Policy] = {}
    for policy in policies:
        for pattern in policy.patterns:
            holders[pattern] = max(holders.get(pattern, policy), policy, key=patience)
    kept = (
        replace(policy, patterns=tuple(p for p in policy.patterns if holders[p] == policy))
        for policy in policies
    )
    return tuple(policy for policy in kept if policy.patterns)


def sound(rules: GcRules, unknown: Collection[str]) -> GcRules:
    """Return rules that a tree can have and that do not keep less. Days below 1 become ``MAX_DAYS``, because
    with fewer, the server's walk could stop early where it does not now. Rules for ``unknown`` branches are
    dropped."""

    def of(one: int) -> int:
        return MAX_DAYS if one < 1 else min(one, MAX_DAYS)

    branches = {name: of(one) for name, one in rules.branches.items() if name not in unknown}
    return GcRules(of(rules.default_retention_days), branches)


def stale_branches(refs: Refs, default: str, now: datetime, days: int) -> list[StaleRow]:
    """Return branches whose HEAD is at least this many days old, oldest first, without the default branch."""
    dates = {commit.id: commit.creation_us for commit in refs.commits}
    ages = (
        (branch.id, (to_us(now) - dates[branch.commit_id]) // DAY_US)
        for branch in refs.branches
        if branch.id != default and branch.commit_id in dates
    )
    rows: list[StaleRow] = [{"branch": name, "days": age} for name, age in ages if age >= days]
    return sorted(rows, key=lambda row: (-row["days"], row["branch"]))


def is_lost(gone: DestroyedRow | None) -> bool:
    """Return whether any object is known to be gone."""
    return gone is not None and bool(gone["gone"] or (gone["amount"] and gone["amount"]["objects"]))


def advice_of(row: AuditedRow, *, has_failed_runs: bool) -> list[AdviceRow]:
    """Return advice about a repository, the most severe problem first."""
    next_run, target = row["next_run"], f"--target {shlex.quote(row['repository'])}"
    write, remnants = "lakeplan audit --write DIR", row["remnants"]
    advice: list[tuple[object, Severity, str, str]] = [
        (
            is_lost(row["destroyed"]),
            "data-loss",
            "objects that the documented rule keeps are missing from storage",
            f"lakeplan check {target}",
        ),
        (
            is_lost(row["destroyed_tagged"]),
            "data-loss",
            "objects that tags reference no longer exist, because tags do not protect data on a server",
            f"lakeplan check {target}",
        ),
        (
            next_run["at_risk"]["objects"],
            "data-loss",
            "the server's collector would delete objects that the documented rule keeps",
            f"lakeplan sweep mark {target}",
        ),
        (
            next_run["tagged"]["objects"],
            "data-loss",
            "the server's collector would delete data that tags reference",
            f"lakeplan plan {target}",
        ),
        (row["nonsense"], "settings", "the stored settings have problems", write),
        (row["rules"] is None, "cost", "no GC rules are stored, so nothing ever expires", "lakeplan init"),
        (
            row["rules"] is not None and row["freeable"]["objects"],
            "cost",
            "expired objects still use storage",
            f"lakeplan sweep mark {target}",
        ),
        (
            row["stale_count"],
            "cost",
            "branches without new commits keep data",
            f"lakeplan branches plan {target}",
        ),
        (
            remnants is not None and remnants["noncurrent"] is not None and remnants["noncurrent"]["objects"],
            "cost",
            "the bucket keeps older versions; add a lifecycle rule that expires noncurrent versions",
            "",
        ),
        (
            remnants is not None and remnants["unfinished_uploads"],
            "cost",
            "the bucket keeps unfinished uploads; add a lifecycle rule that aborts incomplete uploads",
            "",
        ),
        (has_failed_runs, "settings", "a collector failed", f"lakeplan sweep list --collector-runs {target}"),
    ]
    return [
        {"severity": severity, "problem": problem, "command": command}
        for applies, severity, problem, command in advice
        if applies
    ]


def masks_of(flags: Mapping[int, Sequence[int]], count: int) -> list[int]:
    """Return, for each commit, the bits whose flags it has, and ``Bit.ALL``."""
    masks = [int(Bit.ALL)] * count
    for bit, of_bit in flags.items():
        for commit, flag in enumerate(of_bit):
            if flag:
                masks[commit] |= bit
    return masks

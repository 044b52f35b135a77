"""``check``: reports whether every object that commits need is stored. Reads only.

Refs are read before storage is listed, so later commits are not checked. An object that the listing lacks is
requested before it is reported as missing.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from enum import IntFlag
from functools import cached_property, partial
from typing import Final, Literal
from zoneinfo import ZoneInfo

from lakeplan.branches.pins import newest_kept
from lakeplan.errors import ExitCode, GateRefused, LakeplanError, StorageNotFound
from lakeplan.formats.namespace import is_usual_key
from lakeplan.retention.graph import CommitGraph, by_date
from lakeplan.retention.keep import active_holds, commits_named, hold_problem, reachable
from lakeplan.retention.keep import held_prefixes as prefixes_of
from lakeplan.retention.patterns import matches
from lakeplan.retention.rules import kept_by_either
from lakeplan.review.selection import Selection
from lakeplan.simulation.requests import (
    Checker,
    DamagedFile,
    Facts,
    NamedObject,
    PresenceRequest,
    SampledEntry,
)
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.check_records import FIND_AT_ONCE, check_quarantines, copies_of, last_runs
from lakeplan.sweep.documents import (
    CheckDocument,
    CheckedRow,
    CheckSummary,
    DamagedRow,
    FindingRow,
    NamedBy,
    NamedCommitsRow,
    ReadRow,
)
from lakeplan.sweep.hold_records import recorded_holds
from lakeplan.sweep.inspection import pins_in
from lakeplan.sweep.ports import Site, SweepPorts, open_site, select
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.documents import error_rows
from lakeplan.values.progress import Progress, in_parallel
from lakeplan.values.records import utc_text
from lakeplan.values.repository import Refs, batches
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount
from lakeplan.values.sweep import HeldCommit
from lakeplan.values.units import count_of

CHECK_FORMAT: Final = "lakeplan.check/v1"
ASKED = 1_000_000
"""The most objects missing from the listing that are requested again."""
REPORTED = 10_000
"""The most objects that a report names. All are counted."""
BRANCHES_NAMED = 5
THREADS = 16


class Names(IntFlag):
    """Why the objects of a commit must be stored."""

    HEAD = 1
    RULES = 2
    """The stored rules keep the commit, by the documented rule or by the server's walk, or it is one of the
    newest that the tree keeps. Without rules, this is true of all commits."""
    TAG = 4
    HOLD = 8
    PROTECTED = 16
    """A tag that ``DesiredRepository.kept_tags`` match: sweeps keep its commit."""


NAMED_BY: dict[Names, NamedBy] = {
    Names.HEAD: "head",
    Names.RULES: "rules",
    Names.TAG: "tag",
    Names.PROTECTED: "protected-tag",
    Names.HOLD: "hold",
}


@dataclass(frozen=True)
class ReadData:
    """The share (0 to 1) of objects whose data is read, chosen by ``seed``."""

    share: float
    seed: str


def check_all(
    tree: DesiredTree,
    selection: Selection,
    ports: SweepPorts,
    checker: Checker,
    *,
    read: ReadData | None = None,
) -> CheckDocument:
    """Checks every selected repository. Raises UsageError when none is selected."""
    wanted, failed = select(tree, selection, ports)
    rows: list[CheckedRow] = []
    for desired in wanted:
        try:
            site = open_site(desired, tree, ports, lambda server: ([], {}))
            rows.append(check_site(site, ports, checker, read=read))
        except LakeplanError as error:
            failed[desired.key] = error
    return {
        "format": CHECK_FORMAT,
        "at": utc_text(ports.now()),
        "repositories": rows,
        "failed": error_rows(failed),
    }


def exit_code_of(document: CheckDocument) -> ExitCode:
    """``PARTLY_DONE`` when something is missing or damaged, or could not be checked."""
    complete = all(row["complete"] for row in document["repositories"])
    return ExitCode.OK if complete and not document["failed"] else ExitCode.PARTLY_DONE


def check_site(
    site: Site, ports: SweepPorts, checker: Checker, *, read: ReadData | None = None
) -> CheckedRow:
    """Checks one repository. Raises LakeplanError when its refs, records or storage cannot be read."""
    now = ports.now()
    stored = site.reader.get_gc_rules(site.desired.name)
    refs = site.refs.read(site.server.name, site.reader, site.repository)
    recorded = recorded_holds(site.store, site.desired.holds, now)
    history = _History(site, refs, stored, recorded, now)
    request = PresenceRequest(
        store=site.store,
        storage_namespace=site.repository.storage_namespace,
        metaranges=history.metaranges(),
        held_prefixes=history.held_prefixes,
        limit=ASKED,
    )
    presence = checker.presence(request)
    confirmed = _confirm(site, presence.objects, ports)
    findings = _findings(site, history, confirmed)
    damaged = [_damaged_row(history, one) for one in presence.damaged]
    quarantine = check_quarantines(site, ports.state)
    data = None
    if read is not None:
        sample = checker.sample(request, read.share, read.seed)
        data = read_data(site.store, sample, ports.progress)
        known = {one["address"] for one in findings}
        findings += [_finding(history, one) for one in data.differing if one.address not in known]
    row: CheckedRow = {
        "repository": site.key,
        "storage_namespace": site.repository.storage_namespace,
        "as_of": utc_text(now),
        "rules": stored is not None,
        "commits": history.counts(),
        "metaranges": presence.metaranges,
        "ranges": presence.ranges,
        "named": presence.named.to_row(),
        "outside": presence.outside.to_row(),
        "missing": (presence.lacking - confirmed.there - confirmed.turned).to_row(),
        "resized": (presence.resized - confirmed.same + confirmed.turned).to_row(),
        "unusual": confirmed.unusual,
        "unconfirmed": (presence.lacking + presence.resized).objects - confirmed.asked - confirmed.unusual,
        "findings": sorted(findings, key=_place),
        "damaged": damaged,
        "quarantine": quarantine,
        "holds": history.problems,
        "read": None if read is None or data is None else data.to_row(read.share),
        "runner": None if presence.runner is None else presence.runner.to_row(),
        "complete": False,
    }
    row["complete"] = not (
        row["missing"]["objects"]
        or row["resized"]["objects"]
        or findings
        or damaged
        or history.problems
        or row["unusual"]
        or (data is not None and data.outcomes["unreadable"])
        or any(
            one["lost"]["objects"] or one["resized"]["objects"] or not one["readable"] for one in quarantine
        )
    )
    return row


def check_before(site: Site, ports: SweepPorts, checker: Checker) -> CheckSummary:
    """Checks a repository before a sweep. Raises GateRefused when something is missing already, because the
    metadata may be wrong about other objects too."""
    summary = _summary(check_site(site, ports, checker))
    if not summary["complete"]:
        lost = summary["missing"]["objects"] + summary["resized"]["objects"] - summary["tags_only"]
        needed = count_of(
            lost,
            "object that commits need is missing or has the wrong size",
            "objects that commits need are missing or have the wrong size",
        )
        damaged = count_of(summary["damaged"], "metadata file is", "metadata files are")
        raise GateRefused(
            f"{needed}, and {damaged} damaged; nothing was deleted",
            where=site.key,
            hint=f"Run `lakeplan check --target {shlex.quote(site.key)}` to list them,"
            " or sweep without --check.",
        )
    return summary


def check_after(site: Site, ports: SweepPorts, checker: Checker, mark_id: str) -> CheckSummary:
    """Checks a repository after the sweep of a mark, including the copies that it moved to quarantine."""
    row = check_site(site, ports, checker)
    summary = _summary(row)
    copies = [one for one in row["quarantine"] if one["mark_id"] == mark_id]
    lost = sum(one["lost"]["objects"] + one["resized"]["objects"] for one in copies)
    known = not lost and all(one["readable"] for one in copies)
    return {**summary, "lost_copies": lost, "complete": summary["complete"] and known}


def _summary(row: CheckedRow) -> CheckSummary:
    """The summary of a check around a sweep. Missing objects that only tags name leave a repository complete:
    they may have expired, because a server does not protect tags."""
    bad: list[list[NamedBy]] = [one["named_by"] for one in row["findings"]]
    bad += [one["named_by"] for one in row["damaged"]]
    return {
        "as_of": row["as_of"],
        "complete": all(by == ["tag"] for by in bad) and not row["unconfirmed"] and not row["unusual"],
        "named": row["named"],
        "missing": row["missing"],
        "resized": row["resized"],
        "tags_only": sum(one["named_by"] == ["tag"] for one in row["findings"]),
        "damaged": len(row["damaged"]),
        "lost_copies": 0,
    }


# ---- commits
class _History:
    """The commits that must be complete, and how a finding names one of them."""

    def __init__(
        self, site: Site, refs: Refs, stored: GcRules | None, recorded: Sequence[HeldCommit], now: datetime
    ) -> None:
        self.refs = refs
        self.graph = CommitGraph.from_refs(refs)
        self._default = site.repository.default_branch
        self._protected_tags = site.desired.kept_tags
        zone = ZoneInfo(site.server.time_zone)
        holds = active_holds(site.desired.holds, now)
        self.held_prefixes = tuple(
            sorted({one.name for one in recorded if one.kind == "prefix"}.union(prefixes_of(holds, now)))
        )
        self.problems = [problem for hold in holds if (problem := hold_problem(hold, refs))]
        held = {one.commit_id for one in recorded if one.kind in ("tag", "commit")}
        branches = {one.commit_id for one in recorded if one.kind == "branch"}
        for hold in holds:
            (branches if hold.kind == "branch" else held).update(commits_named(hold, refs))
        self.problems += [
            f"the hold on {one.kind} {one.name!r} kept commit {one.commit_id}, which is no longer in the"
            " repository"
            for one in recorded
            if one.commit_id and one.commit_id not in self.graph.index
        ]
        self.problems += [
            f"tag {tag.id} references commit {tag.commit_id}, which is missing from the refs dump; if a"
            " second check reports this too, the commit is lost"
            for tag in refs.tags
            if tag.commit_id not in self.graph.index
        ]
        held |= reachable({commit.id: commit for commit in refs.commits}, branches)
        self.masks = self._masks(stored, now, zone, held)
        for numbers in newest_kept(site.desired, zone, self.graph, pins_in(site, refs)).values():
            for commit in numbers:
                self.masks[commit] |= Names.RULES
        self._order = self._in_order()
        self._known_branches: dict[str, list[str]] = {}

    def _masks(self, stored: GcRules | None, now: datetime, zone: tzinfo, held: set[str]) -> list[int]:
        graph = self.graph
        masks = [int(Names.RULES) if kept else 0 for kept in kept_by_either(graph, stored, now, zone)]
        named = {
            Names.HEAD: {branch.commit_id for branch in self.refs.branches},
            Names.TAG: {tag.commit_id for tag in self.refs.tags},
            Names.HOLD: held,
            Names.PROTECTED: {
                tag.commit_id
                for tag in self.refs.tags
                if any(matches(tag.id, glob) for glob in self._protected_tags)
            },
        }
        for bit, ids in named.items():
            for id in ids & graph.index.keys():
                masks[graph.index[id]] |= bit
        return masks

    def _in_order(self) -> list[int]:
        """All commits. Those that a finding should name come last, the default branch's HEAD last of all."""
        default = {branch.commit_id for branch in self.refs.branches if branch.id == self._default}
        dates, graph = by_date(self.graph), self.graph

        def rank(commit: int) -> tuple[bool, bool, bool, int]:
            mask = self.masks[commit]
            in_default = graph.ids[commit] in default
            return in_default, bool(mask & Names.HEAD), bool(mask & Names.TAG), dates[commit]

        return sorted(range(len(graph)), key=rank)

    def metaranges(self) -> dict[str, Facts]:
        """Facts about the metaranges of commits that must be complete. With held prefixes, those of all
        commits."""
        facts: dict[str, Facts] = {}
        for position, commit in enumerate(self._order):
            id = self.graph.meta_range_ids[commit]
            if id and (self.masks[commit] or self.held_prefixes):
                facts[id] = facts.get(id, Facts()) | Facts(self.masks[commit], position)
        return facts

    def counts(self) -> NamedCommitsRow:
        def count(bit: Names) -> int:
            return sum(bool(mask & bit) for mask in self.masks)

        return {
            "total": len(self.masks),
            "heads": count(Names.HEAD),
            "rules": count(Names.RULES),
            "tags": count(Names.TAG),
            "holds": count(Names.HOLD),
        }

    def commit_at(self, position: int) -> str:
        return self.graph.ids[self._order[position]] if position >= 0 else ""

    def tags_of(self, commit_id: str) -> list[str]:
        return sorted(tag.id for tag in self.refs.tags if tag.commit_id == commit_id)

    def branches_of(self, commit_id: str) -> list[str]:
        """The branches with this HEAD, or else some branches that contain the commit."""
        if commit_id not in self._known_branches:
            names = sorted(branch.id for branch in self.refs.branches if branch.commit_id == commit_id)
            self._known_branches[commit_id] = names or self._leading_to(commit_id)
        return self._known_branches[commit_id]

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        children: dict[str, list[str]] = {}
        for commit in self.refs.commits:
            for parent in commit.parents:
                children.setdefault(parent, []).append(commit.id)
        return children

    def _leading_to(self, commit_id: str) -> list[str]:
        heads: dict[str, list[str]] = {}
        for branch in self.refs.branches:
            heads.setdefault(branch.commit_id, []).append(branch.id)
        names: set[str] = set()
        visited, pending = {commit_id}, [commit_id]
        while pending:
            for child in self._children.get(pending.pop(), ()):
                if child not in visited:
                    visited.add(child)
                    pending.append(child)
                    names.update(heads.get(child, ()))
        return sorted(names, key=lambda name: (name != self._default, name))[:BRANCHES_NAMED]


def named_by(mask: int, *, held: bool = False) -> list[NamedBy]:
    mask |= Names.HOLD if held else 0
    return [name for bit, name in NAMED_BY.items() if mask & bit]


# ---- objects
@dataclass
class _Confirmed:
    """The result of requesting objects again. ``there``: missing objects that exist after all. ``same``:
    objects that have the expected size after all. ``lost``: the other objects, with their stored size (None:
    not stored). ``there`` includes the ``unusual`` keys, which stores may resolve to others, so they cannot
    be requested. ``asked``: how many answers are certain."""

    there: Amount = field(default_factory=Amount)
    same: Amount = field(default_factory=Amount)
    unusual: int = 0
    asked: int = 0
    lost: list[tuple[NamedObject, int | None]] = field(default_factory=list)

    @property
    def turned(self) -> Amount:
        """Objects that the listing lacked and that exist with another size, minus those that were listed with
        another size and are gone now."""
        amount = Amount()
        for one, size in self.lost:
            if one.resized == (size is None):
                object_amount = Amount(1, one.size_bytes)
                amount = amount - object_amount if one.resized else amount + object_amount
        return amount


def _confirm(site: Site, objects: Sequence[NamedObject], ports: SweepPorts) -> _Confirmed:
    confirmed = _Confirmed()
    usual = [one for one in objects if is_usual_key(one.address)]
    confirmed.unusual = len(objects) - len(usual)
    for one in objects:
        if not is_usual_key(one.address):
            confirmed.there += Amount(1, one.size_bytes)
    suspects: list[NamedObject] = []
    with ports.progress.task("checking missing objects again", len(usual)) as step:
        for some in batches(usual, FIND_AT_ONCE):
            stored = site.store.find([one.address for one in some])
            for one in some:
                now = stored.get(one.address)
                _count_if_well(confirmed, one, None if now is None else now.size, suspects)
            step(len(some))
    confirmed.asked = len(usual)
    requested, rest = suspects[:REPORTED], suspects[REPORTED:]
    for one, size in zip(requested, _sizes(site, requested), strict=True):
        lost: list[NamedObject] = []
        _count_if_well(confirmed, one, size, lost)
        confirmed.lost += [(one, size) for one in lost]
    confirmed.asked -= len(rest)
    return confirmed


def _count_if_well(
    confirmed: _Confirmed, one: NamedObject, stored: int | None, otherwise: list[NamedObject]
) -> None:
    if stored is None or stored != one.size_bytes:
        otherwise.append(one)
    elif one.resized:
        confirmed.same += Amount(1, one.size_bytes)
    else:
        confirmed.there += Amount(1, one.size_bytes)


def _sizes(site: Site, objects: Sequence[NamedObject]) -> list[int | None]:
    """The stored sizes, by HEAD requests, or None for missing objects. A GET confirms that an object is
    missing, because the answer to a HEAD may be cached."""

    def size(one: NamedObject) -> int | None:
        facts = site.store.stat(one.address)
        if facts is not None:
            return facts.size
        return None if site.store.is_gone(one.address) else one.size_bytes

    return in_parallel(size, objects, THREADS)


def _findings(site: Site, history: _History, confirmed: _Confirmed) -> list[FindingRow]:
    gone = {one.address: one.size_bytes for one, size in confirmed.lost if size is None}
    runs = last_runs(site, gone) if gone else {}
    copies = copies_of(site, gone) if gone else {}
    return [
        {
            **_finding(history, one),
            "problem": "missing" if size is None else "size",
            "stored_bytes": size,
            "collector_run": runs.get(one.address),
            "quarantine": copies.get(one.address, ""),
        }
        for one, size in confirmed.lost
    ]


def _finding(history: _History, one: NamedObject | SampledEntry) -> FindingRow:
    """A finding about an object whose data differs from its entry."""
    commit_id = history.commit_at(one.last)
    return {
        "problem": "checksum",
        "branches": history.branches_of(commit_id),
        "tags": history.tags_of(commit_id),
        "commit_id": commit_id,
        "paths": [one.path] if isinstance(one, SampledEntry) else list(one.paths),
        "address": one.address,
        "size_bytes": one.size_bytes,
        "stored_bytes": one.size_bytes,
        "named_by": named_by(one.mask, held=isinstance(one, NamedObject) and one.held),
        "collector_run": None,
        "quarantine": "",
    }


def _place(row: FindingRow) -> tuple[str, str, list[str]]:
    return (row["branches"] or [""])[0], row["commit_id"], row["paths"]


def _damaged_row(history: _History, one: DamagedFile) -> DamagedRow:
    commit_id = history.commit_at(one.last)
    return {
        "kind": "metarange" if one.kind == "meta_range" else "range",
        "id": one.id,
        "message": one.message,
        "branches": history.branches_of(commit_id),
        "commit_id": commit_id,
        "named_by": named_by(one.mask),
        "entries": one.entries,
        "paths": list(one.paths),
    }


PIECE = 8 << 20
READERS = 8
AT_ONCE = 256
_MD5 = re.compile(r"[0-9a-f]{32}")
_Outcome = Literal["matched", "differs", "incomparable", "unreadable"]


@dataclass(frozen=True)
class DataRead:
    """The number of objects for each outcome, the amount that was read, and the ``differing`` objects, whose
    data does not match their entries."""

    outcomes: Counter[str]
    amount: Amount
    differing: Sequence[SampledEntry]

    def to_row(self, share: float) -> ReadRow:
        return {
            "percent": share * 100,
            "read": self.amount.to_row(),
            "matched": self.outcomes["matched"],
            "differs": self.outcomes["differs"],
            "incomparable": self.outcomes["incomparable"],
            "unreadable": self.outcomes["unreadable"],
        }


def read_data(store: SweepStore, entries: Iterable[SampledEntry], progress: Progress) -> DataRead:
    """Reads the objects of these entries, twice if they differ. Raises StorageError."""
    outcomes: Counter[str] = Counter()
    amount = Amount()
    differing: list[SampledEntry] = []
    compare = partial(_compared, store)
    with progress.task("reading objects", None) as step, ThreadPoolExecutor(READERS) as pool:
        for some in batches(entries, AT_ONCE):
            comparable = [one for one in some if _md5_of(one.e_tag) and is_usual_key(one.address)]
            outcomes["incomparable"] += len(some) - len(comparable)
            for entry, outcome in zip(comparable, pool.map(compare, comparable), strict=True):
                step()
                outcomes[outcome] += 1
                if outcome != "unreadable":
                    amount += Amount(1, entry.size_bytes)
                if outcome == "differs":
                    differing.append(entry)
    return DataRead(outcomes, amount, differing)


def _compared(store: SweepStore, entry: SampledEntry) -> _Outcome:
    wanted = _md5_of(entry.e_tag)
    try:
        facts = store.stat(entry.address)
        if facts is None or not facts.readable:
            return "unreadable"
        for _ in range(2):
            if _digest(store, entry.address, facts.size) == wanted:
                return "matched"
    except StorageNotFound:
        return "unreadable"
    # A store that encrypts computes other ETags. An entry with such an ETag has no MD5.
    return "incomparable" if _md5_of(facts.e_tag) == wanted else "differs"


def _digest(store: SweepStore, key: str, size: int) -> str:
    digest, at = hashlib.md5(usedforsecurity=False), 0
    while at < size:
        piece = store.read_span(key, at, min(PIECE, size - at))
        if not piece:
            break
        digest.update(piece)
        at += len(piece)
    return digest.hexdigest()


def _md5_of(e_tag: str) -> str:
    """The MD5 in an ETag, or "" for others, such as those of multipart uploads."""
    text = e_tag.strip().strip('"').lower()
    return text if _MD5.fullmatch(text) else ""

"""Audits repositories with requests that change nothing, and with listings if storage can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from typing import Final, Generic, TypedDict, TypeVar, cast

from lakeplan.branches.pin_records import read_stored
from lakeplan.branches.pins import without_pin_branches
from lakeplan.errors import FeatureMissing, LakeplanError, PermissionDenied, StorageError
from lakeplan.fleet import judging
from lakeplan.fleet.judging import (
    AuditCommits,
    AuditDocument,
    AuditedRow,
    DestroyedRow,
    LeftoversRow,
    PolicyRow,
    RemnantsRow,
    UncommittedRow,
)
from lakeplan.lakefs.protocols import BranchReader, LakeFSReader
from lakeplan.retention.graph import CommitGraph, by_date
from lakeplan.retention.rules import DocumentedRule, ServerWalk, to_us
from lakeplan.review.selection import read_all_refs
from lakeplan.simulation.inputs import NamespaceMetadata, iso
from lakeplan.simulation.listings import find_run
from lakeplan.simulation.requests import Facts, SampledEntry, Surveyed, Surveyor, SurveyRequest
from lakeplan.simulation.verdicts import ObjectClass
from lakeplan.stores.open import NamespaceReader, RemnantReader
from lakeplan.sweep.documents import CollectorRunRow
from lakeplan.sweep.finish import runs_of
from lakeplan.values.desired import Policy, SettingItem, SettingKind, item_body, items_from_body
from lakeplan.values.documents import ErrorRow, error_rows
from lakeplan.values.progress import Progress
from lakeplan.values.records import utc_text
from lakeplan.values.repository import Branch, Commit, Refs, Repository
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import AmountRow
from lakeplan.values.urls import path_digest

AUDIT_FORMAT: Final = "lakeplan.audit/v1"
R = TypeVar("R", bound=Mapping[str, object])
"""The row of a repository."""
WORKERS = 8
MIN_AGE = timedelta(hours=24)
"""Collectors keep objects younger than this, or than the server's grace period if that is longer."""
MAX_GRACE_SECONDS = 10 * 365 * 86_400
"""The upper limit for a server's grace period."""
RUNS_NAMED = 5
COMMITS_A_REQUEST = 100
"""The minimum number of commits in a page of a log."""
EXAMPLES = 5
STAGED_BRANCHES = 10
"""The maximum number of branches whose uncommitted changes are counted, with one request each, the default
branch first."""


@dataclass(frozen=True)
class AuditSettings:
    """Options of an audit. ``dump_refs``: also read dangling commits, from a refs dump that the server writes
    into the namespace. ``sample``: how many objects are probed if storage is not listed. ``stale_days``: the
    age of the HEAD from which a branch is stale. ``max_requests``: about how many requests a repository may
    need. ``zone`` applies to servers that are not in ``zones``."""

    as_of: datetime
    zone: tzinfo
    dump_refs: bool = False
    sample: int = 30
    max_requests: int = 20_000
    stale_days: int = 90
    seed: str = ""
    places: bool = False
    """For ``storage``: also count by prefix and age, which keeps every path in memory."""
    classes: bool = False
    """For ``storage``: also count by storage class, which lists storage once more."""
    zones: Mapping[str, tzinfo] = field(default_factory=dict)

    def of_server(self, server: str) -> AuditSettings:
        """Return the same settings with the time zone of this server."""
        return replace(self, zone=self.zones.get(server, self.zone))


@dataclass(frozen=True)
class AuditPorts:
    """Access to servers and storage. ``store`` opens the namespace of a server's repository, or returns
    why it cannot be read. ``grace_seconds`` is the server's grace period for young objects, or None if
    unknown."""

    reader: Callable[[str], LakeFSReader]
    branches: Callable[[str], BranchReader]
    store: Callable[[str, Repository], NamespaceReader | str]
    surveyor: Surveyor
    grace_seconds: Callable[[str], int | None]
    progress: Progress
    stop: Callable[[], bool] = lambda: False


class Read(TypedDict, Generic[R]):
    """What a document says about all repositories: the sorted rows of those that were read, the errors by
    ``server/name``, and the repositories that were not tried."""

    servers: dict[str, str]
    repositories: list[R]
    failed: dict[str, ErrorRow]
    unfinished: list[str]


def audit_servers(
    servers: Mapping[str, str],
    ports: AuditPorts,
    settings: AuditSettings,
    *,
    takes: Callable[[str, str], bool],
    known: Mapping[str, AuditedRow],
    now: Callable[[], datetime],
) -> AuditDocument:
    """Audit every repository for which ``takes(server, name)`` is true. Rows in ``known`` are reused."""
    read = each_repository(
        servers,
        ports,
        lambda server, repository, min_age: Inspection(server, repository, ports, settings, min_age).audit(),
        what="auditing",
        takes=takes,
        known=known,
    )
    return {"format": AUDIT_FORMAT, "at": utc_text(now()), **read}


def each_repository(
    servers: Mapping[str, str],
    ports: AuditPorts,
    read: Callable[[str, Repository, timedelta], R],
    *,
    what: str,
    takes: Callable[[str, str], bool],
    known: Mapping[str, R],
) -> Read[R]:
    """Read every repository for which ``takes(server, name)`` is true, several at a time. ``servers`` have
    their URLs. Rows in ``known`` are reused if they belong to the same repository. After ``ports.stop``
    returns true, no other repository is started. ``read`` gets the server, the repository and the age below
    which the server's collector keeps objects. A server that does not list its repositories counts as failed
    under ``server/*``, and keeps its rows in ``known``. Raises its error if nothing else was selected."""
    rows: list[R] = []
    failed: dict[str, LakeplanError] = {}
    unfinished: list[str] = []
    for server in servers:
        try:
            live = [one for one in ports.reader(server).list_repositories() if takes(server, one.id)]
        except LakeplanError as error:
            failed[f"{server}/*"] = error
            names = (key.removeprefix(f"{server}/") for key in known if key.startswith(f"{server}/"))
            rows += [known[f"{server}/{name}"] for name in names if takes(server, name)]
            continue
        min_age = _min_age(ports, server)
        with ports.progress.task(f"{what} {server}", len(live)) as step, ThreadPoolExecutor(WORKERS) as pool:

            def one(
                repository: Repository, server: str = server, min_age: timedelta = min_age
            ) -> R | LakeplanError | None:
                key = f"{server}/{repository.id}"
                try:
                    row = known.get(key)
                    if row is not None and not is_of(row, key, repository.storage_namespace):
                        row = None
                    if ports.stop() or row is not None:
                        return row
                    return read(server, repository, min_age)
                except LakeplanError as error:
                    return error
                finally:
                    step()

            for repository, row in zip(live, pool.map(one, live), strict=True):
                key = f"{server}/{repository.id}"
                if row is None:
                    unfinished.append(key)
                elif isinstance(row, LakeplanError):
                    failed[key] = row
                else:
                    rows.append(row)
    lost = [error for key, error in failed.items() if key.endswith("/*")]
    if lost and len(lost) == len(failed) and not (rows or unfinished):
        raise lost[0]
    return {
        "servers": dict(servers),
        "repositories": sorted(rows, key=lambda row: str(row["repository"])),
        "failed": error_rows(dict(sorted(failed.items()))),
        "unfinished": sorted(unfinished),
    }


def is_of(row: Mapping[str, object], key: str, storage_namespace: str) -> bool:
    """Return whether a row of an earlier report, which may be redacted, belongs to the repository that has
    this storage now, and not to another repository with the same name."""
    return row["storage_namespace"] in (storage_namespace, path_digest(key, storage_namespace))


def _min_age(ports: AuditPorts, server: str) -> timedelta:
    try:
        grace = ports.grace_seconds(server)
    except LakeplanError:
        grace = None
    return max(MIN_AGE, timedelta(seconds=min(grace or 0, MAX_GRACE_SECONDS)))


@dataclass
class Inspection:
    """Reads one repository for an audit."""

    _server: str
    _repository: Repository
    _ports: AuditPorts
    _settings: AuditSettings
    _min_age: timedelta

    def __post_init__(self) -> None:
        self._name = self._repository.id
        self._reader = self._ports.reader(self._server)

    def audit(self) -> AuditedRow:
        stored = read_stored(self._reader, self._name)
        rules, shown = stored.raw, stored.bare  # people do not set the rules of pins
        policies = self._policies()
        refs = self._refs()
        graph = CommitGraph.from_refs(refs)
        masks = self._masks(graph, refs, rules)
        store = self._ports.store(self._server, self._repository)
        surveyed, why = self._survey(graph, masks, store)
        (destroyed, tagged), not_sampled = self._destroyed(surveyed, graph)
        runs = self._runs(store) if surveyed.listed else None
        now, days, default = self._settings.as_of, self._settings.stale_days, self._repository.default_branch
        stale = judging.stale_branches(without_pin_branches(refs), default, now, days)
        classes, listed = surveyed.classes, surveyed.listed

        def expired(keeps: int, among: int = judging.Bit.ALL) -> AmountRow:
            return judging.expired(classes, keeps, listed=listed, among=among).to_row()

        row: AuditedRow = {
            "repository": f"{self._server}/{self._name}",
            "storage_namespace": self._repository.storage_namespace,
            "as_of": utc_text(now),
            "rules": None if shown is None else shown.to_body(),
            "policies": None
            if policies is None
            else [cast("PolicyRow", item_body(policy)) for policy in policies],
            "commits": self._commits(refs, masks),
            "objects": judging.total(classes, listed=listed).to_row(),
            "estimated": not listed,
            "not_listed": "" if listed else why,
            "destroyed": destroyed,
            "destroyed_tagged": tagged,
            "not_sampled": not_sampled,
            "next_run": {
                "expired": expired(judging.Bit.SERVER),
                "at_risk": expired(judging.Bit.SERVER, judging.Bit.DOCUMENTED),
                "tagged": expired(judging.Bit.SERVER, judging.Bit.TAG),
                "min_age_seconds": int(self._min_age.total_seconds()),
                "too_young": judging.too_young(classes).to_row() if listed else None,
            },
            "freeable": expired(judging.Bit.SERVER | judging.Bit.DOCUMENTED),
            "periods": [
                {"days": days, "expired": expired(judging.period_bit(number))}
                for number, days in enumerate(judging.PERIODS)
            ],
            "leftovers": self._leftovers(surveyed, store) if listed else None,
            "uncommitted": self._uncommitted(refs),
            "remnants": self._remnants(store) if listed else None,
            "stale_branches": stale[: judging.STALE_NAMED],
            "stale_count": len(stale),
            "nonsense": judging.nonsense_of(shown, refs, policies or ()),
            "unknown_branches": []
            if shown is None
            else sorted(shown.branches.keys() - {b.id for b in refs.branches}),
            "collector_runs": None if runs is None else runs[:RUNS_NAMED],
            "advice": [],
        }
        failed = any(run["success"] is False or run["note"] for run in (runs or ())[:RUNS_NAMED])
        row["advice"] = judging.advice_of(row, has_failed_runs=failed)
        return row

    def _commits(self, refs: Refs, masks: Sequence[int]) -> AuditCommits:
        at_risk = judging.Bit.DOCUMENTED
        return {
            "total": len(masks),
            "branches": len(refs.branches),
            "tags": len(refs.tags),
            "kept_by_server": sum(bool(mask & judging.Bit.SERVER) for mask in masks),
            "kept_by_rule": sum(bool(mask & judging.Bit.DOCUMENTED) for mask in masks),
            "at_risk": sum(mask & (judging.Bit.SERVER | at_risk) == at_risk for mask in masks),
            "dangling_seen": self._settings.dump_refs,
        }

    def _policies(self) -> Sequence[Policy] | None:
        try:
            return self._reader.get_policies(self._name).items or ()
        except (FeatureMissing, PermissionDenied):
            return None

    # ---- commits
    def _refs(self) -> Refs:
        if self._settings.dump_refs:
            return read_all_refs(self._reader, self._name, read_only=False)[0]
        pins = (Branch(one.id, one.commit_id) for one in self._reader.list_pins(self._name) if one.hidden)
        known = {one.id: one for one in (*self._reader.list_branches(self._name), *pins)}
        branches = tuple(known.values())
        tags = tuple(self._reader.list_tags(self._name))
        commits: dict[str, Commit] = {}
        for head in (*(one.commit_id for one in branches), *(one.commit_id for one in tags)):
            commits |= self._new_commits(head, commits)
        return Refs(tuple(commits.values()), branches, tags)

    def _new_commits(self, head: str, known: Mapping[str, Commit]) -> dict[str, Commit]:
        """Return commits that are reachable from a HEAD and not known yet. The rest of the log is not
        read."""
        commits: dict[str, Commit] = {}
        pending = {head} - known.keys()
        if pending:
            for commit in self._reader.log_commits(self._name, head):
                if commit.id not in known:
                    commits[commit.id] = commit
                    pending.update(parent for parent in commit.parents if parent not in known)
                pending -= commits.keys()
                if not pending:
                    break
                if len(known) + len(commits) > COMMITS_A_REQUEST * self._settings.max_requests:
                    raise self._too_many("its commit log is too long")
        return commits

    def _masks(self, graph: CommitGraph, refs: Refs, rules: GcRules | None) -> list[int]:
        now, zone = self._settings.as_of, self._settings.zone
        all_kept = [1] * len(graph)
        tagged = {tag.commit_id for tag in refs.tags}
        flags: dict[int, Sequence[int]] = {
            judging.Bit.SERVER: all_kept if rules is None else ServerWalk(graph, rules).active(now, zone),
            judging.Bit.DOCUMENTED: all_kept
            if rules is None
            else DocumentedRule(graph, rules).active(now, zone),
            judging.Bit.TAG: [id in tagged for id in graph.ids],
        }
        for number, days in enumerate(judging.PERIODS):
            flags[judging.period_bit(number)] = DocumentedRule(graph, GcRules(days)).active(now, zone)
        return judging.masks_of(flags, len(graph))

    # ---- objects
    def _survey(
        self,
        graph: CommitGraph,
        masks: Sequence[int],
        store: NamespaceReader | str,
        holders: Sequence[int] = (),
    ) -> tuple[Surveyed, str]:
        """Survey the objects with a listing, or else with metadata and a sample. In that case, the text says
        why. ``holders`` has bits for who holds each commit, or is empty if that is not needed."""
        facts: dict[str, Facts] = {}
        for commit, position in enumerate(by_date(graph)):
            if id := graph.meta_range_ids[commit]:
                of = (holders[commit],) if holders else ()
                facts[id] = facts.get(id, Facts()) | Facts(masks[commit], position, of)
        why = store if isinstance(store, str) else "the credentials do not allow it"
        if not isinstance(store, str):
            try:
                surveyed = self._ports.surveyor.survey(self._request(facts, store))
                if surveyed.listed:
                    return surveyed, ""
            except StorageError as error:
                why = error.message
        if len(facts) > self._settings.max_requests:
            raise self._too_many(f"it has {len(facts):,} metaranges, and storage was not listed ({why})")
        return self._ports.surveyor.survey(self._request(facts, None)), why

    def _too_many(self, why: str) -> LakeplanError:
        return LakeplanError(
            f"reading the repository would exceed the limit of {self._settings.max_requests:,} requests:"
            f" {why}",
            where=f"{self._server}/{self._name}",
            hint="Raise --max-requests, or run the audit with credentials that can list the storage.",
        )

    def _request(self, facts: Mapping[str, Facts], store: NamespaceReader | None) -> SurveyRequest:
        as_of = self._settings.as_of
        return SurveyRequest(
            name=f"{self._server}/{self._name}",
            storage_namespace=self._repository.storage_namespace,
            metadata=self._reader.metadata_reader(self._name) if store is None else NamespaceMetadata(store),
            metaranges=facts,
            namespace=store,
            young_from_us=to_us(as_of - self._min_age),
            staged=() if store is None else self._staged(store),
            sample=self._settings.sample if store is None else 0,
            sampled_mask=judging.Bit.DOCUMENTED,
            also_sampled=judging.Bit.TAG,
            seed=f"{self._settings.seed} {self._name}",
        )

    def _staged(self, store: NamespaceReader) -> tuple[str, ...]:
        """Return the files of the newest list of uncommitted objects, if it is at most a day old."""
        try:
            return find_run(
                store, as_of_us=to_us(self._settings.as_of), max_age_seconds=int(MIN_AGE.total_seconds())
            ).files
        except StorageError:
            raise
        except LakeplanError:
            return ()

    def _destroyed(
        self, surveyed: Surveyed, graph: CommitGraph
    ) -> tuple[tuple[DestroyedRow | None, DestroyedRow | None], str]:
        """Return the objects that are gone although the documented rule keeps them, those that only tags
        name, and why no sample was read."""
        if surveyed.listed:
            kept = _listed(surveyed.classes, judging.Bit.DOCUMENTED)
            has_tagged = judging.named(surveyed.classes, judging.Bit.TAG, judging.Bit.DOCUMENTED).objects
            return (
                kept,
                _listed(surveyed.classes, judging.Bit.TAG, judging.Bit.DOCUMENTED) if has_tagged else None,
            ), ""
        if not surveyed.sample:
            return (None, None), "there are no objects to probe" if self._settings.sample else "--sample is 0"
        commits = {position: id for id, position in zip(graph.ids, by_date(graph), strict=True)}
        kept_sample = [one for one in surveyed.sample if one.mask & judging.Bit.DOCUMENTED]
        tag_sample = [one for one in surveyed.sample if not one.mask & judging.Bit.DOCUMENTED]
        try:
            return (self._sampled(kept_sample, commits), self._sampled(tag_sample, commits)), ""
        except LakeplanError as error:
            return (None, None), error.message

    def _sampled(self, sample: Sequence[SampledEntry], commits: Mapping[int, str]) -> DestroyedRow | None:
        if not sample:
            return None
        gone = list(self._gone(sample, commits))
        low, high = judging.interval(len(gone), len(sample))
        return {
            "how": "sample",
            "amount": None,
            "asked": len(sample),
            "gone": len(gone),
            "low_percent": low,
            "high_percent": high,
            "examples": gone[:EXAMPLES],
        }

    def _gone(self, sample: Sequence[SampledEntry], commits: Mapping[int, str]) -> Iterator[str]:
        pinger = self._ports.branches(self._server)
        for one in sample:
            if not pinger.readable(self._name, commits[one.last], one.path):
                yield one.path

    def _leftovers(self, surveyed: Surveyed, store: NamespaceReader | str) -> LeftoversRow:
        known = not isinstance(store, str) and bool(self._staged(store))
        return {
            "never_committed": judging.never_committed(surveyed.classes, staged=False).to_row(),
            "staged": judging.never_committed(surveyed.classes, staged=True).to_row() if known else None,
        }

    def _uncommitted(self, refs: Refs) -> UncommittedRow | None:
        default = self._repository.default_branch
        names = sorted((branch.id for branch in refs.branches), key=lambda name: (name != default, name))
        asked = names[:STAGED_BRANCHES]
        try:
            staged = [self._ports.branches(self._server).staged(self._name, name) for name in asked]
        except LakeplanError:
            return None
        return {
            "asked": len(asked),
            "branches": sum(bool(one.changes) for one in staged),
            "changes": sum(len(one.changes) for one in staged),
            "more": any(one.more for one in staged),
        }

    def _remnants(self, store: NamespaceReader | str) -> RemnantsRow | None:
        if not isinstance(store, RemnantReader):
            return None
        try:
            remnants = store.remnants()
        except LakeplanError:
            return None
        return {
            "noncurrent": None if remnants.noncurrent is None else remnants.noncurrent.to_row(),
            "delete_markers": remnants.delete_markers,
            "unfinished_uploads": remnants.uploads,
            "oldest_upload": "" if remnants.oldest_us is None else iso(remnants.oldest_us),
            "complete": remnants.complete,
        }

    def _runs(self, store: NamespaceReader | str) -> list[CollectorRunRow] | None:
        if isinstance(store, str):
            return None
        try:
            return runs_of(store)
        except LakeplanError:
            return None


def _listed(classes: Sequence[ObjectClass], wanted: int, unwanted: int = 0) -> DestroyedRow:
    gone, total = judging.destroyed(classes, wanted, unwanted), judging.named(classes, wanted, unwanted)
    share = judging.share_percent(gone.objects, total.objects)
    return {
        "how": "listing",
        "amount": gone.to_row(),
        "asked": None,
        "gone": None,
        "low_percent": share,
        "high_percent": share,
        "examples": [],
    }


def stored_policies(row: AuditedRow) -> tuple[SettingItem, ...]:
    """Return the stored policies for a tree, without clashes."""
    policies = items_from_body(SettingKind.BRANCH_LIFECYCLE, row["policies"] or ())
    return judging.sound_policies([one for one in policies if isinstance(one, Policy)])


def sound_rules(row: AuditedRow) -> GcRules | None:
    """Return the stored rules for a tree, with impossible values corrected, or None without rules."""
    if (body := row["rules"]) is None:
        return None
    branches = {one["branch_id"]: one["retention_days"] for one in body["branches"]}
    return judging.sound(GcRules(body["default_retention_days"], branches), row["unknown_branches"])

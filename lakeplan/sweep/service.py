"""The sweep commands for several repositories. A failure of one does not stop the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache

from lakeplan.errors import ExitCode, LakeplanError, ReadOnlyRepository, StorageNotFound, UsageError
from lakeplan.formats.namespace import MARK_FILE, checked_mark_id, mark_prefix
from lakeplan.review.gates import GateOverrides, names_of
from lakeplan.review.run import Run, close_journal, note_step, open_journal
from lakeplan.review.selection import Selection
from lakeplan.state.store import RunJournal
from lakeplan.stores.open import StateReader
from lakeplan.sweep.documents import (
    MarkDocument,
    MarksDocument,
    NotPurgedRow,
    PurgeDocument,
    PurgedRow,
    SweepDocument,
)
from lakeplan.sweep.finish import finish
from lakeplan.sweep.judge import approve
from lakeplan.sweep.mark import Made, MarkOptions, make_marks
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.neighbours import is_begun
from lakeplan.sweep.ports import Site, SweepPorts, approval_key, open_site, other_servers, select, select_one
from lakeplan.sweep.purge import (
    PURGE_FORMAT,
    Quarantine,
    list_quarantines,
    purge,
    record_empty,
    unrecorded_purges,
)
from lakeplan.sweep.records import (
    MARKS_FORMAT,
    StoredMark,
    load_mark,
    read_approval,
    read_mark_index,
    read_marked,
    read_stored,
    repository_of,
)
from lakeplan.sweep.rules import window
from lakeplan.sweep.run import run_sweep
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import DesiredRepository, ServerConfig
from lakeplan.values.documents import error_rows
from lakeplan.values.plan import Bit, Plan
from lakeplan.values.records import utc_text
from lakeplan.values.repository import Repository
from lakeplan.values.shown_records import Digests, count_absent, object_digests
from lakeplan.values.simulation import EXPIRED_CLASSES, MarkStage
from lakeplan.values.sweep import SweepSettings
from lakeplan.values.units import count_of


@dataclass(frozen=True)
class MarkReport:
    """``made``: the result for each selected repository, by ``server/name``."""

    made: Mapping[str, Made]

    @property
    def marks(self) -> list[Mark]:
        return [made for made in self.made.values() if isinstance(made, Mark)]

    @property
    def skipped(self) -> dict[str, str]:
        """Repositories that need no mark, and why."""
        return {
            key: made if isinstance(made, str) else made.message
            for key, made in self.made.items()
            if isinstance(made, str | ReadOnlyRepository)
        }

    @property
    def failed(self) -> dict[str, LakeplanError]:
        return {
            key: made
            for key, made in self.made.items()
            if isinstance(made, LakeplanError) and not isinstance(made, ReadOnlyRepository)
        }

    @property
    def exit_code(self) -> int:
        if not self.failed:
            return ExitCode.OK
        if self.marks or self.skipped:
            return ExitCode.PARTLY_DONE
        return _code_of_all(error.exit_code for error in self.failed.values())


def _code_of_all(codes: Iterable[int]) -> int:
    """The exit code if everything failed: the code that all errors share, or else ``ERROR``."""
    distinct = {*codes}
    return distinct.pop() if len(distinct) == 1 else ExitCode.ERROR


def mark_all(
    tree: DesiredTree,
    selection: Selection,
    ports: SweepPorts,
    run: Run,
    *,
    settings: Callable[[SweepSettings], SweepSettings],
    overrides: GateOverrides,
    new_mark_id: Callable[[], str],
) -> MarkReport:
    """Marks every selected repository. ``settings`` applies a command's options to the tree's settings.
    Raises UsageError when none is selected."""
    wanted, failed = select(tree, selection, ports)
    overrides.check_named([*(d.key for d in wanted), *failed])
    check_allowed(overrides.allowed, [d.key for d in wanted])
    report: dict[str, Made] = {**failed}
    others = cache(lambda server: other_servers(tree.servers[server], tree, ports))
    sites: list[tuple[Site, MarkOptions]] = []
    for desired in wanted:
        try:
            site = open_site(desired, tree, ports, lambda server: others(server.name))
        except LakeplanError as error:
            report[desired.key] = error
        else:
            sites.append((site, MarkOptions(new_mark_id(), settings(desired.sweep), overrides)))
    for site, made in make_marks(sites, ports, run):
        report[site.key] = made
    return MarkReport(report)


def check_allowed(allowed: frozenset[str], keys: Sequence[str]) -> None:
    """Raises UsageError for an ``--allow`` that would override a gate of several repositories at once."""
    for flag in sorted(allowed):
        named, separator, gate = flag.rpartition("=")
        meant = [key for key in keys if not separator or named in names_of(key)]
        if len(meant) > 1:
            flags = " ".join(f"--allow {key}={gate}" for key in meant[:10])
            number = f"{len(meant):,} repositories"
            what = f"matches {number} on different servers" if separator else "does not specify a repository"
            raise UsageError(
                f"--allow {flag} {what}" + ("" if separator else f", but {number} are selected"),
                hint=f"Specify each repository whose gate you want to override: {flags}.",
            )


def open_mark(tree: DesiredTree, mark_id: str, ports: SweepPorts) -> tuple[Site, StoredMark]:
    """The repository of a mark, and the mark. Raises UsageError for an unknown one."""
    site = open_site(select_one(tree, repository_of(ports.state, mark_id)), tree, ports)
    return site, load_mark(site, ports.state, mark_id)


def quarantines(
    tree: DesiredTree, selection: Selection, ports: SweepPorts, *, older_than: datetime
) -> list[Quarantine]:
    """The quarantines of all selected repositories that are older than ``older_than`` and than
    ``sweep.quarantine_age``, and empty ones whose purge did not record its end. Raises the error of the
    first repository that cannot be read, because an incomplete purge would look complete."""
    wanted, failed = select(tree, selection, ports)
    if failed:
        raise next(iter(failed.values()))
    sites = [open_site(desired, tree, ports) for desired in wanted]
    now = ports.now()
    old = []
    for site in sites:
        age = timedelta(seconds=site.desired.sweep.quarantine_age_seconds)
        old += list_quarantines(site, older_than=min(older_than, now - age))
        old += unrecorded_purges(site, ports.state)
    return old


def purge_all(
    old: Sequence[Quarantine], ports: SweepPorts, run: Run, *, older_than: datetime, option: str | None
) -> tuple[PurgeDocument, int]:
    """Purges quarantines. Returns the document (``schemas/purge.v1.json``) and the exit code. ``option``: the
    age that a person gave."""
    rows: list[PurgedRow] = []
    refused: list[NotPurgedRow] = []
    codes: list[int] = []
    steps = _PurgeSteps(open_journal(ports.state, run, "sweep purge"))
    for one in old:
        if not one.amount.objects:
            with suppress(LakeplanError):  # another run may be purging it; the record has only figures
                record_empty(one, ports, run)
            continue
        try:
            steps.begin(one.site.key, one.mark_id)
            rows.append(purge(one, ports, run, older_than=older_than))
            steps.ended(rows[-1])
        except LakeplanError as error:
            steps.failed(one.site.key, error)
            codes.append(error.exit_code)
            refused.append(
                {
                    "repository": one.site.key,
                    "mark_id": one.mark_id,
                    "message": error.message,
                    "hint": error.hint,
                }
            )
    if steps.marks and (note := close_journal(steps.journal, run)):
        _log.warning("%s", note)
    document: PurgeDocument = {
        "format": PURGE_FORMAT,
        "older_than": option,
        "quarantines": rows,
        "refused": refused,
    }
    if codes and not rows:
        return document, _code_of_all(codes)
    partly = codes or any(end["needed"] or end["failed"] or end["problem"] for end in rows)
    return document, ExitCode.PARTLY_DONE if partly else ExitCode.OK


@dataclass
class _PurgeSteps:
    """The history of a purge: one step for each repository, which may have several quarantines."""

    journal: RunJournal
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    marks: dict[str, list[str]] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)

    def begin(self, repository: str, mark_id: str) -> None:
        """Records that a quarantine is about to be purged. When it raises LakeplanError, nothing may be."""
        self.marks.setdefault(repository, []).append(mark_id)
        self.journal.step(repository, status="pending", mark_id=", ".join(self.marks[repository]))

    def ended(self, end: PurgedRow) -> None:
        counts = self.counts.setdefault(end["repository"], Counter())
        counts.update(deleted=end["deleted"], kept=end["kept"], failed=end["failed"])
        if counts["failed"] or end["problem"]:
            self.bad.add(end["repository"])
        status = "failed" if end["repository"] in self.bad else "applied"
        note_step(self.journal, end["repository"], status=status, counts=dict(counts))

    def failed(self, repository: str, error: LakeplanError) -> None:
        self.bad.add(repository)
        note_step(self.journal, repository, status="failed", message=str(error))


def marks_document(report: MarkReport) -> MarksDocument:
    """The document of ``schemas/marks.v1.json``."""
    return {
        "format": MARKS_FORMAT,
        "marks": [mark_document(mark) for mark in report.marks],
        "skipped": report.skipped,
        "failed": error_rows(report.failed),
    }


def mark_document(mark: Mark) -> MarkDocument:
    """A mark's document, including the times between which it may be swept."""
    times = window(mark, mark.settings.settle_seconds)
    return {
        **mark.to_document(),
        "sweep_from": utc_text(max(times.opens, mark.marked_at)),
        "sweep_until": utc_text(times.closes),
    }


def stage_of(site: Site, state: StateReader, mark_id: str) -> MarkStage:
    """The stage of a mark whose sweep left no summary."""
    if is_begun(site, mark_id):
        return "begun"
    return "marked" if state.read(approval_key(mark_id)) is None else "approved"


REASON = "sweep.automatic: the plan showed every object"
_HAS_NEVER_COMMITTED = "awaiting approval: plans do not show objects that were never committed"
_EXPIRED = frozenset(kind.value for kind in EXPIRED_CLASSES)


SweptOrWhy = SweepDocument | LakeplanError | str
"""A sweep, the error that stopped it, or why the mark needs a person's approval."""


@dataclass(frozen=True)
class AutomaticEnd:
    """``results``: the result for each mark, by ``server/name``."""

    results: Mapping[str, SweptOrWhy]

    @property
    def waiting(self) -> dict[str, str]:
        return {key: end for key, end in self.results.items() if isinstance(end, str)}

    @property
    def swept(self) -> list[SweepDocument]:
        return [end for end in self.results.values() if not isinstance(end, str | LakeplanError)]

    @property
    def failed(self) -> dict[str, LakeplanError]:
        return {key: end for key, end in self.results.items() if isinstance(end, LakeplanError)}

    @property
    def exit_code(self) -> int:
        codes = [error.exit_code for error in self.failed.values()]
        if any(d["failed"]["objects"] or not d["finished"] or d["came_back"] != 0 for d in self.swept):
            codes.append(ExitCode.PARTLY_DONE)
        return max(codes, default=ExitCode.OK)


def shown_by(plan: Plan) -> dict[str, Digests]:
    """The objects that a plan showed as deleted at once, by repository: those that newly expire, and the
    backlog if it was read. Only these may be deleted automatically."""
    shown: dict[str, Digests] = {}
    for repository in plan.repositories:
        named = repository.impact.shown.read() if repository.impact.shown is not None else None
        if named is not None:
            shown[repository.key] = named.of(Bit.NOW | Bit.BACKLOG)
    return shown


def sweep_marks(
    report: MarkReport,
    tree: DesiredTree,
    ports: SweepPorts,
    *,
    shown: Mapping[str, Digests],
    overrides: GateOverrides,
    new_run: Callable[[], Run],
    new_official_id: Callable[[], str],
) -> AutomaticEnd:
    """Approves and sweeps the marks that need no person's approval."""
    results: dict[str, SweptOrWhy] = {}
    for mark in report.marks:
        if not mark.to_delete.objects:
            continue
        results[mark.key] = _never_automatic(mark) or _sweep_one(
            mark, tree, ports, overrides, shown.get(mark.key), (new_run(), new_official_id())
        )
    return AutomaticEnd(results)


def _never_automatic(mark: Mark) -> str:
    """Return why a person must approve a mark whatever the plan showed, or ""."""
    if not mark.settings.automatic:
        return "awaiting approval"
    if mark.settings.engine != "builtin":
        return "awaiting approval: the official engine never runs automatically"
    if mark.to_delete != mark.marked.amount(*EXPIRED_CLASSES):
        return _HAS_NEVER_COMMITTED
    return ""


def _not_shown(site: Site, mark: Mark, shown: Digests | None) -> str:
    """Return why a person must approve a mark with objects that the plan did not show, or "". Compares the
    objects of the mark's parts one by one, because equal numbers prove nothing."""
    others = 0
    for part in mark.marked.going:
        rows = read_marked(site.store, mark.mark_id, part)
        if not _EXPIRED.issuperset(rows.column("class").to_pylist()):
            return _HAS_NEVER_COMMITTED
        digests = object_digests(mark.key, rows.column("address").to_pylist())
        others += len(digests) if shown is None else count_absent(digests, shown)
    if not others:
        return ""
    number = mark.to_delete.objects
    return (
        f"awaiting approval: {count_of(number, 'object')} would be deleted, but the plan showed only"
        f" {number - others:,} of them. `lakeplan plan --backlog` also shows objects that had already expired"
    )


def _sweep_one(
    mark: Mark,
    tree: DesiredTree,
    ports: SweepPorts,
    overrides: GateOverrides,
    shown: Digests | None,
    run_and_id: tuple[Run, str],
) -> SweptOrWhy:
    run, official_id = run_and_id
    try:
        site, stored = open_mark(tree, mark.mark_id, ports)
        if why := _not_shown(site, stored.mark, shown):
            return why
        approve(site, stored, ports.state, run, reason=REASON, overrides=overrides, automatic=True)
        opens = window(stored.mark, site.desired.sweep.settle_seconds).opens
        if ports.now() < opens:
            when = f"after {opens:%Y-%m-%d %H:%M} UTC, when sweep.settle has passed"
            return f"approved; run `lakeplan sweep run {mark.mark_id}` {when}"
        swept = run_sweep(site, stored, ports, run)
        return finish(site, swept, ports, run, run_id=official_id)
    except LakeplanError as error:
        return error


_log = logging.getLogger(__name__)
NAMED = 5
"""The most repositories that a message names."""


@dataclass(frozen=True)
class _Search:
    """``confirmed``: repositories that confirm the record in their namespace. ``others``: why a repository
    does not. ``unread``: why one could not be read. Both are by ``server/name``."""

    confirmed: Sequence[tuple[DesiredRepository, StoredMark]]
    others: Mapping[str, str]
    unread: Mapping[str, str]


def find_mark(tree: DesiredTree, mark_id: str, ports: SweepPorts) -> tuple[Site, StoredMark]:
    """As ``open_mark``, but searches the namespaces of the tree's repositories for a mark that the state
    lacks. Raises LakeplanError unless exactly one of them has it."""
    if read_mark_index(ports.state, mark_id) is not None:
        return open_mark(tree, mark_id, ports)
    search = _search(tree, checked_mark_id(mark_id), ports)
    if len(search.confirmed) != 1:
        raise _not_one(mark_id, search)
    desired, stored = search.confirmed[0]
    approval = read_approval(ports.state, stored)
    _log.warning("the state has no mark %s: using its record in the namespace of %s", mark_id, desired.key)
    if search.unread:
        _log.warning("could not search these repositories for the mark: %s", _named(search.unread))
    return open_site(desired, tree, ports), StoredMark(stored.mark, stored.digest, approval is not None)


def _search(tree: DesiredTree, mark_id: str, ports: SweepPorts) -> _Search:
    confirmed: list[tuple[DesiredRepository, StoredMark]] = []
    others: dict[str, str] = {}
    unread: dict[str, str] = {}
    for name, server in tree.servers.items():
        try:
            listed = {repository.id: repository for repository in ports.reader(name).list_repositories()}
        except LakeplanError as error:
            unread[f"server {name}"] = error.message
            continue
        wanted = [desired for desired in tree.resolve(name, listed) if desired.name in listed]
        with ports.progress.task(f"searching for mark {mark_id} on {name}", len(wanted)) as step:
            for desired in wanted:
                step()
                repository = listed[desired.name]
                try:
                    stored = read_stored(ports.store(server, repository), mark_id)
                except StorageNotFound:
                    continue
                except LakeplanError as error:
                    unread[desired.key] = error.message
                    continue
                if why := _not_of(stored.mark, mark_id, desired, server, repository):
                    others[desired.key] = why
                else:
                    confirmed.append((desired, stored))
    return _Search(confirmed, others, unread)


def _not_of(
    mark: Mark, mark_id: str, desired: DesiredRepository, server: ServerConfig, repository: Repository
) -> str:
    """Return why a record is not of a mark of this repository, or ""."""
    if mark.mark_id != mark_id or mark.key != desired.key:
        return f"the record belongs to mark {mark.mark_id} of repository {mark.key}"
    if mark.endpoint_url != server.endpoint_url:
        return f"the mark was created on a different server ({mark.endpoint_url})"
    if mark.storage_namespace != repository.storage_namespace:
        return f"the mark was created in a different namespace ({mark.storage_namespace})"
    if mark.repository_created != repository.creation_date:
        return "the repository was deleted and created again after the mark was created"
    return ""


def _not_one(mark_id: str, search: _Search) -> LakeplanError:
    folder = mark_prefix(mark_id)
    if search.confirmed:
        keys = ", ".join(desired.key for desired, _ in search.confirmed)
        return LakeplanError(
            f"mark {mark_id} is not in the state, and lakeplan cannot tell which repository it belongs to,"
            f" because several have a record of it: {keys}",
            hint="Identify the record that was not written by lakeplan, and delete"
            f" {folder} from that namespace.",
        )
    if search.others:
        return LakeplanError(
            f"mark {mark_id} is not in the state, and its records in the namespaces of these repositories"
            f" could not be verified: {_named(search.others)}",
            where=f"{folder}{MARK_FILE}",
            hint="Restore the state from a backup, or use the tree that the mark was created with.",
        )
    if search.unread:
        return LakeplanError(
            f"mark {mark_id} was not found in the state or in any readable namespace, and the search failed"
            f" for: {_named(search.unread)}",
            hint="Correct the cause of each failure, then run the command again.",
        )
    return UsageError(
        f"mark {mark_id} is neither in the state nor in a namespace of the tree's repositories",
        hint="Check the id, and use the tree that the mark was created with.",
    )


def _named(why: Mapping[str, str]) -> str:
    named = "; ".join(f"{key}: {text}" for key, text in list(why.items())[:NAMED])
    return named + (f"; and {len(why) - NAMED:,} more" if len(why) > NAMED else "")

"""The sweep's commands over several repositories: each fails on its own, the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from lakeplan.app.plan import Selection
from lakeplan.app.run import Run
from lakeplan.app.sweep.mark import Made, MarkOptions, make_marks
from lakeplan.app.sweep.places import MARK_INDEX, approval_key
from lakeplan.app.sweep.ports import Site, SweepPorts, open_site, other_servers, select, select_one
from lakeplan.app.sweep.purge import PURGE_FORMAT, Quarantine, list_quarantines, purge
from lakeplan.app.sweep.safeguards import is_begun
from lakeplan.app.sweep.store_marks import StoredMark, load_mark, read_mark_index, repository_of
from lakeplan.core.planning.gates import Openers
from lakeplan.core.sweep.settling import window
from lakeplan.errors import ExitCode, FormatError, LakeplanError, ReadOnlyRepository, UsageError
from lakeplan.formats.sweep_keys import sweep_prefix
from lakeplan.model.mark import Mark
from lakeplan.model.moments import utc_text
from lakeplan.model.sweep import MarkStage, SweepSettings
from lakeplan.ports.storage import StateReader
from lakeplan.ports.tree import DesiredTree

Json = dict[str, Any]
MARKS_FORMAT = "lakeplan.marks/v1"


@dataclass
class MarkReport:
    """``skipped`` and ``failed`` map ``server/name`` to why."""

    marks: list[Mark] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, LakeplanError] = field(default_factory=dict)

    def add(self, key: str, made: Made) -> None:
        match made:
            case Mark():
                self.marks.append(made)
            case ReadOnlyRepository():
                self.skipped[key] = made.message
            case LakeplanError():
                self.failed[key] = made
            case _:
                self.skipped[key] = made

    @property
    def exit_code(self) -> int:
        if not self.failed:
            return ExitCode.OK
        if self.marks or self.skipped or len(self.failed) > 1:
            return ExitCode.PARTLY_DONE
        return next(iter(self.failed.values())).exit_code


def mark_all(
    tree: DesiredTree,
    selection: Selection,
    ports: SweepPorts,
    run: Run,
    *,
    settings: Callable[[SweepSettings], SweepSettings],
    openers: Openers,
    new_mark_id: Callable[[], str],
) -> MarkReport:
    """Marks every selected repository. ``settings`` puts a command's options over the
    tree's. Raises UsageError when none is selected."""
    wanted, failed = select(tree, selection, ports)
    openers.check_named([*(d.key for d in wanted), *failed])
    _check_allowed(openers.allowed, [d.key for d in wanted])
    report = MarkReport(failed=dict(failed))
    others = cache(lambda server: other_servers(tree.servers[server], tree, ports))
    sites: list[tuple[Site, MarkOptions]] = []
    for desired in wanted:
        try:
            site = open_site(desired, tree, ports, lambda server: others(server.name))
        except LakeplanError as error:
            report.add(desired.key, error)
        else:
            sites.append((site, MarkOptions(new_mark_id(), settings(desired.sweep), openers)))
    for site, made in make_marks(sites, ports, run):
        report.add(site.key, made)
    return report


def _check_allowed(allowed: frozenset[str], keys: Sequence[str]) -> None:
    """Raises UsageError for an ``--allow`` that names no repository where several are marked."""
    for flag in sorted(allowed):
        if "=" not in flag and len(keys) > 1:
            flags = " ".join(f"--allow {key}={flag}" for key in keys[:10])
            raise UsageError(
                f"--allow {flag} names no repository, and {len(keys):,} are selected",
                hint=f"name each one whose gate you mean to override: {flags}",
            )


def open_mark(tree: DesiredTree, mark_id: str, ports: SweepPorts) -> tuple[Site, StoredMark]:
    """A mark by its id, and its repository. Raises UsageError for an unknown one."""
    site = open_site(select_one(tree, repository_of(ports.state, mark_id), ports), tree, ports)
    return site, load_mark(site, ports.state, mark_id)


def quarantines(
    tree: DesiredTree, selection: Selection, ports: SweepPorts, *, older_than: datetime
) -> list[Quarantine]:
    """Of all selected repositories, those that ``sweep.quarantine_age`` lets be purged too. Raises the error
    of the first that cannot be read: a purge that left some out without a word would be taken for a whole
    one."""
    wanted, failed = select(tree, selection, ports)
    if failed:
        raise next(iter(failed.values()))
    sites = [open_site(desired, tree, ports) for desired in wanted]
    now = ports.now()
    found = []
    for site in sites:
        age = timedelta(seconds=site.desired.sweep.quarantine_age_seconds)
        found += list_quarantines(site, older_than=min(older_than, now - age))
    return found


def purge_all(
    found: Sequence[Quarantine], ports: SweepPorts, run: Run, *, older_than: datetime, option: str | None
) -> tuple[Json, int]:
    """Purges each on its own: the document (``schemas/purge.v1.json``), and the exit code. ``option``: what a
    person gave as age."""
    ends: list[Json] = []
    refused: list[Json] = []
    codes: list[int] = []
    for one in found:
        try:
            ends.append(purge(one, ports, run, older_than=older_than))
        except LakeplanError as error:
            codes.append(error.exit_code)
            why = {"message": error.message, "hint": error.hint}
            refused.append({"repository": one.site.key, "mark_id": one.mark_id, **why})
    document = {"format": PURGE_FORMAT, "older_than": option, "quarantines": ends, "refused": refused}
    if len(codes) == 1 and not ends:
        return document, codes[0]
    partly = codes or any(end["needed"] or end["failed"] or end["problem"] for end in ends)
    return document, ExitCode.PARTLY_DONE if partly else ExitCode.OK


def marks_document(report: MarkReport) -> Json:
    """``schemas/marks.v1.json``."""
    return {
        "format": MARKS_FORMAT,
        "marks": [mark_document(mark) for mark in report.marks],
        "skipped": dict(report.skipped),
        "failed": {
            key: {"message": error.message, "where": error.where, "hint": error.hint}
            for key, error in report.failed.items()
        },
    }


def mark_document(mark: Mark) -> Json:
    """A mark for people and pipelines: its document, and when it may be swept."""
    times = window(mark, mark.settings.settle_seconds)
    return {
        **mark.to_document(),
        "sweep_from": utc_text(max(times.opens, mark.marked_at)),
        "sweep_until": utc_text(times.closes),
    }


def stage_of(site: Site, state: StateReader, mark_id: str) -> MarkStage:
    """How far a mark is whose sweep left no summary."""
    if is_begun(site, sweep_prefix(mark_id)):
        return "begun"
    return "marked" if state.read(approval_key(mark_id)) is None else "approved"


def list_marks(state: StateReader) -> list[Json]:
    """Every mark the state knows, newest first: id, repository, when, by whom, whether it is approved."""
    found = []
    for key in reversed(state.list_keys(MARK_INDEX)):
        mark_id = key.removeprefix(MARK_INDEX).removesuffix(".json")
        try:
            entry = read_mark_index(state, mark_id)
        except FormatError:
            entry = {"repository": "?", "marked_at": "", "by": ""}
        if entry is None:
            continue
        row = {"mark_id": mark_id, **{k: entry[k] for k in ("repository", "marked_at", "by")}}
        found.append({**row, "approved": state.read(approval_key(mark_id)) is not None})
    return found

"""``lakeplan sweep`` and ``lakeplan check``."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

from lakeplan.cli import options
from lakeplan.cli.console import confirm, require_terminal
from lakeplan.cli.formats import RenderContext, formats_of
from lakeplan.cli.namespaces import parse_age
from lakeplan.cli.options import CommandGroup, Options, argument, command, one_of, option
from lakeplan.cli.outputs import Outputs, with_costs, write_html
from lakeplan.cli.process import check_lasting_state, new_mark_id, now_utc, stopping, this_run
from lakeplan.cli.sweeping import CollectorOptions, CollectorRuns, open_checker, open_collector, sweep_ports
from lakeplan.cli.wiring import SelectionOptions, Session, SessionOptions, TimeoutOptions
from lakeplan.errors import ExitCode, UsageError
from lakeplan.formats.namespace import XidSource
from lakeplan.output import sweep as output
from lakeplan.output.check import render_check
from lakeplan.output.occasions import marks_waiting, sweeps_ended
from lakeplan.output.operations import render_collector_runs
from lakeplan.review.gates import GateOverrides
from lakeplan.review.run import Run
from lakeplan.sweep import service
from lakeplan.sweep.check import ReadData, check_after, check_all, check_before
from lakeplan.sweep.check import exit_code_of as check_exit_code
from lakeplan.sweep.contents import contents_digest, forecast_of, list_objects, read_contents, read_prefixes
from lakeplan.sweep.documents import (
    ApprovalDocument,
    ClassName,
    ContentsRow,
    MarkPageDocument,
    MarksDocument,
    ObjectsDocument,
    SweepDocument,
)
from lakeplan.sweep.finish import collector_reports, finish
from lakeplan.sweep.judge import approve as approve_mark
from lakeplan.sweep.official import run_official, withdraw
from lakeplan.sweep.ports import Site, SweepPorts
from lakeplan.sweep.records import StoredMark, list_marks, may_delete, read_summary, with_later
from lakeplan.sweep.restore import RestoreOptions
from lakeplan.sweep.restore import restore as bring_back
from lakeplan.sweep.run import SweepEnd, close_sweep, run_sweep
from lakeplan.values.simulation import MarkClass
from lakeplan.values.sweep import OFFICIAL_ENGINE, SweepSettings
from lakeplan.values.units import count_of, parse_percent

DEPTH = 1


def contents_of(session: Session, site: Site, stored: StoredMark, depth: int = DEPTH) -> ContentsRow:
    """Return the contents of a mark, with the plan's forecast, and the digest that an approval records.
    Raises the errors of ``read_contents``."""
    parts = len(stored.mark.marked.going) + len(stored.mark.marked.kept)
    with session.progress.task("reading the mark", parts) as step:
        contents = read_contents(site.store, stored.mark, depth=depth, step=step)
    contents["forecast"] = forecast_of(session.state(), stored.mark)
    return {**contents, "digest": contents_digest(stored.digest, contents)}


def shown_mark(session: Session, site: Site, stored: StoredMark, contents: ContentsRow) -> MarksDocument:
    """The document of one mark with its contents."""
    document = service.marks_document(service.MarkReport({site.key: stored.mark}))
    document["marks"][0]["contents"] = contents
    return with_costs(document, session.tree, "marks")


@dataclass(frozen=True)
class Listed:
    """The objects that ``--objects`` lists. With empty ``classes``, those that would be deleted."""

    objects: bool
    prefix: str | None
    classes: tuple[ClassName, ...]


def _listed(
    objects: Annotated[
        bool, option("Instead of the summary, list the objects that would be deleted.")
    ] = False,
    prefix: Annotated[
        str | None, option("Only objects whose path begins with this prefix.", "PREFIX")
    ] = None,
    class_: Annotated[
        list[str] | None,
        option(
            "Only objects of this class. There are classes for objects that would be deleted and for objects"
            " that are kept. Repeatable.",
            "CLASS",
            names=("--class",),
        ),
    ] = None,
) -> Listed:
    values = {output.class_words(kind.value).replace(" ", "_"): kind.value for kind in MarkClass}
    given = [name.replace("-", "_").replace(" ", "_") for name in class_ or ()]
    classes = tuple(n if n in values.values() else values[one_of("class", n, [*values])] for n in given)
    if not objects and (prefix is not None or classes):
        raise UsageError("--prefix and --class require --objects", hint="Add --objects.")
    return Listed(objects, prefix, cast("tuple[ClassName, ...]", classes))


def objects_of(session: Session, site: Site, stored: StoredMark, listed: Listed) -> ObjectsDocument:
    """Return the objects of a mark that ``--objects`` lists. Raises the errors of ``list_objects``."""
    parts = len(stored.mark.marked.going) + len(stored.mark.marked.kept)
    with session.progress.task("reading the mark", parts) as step:
        return list_objects(site.store, stored.mark, classes=listed.classes, prefix=listed.prefix, step=step)


def write_page(
    path: Path, session: Session, site: Site, stored: StoredMark, document: MarksDocument, outputs: Outputs
) -> None:
    """Writes the page of a document's only mark. Raises the errors of ``read_prefixes`` and of writing."""
    from lakeplan.output.report import render_mark_page

    tree = read_prefixes(site.store, stored.mark)
    page: MarkPageDocument = {"mark": document["marks"][0], "tree": tree}
    write_html(path, render_mark_page(outputs.shown(page)))


MarkId = Annotated[str, argument("Mark id, as printed by `lakeplan sweep mark`.", "MARK")]


@command("Record the objects that can be deleted.")
def mark(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    min_age: Annotated[str | None, option("Keep objects younger than this, for example 24h.", "AGE")] = None,
    never_committed: Annotated[
        str | None, option("What to do with objects that were never committed: keep or collect.", "WORD")
    ] = None,
    verify_cache: Annotated[
        bool, option("Verify a sample of the cached data about other repositories.")
    ] = False,
    allowed: options.AllowedHere,
    outputs: Annotated[Outputs, options.documents("marks")],
    opening: SessionOptions,
    runners: options.RunnerOptions,
    timeouts: TimeoutOptions,
) -> int:
    """Find the objects that can be deleted and record them as a mark. This command deletes nothing.

    \b
    Examples:
      lakeplan sweep mark
      lakeplan sweep mark --target analytics --min-age 7d
    """
    chosen = chosen_settings(min_age, never_committed)
    session = opening.session(tree, runners=runners, timeouts=timeouts)
    with sweep_ports(session, verify_cache=verify_cache) as ports:
        made = service.mark_all(
            session.tree,
            selection,
            ports,
            this_run(tree, session.tree),
            settings=chosen,
            overrides=overrides_of(session, allowed),
            new_mark_id=lambda: new_mark_id(now_utc()),
        )
    document = with_costs(service.marks_document(made), session.tree, "marks")
    outputs.emit(document, output.render_marks, RenderContext.of(session.tree), code=made.exit_code)
    session.notify(marks_waiting(document, session.tree.owner_of))
    return made.exit_code


@command("Approve a mark.", without="no_progress")
def approve(
    *,
    mark_id: MarkId,
    reason: Annotated[str, option("Reason for the approval, kept on record.", "TEXT")],
    tree: options.TreeDir = Path(),
    allowed: options.AllowedHere,
    outputs: Annotated[Outputs, options.documents("approval")],
    opening: SessionOptions,
) -> int:
    """Approve a mark so that `lakeplan sweep run` can delete its objects. This command deletes nothing.

    The command first prints what the mark contains, as `lakeplan sweep show` does. It records a digest of
    that summary with the approval.

    \b
    Examples:
      lakeplan sweep approve 20260331T120000-1a2b3c4d --reason "ticket 42"
    """
    session = opening.session(tree)
    with sweep_ports(session) as ports:
        site, stored = service.open_mark(session.tree, mark_id, ports)
        contents = contents_of(session, site, stored)
        document = outputs.shown(shown_mark(session, site, stored, contents))
        if outputs.introduce(lambda console: output.render_marks(document, console, following=False)):
            stored = replace(stored, shown=contents["digest"])
        overrides = overrides_of(session, allowed)
        given = approve_mark(
            site, stored, ports.state, this_run(tree, session.tree), reason=reason, overrides=overrides
        )
    approval: ApprovalDocument = {**given.to_row(), "repository": site.key}
    return outputs.emit(with_costs(approval, session.tree), output.render_approval)


@command("Delete the objects of an approved mark.")
def run(
    *,
    mark_id: MarkId,
    tree: options.TreeDir = Path(),
    parallelism: Annotated[
        int | None, option("Number of workers that delete objects. Default: all workers.", "N", min=1)
    ] = None,
    collecting: CollectorOptions,
    check: Annotated[
        bool,
        option(
            "Before and after the sweep, check that storage contains every object that commits need. Stop"
            " if any object is missing."
        ),
    ] = False,
    close: Annotated[bool, option("", hidden=True)] = False,
    outputs: Annotated[Outputs, options.documents("sweep")],
    opening: SessionOptions,
    runners: options.RunnerOptions,
    timeouts: TimeoutOptions,
) -> int:
    """Delete the objects of an approved mark. Run it again to continue after an interruption.

    \b
    Examples:
      lakeplan sweep run 20260331T120000-1a2b3c4d
      lakeplan sweep run 20260331T120000-1a2b3c4d --format json --out sweep.json
    """
    if close:  # it may be set in the environment: a command that ended sweeps must not begin to delete
        raise UsageError(
            "sweep run --close is now a separate command", hint=f"Run `lakeplan sweep abort {mark_id}`."
        )
    outputs.check_files()
    session = opening.session(tree, runners=runners, timeouts=timeouts)
    check_lasting_state(session.tree.state_url, os.environ)
    with (
        stopping() as stop,
        sweep_ports(session, parallelism=parallelism, stop=stop.is_set) as ports,
        open_checker(session) as checker,
    ):
        this = this_run(tree, session.tree)
        site, stored = service.open_mark(session.tree, mark_id, ports)
        before = check_before(site, ports, checker) if check else None
        document = ended_before = read_summary(site.store, mark_id)
        if document is None or may_delete(document):
            if stored.mark.settings.engine == OFFICIAL_ENGINE:
                end = run_official(site, stored, ports, this, open_collector(session, site, collecting))
            else:
                end = run_sweep(site, stored, ports, this)
            document = _finished(site, end, ports, this)
        elif document["came_back"] != 0:  # what came back may have been restored since: only inspect
            end = replace(close_sweep(site, stored, ports, this), closed=bool(document.get("closed")))
            document = _finished(site, end, ports, this)
        has_run = document is not ended_before
        if before is not None:
            after = check_after(site, ports, checker, mark_id)
            document = {**document, "checks": {"before": before, "after": after}}
    code = _emit_sweep(session, document, outputs)
    if has_run:
        session.notify(sweeps_ended([document], session.tree.owner_of))
    return code


@command("End a sweep that cannot continue.")
def abort(
    *,
    mark_id: MarkId,
    tree: options.TreeDir = Path(),
    outputs: Annotated[Outputs, options.documents("sweep")],
    opening: SessionOptions,
    runners: options.RunnerOptions,
    timeouts: TimeoutOptions,
) -> int:
    """End a sweep that cannot continue. This command deletes nothing, and reports what was already deleted.

    Use this command if the mark is too old, another collector has run, or the state was lost. The repository
    can then be marked again.

    \b
    Examples:
      lakeplan sweep abort 20260331T120000-1a2b3c4d
    """
    outputs.check_files()
    session = opening.session(tree, runners=runners, timeouts=timeouts)
    check_lasting_state(session.tree.state_url, os.environ)
    with stopping() as stop, sweep_ports(session, stop=stop.is_set) as ports:
        this = this_run(tree, session.tree)
        site, stored = service.find_mark(session.tree, mark_id, ports)
        document = read_summary(site.store, mark_id)
        if document is None or may_delete(document) or document["came_back"] != 0:
            withdraw(site, stored.mark)
            document = _finished(site, close_sweep(site, stored, ports, this), ports, this)
    return _emit_sweep(session, document, outputs)


def _finished(site: Site, end: SweepEnd, ports: SweepPorts, this: Run) -> SweepDocument:
    xids = XidSource(lambda: now_utc().timestamp(), os.urandom)
    return finish(site, end, ports, this, run_id=xids.descending())


def _emit_sweep(session: Session, document: SweepDocument, outputs: Outputs) -> int:
    return outputs.emit(
        with_costs(with_later(document, session.state()), session.tree),
        output.render_sweep,
        RenderContext.of(session.tree),
        code=exit_code_of(document),
    )


@command("List marks.", without="no_progress")
def list_(
    *,
    collector_runs: CollectorRuns = False,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    outputs: Annotated[Outputs, options.documents("mark-list")],
    opening: SessionOptions,
) -> int:
    """List marks, newest first.

    With --collector-runs, list the runs of every collector that left a report: lakeplan's sweeps and the
    official garbage collector. --target, --owner and --server have an effect only with --collector-runs.

    \b
    Examples:
      lakeplan sweep list
      lakeplan sweep list --collector-runs --format json
    """
    if collector_runs:
        outputs.check(formats_of("collector-runs"))
    session = opening.session(tree)
    if collector_runs:
        with sweep_ports(session) as ports:
            runs = collector_reports(session.tree, selection, ports)
        code = ExitCode.PARTLY_DONE if runs["failed"] else ExitCode.OK
        return outputs.emit(runs, render_collector_runs, code=code)
    return outputs.emit(
        list_marks(session.state(), now_utc()), output.render_mark_list, RenderContext.of(session.tree)
    )


@command("Show a mark and what happened to its objects.", without="no_progress")
def show(
    *,
    mark_id: MarkId,
    tree: options.TreeDir = Path(),
    depth: Annotated[int, option("Folder depth of the prefixes in the summary.", "N", min=0, max=20)] = DEPTH,
    listing: Annotated[Listed, Options(_listed)],
    html: Annotated[
        Path | None,
        option(
            "Also write an HTML page with the mark's folders to this file, or - for standard output.", "FILE"
        ),
    ] = None,
    outputs: Annotated[Outputs, options.documents("sweep", "mark-objects")],
    opening: SessionOptions,
) -> int:
    """Show what a mark contains, and what happened to its objects.

    The summary gives amounts by class, prefix, age and last commit, and explains what keeps the remaining
    objects.

    \b
    Examples:
      lakeplan sweep show 20260331T120000-1a2b3c4d
      lakeplan sweep show 20260331T120000-1a2b3c4d --depth 3 --html mark.html
      lakeplan sweep show 20260331T120000-1a2b3c4d --objects --prefix raw/
    """
    outputs.check(formats_of("mark-objects" if listing.objects else "sweep"))
    if listing.objects and html is not None:
        raise UsageError(
            "--html and --objects cannot be combined, because the page shows the whole mark",
            hint="Remove --objects or --html.",
        )
    outputs = outputs.beside(html)
    session = opening.session(tree)
    context = RenderContext.of(session.tree)
    with sweep_ports(session) as ports:
        site, stored = service.open_mark(session.tree, mark_id, ports)
        summary = read_summary(site.store, mark_id)
        stage = service.stage_of(site, ports.state, mark_id)
        if listing.objects:
            listed = objects_of(session, site, stored, listing)
            return outputs.emit(listed, output.render_objects, kind="mark-objects")
        contents = contents_of(session, site, stored, depth)
        document = shown_mark(session, site, stored, contents)
        if html is not None:
            write_page(html, session, site, stored, document, outputs)
    if summary is not None:
        swept: SweepDocument = {**with_later(summary, session.state()), "contents": contents}
        return outputs.emit(with_costs(swept, session.tree), output.render_sweep, context)
    return outputs.emit(document, partial(output.render_marks, stage=stage), context, kind="marks")


@command("Restore objects from quarantine.")
def restore(
    *,
    mark_id: MarkId,
    tree: options.TreeDir = Path(),
    path: Annotated[
        str | None, option("Restore only this path, or everything under it if it ends with /.", "PATH")
    ] = None,
    commit: Annotated[str | None, option("Restore only objects of this commit.", "ID")] = None,
    outputs: Annotated[Outputs, options.documents("restore")],
    opening: SessionOptions,
    runners: options.RunnerOptions,
) -> int:
    """Restore objects from quarantine. Works even if the state was lost.

    \b
    Examples:
      lakeplan sweep restore 20260331T120000-1a2b3c4d
      lakeplan sweep restore 20260331T120000-1a2b3c4d --path raw/2026/
    """
    outputs.check_files()
    session = opening.session(tree, runners=runners)
    with stopping() as stop, sweep_ports(session, stop=stop.is_set) as ports:
        site, stored = service.find_mark(session.tree, mark_id, ports)
        document = bring_back(site, stored, ports, this_run(tree, session.tree), RestoreOptions(path, commit))
    code = ExitCode.PARTLY_DONE if document["failed"] else ExitCode.OK
    return outputs.emit(document, output.render_restore, code=code)


@command("Delete old copies from quarantine.")
def purge(
    *,
    tree: options.TreeDir = Path(),
    older_than: Annotated[
        str | None,
        option(
            "Delete only copies that were quarantined at least this long ago, for example 14d. The"
            " minimum age in sweep.quarantine_age also applies.",
            "AGE",
        ),
    ] = None,
    selection: SelectionOptions,
    auto_approve: Annotated[
        bool, option("Do not ask for confirmation. Required if there is no terminal.")
    ] = False,
    outputs: Annotated[Outputs, options.documents("purge")],
    opening: SessionOptions,
    runners: options.RunnerOptions,
) -> int:
    """Delete quarantined copies that are old enough and no longer needed. This cannot be undone.

    \b
    Examples:
      lakeplan sweep purge --older-than 14d
      lakeplan sweep purge --older-than 14d --target analytics --auto-approve
    """
    age = 0 if older_than is None else parse_age("--older-than", older_than)
    before = now_utc() - timedelta(seconds=age)
    outputs.check_files()
    session = opening.session(tree, runners=runners)
    with sweep_ports(session) as ports:
        old = service.quarantines(session.tree, selection, ports, older_than=before)
        sizes = [q.amount.objects for q in old if q.amount.objects]
        if sizes and not auto_approve and not _approved(sum(sizes), len(sizes), no_color=outputs.no_color):
            return ExitCode.ERROR
        run = this_run(tree, session.tree)
        if not auto_approve:
            run = replace(run, approver={"by": str(run.holder["user"])})
        with stopping() as stop:
            ports = replace(ports, stop=stop.is_set)
            document, exit_code = service.purge_all(old, ports, run, older_than=before, option=older_than)
    return outputs.emit(document, output.render_purge, code=exit_code)


def _approved(objects: int, quarantines: int, *, no_color: bool) -> bool:
    require_terminal("purge")
    copies = f"{count_of(objects, 'object')} from {count_of(quarantines, 'quarantine')}"
    question = f"Permanently delete {copies}? Only 'yes' is accepted"
    return confirm(question, otherwise="Nothing was deleted.", no_color=no_color)


def exit_code_of(document: SweepDocument) -> int:
    """3 if an object failed, work remains, or the sweep or a check found that data was lost."""
    bad = document["failed"]["objects"] or not document["finished"] or document["came_back"] != 0
    bad = bad or ("checks" in document and not document["checks"]["after"]["complete"])
    return ExitCode.PARTLY_DONE if bad else ExitCode.OK


def overrides_of(session: Session, allowed: frozenset[str]) -> GateOverrides:
    """``--allow`` at a terminal, and the tree's overrides."""
    today = session.as_of.astimezone(timezone.utc).date()
    return GateOverrides(allowed, tuple(session.tree.overrides), today)


def chosen_settings(
    min_age: str | None, never_committed: str | None
) -> Callable[[SweepSettings], SweepSettings]:
    """The settings in options, which override the tree's. Raises UsageError."""
    changes: dict[str, Any] = {}
    if min_age is not None:
        changes["min_age_seconds"] = parse_age("--min-age", min_age)
    if never_committed is not None:
        words = ("keep", "collect")
        changes["never_committed"] = options.one_of("--never-committed", never_committed, words)
    return lambda settings: replace(settings, **changes)


sweep = CommandGroup(
    {
        "mark": mark,
        "approve": approve,
        "run": run,
        "abort": abort,
        "restore": restore,
        "purge": purge,
        "list": list_,
        "show": show,
    }
)


# ---- check
@command()
def check(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    read: Annotated[
        str | None,
        option(
            "Also read this percentage of the objects (for example, 5%), and compare their checksums.",
            "N%",
            names=("--read-data",),
        ),
    ] = None,
    outputs: Annotated[Outputs, options.documents("check")],
    opening: SessionOptions,
    runners: options.RunnerOptions,
    timeouts: TimeoutOptions,
) -> int:
    """Check that storage contains every object that commits reference. Changes nothing.

    The check covers the HEAD of every branch, and every commit that the stored rules, a tag or a hold keeps.
    The command reads the metadata of these commits directly from storage, compares ids and checksums, and
    lists the stored objects. If anything is missing, the command exits with code 3.

    \b
    Examples:
      lakeplan check
      lakeplan check --target analytics --format csv --out missing.csv
      lakeplan check --read-data 5%
    """
    sample = None if read is None else ReadData(_share(read), secrets.token_hex(8))
    session = opening.session(tree, runners=runners, timeouts=timeouts)
    with sweep_ports(session) as ports, open_checker(session) as checker:
        document = check_all(session.tree, selection, ports, checker, read=sample)
    return outputs.emit(document, render_check, code=check_exit_code(document))


def _share(text: str) -> float:
    """Parse the percentage of ``--read-data`` into a share between 0 and 1. Raises UsageError."""
    try:
        percent = parse_percent(text.strip())
    except ValueError:
        percent = 0.0
    if not percent:
        raise UsageError(
            f"--read-data {text!r} is not a percentage above 0",
            hint="Use a percentage, for example --read-data 5%",
        )
    return percent / 100

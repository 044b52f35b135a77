"""``lakeplan drift`` and ``lakeplan pins sync``, for scheduled jobs: compare servers with the last apply and
the tree, and bring pins up to date."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from lakeplan.cli import options
from lakeplan.cli.formats import RenderContext
from lakeplan.cli.git import head_of
from lakeplan.cli.namespaces import CacheOptions
from lakeplan.cli.options import CommandGroup, command, option
from lakeplan.cli.outputs import Outputs, with_costs
from lakeplan.cli.process import check_lasting_state, is_lost, this_run
from lakeplan.cli.wiring import SelectionOptions, Session, SessionOptions
from lakeplan.errors import ExitCode, LakeplanError, UsageError
from lakeplan.output.occasions import drift_found
from lakeplan.output.operations import render_drift
from lakeplan.output.plan import render_apply
from lakeplan.plan.apply import exit_code_of as apply_exit_code
from lakeplan.plan.apply import report_document
from lakeplan.plan.drift import DriftPorts, DriftReport, drift_document, find_drift
from lakeplan.plan.drift_compare import DriftClass, HeadPorts
from lakeplan.plan.pin_sync import SyncOptions, sync_pins
from lakeplan.plan.planning import Ports
from lakeplan.plan.tree_edits import DriftWritten, write_drift
from lakeplan.review.run import ApplyPorts, Run
from lakeplan.review.selection import check_server
from lakeplan.stores.open import StateWriter
from lakeplan.tree.editing import EditedTree

ANY = "any"
VANISHING = (
    "branch HEADs were not recorded for undo, because this is a CI job (CI is set) and the state is in a"
    " local folder, which would be lost when the job ends. Set state.url to an s3://, gs:// or Azure blob"
    " URL"
)


@command()
def drift(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    fail_on: Annotated[
        list[str] | None,
        option(
            "Exit with code 2 if drift of this class is found. `any` means any class. Repeatable.", "CLASS"
        ),
    ] = None,
    write: Annotated[
        bool, option("Copy the values that were changed on the servers into the tree's files.")
    ] = False,
    outputs: Annotated[Outputs, options.documents("drift")],
    opening: SessionOptions,
) -> int:
    """Compare the servers with the last apply and with the tree. Sends only GET requests.

    With --write, lakeplan copies values that were changed on a server into the tree's files, and keeps
    comments and the order of keys. Review the changes to the files, then apply them.

    Where the server deletes branches itself (engine: server), drift also records branch HEADs in the state so
    that `lakeplan branches undo` can restore them.

    \b
    Classes of drift:
      server-edited   the stored rules differ from the applied ones
      tree-ahead      the tree has changes that were not applied
      patterns-stale  branches were created or deleted since the apply
      pins-missing    pins no longer exist, or lack the rules that they need
      released        the tree no longer manages rules that were applied
      unmanaged-new   a repository has no entry and is newer than the last apply

    \b
    Examples:
      lakeplan drift
      lakeplan drift --fail-on server-edited --fail-on patterns-stale
      lakeplan drift --fail-on any --format openmetrics --out drift.prom
      lakeplan drift --write
    """
    classes = check_classes(fail_on)
    session = opening.session(tree)
    check_server(session.tree, selection.server)
    state = session.state()
    report = find_drift(
        session.tree,
        selection,
        DriftPorts(session.reader, state, session.progress, heads_ports(session, state, this_run(tree))),
        as_of=session.as_of,
        tree_commit=head_of(tree),
    )
    document = with_costs(drift_document(report), session.tree, "recorded")
    code = exit_code_of(report, classes)
    if write:
        done = write_into(session, report)
        document["written"], document["not_written"] = list(done.written), list(done.not_written)
        code = max(code, ExitCode.PARTLY_DONE) if done.not_written and code != ExitCode.ERROR else code
    outputs.emit(document, render_drift, RenderContext.of(session.tree), code=code, sort_keys=True)
    session.notify(drift_found(outputs.shown(document), [c.value for c in classes or DriftClass]))
    return code


def write_into(session: Session, report: DriftReport) -> DriftWritten:
    """Edits the checked-out tree. Sends only GET requests."""

    def names(server: str) -> list[str] | None:
        try:
            return [repository.id for repository in session.reader(server).list_repositories()]
        except LakeplanError:
            return None

    live = {server: names(server) for server in session.tree.servers}
    return write_drift(session.tree, report.drifted, live, EditedTree(session.tree.root))


def heads_ports(session: Session, state: StateWriter, run: Run) -> HeadPorts:
    """The store in which HEADs are recorded. In CI it is no folder, which would be lost with the runner."""
    useless = VANISHING if is_lost(session.tree.state_url, session.environ) else ""
    return HeadPorts(lambda server: session.branch_readers(server).branches, state, run, useless)


def check_classes(names: Sequence[str] | None) -> frozenset[DriftClass]:
    """The classes of ``--fail-on``. ``any`` is all of them. Raises UsageError."""
    known = {c.value: c for c in DriftClass}
    for name in names or ():
        if name != ANY and name not in known:
            raise UsageError(f"unknown drift class {name!r}", hint=f"Use one of {', '.join(known)}, {ANY}.")
    if ANY in (names or ()):
        return frozenset(DriftClass)
    return frozenset(known[name] for name in names or ())


def exit_code_of(report: DriftReport, fail_on: frozenset[DriftClass]) -> ExitCode:
    """The exit code. A failure comes before drift: a check that did not finish must not look like "no
    drift"."""
    if report.failed:
        all_failed = len(report.failed) == len(report.repositories)
        return ExitCode.ERROR if all_failed else ExitCode.PARTLY_DONE
    return ExitCode.CHANGES_PENDING if report.has(fail_on) else ExitCode.OK


@command("Create missing pins and write the rules that pins need.")
def sync(
    *,
    tree: options.TreeDir = Path(),
    selection: SelectionOptions,
    adopt: Annotated[
        bool,
        option(
            "First, record existing hidden branches whose name and commit match a pin. Use this option"
            " if the state was lost."
        ),
    ] = False,
    outputs: Annotated[Outputs, options.documents("apply")],
    allowed: options.AllowedHere,
    opening: SessionOptions,
    runners: options.RunnerOptions,
    cache: CacheOptions,
) -> int:
    """Create missing pins and write the rules that pins need. Run this command on a schedule.

    The command does not write the tree's own rules or shorten retention. If the settings in the tree have not
    changed since the last apply, it also deletes pins that are no longer required. If the settings have
    changed, run `lakeplan plan` to review what would be deleted.

    \b
    Examples:
      lakeplan pins sync
      lakeplan pins sync --target analytics
      lakeplan pins sync --adopt
    """
    outputs.check_files()
    session = opening.session(tree, runners=runners, cache=cache)
    check_lasting_state(session.tree.state_url, os.environ)  # what is not on record is never deleted
    report = sync_pins(
        session.tree,
        SyncOptions(selection, allowed, adopt),
        Ports(session.reader, session.simulator, session.progress, pins=session.pins()),
        ApplyPorts(session.connection, session.state(), session.progress, tree=session.tree.name),
        this_run(tree, session.tree),
    )
    return outputs.emit(
        report_document(report),
        render_apply,
        RenderContext.of(session.tree),
        code=apply_exit_code(report),
        sort_keys=True,
    )


pins = CommandGroup({"sync": sync})

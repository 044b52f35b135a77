"""``lakeplan drift``: servers against the last applied state and the tree, for scheduled jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lakeplan.cli import options
from lakeplan.cli.console import configure_logging
from lakeplan.cli.costs import with_costs
from lakeplan.cli.git import head_of
from lakeplan.cli.outputs import emit, pair_outputs
from lakeplan.cli.redaction import shown
from lakeplan.cli.who import this_run
from lakeplan.cli.wiring import Session
from lakeplan.errors import ExitCode, UsageError
from lakeplan.output.metrics import drift_metrics
from lakeplan.output.operations import render_drift
from lakeplan.output.text import json_text
from lakeplan.plan.drift import DriftPorts, DriftReport, drift_document, find_drift
from lakeplan.plan.drift_compare import HeadPorts
from lakeplan.plan.drift_rules import DriftClass
from lakeplan.review.run import Run
from lakeplan.review.selection import Selection
from lakeplan.stores.protocols import StateWriter

FORMATS = ("rich", "json", "openmetrics")
ANY = "any"
VANISHING = (
    "HEADs of branches were not recorded for undo: the state is a folder and CI is set, so they would vanish"
    " with the runner; set state.url to an s3:// or Azure blob URL"
)

HELP = """Compare the servers with the last applied rules and with the tree. Asks only with GET.

Where a server deletes branches itself (engine: server) their HEADs are recorded in the state, so that
`lifecycle undo` can bring them back.

Classes: server-edited (the stored rules are not those that were applied), tree-ahead (the tree asks for what
was not applied), patterns-stale (branches came or went since), released (applied once, not managed any more),
unmanaged-new (a repository without an entry, younger than the last apply).

\b
Examples:
  lakeplan drift
  lakeplan drift --fail-on server-edited --fail-on patterns-stale
  lakeplan drift --fail-on any --format openmetrics --out drift.prom
"""

FailOn = Annotated[
    list[str] | None,
    typer.Option("--fail-on", help="Exit 2 when this class (or any) is found. Repeatable.", metavar="CLASS"),
]


def register(app: typer.Typer) -> None:
    @app.command("drift", help=HELP, short_help="Compare the servers with what was applied last.")
    def drift(
        tree: options.TreeDir = Path(),
        target: options.Targets = None,
        owner: options.Owner = None,
        server: options.Server = None,
        fail_on: FailOn = None,
        format: Annotated[options.Formats, options.formats(FORMATS)] = None,
        out: options.Outs = None,
        lakectl_config: options.LakectlConfig = None,
        redact_paths: options.RedactPaths = False,
        no_color: options.NoColor = False,
        no_progress: options.NoProgress = False,
        log_level: options.LogLevel = "warning",
        quiet: options.Quiet = False,
    ) -> int:
        configure_logging(log_level)
        outputs = pair_outputs(format, out, FORMATS, quiet=quiet)
        classes = check_classes(fail_on)
        session = Session.open(tree, lakectl_config=lakectl_config, progress=not (no_progress or quiet))
        if server is not None and server not in session.tree.servers:
            raise UsageError(
                f"the tree has no server {server!r}", hint=f"one of {', '.join(session.tree.servers)}"
            )
        state = session.state()
        report = find_drift(
            session.tree,
            Selection(tuple(target or ()), owner, server),
            DriftPorts(
                session.reader,
                state,
                session.progress,
                heads_ports(session, state, this_run(tree)),
            ),
            as_of=session.as_of,
            tree_commit=head_of(tree),
        )
        document = with_costs(drift_document(report), session.tree, "recorded")
        document = shown(document, redact=redact_paths)
        code = exit_code_of(report, classes)
        emit(
            outputs,
            {"json": lambda: json_text(document), "openmetrics": lambda: drift_metrics(document)},
            lambda console: render_drift(document, console),
            no_color=no_color,
            code=code,
        )
        return code


def heads_ports(session: Session, state: StateWriter, run: Run) -> HeadPorts:
    """Where HEADs are recorded; not into a state folder in CI, where they would vanish with the runner."""
    is_folder = session.tree.state_url.startswith("file://")
    useless = VANISHING if session.environ.get("CI") and is_folder else ""
    return HeadPorts(lambda server: session.branch_readers(server).branches, state, run, useless)


def check_classes(names: Sequence[str] | None) -> frozenset[DriftClass]:
    """The classes of ``--fail-on``; ``any`` is all of them. Raises UsageError."""
    known = {c.value: c for c in DriftClass}
    for name in names or ():
        if name != ANY and name not in known:
            raise UsageError(f"unknown drift class {name!r}", hint=f"one of {', '.join(known)}, {ANY}")
    if ANY in (names or ()):
        return frozenset(DriftClass)
    return frozenset(known[name] for name in names or ())


def exit_code_of(report: DriftReport, fail_on: frozenset[DriftClass]) -> ExitCode:
    """Failures first: drift that could not be looked for must not pass for none."""
    if report.failed:
        every = len(report.failed) == len(report.repositories)
        return ExitCode.ERROR if every else ExitCode.PARTLY_DONE
    return ExitCode.CHANGES_PENDING if report.has(fail_on) else ExitCode.OK

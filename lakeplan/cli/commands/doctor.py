"""``lakeplan doctor``: is everything there that a plan, an apply, a lifecycle run or a sweep needs?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from lakeplan.cli import options
from lakeplan.cli.console import configure_logging
from lakeplan.cli.outputs import emit, pair_outputs
from lakeplan.cli.sweeping import open_store
from lakeplan.cli.who import now_utc
from lakeplan.cli.wiring import Session
from lakeplan.doctor.doctor import Check, DoctorPorts, Result, doctor_document, examine
from lakeplan.doctor.repositories import Purpose
from lakeplan.errors import ConfigError, ExitCode, UsageError
from lakeplan.lakefs.collection import connect_preparer
from lakeplan.output.operations import render_doctor
from lakeplan.output.text import counted, json_text
from lakeplan.review.selection import Selection

FORMATS = ("rich", "json")

HELP = """Check one by one all that a command needs, and say what to do about what is missing.

The tree, credentials and what they are bound to, each server with its version and clock, every permission,
rules that a server stores but should not have, the state store, Java and Spark. It changes no rules: its only
request that is not a GET is a plan's refs dump (not with --read-only), and for an apply, a lifecycle run or a
sweep it writes and deletes a record of its own in the state.

--for lifecycle adds what deleting branches needs; no branch is made or deleted. --for sweep adds the storage
of each repository: two small files of its own below _lakeplan/doctor/ are written, read, copied and deleted,
nothing else is touched; and on one repository the server writes down what is staged, as for every mark. With
--read-only neither is done. Exit 1 when a check failed; warnings are fine.

\b
Examples:
  lakeplan doctor
  lakeplan doctor --for apply --server prod
  lakeplan doctor --for sweep --target analytics
  lakeplan doctor --read-only --no-spark --format json
"""


def register(app: typer.Typer) -> None:
    @app.command("doctor", help=HELP, short_help="Check all that a command needs, one by one.")
    def doctor(
        tree: options.TreeDir = Path(),
        purpose: Annotated[
            str, typer.Option("--for", help="plan, apply, lifecycle or sweep.", metavar="WHAT")
        ] = "plan",
        target: options.Targets = None,
        owner: options.Owner = None,
        server: options.Server = None,
        read_only: Annotated[
            bool, typer.Option("--read-only", help="Only GET requests: no refs dump is tried.")
        ] = False,
        no_spark: Annotated[bool, typer.Option("--no-spark", help="Do not start Spark.")] = False,
        format: Annotated[options.Formats, options.formats(FORMATS)] = None,
        out: options.Outs = None,
        lakectl_config: options.LakectlConfig = None,
        master: options.Master = None,
        spark_conf: options.SparkConf = None,
        spark_home: options.SparkHome = None,
        no_color: options.NoColor = False,
        no_progress: options.NoProgress = False,
        log_level: options.LogLevel = "warning",
        quiet: options.Quiet = False,
    ) -> int:
        configure_logging(log_level)
        outputs = pair_outputs(format, out, FORMATS, quiet=quiet)
        what = _purpose(purpose)
        conf, home = options.parse_spark_conf(spark_conf), options.spark_home(spark_home)

        def spark() -> str:
            # Imported when asked for, as everywhere: it takes a second.
            from lakeplan.simulation.session import SparkOptions, check_spark

            return check_spark(SparkOptions(master=master, conf=conf, home=home))

        checks = []
        try:
            session = Session.open(tree, lakectl_config=lakectl_config, progress=not (no_progress or quiet))
        except ConfigError as error:
            checks.append(_no_tree(error))
        else:
            checks += _examine(
                session,
                Selection(tuple(target or ()), owner, server),
                what,
                None if no_spark else spark,
                read_only,
            )
        document = doctor_document(checks, what)
        emit(
            outputs,
            {"json": lambda: json_text(document)},
            lambda console: render_doctor(document, console),
            no_color=no_color,
        )
        return ExitCode.ERROR if document["summary"]["fail"] else ExitCode.OK


def _purpose(text: str) -> Purpose:
    match text:
        case "plan" | "apply" | "lifecycle" | "sweep":
            return text
        case _:
            raise UsageError(f"unknown --for {text!r}", hint="one of plan, apply, lifecycle, sweep")


def _no_tree(error: ConfigError) -> Check:
    more = f": {error.problems[0]}" if error.problems else ""
    others = f" (and {len(error.problems) - 1:,} more)" if len(error.problems) > 1 else ""
    hint = f"{error.hint or 'lakeplan validate lists every problem'}; nothing else was checked"
    return Check("tree", "valid", Result.FAIL, f"{error.message}{more}{others}", hint)


def _examine(
    session: Session,
    selection: Selection,
    purpose: Purpose,
    spark: Callable[[], str] | None,
    read_only: bool,
) -> Iterator[Check]:
    tree = session.tree
    if selection.server is not None and selection.server not in tree.servers:
        raise UsageError(
            f"the tree has no server {selection.server!r}", hint=f"one of {', '.join(tree.servers)}"
        )
    files, servers = counted(len(tree.files), "file"), counted(len(tree.servers), "server")
    yield Check("tree", "valid", Result.OK, f"{files}, {servers}, {counted(len(tree.entries), 'entry')}")
    yield from examine(
        tree,
        selection,
        DoctorPorts(
            session.connection,
            session.identify,
            session.unbound,
            session.state,
            spark,
            session.progress,
            lambda server: connect_preparer(tree.servers[server], session.credentials(server)),
            lambda server, repository: open_store(
                server, repository, session.environ, approve=session.approve
            ),
        ),
        purpose=purpose,
        now=now_utc,
        read_only=read_only,
        ephemeral=_ephemeral(tree.state_url),
    )


def _ephemeral(state_url: str) -> str:
    """Continuous integration starts from an empty folder every time."""
    if os.environ.get("CI") and state_url.startswith("file://"):
        return (
            "it is a folder of this runner (CI is set) and goes with it: drift and history have nothing then"
        )
    return ""

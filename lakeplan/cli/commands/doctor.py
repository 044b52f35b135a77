"""``lakeplan doctor``: checks everything that a plan, an apply, a branch run or a sweep needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

from lakeplan.cli import options
from lakeplan.cli.options import command, option
from lakeplan.cli.outputs import Outputs
from lakeplan.cli.process import is_lost, now_utc
from lakeplan.cli.sweeping import open_store
from lakeplan.cli.wiring import SelectionOptions, Session, SessionOptions
from lakeplan.doctor.doctor import DoctorPorts, check_channels, doctor_document, examine, in_area
from lakeplan.doctor.repositories import Check, Purpose
from lakeplan.errors import ConfigError, ExitCode
from lakeplan.output.operations import render_doctor
from lakeplan.review.selection import Selection, check_server
from lakeplan.simulation.runners import SPARK, Runners
from lakeplan.values.units import count_of

VANISHING = (
    "this is a CI job (CI is set), and the state is in a local folder, which is lost when the job ends."
    " After that, drift and history have no data"
)


@command(without="redact_paths")
def doctor(
    *,
    tree: options.TreeDir = Path(),
    purpose: Annotated[
        str,
        option("Check what this command needs: plan, apply, branches or sweep.", "WHAT", names=("--for",)),
    ] = "plan",
    selection: SelectionOptions,
    read_only: Annotated[
        bool, option("Send only GET requests, and write nothing to the state or storage.")
    ] = False,
    no_spark: Annotated[bool, option("Do not start Spark.")] = False,
    outputs: Annotated[Outputs, options.documents("doctor")],
    opening: SessionOptions,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    spark_home: options.SparkHome = None,
) -> int:
    """Check that a command has everything it needs, and explain how to fix problems.

    The checks cover the tree, credentials, server versions and clocks, permissions, stored rules, the state,
    Java and Spark. If a check fails, the command exits with code 1. Warnings are not failures.

    No rules are changed. With --for apply, branches or sweep, doctor writes and deletes one record in the
    state. With --for sweep, it also writes, reads, copies and deletes two small files under _lakeplan/doctor/
    in each repository's storage, and asks the server to record the uncommitted objects of one repository.
    With --read-only, it sends only GET requests and writes nothing.

    \b
    Examples:
      lakeplan doctor
      lakeplan doctor --for apply --server prod
      lakeplan doctor --for sweep --target analytics
      lakeplan doctor --read-only --no-spark --format json
    """
    what: Purpose = options.one_of("--for", purpose, get_args(Purpose))
    conf, home = options.parse_spark_conf(spark_conf), options.check_spark_home(spark_home)

    def spark() -> str:
        # Imported only when needed, because the import takes a second.
        from lakeplan.simulation.spark import check_spark

        return check_spark(Runners(SPARK, master, tuple(conf.items()), home))

    checks = []
    try:
        session = opening.session(tree)
    except ConfigError as error:
        checks.append(_no_tree(error))
    else:
        asked = session.tree.runner == SPARK or any((master, conf, home))
        checks += _examine(session, selection, what, None if no_spark else spark, asked, read_only)
    document = doctor_document(checks, what)
    code = ExitCode.ERROR if document["summary"]["fail"] else ExitCode.OK
    return outputs.emit(document, render_doctor, code=code, sort_keys=True)


def _no_tree(error: ConfigError) -> Check:
    more = f": {error.problems[0]}" if error.problems else ""
    others = f" (and {len(error.problems) - 1:,} more)" if len(error.problems) > 1 else ""
    hint = f"{error.hint or 'Run `lakeplan validate` to list every problem.'} Nothing else was checked."
    return Check("valid", "fail", f"{error.message}{more}{others}", hint, "tree")


def _examine(
    session: Session,
    selection: Selection,
    purpose: Purpose,
    spark: Callable[[], str] | None,
    spark_asked: bool,
    read_only: bool,
) -> Iterator[Check]:
    tree = session.tree
    check_server(tree, selection.server)
    files, servers = count_of(len(tree.files), "file"), count_of(len(tree.servers), "server")
    valid = f"{files}, {servers}, {count_of(len(tree.entries), 'entry')}"
    yield Check("valid", "ok", valid, area="tree")
    if tree.notify is not None:
        yield from in_area("notify", check_channels(tree.notify, session.environ))
    yield from examine(
        tree,
        selection,
        DoctorPorts(
            session.connection,
            session.identify,
            session.unbound,
            session.state,
            spark,
            spark_asked,
            session.progress,
            session.preparer,
            partial(open_store, session),
        ),
        purpose=purpose,
        now=now_utc,
        read_only=read_only,
        ephemeral=VANISHING if is_lost(tree.state_url, os.environ) else "",
    )

"""``lakeplan report``: a plan as one HTML page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lakeplan.api import read_plan
from lakeplan.app.report_page import MAX_DETAILED, report_page_document, shown_repositories
from lakeplan.cli import namespaces, options, redaction, report_sources
from lakeplan.cli.console import configure_logging, say, stderr, stdout
from lakeplan.cli.outputs import STANDARD_OUTPUT
from lakeplan.cli.progress import progress_for
from lakeplan.cli.report_curves import Curves, compute_curves
from lakeplan.cli.report_sources import Sources
from lakeplan.cli.wiring import Session
from lakeplan.core.files import write_file
from lakeplan.core.globs import names_repository
from lakeplan.errors import ExitCode, UsageError
from lakeplan.model.plan import Plan, RepositoryPlan
from lakeplan.render.amounts import size
from lakeplan.render.report import render_report

HELP = """Write a plan as one HTML page: impact, timeline, curves, branches, the commit graph with reasons.

The page is a single file that asks no network. From the plan file alone it has what the plan has. With -C
DIR the tree's servers are asked for the history (GET, and a refs dump), or with --namespace a refs dump in
storage is read: that adds the commit graph and the ages of branches. Retention curves are made on request
(--with-curves), or were made by lakeplan curve (--curve).

\b
Examples:
  lakeplan report plan.json --html report.html
  lakeplan report plan.json --html report.html -C .
  lakeplan report plan.json --html report.html --namespace s3://bucket/repo
  lakeplan report plan.json --html report.html -C . --with-curves
  lakeplan report plan.json --html report.html --curve curve.json
"""
EXAMPLE = "lakeplan report plan.json --html report.html"
NO_GRAPH = (
    "commit graphs, and the ages of branches: the plan file has no history; give -C DIR to ask the servers, "
    "or --namespace server/name=URL"
)
ADDS_GRAPHS = "-C DIR or --namespace URL adds them"
NO_CURVE = (
    "retention curves: --with-curves makes them where a history is given, --curve takes one that is made"
)

PlanFile = Annotated[Path | None, typer.Argument(metavar="PLAN", help="A plan file.")]
Html = Annotated[
    Path | None, typer.Option("--html", help="The page; a dash is standard output.", metavar="FILE")
]
Tree = Annotated[
    Path | None,
    typer.Option("-C", "--tree", help="Ask the servers of this tree for the history.", metavar="DIR"),
]
Namespaces = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace", help="Take a repository's history from storage; repeatable.", metavar="[REPO=]URL"
    ),
]
CurveFiles = Annotated[
    list[Path] | None,
    typer.Option("--curve", help="JSON that lakeplan curve wrote; repeatable.", metavar="FILE"),
]


def register(app: typer.Typer) -> None:
    @app.command("report", help=HELP, short_help="Write a plan as one HTML page.")
    def report(
        plan_file: PlanFile = None,
        html: Html = None,
        tree: Tree = None,
        namespace: Namespaces = None,
        curve: CurveFiles = None,
        no_graph: Annotated[
            bool, typer.Option("--no-graph", help="Leave the history out, whatever else is given.")
        ] = False,
        with_curves: Annotated[
            bool, typer.Option("--with-curves", help="Make curves too: reads every range, with Spark.")
        ] = False,
        target: options.Targets = None,
        read_only: Annotated[
            bool, typer.Option("--read-only", help="Only GET requests: no refs dump, no dangling commits.")
        ] = False,
        endpoint_url: namespaces.EndpointUrl = None,
        region: namespaces.Region = None,
        time_zone: namespaces.TimeZone = "UTC",
        lakectl_config: options.LakectlConfig = None,
        runner: options.Runner = None,
        master: options.Master = None,
        spark_conf: options.SparkConf = None,
        spark_home: options.SparkHome = None,
        redact_paths: options.RedactPaths = False,
        no_progress: options.NoProgress = False,
        log_level: options.LogLevel = "warning",
        quiet: options.Quiet = False,
    ) -> int:
        configure_logging(log_level)
        if plan_file is None:
            raise UsageError("give a plan file", hint=EXAMPLE)
        if html is None:
            raise UsageError("say where the page goes: --html is the only format", hint=EXAMPLE)
        plan = read_plan(plan_file)
        targets = _targets(plan, target or (), plan_file)
        shown = shown_repositories(plan, targets)
        urls = report_sources.namespace_urls(namespace or (), shown)
        curves = [report_sources.read_curve(path) for path in curve or ()]
        if with_curves and (no_graph or (tree is None and not urls)):
            raise UsageError(
                "--with-curves needs a history", hint="give -C DIR or --namespace, or --curve FILE"
            )
        runners = options.runners(runner, master, spark_conf, spark_home)
        progress = progress_for(shown=not (no_progress or quiet))
        session = None
        if tree is not None and not no_graph:
            session = Session.open(tree, lakectl_config=lakectl_config, progress=False, runners=runners)
            runners = session.runners
        sources = Sources({} if no_graph else urls, session, endpoint_url, region, time_zone)
        drawn = shown[:MAX_DETAILED]
        histories = report_sources.read_histories(sources, drawn, progress, read_only=read_only)
        made = Curves()
        if with_curves:
            made = compute_curves(plan, drawn, histories.found, sources, runners, progress)
        failed = [*histories.failed, *made.failed]
        missing = [*failed, *made.left_out]
        missing += [NO_GRAPH] if shown and not histories.found and not failed else []
        missing += [] if curves or made.found or made.failed else [NO_CURVE]
        document = report_page_document(
            plan,
            targets=targets,
            histories=histories.found,
            curves=[*curves, *made.found.values()],
            also={**{url: key for key, url in urls.items()}, **made.names},
            missing=missing,
        )
        text = render_report(redaction.shown(document, redact=redact_paths))
        _write(html, text)
        for words in failed:
            say(stderr(), f"warning: {redaction.told(words)}")
        if html != STANDARD_OUTPUT and not quiet:
            graphs = f"{len(document['graphs'])} with a commit graph"
            if shown and tree is None and not urls and not no_graph:
                graphs += f" ({ADDS_GRAPHS})"
            say(stdout(), f"{html}: {size(len(text.encode()))}, {_counted(shown)}, {graphs}")
        return ExitCode.PARTLY_DONE if failed else ExitCode.OK


def _counted(shown: Sequence[RepositoryPlan]) -> str:
    return "1 repository" if len(shown) == 1 else f"{len(shown):,} repositories"


def _targets(plan: Plan, globs: Sequence[str], plan_file: Path) -> list[str]:
    """Keys of the repositories that ``--target`` names. Raises UsageError when it names none."""
    found = [r.key for r in plan.repositories if any(names_repository(g, r.server, r.name) for g in globs)]
    if globs and not found:
        raise UsageError(
            "no repository of the plan matches --target",
            where=str(plan_file),
            hint=f"lakeplan show {plan_file} names them; a glob such as 'team-*' is in quotes",
        )
    return found


def _write(path: Path, text: str) -> None:
    if path == STANDARD_OUTPUT:
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.flush()
        return
    write_file(path, text)

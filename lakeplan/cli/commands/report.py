"""``lakeplan report``: a plan as one HTML page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from lakeplan.app.report_page import MAX_DETAILED, report_page_document, shown_repositories
from lakeplan.cli import namespaces, options, report_sources
from lakeplan.cli.commands.show import read_plan
from lakeplan.cli.console import configure_logging
from lakeplan.cli.outputs import STANDARD_OUTPUT
from lakeplan.cli.progress import progress_for
from lakeplan.cli.report_sources import Histories
from lakeplan.cli.wiring import Session
from lakeplan.errors import ExitCode, LakeplanError, UsageError
from lakeplan.model.plan import Plan, RepositoryPlan
from lakeplan.render.amounts import size
from lakeplan.render.report import render_report

HELP = """Write a plan as one HTML page: impact, timeline, curves, branches, the commit graph with reasons.

The page is a single file that asks no network. From the plan file alone it has what the plan has. With -C
DIR the tree's servers are asked for the history (GET, and a refs dump), or with --namespace a refs dump in
storage is read: that adds the commit graph and the ages of branches. A curve is made by lakeplan curve, and
given with --curve.

Examples:

  lakeplan report plan.json --html report.html

  lakeplan report plan.json --html report.html -C .

  lakeplan report plan.json --html report.html --namespace s3://bucket/repo

  lakeplan curve analytics --horizon 90d --format json --out curve.json

  lakeplan report plan.json --html report.html -C . --curve curve.json
"""
EXAMPLE = "lakeplan report plan.json --html report.html"
NO_GRAPH = (
    "commit graphs, and the ages of branches: the plan file has no history; give -C DIR to ask the servers, "
    "or --namespace server/name=URL"
)
NO_CURVE = (
    "retention curves: make one with lakeplan curve REPO --horizon 90d --format json, give it by --curve"
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
Curves = Annotated[
    list[Path] | None,
    typer.Option("--curve", help="JSON that lakeplan curve wrote; repeatable.", metavar="FILE"),
]


def register(app: typer.Typer) -> None:
    @app.command("report", help=HELP)
    def report(
        plan_file: PlanFile = None,
        html: Html = None,
        tree: Tree = None,
        namespace: Namespaces = None,
        curve: Curves = None,
        no_graph: Annotated[
            bool, typer.Option("--no-graph", help="Leave the history out, whatever else is given.")
        ] = False,
        target: options.Targets = None,
        read_only: Annotated[
            bool, typer.Option("--read-only", help="Only GET requests: no refs dump, no dangling commits.")
        ] = False,
        endpoint_url: namespaces.EndpointUrl = None,
        region: namespaces.Region = None,
        time_zone: namespaces.TimeZone = "UTC",
        lakectl_config: options.LakectlConfig = None,
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
        progress = progress_for(shown=not (no_progress or quiet))
        histories = Histories()
        if tree is not None and not no_graph:
            session = Session.open(tree, lakectl_config=lakectl_config, progress=False)
            live = [r for r in shown[:MAX_DETAILED] if r.key not in urls]
            histories = report_sources.from_servers(session, live, progress, read_only=read_only)
        if urls and not no_graph:
            more = report_sources.from_namespaces(
                *(urls, shown, progress), zone=time_zone, endpoint_url=endpoint_url, region=region
            )
            histories = Histories({**histories.found, **more.found}, [*histories.failed, *more.failed])
        missing = [*histories.failed]
        missing += [NO_GRAPH] if shown and not histories.found and not histories.failed else []
        missing += [] if curves else [NO_CURVE]
        document = report_page_document(
            plan,
            targets=targets,
            histories=histories.found,
            curves=curves,
            also={url: key for key, url in urls.items()},
            missing=missing,
        )
        text = render_report(document)
        _write(html, text)
        for words in histories.failed:
            typer.echo(f"warning: {words}", err=True)
        if html != STANDARD_OUTPUT and not quiet:
            drawn = len(document["graphs"])
            typer.echo(f"{html}: {size(len(text.encode()))}, {_counted(shown)}, {drawn} with a commit graph")
        return ExitCode.PARTLY_DONE if histories.failed else ExitCode.OK


def _counted(shown: Sequence[RepositoryPlan]) -> str:
    return "1 repository" if len(shown) == 1 else f"{len(shown):,} repositories"


def _targets(plan: Plan, globs: Sequence[str], plan_file: Path) -> list[str]:
    """Keys of the repositories that ``--target`` names. Raises LakeplanError when it names none."""
    found = [
        r.key
        for r in plan.repositories
        if any(fnmatchcase(name, g) for g in globs for name in (r.name, r.key))
    ]
    if globs and not found:
        raise LakeplanError(
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
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LakeplanError(
            f"cannot write the page: {error.strerror}",
            where=str(path),
            hint="name a file in a folder that exists",
        ) from None

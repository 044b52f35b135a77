"""``lakeplan curve``: how much goes at how many days of retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from lakeplan.api.rules import read_rules
from lakeplan.cli import caches, completing, namespaces, options, redaction
from lakeplan.cli.caches import inventory_of, inventory_place
from lakeplan.cli.completing import entry_of, looked_up, one_repository
from lakeplan.cli.console import configure_logging
from lakeplan.cli.costs import with_costs
from lakeplan.cli.namespaces import check_storage_namespace, parse_age, parse_zone
from lakeplan.cli.outputs import emit, pair_outputs
from lakeplan.cli.progress import progress_for
from lakeplan.cli.who import now_utc, parse_time
from lakeplan.cli.wiring import Session
from lakeplan.errors import ExitCode, LakeplanError, UsageError
from lakeplan.output.curve_svg import curve_svg
from lakeplan.output.simulate import render_curve
from lakeplan.output.text import json_text
from lakeplan.plan.gather import gather
from lakeplan.retention.curve import MAX_DAYS
from lakeplan.retention.rules import to_us
from lakeplan.review.selection import read_all_refs, read_graph
from lakeplan.simulation.curve_scales import CurveRequest
from lakeplan.simulation.document import Json
from lakeplan.simulation.runners import Runners
from lakeplan.stores.open import open_namespace
from lakeplan.stores.protocols import NamespaceReader
from lakeplan.values.progress import Progress
from lakeplan.values.rules import GcRules

if TYPE_CHECKING:
    from lakeplan.simulation.curve import CurveInput
    from lakeplan.simulation.listings import Inventory


FORMATS = ("rich", "json", "svg")
HELP = """Show what goes at how many days of retention: table, JSON, picture (SVG).

\b
Examples:
  lakeplan curve analytics --horizon 90d
  lakeplan curve analytics --branch main --at 14 --at 28
  lakeplan curve --namespace s3://bucket/repo --rules gc.json --out curve.json
  lakeplan curve analytics --format svg --out curve.svg
"""
DAY_SECONDS = 86_400
TWO_SOURCES = "give REPO for a repository of the tree's server, or --namespace URL with --rules FILE"

Repository = Annotated[
    str | None,
    typer.Argument(
        metavar="[REPO]",
        help="A repository of a server of the tree, name or server/name; or --namespace.",
        autocompletion=completing.repositories,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", help="file:///…, s3://… or https://…blob… with a refs dump.", metavar="URL"),
]
Rules = Annotated[
    Path | None,
    typer.Option("--rules", help="GC rules as JSON; with REPO, instead of the tree's.", metavar="FILE"),
]
At = Annotated[
    list[int] | None,
    typer.Option("--at", help="Days at which the server's own rule is asked; repeatable.", metavar="DAYS"),
]
Branches = Annotated[
    list[str] | None,
    typer.Option("--branch", help="Vary this branch's days; repeatable. Default: every rule.", metavar="ID"),
]
Horizon = Annotated[
    str | None,
    typer.Option("--horizon", help="Also what goes when, if nobody writes; such as 90d.", metavar="DAYS"),
]


def register(app: typer.Typer) -> None:
    @app.command("curve", help=HELP, short_help="Show what goes at how many days of retention.")
    def curve(
        repository: Repository = None,
        namespace: Namespace = None,
        rules: Rules = None,
        at: At = None,
        branch: Branches = None,
        horizon: Horizon = None,
        as_of: options.AsOf = None,
        min_age: namespaces.Age = "24h",
        no_listing: namespaces.NoListing = False,
        inventory: namespaces.Inventory = None,
        max_inventory_age: namespaces.InventoryAge = "8d",
        max_uncommitted_age: namespaces.UncommittedAge = "24h",
        storage_namespace: namespaces.StorageNamespace = None,
        endpoint_url: namespaces.EndpointUrl = None,
        region: namespaces.Region = None,
        time_zone: namespaces.TimeZone = "UTC",
        tree: options.TreeDir = Path(),
        lakectl_config: options.LakectlConfig = None,
        read_only: Annotated[
            bool, typer.Option("--read-only", help="Only GET requests: no refs dump, no dangling commits.")
        ] = False,
        runner: options.Runner = None,
        master: options.Master = None,
        spark_conf: options.SparkConf = None,
        spark_home: options.SparkHome = None,
        cache: caches.Where = None,
        cache_size: caches.Size = caches.DEFAULT_SIZE,
        format: Annotated[options.Formats, options.formats(FORMATS)] = None,
        out: options.Outs = None,
        redact_paths: options.RedactPaths = False,
        no_color: options.NoColor = False,
        no_progress: options.NoProgress = False,
        log_level: options.LogLevel = "warning",
        quiet: options.Quiet = False,
    ) -> int:
        configure_logging(log_level)
        outputs = pair_outputs(format, out, FORMATS, quiet=quiet)
        kept = caches.cache_choice(cache, cache_size)
        runners, shown = options.runners(runner, master, spark_conf, spark_home), not (no_progress or quiet)
        asked = _Asked(_points(at), tuple(branch) if branch else None, _horizon(horizon))
        if (repository is None) == (namespace is None):
            raise UsageError("one source is needed, and no more", hint=TWO_SOURCES)
        place = inventory_place(
            inventory, max_inventory_age, no_listing=no_listing, endpoint_url=endpoint_url, region=region
        )
        session = None
        if namespace is not None:
            if rules is None:
                raise UsageError("--namespace needs --rules FILE", hint=TWO_SOURCES)
            moment = now_utc() if as_of is None else parse_time(as_of)
            request = asked.of(read_rules(rules), moment, parse_zone(time_zone))
            ages = parse_age("--min-age", min_age), parse_age("--max-uncommitted-age", max_uncommitted_age)
            reader = open_namespace(namespace, endpoint_url=endpoint_url, region=region)
            given = _from_namespace(
                request,
                reader,
                ages,
                inventory=place.open(reader.url, moment) if place is not None else None,
                listing=not no_listing,
                storage_namespace=check_storage_namespace(storage_namespace),
            )
        else:
            session = Session.open(
                tree, as_of=as_of, lakectl_config=lakectl_config, progress=shown, runners=runners
            )
            runners = session.runners
            request, given = _from_server(
                session, repository or "", rules, asked, parse_age("--min-age", min_age), read_only=read_only
            )
        document = _run(request, given, runners, kept, progress_for(shown=shown, no_color=no_color))
        if session is not None:
            document = with_costs(document, session.tree)
        document = redaction.shown(document, redact=redact_paths)
        emit(
            outputs,
            {"json": lambda: json_text(document), "svg": lambda: curve_svg(document)},
            lambda console: render_curve(document, console),
            no_color=no_color,
        )
        return ExitCode.OK


@dataclass(frozen=True)
class _Asked:
    """What the command line asks of any source."""

    points: tuple[int, ...]
    branch_ids: tuple[str, ...] | None
    horizon_days: int | None

    def of(self, rules: GcRules, as_of: datetime, zone: tzinfo) -> CurveRequest:
        return CurveRequest(rules, as_of, zone, self.points, self.branch_ids, self.horizon_days)


def _run(
    request: CurveRequest,
    given: CurveInput,
    runners: Runners,
    cache: caches.CacheChoice,
    progress: Progress,
) -> Json:
    from lakeplan.simulation.curve import curve

    return curve(request, given, runners, progress, cache.open(local=runners.is_local))


def _from_namespace(
    request: CurveRequest,
    reader: NamespaceReader,
    ages: tuple[int, int],
    *,
    inventory: Inventory | None,
    listing: bool,
    storage_namespace: str | None,
) -> CurveInput:
    from lakeplan.simulation.curve import of_namespace

    return of_namespace(
        request,
        reader,
        listing=listing,
        min_age_seconds=ages[0],
        max_uncommitted_age_seconds=ages[1],
        storage_namespace=storage_namespace,
        inventory=inventory,
    )


def _from_server(
    session: Session,
    repository: str,
    rules: Path | None,
    asked: _Asked,
    min_age_seconds: int,
    *,
    read_only: bool,
) -> tuple[CurveRequest, CurveInput]:
    """A repository with the rules of ``--rules``, or else those the tree asks for, or else those
    that the server has."""
    from lakeplan.simulation.curve import of_repository

    server, name = one_repository(session.tree, repository)
    reader, config = session.reader(server), session.tree.servers[server]
    found = looked_up(session.tree, reader, server, name)
    chosen = read_rules(rules) if rules is not None else _rules_of(session, server, name)
    if chosen is None:
        raise LakeplanError(
            "neither the tree nor the server has rules for it",
            where=f"{server}/{name}",
            hint="give --rules FILE: without rules a collector cannot run, and there is no curve",
        )
    graph, blind_to = read_graph(reader, name, read_only=read_only)
    request = asked.of(chosen, session.as_of, ZoneInfo(config.time_zone))
    metadata = reader.metadata_reader(name)
    given = of_repository(
        f"{server}/{name}",
        graph,
        metadata,
        found.storage_namespace,
        blind_to,
        inventory=inventory_of(session, server, found.storage_id, found.storage_namespace),
        young_from_us=to_us(session.as_of) - min_age_seconds * 1_000_000,
    )
    return request, given


def _rules_of(session: Session, server: str, name: str) -> GcRules | None:
    """The tree's rules over the branches there are; where it manages none, the server's."""
    reader, desired = session.reader(server), entry_of(session.tree, server, name)
    if desired is None:
        return reader.get_gc_rules(name)
    config = session.tree.servers[server]
    rules_alone = replace(desired, holds=())  # what holds keep is not asked here
    read_refs = partial(read_all_refs, reader, name, read_only=False)
    plan = gather(rules_alone, reader, config, as_of=session.as_of, known=True, read_refs=read_refs).plan
    return plan.after or plan.before


def _points(at: Sequence[int] | None) -> tuple[int, ...]:
    for days in at or ():
        if not 0 <= days <= MAX_DAYS:
            raise UsageError(f"--at {days} is not between 0 and {MAX_DAYS:,} days", hint="--at 28")
    return tuple(sorted(set(at or ())))


def _horizon(text: str | None) -> int | None:
    if text is None:
        return None
    seconds = parse_age("--horizon", text)
    days, rest = divmod(seconds, DAY_SECONDS)
    if rest or not 1 <= days <= MAX_DAYS:
        raise UsageError(f"--horizon {text} is not a number of whole days up to {MAX_DAYS}", hint="90d")
    return days

"""``lakeplan curve``: how many objects would expire at each retention period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

from lakeplan.branches.pin_records import read_stored
from lakeplan.cli import namespaces, options
from lakeplan.cli.options import argument, command, option
from lakeplan.cli.outputs import Outputs, with_costs
from lakeplan.cli.process import moment_of
from lakeplan.cli.wiring import Session, SessionOptions
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.output.simulate import render_curve
from lakeplan.plan.gather import gather
from lakeplan.retention.rules import to_us
from lakeplan.review.selection import find_repository, one_repository, read_all_refs, read_graph
from lakeplan.simulation.inputs import read_rules
from lakeplan.values.rules import MAX_DAYS, GcRules

if TYPE_CHECKING:
    from lakeplan.simulation.curve import CurveInput, CurveRequest


DAY_SECONDS = 86_400
TWO_SOURCES = "Specify a repository in the tree, or use --namespace URL with --rules FILE."


@command()
def curve(
    *,
    repository: Annotated[
        str | None,
        argument(
            "Repository: name or server/name. Cannot be combined with --namespace.",
            "[REPO]",
            autocompletion=options.complete_repositories,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        option(
            "URL of a storage namespace that contains a refs dump: file:///…, s3://… or https://…blob…", "URL"
        ),
    ] = None,
    rules: Annotated[
        Path | None,
        option("JSON file of GC rules. With REPO, the rules in the file replace the tree's rules.", "FILE"),
    ] = None,
    at: Annotated[
        list[int] | None,
        option(
            "Also compute the result for this number of retention days, exactly as the server would."
            " Repeatable.",
            "DAYS",
        ),
    ] = None,
    branch: Annotated[
        list[str] | None,
        option("Vary only the retention of this branch. Repeatable. Default: vary every rule.", "ID"),
    ] = None,
    horizon: Annotated[
        str | None,
        option(
            "Also forecast expirations for this period, for example 90d, assuming no new commits.", "DAYS"
        ),
    ] = None,
    as_of: options.AsOf = None,
    min_age: namespaces.Age = "24h",
    stored: namespaces.NamespaceOptions,
    tree: options.TreeDir = Path(),
    opening: SessionOptions,
    read_only: options.ReadOnly = False,
    runners: options.RunnerOptions,
    cache: namespaces.CacheOptions,
    outputs: Annotated[Outputs, options.documents("curve")],
    progress: options.ProgressOptions,
) -> int:
    """Show how many objects would expire at each retention period.

    \b
    Examples:
      lakeplan curve analytics --horizon 90d
      lakeplan curve analytics --branch main --at 14 --at 28
      lakeplan curve --namespace s3://bucket/repo --rules gc.json --out curve.json
      lakeplan curve analytics --format svg --out curve.svg
    """
    points, days = _points(at), _horizon(horizon)
    if (repository is None) == (namespace is None):
        raise UsageError("specify either a repository or --namespace", hint=TWO_SOURCES)
    inventory = stored.inventory_place()
    # Arrow and numpy take long to import.
    from lakeplan.simulation.curve import CurveRequest
    from lakeplan.simulation.curve import curve as compute_curve

    request_for = partial(
        CurveRequest, points=points, branch_ids=tuple(branch) if branch else None, horizon_days=days
    )
    session = None
    if namespace is not None:
        if rules is None:
            raise UsageError("--namespace requires --rules FILE", hint=TWO_SOURCES)
        request = request_for(read_rules(rules), moment_of(as_of), namespaces.parse_zone(stored.time_zone))
        given = _from_namespace(request, namespace, stored, inventory, min_age)
    else:
        session = opening.session(tree, as_of=as_of, runners=runners)
        runners = session.runners
        age = namespaces.parse_age("--min-age", min_age)
        request, given = _from_server(session, repository or "", rules, request_for, age, read_only=read_only)
    document = compute_curve(request, given, runners, progress, cache.open(local=runners.is_local))
    if session is not None:
        document = with_costs(document, session.tree)
    return outputs.emit(document, render_curve, sort_keys=True)


def _from_namespace(
    request: CurveRequest,
    namespace: str,
    stored: namespaces.NamespaceOptions,
    inventory: namespaces.InventoryPlace | None,
    min_age: str,
) -> CurveInput:
    from lakeplan.simulation.curve import of_namespace

    reader = stored.open(namespace)
    return of_namespace(
        request,
        reader,
        listing=not stored.no_listing,
        min_age_seconds=namespaces.parse_age("--min-age", min_age),
        max_uncommitted_age_seconds=namespaces.parse_age("--max-uncommitted-age", stored.max_uncommitted_age),
        storage_namespace=namespaces.check_storage_namespace(stored.storage_namespace),
        inventory=inventory.open(reader.url, request.as_of) if inventory is not None else None,
    )


def _from_server(
    session: Session,
    repository: str,
    rules: Path | None,
    request_for: Callable[[GcRules, datetime, tzinfo], CurveRequest],
    min_age_seconds: int,
    *,
    read_only: bool,
) -> tuple[CurveRequest, CurveInput]:
    """The request for a repository on a server and what it reads, with the rules of ``--rules``, else of the
    tree, else of the server."""
    from lakeplan.simulation.curve import of_repository

    server, name = one_repository(session.tree, repository)
    reader, config = session.reader(server), session.tree.servers[server]
    stored = find_repository(session.tree, reader, server, name)
    chosen = read_rules(rules) if rules is not None else _rules_of(session, server, name)
    if chosen is None:
        raise LakeplanError(
            "neither the tree nor the server has GC rules for this repository",
            where=f"{server}/{name}",
            hint="Add --rules FILE. Without rules, nothing is collected.",
        )
    graph, blind_to = read_graph(reader, name, read_only=read_only)
    given = of_repository(
        f"{server}/{name}",
        graph,
        reader.metadata_reader(name),
        stored.storage_namespace,
        blind_to,
        inventory=namespaces.inventory_of(session, server, stored.storage_id, stored.storage_namespace),
        young_from_us=to_us(session.as_of) - min_age_seconds * 1_000_000,
    )
    return request_for(chosen, session.as_of, ZoneInfo(config.time_zone)), given


def _rules_of(session: Session, server: str, name: str) -> GcRules | None:
    """The rules that the tree gives the present branches. If the tree manages no rules, the server's."""
    reader, desired = session.reader(server), session.tree.find(server, name)
    if desired is None:
        return reader.get_gc_rules(name)
    config = session.tree.servers[server]
    rules_alone = replace(desired, holds=())  # a curve ignores holds
    read_refs = partial(read_all_refs, reader, name, read_only=False)
    plan = gather(rules_alone, reader, config, as_of=session.as_of, known=True, read_refs=read_refs).plan
    return read_stored(reader, name).with_entries(plan.after or plan.before)


def _points(at: Sequence[int] | None) -> tuple[int, ...]:
    for days in at or ():
        if not 0 <= days <= MAX_DAYS:
            raise UsageError(
                f"--at {days} is not a whole number of days from 0 to {MAX_DAYS:,}",
                hint="Use a whole number, for example --at 28.",
            )
    return tuple(sorted(set(at or ())))


def _horizon(text: str | None) -> int | None:
    if text is None:
        return None
    seconds = namespaces.parse_age("--horizon", text)
    days, rest = divmod(seconds, DAY_SECONDS)
    if rest or not 1 <= days <= MAX_DAYS:
        raise UsageError(
            f"--horizon {text} is not a whole number of days from 1 to {MAX_DAYS:,}",
            hint="Use a number of days, for example 90d.",
        )
    return days

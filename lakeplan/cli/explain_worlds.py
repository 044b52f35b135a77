"""What ``lakeplan explain`` is asked about: a repository of a live server, or a namespace without one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from lakeplan.adapters.storage import open_namespace
from lakeplan.api import read_rules
from lakeplan.app.explain import ExplainedRules, World
from lakeplan.app.explain_staging import BranchStaging, RunStaging
from lakeplan.app.gather import read_graph
from lakeplan.cli.namespaces import parse_zone
from lakeplan.cli.one_repository import entry_of, looked_up
from lakeplan.cli.wiring import Session
from lakeplan.core.patterns import expand
from lakeplan.core.retention import CommitGraph, to_us
from lakeplan.model.desired import Cleared, DesiredRepository
from lakeplan.model.objects import StoredObject
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.addresses import Addresses, known_as
from lakeplan.simulation.inputs import NamespaceMetadata, read_history
from lakeplan.simulation.staged import find_run

DAY = timedelta(hours=24)
NO_RUN = "no run of uncommitted addresses is at hand: what is staged is shown as if it were not"


def live_world(session: Session, server: str, name: str, *, read_only: bool) -> World:
    """The repository with its stored rules, and the tree's where they differ. Raises ServerError, and
    UsageError when nobody knows the repository."""
    reader = session.reader(server)
    repository = looked_up(session.tree, reader, server, name)
    stored = reader.get_gc_rules(name)
    graph, blind_to = read_graph(reader, name, read_only=read_only)
    rule_sets = [ExplainedRules("stored", stored)]
    proposed = proposed_rules(entry_of(session.tree, server, name), graph)
    if proposed is not None and proposed.rules != stored:
        rule_sets.append(proposed)
    book = Addresses((repository.storage_namespace,))
    return World(
        name=f"{server}/{name}",
        graph=graph,
        rule_sets=rule_sets,
        metadata=reader.metadata_reader(name),
        addresses=book,
        staging=BranchStaging(reader, name, tuple(b.id for b in graph.branches), book),
        as_of=session.as_of,
        zone=ZoneInfo(session.tree.servers[server].time_zone),
        young_from_us=to_us(session.as_of - DAY),
        notes=tuple(f"not seen: {one}" for one in blind_to),
    )


def proposed_rules(desired: DesiredRepository | None, graph: CommitGraph) -> ExplainedRules | None:
    """The tree's rules with patterns expanded over the branches, and where each stands; None: not managed."""
    if desired is None or desired.gc is None:
        return None
    if isinstance(desired.gc, Cleared):
        return ExplainedRules("proposed", None)
    expansion = expand(desired.gc, (branch.id for branch in graph.branches))
    sources = {branch: str(rule.source) for branch, rule in expansion.by_branch.items()}
    default = desired.values.get("/gc/default_retention_days", desired.gc.source)
    return ExplainedRules("proposed", expansion.rules, {"": str(default), **sources})


def namespace_world(
    url: str,
    rules: Sequence[Path],
    *,
    as_of: datetime,
    zone: str,
    min_age: timedelta,
    max_run_age: timedelta,
    storage_namespace: str | None,
    endpoint_url: str | None,
    region: str | None,
) -> World:
    """A namespace judged as ``lakeplan simulate`` does. Raises what reading it raises."""
    namespace = open_namespace(url, endpoint_url=endpoint_url, region=region)
    book = known_as(namespace.url, storage_namespace)
    staging = run_staging(namespace, book, as_of, max_run_age)
    return World(
        name=namespace.url,
        graph=read_history(namespace).graph,
        rule_sets=[
            ExplainedRules(name, read_rules(path))
            for name, path in zip(("rules", "compare"), rules, strict=False)
        ],
        metadata=NamespaceMetadata(namespace),
        addresses=book,
        staging=staging,
        as_of=as_of,
        zone=parse_zone(zone),
        young_from_us=to_us(as_of - min_age),
        stored=lambda address: _stored(namespace, address),
        notes=() if staging.run_id is not None else (NO_RUN,),
    )


def run_staging(
    namespace: NamespaceReader, book: Addresses, as_of: datetime, max_age: timedelta
) -> RunStaging:
    """The newest run, with every address that it protects."""
    # pyarrow takes longer to import than a commit takes to explain.
    from lakeplan.formats.uncommitted import read_uncommitted

    run = find_run(namespace, as_of_us=to_us(as_of), max_age_seconds=int(max_age.total_seconds()))
    protected: set[str] = set()
    for key in run.files:
        for address in read_uncommitted(namespace.read(key), name=f"{namespace.url}/{key}").addresses:
            protected.update(book.staged(address))
    return RunStaging(run.run_id, frozenset(protected))


def _stored(namespace: NamespaceReader, address: str) -> StoredObject | None:
    return next((found for found in namespace.list_objects(address) if found.key == address), None)

"""``lakeplan explain``, of a live server or of a namespace without one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

from lakeplan.branches.notices import notes_on, read_spared
from lakeplan.branches.pin_records import with_rules_of
from lakeplan.branches.pins import newest_kept
from lakeplan.cli import namespaces, options
from lakeplan.cli.namespaces import parse_age, parse_zone
from lakeplan.cli.options import argument, command, option
from lakeplan.cli.outputs import Outputs
from lakeplan.cli.process import moment_of
from lakeplan.cli.wiring import Session, SessionOptions
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.explain.documents import RuleSetName
from lakeplan.explain.explain import ExplainedRules, Known, Question, World
from lakeplan.explain.explain import explain as answer
from lakeplan.explain.search import KINDS, BranchStaging, RunStaging
from lakeplan.formats.namespace import Addresses, known_as
from lakeplan.output.explain import render_explain
from lakeplan.plan.planning import is_ours
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.patterns import expand
from lakeplan.retention.rules import to_us
from lakeplan.review.selection import find_repository, one_repository, read_all_refs
from lakeplan.simulation.inputs import NamespaceMetadata, read_history, read_rules
from lakeplan.simulation.listings import StagedRun, find_run
from lakeplan.stores.open import NamespaceReader, SweepStore, open_namespace
from lakeplan.sweep.documents import TraceRow
from lakeplan.values.desired import Cleared, DesiredRepository
from lakeplan.values.pins import has_pin_commit, is_pin_name
from lakeplan.values.repository import Refs, Repository, StoredObject
from lakeplan.values.sweep import HeldCommit

DAY = timedelta(hours=24)
MarkedStore = Callable[[], SweepStore | None]
"""Opens the storage of a repository that has marks. Raises LakeplanError."""
NO_RUN = (
    "no list of uncommitted addresses was found, so lakeplan cannot determine which objects are uncommitted"
)


def live_world(
    session: Session, server: str, name: str, *, read_only: bool, other_repositories: bool = False
) -> World:
    """The repository with its stored rules, and the tree's if they differ. Raises ServerError, and UsageError
    if neither knows the repository."""
    reader = session.reader(server)
    repository = find_repository(session.tree, reader, server, name)
    stored = reader.get_gc_rules(name)
    refs, blind_to = read_all_refs(reader, name, read_only=read_only)
    graph = CommitGraph.from_refs(refs)
    rule_sets = [ExplainedRules("stored", stored)]
    proposed = proposed_rules(session.tree.find(server, name), graph)
    if proposed is not None and proposed.rules is not None and stored is not None:
        entries = {branch: days for branch, days in stored.branches.items() if is_pin_name(branch)}
        proposed = replace(proposed, rules=with_rules_of(proposed.rules, entries))
    if proposed is not None and proposed.rules != stored:
        rule_sets.append(proposed)
    book = Addresses((repository.storage_namespace,))
    zone = ZoneInfo(session.tree.servers[server].time_zone)
    marked = cache(partial(_marked_store, session, server, repository))
    known = known_of(session, server, repository, refs, marked, other_repositories=other_repositories)
    notes = [f"not inspected: {one}" for one in blind_to]
    if (desired := session.tree.find(server, name)) is not None:
        recorded, note = _recorded(marked, desired, session.as_of)
        newest = newest_kept(desired, zone, graph, _pins_of(graph))
        known, notes = replace(known, newest=newest, recorded=recorded), [*notes, *note]
    return World(
        name=f"{server}/{name}",
        graph=graph,
        rule_sets=rule_sets,
        metadata=reader.metadata_reader(name),
        addresses=book,
        staging=BranchStaging(reader, name, tuple(b.id for b in graph.branches), book),
        as_of=session.as_of,
        zone=zone,
        young_from_us=to_us(session.as_of - DAY),
        notes=tuple(notes),
        known=known,
    )


def _pins_of(graph: CommitGraph) -> frozenset[str]:
    return frozenset(b.id for b in graph.branches if has_pin_commit(b.id, b.commit_id))


def proposed_rules(desired: DesiredRepository | None, graph: CommitGraph) -> ExplainedRules | None:
    """The tree's rules with patterns expanded over the branches, and the place of each; None: not managed."""
    if desired is None or desired.gc is None:
        return None
    if isinstance(desired.gc, Cleared):
        return ExplainedRules("proposed", None)
    pins = _pins_of(graph)
    expansion = expand(desired.gc, (b.id for b in graph.branches if b.id not in pins))
    sources = {branch: str(rule.source) for branch, rule in expansion.by_branch.items()}
    default = desired.values.get("/gc/default_retention_days", desired.gc.source)
    return ExplainedRules("proposed", expansion.rules, {"": str(default), **sources})


@dataclass(frozen=True)
class NamespaceOptions:
    """The options for a namespace without its server. They are checked only when it is read."""

    namespace: Annotated[str | None, option("Read a storage namespace instead of a server.", "URL")] = None
    rules: Annotated[Path | None, option("With --namespace: JSON file of GC rules.", "FILE")] = None
    compare_rules: Annotated[
        Path | None, option("With --namespace: JSON file of other GC rules to compare with --rules.", "FILE")
    ] = None
    storage_namespace: namespaces.StorageNamespace = None
    endpoint_url: namespaces.EndpointUrl = None
    region: namespaces.Region = None
    time_zone: Annotated[str, option("With --namespace: time zone of the server.", "ZONE")] = "UTC"
    min_age: Annotated[str, option("With --namespace: keep objects younger than this.", "AGE")] = "24h"
    max_uncommitted_age: namespaces.UncommittedAge = "24h"

    def world(self, url: str, as_of: datetime) -> World:
        """The namespace judged like ``lakeplan simulate``. Raises UsageError without rules, and the errors of
        reading the namespace."""
        if self.rules is None:
            raise UsageError(
                "--namespace requires --rules FILE",
                hint="Add --rules FILE. The file must be in lakectl's format.",
            )
        paths: Mapping[RuleSetName, Path | None] = {"rules": self.rules, "compare": self.compare_rules}
        min_age = timedelta(seconds=parse_age("--min-age", self.min_age))
        max_age = timedelta(seconds=parse_age("--max-uncommitted-age", self.max_uncommitted_age))
        namespace = open_namespace(url, endpoint_url=self.endpoint_url, region=self.region)
        book = known_as(namespace.url, self.storage_namespace)
        run = find_run(namespace, as_of_us=to_us(as_of), max_age_seconds=int(max_age.total_seconds()))
        history, young_from_us = read_history(namespace), to_us(as_of - min_age)
        return World(
            name=namespace.url,
            graph=history.graph,
            rule_sets=[ExplainedRules(name, read_rules(path)) for name, path in paths.items() if path],
            metadata=NamespaceMetadata(namespace),
            addresses=book,
            staging=run_staging(namespace, book, run),
            as_of=as_of,
            zone=parse_zone(self.time_zone),
            young_from_us=young_from_us,
            stored=lambda address: _stored(namespace, address),
            notes=(
                *(() if run.run_id is not None else (NO_RUN,)),
                *history.warnings(young_from_us),
                *run.warnings(young_from_us),
            ),
        )


def run_staging(namespace: NamespaceReader, book: Addresses, run: StagedRun) -> RunStaging:
    """A run, with every address that it protects."""
    # pyarrow takes longer to import than a commit takes to explain.
    from lakeplan.formats.collector import read_uncommitted

    protected: set[str] = set()
    for key in run.files:
        for address in read_uncommitted(namespace.read(key), name=f"{namespace.url}/{key}"):
            protected.update(book.staged(address))
    return RunStaging(run.run_id, frozenset(protected))


def _stored(namespace: NamespaceReader, address: str) -> StoredObject | None:
    return next((stored for stored in namespace.list_objects(address) if stored.key == address), None)


def known_of(
    session: Session,
    server: str,
    repository: Repository,
    refs: Refs,
    marked: MarkedStore,
    *,
    other_repositories: bool,
) -> Known:
    """Return what a tree adds to the facts about a repository. It opens the storage and reads other
    repositories only if the answer needs them."""
    desired = session.tree.find(server, repository.id)
    return Known(
        refs=refs,
        holds=() if desired is None else desired.holds,
        protected_tags=() if desired is None else desired.kept_tags,
        min_age_seconds=None if desired is None else desired.sweep.min_age_seconds,
        marks=partial(_marks, marked, session, f"{server}/{repository.id}"),
        others=partial(_others, session, server, repository) if other_repositories else None,
    )


def _marks(
    marked: MarkedStore, session: Session, key: str, addresses: Collection[str]
) -> tuple[Mapping[str, Sequence[TraceRow]], Sequence[str]]:
    try:
        if (store := marked()) is None:
            return {}, ()
        from lakeplan.sweep.contents import trace

        return trace(store, session.state(), key, addresses)
    except LakeplanError as error:
        return {}, (f"the repository's marks could not be searched: {error}",)


def _recorded(
    marked: MarkedStore, desired: DesiredRepository, as_of: datetime
) -> tuple[Sequence[HeldCommit], Sequence[str]]:
    """What holds kept at earlier marks, with notes."""
    try:
        if (store := marked()) is None:
            return (), ()
        from lakeplan.sweep.hold_records import recorded_holds

        return recorded_holds(store, desired.holds, as_of), ()
    except LakeplanError as error:
        return (), (f"the records of holds could not be read, so more data may be kept: {error}",)


def _marked_store(session: Session, server: str, repository: Repository) -> SweepStore | None:
    """The storage of a repository that has marks. Raises LakeplanError."""
    state = session.state()
    if not state.list_keys("sweep/marks/"):
        return None
    # Parts are Parquet, which takes long to import, so it is imported only if there are marks.
    from lakeplan.cli.sweeping import open_store
    from lakeplan.sweep.contents import has_marks

    if not has_marks(state, f"{server}/{repository.id}"):
        return None
    return open_store(session, session.tree.servers[server], repository)


def _others(
    session: Session, server: str, repository: Repository, addresses: Collection[str]
) -> tuple[Mapping[str, Sequence[str]], Sequence[str]]:
    """Other repositories on the server whose entries refer to these addresses."""
    from lakeplan.formats.range_arrays import unpack_odd
    from lakeplan.simulation.foreign import ForeignReader
    from lakeplan.simulation.requests import ForeignRanges
    from lakeplan.sweep.ports import RefsMemory

    reader, memory, notes = session.reader(server), RefsMemory(), []
    foreign = []
    for other in reader.list_repositories():
        if other.id == repository.id:
            continue
        try:
            metaranges = memory.metaranges(server, reader, other)
            metadata = memory.metadata(server, reader, other)
        except LakeplanError as error:
            notes.append(f"repository {other.id} could not be searched: {error.message}")
            continue
        foreign.append(ForeignRanges(f"{server}/{other.id}", metadata, metaranges))
    book, wanted = Addresses((repository.storage_namespace,)), set(addresses)
    names_of: dict[str, set[str]] = {}
    for one in ForeignReader(session.runners.open, session.progress, None).entries(foreign):
        for text, kind in unpack_odd(one.packed):
            inside, may_mean = book.foreign(text, kind)
            for address in wanted.intersection({*may_mean, *([inside] if inside is not None else ())}):
                names_of.setdefault(address, set()).update(one.repositories)
    return {address: sorted(names) for address, names in names_of.items()}, notes


@command()
def explain(
    *,
    words: Annotated[
        list[str],
        argument(
            "Repository, and the data to explain.",
            "[REPO] WHAT",
            autocompletion=options.complete_repositories,
        ),
    ],
    tree: options.TreeDir = Path(),
    ref: Annotated[str | None, option("Branch, tag or commit in which to look up the path.", "REF")] = None,
    kind: Annotated[
        str | None,
        option("How to interpret WHAT if it is ambiguous: path, commit, branch or address.", "KIND"),
    ] = None,
    path_only: Annotated[bool, option("Do not search for the same object under other paths.")] = False,
    stored: Annotated[NamespaceOptions, options.Options(NamespaceOptions)],
    other_repositories: Annotated[
        bool, option("Also search all other repositories on the server for addresses of the object.")
    ] = False,
    as_of: options.AsOf = None,
    read_only: options.ReadOnly = False,
    opening: SessionOptions,
    outputs: Annotated[Outputs, options.documents("explain")],
    progress: options.ProgressOptions,
) -> int:
    """Explain why data is kept or deleted: which branch, rule and date decide, and what would change the
    result.

    WHAT is a path (alone or as REF:PATH), a commit id or at least its first six digits, a branch, a tag, or a
    physical address.

    \b
    Examples:
      lakeplan explain analytics main:raw/2026/01.csv
      lakeplan explain analytics 3f9a61c2
      lakeplan explain --namespace s3://bucket/repo --rules rules.json raw/a.csv
    """
    repository, what = _words(words, offline=stored.namespace is not None)
    question = Question(what, ref, None if kind is None else options.one_of("--kind", kind, KINDS), path_only)
    world: World
    if other_repositories and (stored.namespace is not None or read_only):
        raise UsageError(
            "--other-repositories cannot be combined with --namespace or --read-only, because it needs a"
            " server and the refs dumps of its repositories",
            hint="Run without --namespace and --read-only, or without --other-repositories.",
        )
    if stored.namespace is not None:
        world = stored.world(stored.namespace, moment_of(as_of))
    else:
        if stored.rules is not None or stored.compare_rules is not None:
            raise UsageError(
                "--rules requires --namespace",
                hint="Add --namespace URL, or remove --rules to use the rules on the server.",
            )
        session = opening.session(tree, as_of=as_of)
        server, name = one_repository(session.tree, repository)
        world = live_world(session, server, name, read_only=read_only, other_repositories=other_repositories)
        world = _with_branch_notes(world, session, server, name, {what, what.partition(":")[0], ref})
    return outputs.emit(answer(world, question, progress), render_explain, sort_keys=True)


def _with_branch_notes(
    world: World, session: Session, server: str, name: str, named: Collection[str | None]
) -> World:
    """Add the exemptions and notices of the branches in the question, where lakeplan deletes branches."""
    branches = [branch for branch in world.graph.branches if branch.id in named]
    desired = session.tree.find(server, name) if branches else None
    if desired is None or not is_ours(desired, session.tree.servers[server]):
        return world
    try:
        spared = read_spared(session.state(), desired.key)
    except LakeplanError as error:
        text = f"the exemptions and notices of branches could not be read: {error.message}"
        return replace(world, notes=(*world.notes, text))
    notes = [
        note for branch in branches for note in notes_on(spared, branch.id, branch.commit_id, session.as_of)
    ]
    return replace(world, notes=(*world.notes, *notes))


def _words(words: list[str], *, offline: bool) -> tuple[str, str]:
    """Split the arguments into repository and subject. With a namespace there is no repository to name."""
    wanted = 1 if offline else 2
    if len(words) != wanted:
        raise UsageError(
            "--namespace already identifies the repository, so WHAT must be the only argument"
            if offline
            else "a repository and WHAT are required",
            hint="Run `lakeplan explain --namespace URL --rules FILE WHAT`."
            if offline
            else "For example, run `lakeplan explain analytics main:raw/a.csv`.",
        )
    return ("", words[0]) if offline else (words[0], words[1])

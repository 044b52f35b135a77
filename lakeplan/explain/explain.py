"""``lakeplan explain``: what is asked about, who holds it, and what every rule set means for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo

from lakeplan.errors import LakeplanError
from lakeplan.explain.documents import (
    BranchSubject,
    CommitSubject,
    ExplainDocument,
    Explained,
    ObjectFacts,
    ObjectSubject,
    RuleSetName,
    Subject,
    branch_document,
    commit_document,
    iso,
    object_document,
    text_of,
)
from lakeplan.explain.protections import Known, Protections
from lakeplan.explain.rules import Judge, explain_branch, judges
from lakeplan.explain.search import AddressBook, Holding, Kind, Search, Staged, Staging, What, read_what
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import to_us
from lakeplan.values.objects import AddressType, StoredObject
from lakeplan.values.progress import Progress
from lakeplan.values.rules import GcRules

SUBJECTS_SHOWN = 20
PATH_ONLY = "other paths were not searched: the same data may be held under another one (a copy), and kept"

MAYBE_INSIDE = (
    "an address may lie in this namespace, whose own URL is not known: give it with --storage-namespace"
)


@dataclass(frozen=True)
class ExplainedRules:
    """``sources``: where the days of a branch ("" for the default) stand in the tree."""

    name: RuleSetName
    rules: GcRules | None
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """One repository, live or as a namespace. ``stored`` looks an address up in storage (None: it is not, or
    the storage cannot be listed); absent where only the API is at hand. ``young_from_us``: what is stored at
    or after this is too young to be collected."""

    name: str
    graph: CommitGraph
    rule_sets: Sequence[ExplainedRules]
    metadata: MetadataReader
    addresses: AddressBook
    staging: Staging
    as_of: datetime
    zone: tzinfo
    young_from_us: int
    stored: Callable[[str], StoredObject | None] | None = None
    notes: tuple[str, ...] = ()
    known: Known = field(default_factory=Known)


@dataclass(frozen=True)
class Question:
    text: str
    ref: str | None = None
    kind: Kind | None = None
    path_only: bool = False


def explain(world: World, question: Question, progress: Progress) -> ExplainDocument:
    """The document of ``schemas/explain.v1.json``.

    Raises UsageError when WHAT names nothing, LakeplanError when nothing is found there, and what reading
    the metadata raises.
    """
    what = read_what(question.text, world.graph, ref=question.ref, kind=question.kind)
    judged = judges(world.graph, [(r.name, r.rules) for r in world.rule_sets], world.as_of, world.zone)
    search = Search(world.name, world.graph, world.metadata, world.addresses, progress)
    notes = list(world.notes)
    subjects: Sequence[Subject]
    total = 1
    match what.kind:
        case "commit":
            subjects = [_commit(world, judged, what)]
        case "branch":
            subjects = [_branch(world, judged, what)]
        case "path":
            found = objects_at(world, judged, search, what, path_only=question.path_only)
            total = len(found.holdings)
            shown = replace(found, holdings=found.holdings[:SUBJECTS_SHOWN])
            subjects = shown.documents(world, judged, search)
            notes += shown.notes
        case "address":
            found = objects_by_address(world, judged, search, [what.text])
            if not _is_known(world, found.holdings[0], found.staged) and not _is_marked(world, what.text):
                raise LakeplanError(
                    f"the address {what.text!r} is unknown",
                    where=world.name,
                    hint="Check the address. It is not committed, not uncommitted and not stored.",
                )
            subjects = found.documents(world, judged, search)
            notes += found.notes
    if any(subject["kind"] == "object" and subject["maybe_inside"] for subject in subjects):
        notes.append(MAYBE_INSIDE)
    read = search.read
    return {
        "format": "lakeplan.explain/v1",
        "name": world.name,
        "as_of": iso(to_us(world.as_of)),
        "what": {
            "kind": what.kind,
            "text": text_of(what.text),
            "ref": what.ref,
            "ref_commit": what.ref_commit,
        },
        "rule_sets": [
            {"name": r.name, "rules": None if r.rules is None else r.rules.to_body()} for r in world.rule_sets
        ],
        "subjects": subjects,
        "subject_count": total,
        "read": {"metaranges": read.metaranges, "ranges": read.ranges, "entries": read.entries},
        "notes": list(dict.fromkeys(notes)),
    }


def explain_addresses(world: World, addresses: Sequence[str], progress: Progress) -> list[ObjectSubject]:
    """The subjects of many addresses, each as ``explain`` shows it, with every range read once: a reason for
    every object of a report."""
    judged = judges(world.graph, [(r.name, r.rules) for r in world.rule_sets], world.as_of, world.zone)
    search = Search(world.name, world.graph, world.metadata, world.addresses, progress)
    return objects_by_address(world, judged, search, addresses).documents(world, judged, search)


@dataclass(frozen=True)
class Traced:
    """Objects, the newest first, and what is uncommitted of them."""

    holdings: list[Holding]
    staged: Staged
    notes: list[str] = field(default_factory=list)

    def documents(self, world: World, judged: Sequence[Judge], search: Search) -> list[ObjectSubject]:
        """Adds notes about what could not be read."""
        addresses = [holding.address for holding in self.holdings if holding.inside]
        marks, others = world.known.marks, world.known.others
        of_marks, mark_notes = marks(addresses) if marks is not None and addresses else ({}, ())
        of_others, other_notes = others(addresses) if others is not None and addresses else ({}, ())
        self.notes.extend((*mark_notes, *other_notes))
        protections = Protections(world.graph, world.known, world.as_of)
        found = []
        for holding in self.holdings:
            facts = _facts(world, search, holding, self.staged)
            named = of_others.get(holding.address, ())
            rows = protections.rows(facts.commits, holding.paths, named)
            facts = replace(facts, protected_by=rows, marks=of_marks.get(holding.address, ()))
            explained = [_explained(world, judge, facts.commits) for judge in judged]
            found.append(object_document(world.graph, facts, explained))
        return found


def objects_at(
    world: World, judged: Sequence[Judge], search: Search, what: What, *, path_only: bool
) -> Traced:
    """The objects at a path: of one ref, or of all commits; staged ones too."""
    graph, path = world.graph, what.text
    everywhere = search.path(path, search.metaranges)
    branch = what.ref if what.ref in {b.id for b in graph.branches} else None
    staged = Staged()
    if what.ref is None or branch is not None:
        staged = world.staging.find([h.address for h in everywhere], [path], branch)
    wanted = everywhere
    if what.ref_commit is not None:
        at_ref = graph.meta_range_ids[graph.index[what.ref_commit]]
        wanted = [h for h in everywhere if at_ref in h.metaranges]
    known = {h.address: h for h in everywhere}
    for address in staged.paths:
        if address not in {h.address for h in wanted}:
            new = known.get(address) or Holding(address)
            new.paths.add(path)
            wanted = [*wanted, new]
    if not wanted:
        raise _nothing_at(what, everywhere)
    notes: list[str] = []
    # What is only staged here is kept by that: its whole repository need not be read to say so.
    only_staged = {h.address for h in wanted if h.address in staged.holders and not h.metaranges}
    unsure = [h for h in wanted if h.address not in only_staged and not _sure(judged, search, h)]
    if unsure and path_only:
        notes.append(PATH_ONLY)
    elif unsure:
        kept = {graph.meta_range_ids[n] for n in range(len(graph)) if any(judge.keeps(n) for judge in judged)}
        search.fill(unsure, sorted(kept - {""}))
        staged = _more_staged(world, staged, unsure)
    order = sorted(wanted, key=lambda h: _newest(graph, search, h), reverse=True)
    return Traced(order, staged, [*notes, *(_staged_notes(staged) if unsure else ())])


def objects_by_address(
    world: World, judged: Sequence[Judge], search: Search, addresses: Sequence[str]
) -> Traced:
    """Objects by address (relative, or a full URL): all ranges of all commits are read."""
    holdings = [search.holding(address, AddressType.BY_PREFIX) for address in addresses]
    search.fill(holdings, search.metaranges)
    unsure = [h for h in holdings if not _sure(judged, search, h)]
    paths = sorted({path for h in unsure for path in h.paths})
    staged = Staged()
    if unsure:
        # Of what no commit holds no path is known: then every staged object is inspected.
        unknown = any(not h.paths for h in unsure)
        staged = world.staging.find([h.address for h in unsure], [] if unknown else paths, None)
    return Traced(holdings, staged, _staged_notes(staged))


def _is_known(world: World, holding: Holding, staged: Staged) -> bool:
    """Whether anything at all speaks of an address. Without storage at hand an address below ``data/`` that
    no commit holds may still be stored."""
    if holding.metaranges or holding.aliases or holding.address in staged.holders:
        return True
    if world.stored is None:
        return not staged.complete or holding.address.startswith("data/")
    return world.stored(holding.address) is not None


def _is_marked(world: World, address: str) -> bool:
    """Whether a mark names an address that nothing else speaks of any more."""
    return world.known.marks is not None and bool(world.known.marks([address])[0].get(address))


def _sure(judged: Sequence[Judge], search: Search, holding: Holding) -> bool:
    holders = search.commits_of(holding.metaranges | holding.aliases)
    return all(judge.surely_keeps(holders) for judge in judged)


def _more_staged(world: World, staged: Staged, holdings: Sequence[Holding]) -> Staged:
    """What is not kept may still be staged at another path that held it."""
    paths = sorted({path for holding in holdings for path in holding.paths})
    more = world.staging.find([h.address for h in holdings], paths, None)
    return Staged({**more.holders, **staged.holders}, staged.paths, more.looked, more.complete)


def _staged_notes(staged: Staged) -> list[str]:
    if staged.complete or not staged.looked:
        return []
    return [f"staged data only protects more; looked at: {staged.looked}"]


def _newest(graph: CommitGraph, search: Search, holding: Holding) -> tuple[bool, int, str]:
    dates = [graph.creation_us[n] for n in search.commits_of(holding.metaranges | holding.aliases)]
    return (not dates, max(dates, default=0), holding.address)


def _nothing_at(what: What, everywhere: Sequence[Holding]) -> LakeplanError:
    if what.ref is None:
        address = "If this is an address, add --kind address. " if what.text.startswith("data/") else ""
        return LakeplanError(
            f"the path {what.text!r} is in no commit and not among uncommitted changes",
            hint=f"{address}Check the spelling. WHAT may also be a branch, or a commit id (6 digits or"
            " more).",
        )
    hint = "Check its spelling."
    if everywhere:
        hint = f"Other commits hold it: leave out the ref, and give {what.text}."
    return LakeplanError(f"there is no object {what.text!r} at {what.ref}", hint=hint)


def _facts(world: World, search: Search, holding: Holding, staged: Staged) -> ObjectFacts:
    stored = world.stored(holding.address) if world.stored is not None and holding.inside else None
    return ObjectFacts(
        holding=holding,
        commits=search.commits_of(holding.metaranges | holding.aliases),
        staged=staged.holders.get(holding.address, ()),
        staged_complete=staged.complete,
        storage_seen=world.stored is not None,
        stored=stored,
        young=stored is not None and stored.modified_us >= world.young_from_us,
        min_age_seconds=world.known.min_age_seconds,
    )


def _commit(world: World, judged: Sequence[Judge], what: What) -> CommitSubject:
    number = world.graph.number_of(what.text)
    explained = [_explained(world, j, [number]) for j in judged]
    rows = Protections(world.graph, world.known, world.as_of).rows([number], ())
    return commit_document(world.graph, number, what.via, explained, rows)


def _branch(world: World, judged: Sequence[Judge], what: What) -> BranchSubject:
    graph = world.graph
    head = next(b.commit_id for b in graph.branches if b.id == what.text)
    kept = [
        (explain_branch(judge, what.text), _source(rules, what.text))
        for judge, rules in zip(judged, world.rule_sets, strict=True)
    ]
    return branch_document(graph, what.text, graph.index[head], world.as_of, world.zone, kept)


def _explained(world: World, judge: Judge, holders: Sequence[int]) -> Explained:
    sources = next(r.sources for r in world.rule_sets if r.name == judge.name)
    return judge.explain(holders), sources


def _source(rules: ExplainedRules, branch: str) -> str | None:
    own = rules.rules is not None and branch in rules.rules.branches
    return rules.sources.get(branch if own else "")

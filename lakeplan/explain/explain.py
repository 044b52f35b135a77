"""``lakeplan explain``: finds the subject of a question, the commits that hold it, and the verdict of each
rule set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from functools import cached_property

from lakeplan.errors import LakeplanError
from lakeplan.explain import documents, search
from lakeplan.explain.rules import Explanation, Judge, iso
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import active_holds, commits_named, reachable
from lakeplan.retention.patterns import matches
from lakeplan.retention.rules import to_us
from lakeplan.sweep.documents import TraceRow
from lakeplan.values.pins import has_pin_commit
from lakeplan.values.progress import Progress
from lakeplan.values.repository import AddressType, Refs, StoredObject, Tag
from lakeplan.values.rules import GcRules
from lakeplan.values.sweep import HeldCommit, Hold

SUBJECTS_SHOWN = 20
NAMED = 10
RECORDED = "recorded by an earlier mark"
PATH_ONLY = "other paths were not searched, so the same data may be kept under another path (a copy)"

MAYBE_INSIDE = (
    "an address may be in this namespace, but the URL of the namespace is unknown; set it with"
    " --storage-namespace"
)


@dataclass(frozen=True)
class ExplainedRules:
    """A rule set. ``sources`` says where the tree sets the days of a branch ("" for the default)."""

    name: documents.RuleSetName
    rules: GcRules | None
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Known:
    """Facts from a tree and a storage, in addition to the rules. ``marks`` returns the marks that name
    addresses, with notes. ``others`` returns the repositories with full addresses of these objects, with
    notes. ``newest`` has the numbers of the commits that ``min_commits`` and ``keep`` select, by branch.
    ``recorded`` is what holds kept at earlier marks."""

    refs: Refs | None = None
    holds: tuple[Hold, ...] = ()
    protected_tags: tuple[str, ...] = ()
    min_age_seconds: int | None = None
    newest: Mapping[str, frozenset[int]] = field(default_factory=dict)
    recorded: Sequence[HeldCommit] = ()
    marks: Callable[[Collection[str]], tuple[Mapping[str, Sequence[TraceRow]], Sequence[str]]] | None = None
    others: Callable[[Collection[str]], tuple[Mapping[str, Sequence[str]], Sequence[str]]] | None = None


@dataclass(frozen=True)
class World:
    """One repository, on a server or as a namespace. ``stored`` returns the object at an address, or None. It
    is itself None if only the API is available. Objects that were stored at or after ``young_from_us`` are
    too young to be collected."""

    name: str
    graph: CommitGraph
    rule_sets: Sequence[ExplainedRules]
    metadata: MetadataReader
    addresses: search.AddressBook
    staging: search.Staging
    as_of: datetime
    zone: tzinfo
    young_from_us: int
    stored: Callable[[str], StoredObject | None] | None = None
    notes: tuple[str, ...] = ()
    known: Known = field(default_factory=Known)

    @cached_property
    def judges(self) -> tuple[Judge, ...]:
        """Return a judge for each rule set, in order. All questions share them."""
        return tuple(
            Judge(self.graph, r.name, r.rules, self.as_of, self.zone, r.sources) for r in self.rule_sets
        )


@dataclass(frozen=True)
class Question:
    text: str
    ref: str | None = None
    kind: search.Kind | None = None
    path_only: bool = False


def explain(world: World, question: Question, progress: Progress) -> documents.ExplainDocument:
    """The document of ``schemas/explain.v1.json``.

    Raises UsageError if WHAT names nothing, LakeplanError if there is no such object, and the errors of
    reading metadata.
    """
    subject = search.read_subject(question.text, world.graph, ref=question.ref, kind=question.kind)
    inquiry = Inquiry(world, progress)
    notes = list(world.notes)
    subjects: Sequence[documents.SubjectRow]
    total = 1
    match subject.kind:
        case "commit":
            subjects = [inquiry.commit(subject)]
        case "branch":
            subjects = [inquiry.branch(subject)]
        case "path":
            traced = inquiry.at_path(subject, path_only=question.path_only)
            total = len(traced.holdings)
            subjects, more = inquiry.subjects(replace(traced, holdings=traced.holdings[:SUBJECTS_SHOWN]))
            notes += more
        case "address":
            traced = inquiry.at_addresses([subject.text])
            if not _is_known(world, traced.holdings[0], traced.staged) and not _is_marked(
                world, subject.text
            ):
                raise LakeplanError(
                    f"the address {subject.text!r} is unknown",
                    where=world.name,
                    hint="Check the address. No commit, uncommitted change or stored object has it.",
                )
            subjects, more = inquiry.subjects(traced)
            notes += more
    if any(subject["kind"] == "object" and subject["maybe_inside"] for subject in subjects):
        notes.append(MAYBE_INSIDE)
    read = inquiry.search.read
    return {
        "format": "lakeplan.explain/v1",
        "name": world.name,
        "as_of": iso(to_us(world.as_of)),
        "what": {
            "kind": subject.kind,
            "text": documents.text_of(subject.text),
            "ref": subject.ref,
            "ref_commit": subject.ref_commit,
        },
        "rule_sets": [
            {"name": r.name, "rules": None if r.rules is None else r.rules.to_body()} for r in world.rule_sets
        ],
        "subjects": subjects,
        "subject_count": total,
        "read": {"metaranges": read["metaranges"], "ranges": read["ranges"], "entries": read["entries"]},
        "notes": list(dict.fromkeys(notes)),
    }


@dataclass(frozen=True)
class _Traced:
    """Objects, newest first, and which of them are uncommitted."""

    holdings: list[search.Holding]
    staged: search.Staged
    notes: Sequence[str] = ()


class Inquiry:
    """Answers one question about a world, with one search through the history."""

    def __init__(self, world: World, progress: Progress) -> None:
        self.world = world
        self.search = search.Search(world.name, world.graph, world.metadata, world.addresses, progress)
        self._protections = _Protections(world)

    def commit(self, subject: search.Subject) -> documents.CommitSubject:
        graph = self.world.graph
        number = graph.number_of(subject.text)
        rows = self._protections.rows([number], ())
        return documents.commit_document(graph, number, subject.via, self._explained([number]), rows)

    def branch(self, subject: search.Subject) -> documents.BranchSubject:
        return documents.branch_document(self.world.graph, subject.text, self.world.judges)

    def at_path(self, subject: search.Subject, *, path_only: bool) -> _Traced:
        """Return the objects at a path, of one ref or of all commits, including uncommitted ones."""
        world, graph, path = self.world, self.world.graph, subject.text
        everywhere = self.search.path(path, self.search.metaranges)
        branch = subject.ref if subject.ref in {b.id for b in graph.branches} else None
        staged = search.Staged()
        if subject.ref is None or branch is not None:
            staged = world.staging.find([h.address for h in everywhere], [path], branch)
        wanted = everywhere
        if subject.ref_commit is not None:
            at_ref = graph.meta_range_ids[graph.index[subject.ref_commit]]
            wanted = [h for h in everywhere if at_ref in h.metaranges]
        known = {h.address: h for h in everywhere}
        for address in staged.paths:
            if address not in {h.address for h in wanted}:
                new = known.get(address) or search.Holding(address)
                new.paths.add(path)
                wanted = [*wanted, new]
        if not wanted:
            raise _nothing_at(subject, everywhere, graph)
        # An uncommitted change keeps an object that is only staged, so the repository need not be read.
        only_staged = {h.address for h in wanted if h.address in staged.holders and not h.metaranges}
        unsure = [h for h in wanted if h.address not in only_staged and not self._is_sure(h)]
        if unsure and not path_only:
            protected = self._protections.commits()
            kept = {
                id
                for n, id in enumerate(graph.meta_range_ids)
                if graph.ids[n] in protected or any(j.keeps(n) for j in self.world.judges)
            }
            self.search.fill(unsure, sorted(kept - {""}))
            staged = _more_staged(world, staged, unsure)
        notes = [PATH_ONLY] if unsure and path_only else []
        order = sorted(wanted, key=self._newest, reverse=True)
        return _Traced(order, staged, [*notes, *(_staged_notes(staged) if unsure else ())])

    def at_addresses(self, addresses: Sequence[str]) -> _Traced:
        """Return the objects at addresses, which are relative or full URLs. Reads all ranges of all
        commits."""
        holdings = [self.search.holding(address, AddressType.BY_PREFIX) for address in addresses]
        self.search.fill(holdings, self.search.metaranges)
        unsure = [h for h in holdings if not self._is_sure(h)]
        staged = search.Staged()
        if unsure:
            # It may be uncommitted at another path, so every uncommitted object is inspected.
            staged = self.world.staging.find([h.address for h in unsure], [], None)
            if not staged.complete and any(h.paths for h in unsure):
                staged = _more_staged(self.world, staged, unsure)
        return _Traced(holdings, staged, _staged_notes(staged))

    def subjects(self, traced: _Traced) -> tuple[list[documents.ObjectSubject], list[str]]:
        """Return the subjects of the objects, and notes about what could not be read."""
        world, known = self.world, self.world.known
        addresses = [holding.address for holding in traced.holdings if holding.inside]
        of_marks, mark_notes = known.marks(addresses) if known.marks and addresses else ({}, ())
        of_others, other_notes = known.others(addresses) if known.others and addresses else ({}, ())
        subjects = []
        for holding in traced.holdings:
            address = holding.address
            commits = self.search.commits_of(holding)
            stored = world.stored(address) if world.stored is not None and holding.inside else None
            facts = documents.ObjectFacts(
                holding=holding,
                commits=commits,
                staged=traced.staged.holders.get(address, ()),
                staged_complete=traced.staged.complete,
                storage_seen=world.stored is not None,
                stored=stored,
                young=stored is not None and stored.modified_us >= world.young_from_us,
                min_age_seconds=known.min_age_seconds,
                protected_by=self._protections.rows(commits, holding.paths, of_others.get(address, ())),
                marks=of_marks.get(address, ()),
            )
            subjects.append(documents.object_document(world.graph, facts, self._explained(commits)))
        return subjects, [*traced.notes, *mark_notes, *other_notes]

    def _explained(self, holders: Sequence[int]) -> list[Explanation]:
        return [judge.explain(holders) for judge in self.world.judges]

    def _is_sure(self, holding: search.Holding) -> bool:
        holders = self.search.commits_of(holding)
        return all(judge.surely_keeps(holders) for judge in self.world.judges)

    def _newest(self, holding: search.Holding) -> tuple[bool, int, str]:
        dates = [self.world.graph.creation_us[n] for n in self.search.commits_of(holding)]
        return (not dates, max(dates, default=0), holding.address)


def _is_known(world: World, holding: search.Holding, staged: search.Staged) -> bool:
    """Return whether an address is committed, uncommitted or stored. Without storage, an address below
    ``data/`` may be stored."""
    if holding.metaranges or holding.aliases or holding.address in staged.holders:
        return True
    if world.stored is None:
        return not staged.complete or holding.address.startswith("data/")
    return world.stored(holding.address) is not None


def _is_marked(world: World, address: str) -> bool:
    """Return whether a mark names an address."""
    return world.known.marks is not None and bool(world.known.marks([address])[0].get(address))


def _more_staged(world: World, staged: search.Staged, holdings: Sequence[search.Holding]) -> search.Staged:
    """Adds uncommitted changes at all paths of objects that may not be kept."""
    paths = sorted({path for holding in holdings for path in holding.paths})
    more = world.staging.find([h.address for h in holdings], paths, None)
    return search.Staged({**more.holders, **staged.holders}, staged.paths, more.inspected, more.complete)


def _staged_notes(staged: search.Staged) -> list[str]:
    if staged.complete or not staged.inspected:
        return []
    return [f"other uncommitted changes may keep more objects; lakeplan inspected only {staged.inspected}"]


def _nothing_at(
    subject: search.Subject, everywhere: Sequence[search.Holding], graph: CommitGraph
) -> LakeplanError:
    ref, colon, path = subject.text.partition(":")
    if subject.ref is None and ref and colon and path and "/" not in ref:
        close = search.nearest_ref(ref, graph)
        return LakeplanError(
            f"{ref!r} is not a branch, tag or commit, and no commit or uncommitted change has the path"
            f" {subject.text!r}",
            hint=f"Did you mean {close}:{path}?" if close else "Check the name before the colon.",
        )
    if subject.ref is None:
        hint = "If this is an address, add --kind address. " if subject.text.startswith("data/") else ""
        close = search.nearest_ref(subject.text, graph)
        hint += f"Did you mean the branch or tag {close}? " if close else ""
        return LakeplanError(
            f"the path {subject.text!r} is not in any commit or uncommitted change",
            hint=f"{hint}Check the spelling. WHAT may also be a branch, or a commit id (6 digits or more).",
        )
    hint = "Check the spelling."
    if everywhere:
        hint = f"To find other commits that contain this path, omit the ref and enter only {subject.text}."
    return LakeplanError(f"the object {subject.text!r} does not exist at {subject.ref}", hint=hint)


@dataclass(frozen=True)
class _Protections:
    """The holds and protected tags of the tree, which keep data from lakeplan's sweeps."""

    world: World

    def rows(
        self, numbers: Sequence[int], paths: Collection[str], others: Sequence[str] = ()
    ) -> list[documents.ProtectionRow]:
        """Return the protections of an object that these commits hold at these paths, or of a commit."""
        ids = {self.world.graph.ids[number] for number in numbers}
        rows = [*self._holds(ids, paths), *self._tags(ids), *self._newest(numbers), *self._pins(ids)]
        return [*rows, *(_row("repository", name) for name in others)]

    def commits(self) -> set[str]:
        """Return the commits that can contain protected objects: all, if a hold names a prefix."""
        known, ids = self.world.known, self.world.graph.ids
        if any(hold.kind == "prefix" for hold, _ in self._held):
            return set(ids)
        tagged = {tag.commit_id for tag in self._protected_tags}
        newest = {ids[number] for numbers in known.newest.values() for number in numbers}
        return (tagged | newest).union(*(named for _, named in self._held))

    @cached_property
    def _protected_tags(self) -> list[Tag]:
        globs = self.world.known.protected_tags
        return [tag for tag in self.world.graph.tags if any(matches(tag.id, glob) for glob in globs)]

    @cached_property
    def _held(self) -> list[tuple[Hold, set[str]]]:
        """Return the unexpired holds of the tree and those that inspections recorded, with the commits that
        each keeps. A hold on a branch keeps all ancestors of its HEAD."""
        known, held = self.world.known, dict[tuple[str, str], tuple[Hold, set[str]]]()
        commits = {} if known.refs is None else {commit.id: commit for commit in known.refs.commits}
        for hold in active_holds(known.holds, self.world.as_of):
            named = set() if known.refs is None else commits_named(hold, known.refs)
            held[hold.kind, hold.name] = hold, named
        for one in known.recorded:
            hold = Hold(one.kind, one.name, one.until, RECORDED)
            held.setdefault((one.kind, one.name), (hold, set()))[1].add(one.commit_id)
        return [
            (hold, reachable(commits, named) if hold.kind == "branch" else named)
            for hold, named in held.values()
        ]

    def _holds(self, ids: Collection[str], paths: Collection[str]) -> Iterator[documents.ProtectionRow]:
        for hold, named in self._held:
            in_prefix = hold.kind == "prefix" and any(path.startswith(hold.name) for path in paths)
            if in_prefix or (hold.kind != "prefix" and not named.isdisjoint(ids)):
                prefix = hold.name if hold.kind == "prefix" else None
                name = "prefix" if hold.kind == "prefix" else f"{hold.kind} {hold.name}"
                until = None if hold.until is None else hold.until.isoformat()
                yield {**_row("hold", name), "prefix": prefix, "until": until, "reason": hold.reason}

    def _tags(self, ids: Collection[str]) -> Iterator[documents.ProtectionRow]:
        tags = sorted(tag.id for tag in self._protected_tags if tag.commit_id in ids)
        yield from (_row("tag", name) for name in tags[:NAMED])

    def _newest(self, numbers: Sequence[int]) -> Iterator[documents.ProtectionRow]:
        newest = self.world.known.newest
        branches = sorted(branch for branch in newest if not newest[branch].isdisjoint(numbers))
        yield from (_row("newest", name) for name in branches[:NAMED])

    def _pins(self, ids: Collection[str]) -> Iterator[documents.ProtectionRow]:
        heads = [branch for branch in self.world.graph.branches if branch.commit_id in ids]
        pins = sorted(head.id for head in heads if has_pin_commit(head.id, head.commit_id))
        yield from (_row("pin", name) for name in pins[:NAMED])


def _row(kind: documents.ProtectionKind, name: str) -> documents.ProtectionRow:
    return {"kind": kind, "name": name, "prefix": None, "until": None, "reason": ""}

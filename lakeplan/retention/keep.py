"""Which branches keep a commit, and which commits a sweep keeps: those of rules, holds and protected tags.
Also names the branches, tags and holds that keep a commit which the server would let expire.

Under the documented rule, a branch keeps its HEAD, and every main ancestor whose child on the way is younger
than the branch's limit. Sets of branches are integers with one bit per branch, in order of name. The branches
below a child change only at joints, and which of them have an old enough limit depends on one rank. So long
runs of commits share one set, and there are about as many distinct sets as joints.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone, tzinfo
from enum import IntFlag

from lakeplan.errors import LakeplanError
from lakeplan.retention.graph import CommitGraph, all_kept
from lakeplan.retention.patterns import matches
from lakeplan.retention.rules import NEVER_EXPIRES, DocumentedRule, ServerWalk, limit_us, zone_clock
from lakeplan.values.repository import Branch, Commit, Refs
from lakeplan.values.rules import NO_RULES, GcRules, RulesBefore
from lakeplan.values.sweep import HeldCommit, Hold


@dataclass(frozen=True, eq=False)
class BranchSets:
    """The branches that keep each commit. ``names`` are all branches, ascending, and bit i of a mask is
    ``names[i]``. ``masks`` are the distinct sets, of which the first is empty. ``of_commit``: per commit
    number, the position of its set."""

    names: tuple[str, ...]
    masks: list[int]
    of_commit: array[int]

    def count(self, commit: int) -> int:
        """Return how many branches keep a commit."""
        return self.masks[self.of_commit[commit]].bit_count()

    def branches(self, commit: int, limit: int | None = None) -> tuple[str, ...]:
        """The first ``limit`` names of the branches that keep a commit, ascending."""
        return self.names_in(self.masks[self.of_commit[commit]], limit)

    def names_in(self, mask: int, limit: int | None = None) -> tuple[str, ...]:
        """The first ``limit`` names in a mask, ascending."""
        names: list[str] = []
        while mask and (limit is None or len(names) < limit):
            lowest = mask & -mask
            names.append(self.names[lowest.bit_length() - 1])
            mask ^= lowest
        return tuple(names)

    def rows(self, limit: int | None = None) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Per commit number, how many branches keep the commit, and the first ``limit`` names. Commits with
        the same set share one tuple."""
        shown = [(mask.bit_count(), self.names_in(mask, limit)) for mask in self.masks]
        return (shown[position] for position in self.of_commit)


def branch_sets(
    graph: CommitGraph, rules: GcRules, as_of: datetime, zone: tzinfo = timezone.utc
) -> BranchSets:
    """The branches that keep each commit at ``as_of``, for all commits in one pass."""
    days, old_enough = _branches_by_days(graph, rules)
    limits = [limit_us(as_of, value, zone) for value in days]
    youngest_first = [-limit for limit in limits]  # ascending, as bisect requires
    below = [0] * len(graph)
    for bit, head in enumerate(graph.heads):
        below[head] |= 1 << bit
    keeping = list(below)
    position_of: dict[int, int] = {0: 0}
    of_commit = array("i", bytes(4 * len(graph)))
    for commit in graph.order:
        kept_by = keeping[commit]
        of_commit[commit] = position_of.setdefault(kept_by, len(position_of))
        branches, parent = below[commit], graph.main_parent[commit]
        below[commit] = keeping[commit] = 0
        if parent < 0 or not branches:
            continue
        below[parent] = below[parent] | branches if below[parent] else branches
        # The first rank whose limit is before the child's date. An equal date is not after it.
        rank = bisect_right(youngest_first, -graph.creation_us[commit])
        if rank < len(days):
            keeping[parent] |= branches & old_enough[rank]
    return BranchSets(tuple(branch.id for branch in graph.branches), list(position_of), of_commit)


def _branches_by_days(graph: CommitGraph, rules: GcRules) -> tuple[list[int], list[int]]:
    """The distinct days of branches, ascending, and for each the mask of branches with at least as many."""
    by_days: dict[int, int] = {}
    for bit, branch in enumerate(graph.branches):
        value = rules.days_for(branch.id)
        by_days[value] = by_days.get(value, 0) | 1 << bit
    days = sorted(by_days)
    masks, at_least = [], 0
    for value in reversed(days):
        at_least |= by_days[value]
        masks.append(at_least)
    return days, masks[::-1]


@dataclass(frozen=True)
class Keeper:
    """One reason to keep a commit.

    ``branch`` is None if the walk starts at a dangling commit. ``start`` is the id of the HEAD or dangling
    commit. ``days`` are those of the branch's rule, or the default if ``is_default``. ``until_us``: the last
    instant, assuming no new commits, in UTC microseconds; None for the branch's HEAD.
    """

    branch: str | None
    start: str
    days: int
    is_default: bool
    until_us: int | None

    @property
    def rule(self) -> str:
        """The rule in words: ``28 days (branch main)`` or ``21 days (default)``."""
        unit = "day" if self.days == 1 else "days"
        return f"{self.days} {unit} ({'default' if self.is_default else f'branch {self.branch}'})"


def why(
    graph: CommitGraph, rules: GcRules, commit: str, as_of: datetime, zone: tzinfo = timezone.utc
) -> list[Keeper]:
    """The reasons why the documented rule keeps a commit (by id) at ``as_of``, if it does: branches by name,
    then dangling starts, the longest first. Raises LakeplanError for an unknown commit."""
    limits = {days: limit_us(as_of, days, zone) for days in {*rules.branches.values()}}
    limits[rules.default_retention_days] = limit_us(as_of, rules.default_retention_days, zone)
    return [
        k
        for k, created in _reaching(graph, rules, commit, zone)
        if created is None or created > limits[k.days]
    ]


def reaching(graph: CommitGraph, rules: GcRules, commit: str, zone: tzinfo = timezone.utc) -> list[Keeper]:
    """Every branch and dangling start whose walk reaches a commit, also those that no longer keep it, ordered
    as in ``why``."""
    return [keeper for keeper, _ in _reaching(graph, rules, commit, zone)]


def _reaching(
    graph: CommitGraph, rules: GcRules, commit: str, zone: tzinfo
) -> list[tuple[Keeper, int | None]]:
    """Keepers, each with the date that must be after its limit (None if the commit is the branch's HEAD)."""
    number = graph.number_of(commit)
    branches_at: dict[int, list[str]] = {}
    for branch, head in zip(graph.branches, graph.heads, strict=True):
        branches_at.setdefault(head, []).append(branch.id)
    dangling = set(graph.dangling)
    clock = zone_clock(zone)
    keepers: list[tuple[Keeper, int | None]] = []

    def add(branch: str | None, start: int, created: int | None) -> None:
        has_rule = branch is not None and branch in rules.branches
        days = rules.default_retention_days if branch is None else rules.days_for(branch)
        until = None if created is None else clock.expiry(created, days)
        keepers.append((Keeper(branch, graph.ids[start], days, not has_rule, until), created))

    for branch_id in branches_at.get(number, ()):
        add(branch_id, number, None)
    if number in dangling:
        add(None, number, graph.creation_us[number])
    for child in graph.children(number):
        created = graph.creation_us[child]
        for start in graph.descendants(child):
            for branch_id in branches_at.get(start, ()):
                add(branch_id, start, created)
            if start in dangling:
                add(None, start, created)
    keepers.sort(key=lambda item: _order(item[0]))
    return keepers


def _order(keeper: Keeper) -> tuple[bool, str, int, str]:
    until = NEVER_EXPIRES if keeper.until_us is None else keeper.until_us
    return (keeper.branch is None, keeper.branch or "", -until, keeper.start)


def reachable(commits: Mapping[str, Commit], heads: Iterable[str]) -> set[str]:
    """Every commit that can be reached from the heads along all parents. Unknown commits are left out."""
    ids: set[str] = set()
    pending = [head for head in heads if head in commits]
    while pending:
        commit_id = pending.pop()
        if commit_id in ids:
            continue
        ids.add(commit_id)
        pending.extend(p for p in commits[commit_id].parents if p in commits and p not in ids)
    return ids


def is_continued(graph: CommitGraph, first_head: str, head: str) -> bool:
    """Whether ``first_head`` is an ancestor of ``head`` along main parents, as after commits, merges and
    imports. It is not after a hard reset or if the branch was created again under the same name. False if the
    commits are not known. (A branch created again at a descendant looks continued.)"""
    target, commit = graph.index.get(first_head), graph.index.get(head)
    while commit is not None and target is not None and commit >= 0:
        if commit == target:
            return True
        commit = graph.main_parent[commit]
    return False


def tags_on(refs: Refs, default_branch: str) -> dict[str, tuple[str, ...]]:
    """By branch: the tags whose commit it reaches and the default branch does not, sorted."""
    if not refs.tags:
        return {}
    commits = {commit.id: commit for commit in refs.commits}
    heads = {branch.id: branch.commit_id for branch in refs.branches}
    settled = reachable(commits, [heads[default_branch]] if default_branch in heads else [])
    names: dict[str, set[str]] = {}
    for tag in refs.tags:
        names.setdefault(tag.commit_id, set()).add(tag.id)
    by_commit: dict[str, frozenset[str]] = {}
    for commit_id in _parents_first(commits, refs.branches, settled):
        tags = names.get(commit_id, set())
        sets = {by_commit[p] for p in commits[commit_id].parents if by_commit.get(p)}
        # Most commits have no tag and share their parent's set.
        by_commit[commit_id] = (
            next(iter(sets), frozenset()) if len(sets) < 2 and not tags else frozenset().union(tags, *sets)
        )
    return {
        branch.id: tuple(sorted(by_commit[branch.commit_id]))
        for branch in refs.branches
        if by_commit.get(branch.commit_id)
    }


def _parents_first(
    commits: Mapping[str, Commit], branches: Sequence[Branch], settled: set[str]
) -> Iterable[str]:
    """The commits that branches reach, outside ``settled``, each after all its parents."""
    done: set[str] = set()
    for branch in branches:
        stack = [branch.commit_id]
        while stack:
            commit_id = stack[-1]
            if commit_id in done or commit_id in settled or commit_id not in commits:
                stack.pop()
                continue
            waiting = [
                p for p in commits[commit_id].parents if p in commits and p not in done and p not in settled
            ]
            if waiting:
                stack.extend(waiting)
                continue
            done.add(commit_id)
            stack.pop()
            yield commit_id


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://(?P<rest>.*)", re.DOTALL)


def active_holds(holds: Iterable[Hold], at: datetime) -> tuple[Hold, ...]:
    """The holds that have not expired (``until`` is the last day, UTC)."""
    return tuple(hold for hold in holds if hold.holds_on(at.date()))


def held_prefixes(holds: Iterable[Hold], at: datetime) -> tuple[str, ...]:
    """The path prefixes that unexpired holds name, sorted."""
    return tuple(sorted({hold.name for hold in active_holds(holds, at) if hold.kind == "prefix"}))


def names_branch(holds: Iterable[Hold], branch_id: str) -> bool:
    """Whether one of the holds names the branch."""
    return any(hold.kind == "branch" and matches(branch_id, hold.name) for hold in holds)


def commits_named(hold: Hold, refs: Refs) -> set[str]:
    """Ids of the commits that a hold names now: HEADs of its branches, commits of its tags, or its commit
    (several if an abbreviated id is ambiguous). None for a prefix."""
    match hold.kind:
        case "branch":
            return {branch.commit_id for branch in refs.branches if matches(branch.id, hold.name)}
        case "tag":
            return {tag.commit_id for tag in refs.tags if matches(tag.id, hold.name)}
        case "commit":
            ids = {commit.id for commit in refs.commits if commit.id.startswith(hold.name)}
            return {hold.name} if hold.name in ids else ids
        case _:
            return set()


def hold_problem(hold: Hold, refs: Refs) -> str:
    """Return why a hold on a branch, tag or commit does not certainly keep a commit, or "" if it does."""
    if hold.kind == "prefix":
        return ""
    named = commits_named(hold, refs)
    if not named:
        kind = hold.kind
        return f"the hold on {kind} {hold.name!r} keeps nothing: the repository has no {kind} with that name"
    if hold.kind == "commit" and len(named) > 1:
        return (
            f"the hold on commit {hold.name} is ambiguous: {len(named)} commit ids begin with these"
            " characters"
        )
    return ""


def needed_branches(refs: Refs, leaving: Collection[str], held: Iterable[str]) -> set[str]:
    """Those of the branches to be deleted (``leaving``) that reach a held commit which no tag and no
    remaining branch reaches."""
    commits = {commit.id: commit for commit in refs.commits}
    lost = set(held) - _settled(refs, commits, leaving)
    if not lost:
        return set()
    heads = {branch.id: branch.commit_id for branch in refs.branches if branch.id in leaving}
    return {name for name, head in heads.items() if lost & reachable(commits, [head])}


def own_commits(refs: Refs, leaving: Collection[str]) -> dict[str, set[str]]:
    """By branch to be deleted: the commits that it reaches and that no tag and no remaining branch
    reaches."""
    commits = {commit.id: commit for commit in refs.commits}
    settled = _settled(refs, commits, leaving)
    heads = {branch.id: branch.commit_id for branch in refs.branches if branch.id in leaving}
    return {name: reachable(commits, [head]) - settled for name, head in heads.items()}


def _settled(refs: Refs, commits: Mapping[str, Commit], leaving: Collection[str]) -> set[str]:
    staying = [branch.commit_id for branch in refs.branches if branch.id not in leaving]
    return reachable(commits, [*staying, *(tag.commit_id for tag in refs.tags)])


def prefix_problem(prefix: str) -> str:
    """Return why no path of an object can begin with this prefix, and what to write instead, or "" if one
    can. Paths begin without a slash and contain no repository, no branch and no wildcards."""
    if (url := _URL.match(prefix)) is not None:
        # lakefs://repository/ref/path
        path = url["rest"].split("/", 2)[-1] if url["rest"].count("/") >= 2 else ""
        return _with_example("a prefix is the beginning of a path, not a URL", path)
    if prefix != prefix.strip():
        return _with_example("a prefix must not begin or end with whitespace", prefix.strip())
    if "\\" in prefix:
        return _with_example("paths use slashes, not backslashes", prefix.replace("\\", "/"))
    if prefix.startswith(("/", "./", "../")):
        return _with_example(
            "an object path must not begin with a slash or dots", re.sub(r"^(\.{0,2}/)+", "", prefix)
        )
    if (wild := re.search(r"[*?]", prefix)) is not None:
        return _with_example(
            "a prefix cannot contain wildcards: it covers every path that begins with it",
            prefix[: wild.start()],
        )
    return ""


def _with_example(problem: str, text: str) -> str:
    nested = prefix_problem(text) if text else ""
    return (
        f"{problem}; write {text!r}" if text and not nested else f"{problem}; write a prefix such as 'legal/'"
    )


class Keep(IntFlag):
    """Verdict bits of a commit."""

    SERVER = 1
    """The server's walk over the stored rules, now."""
    DOCUMENTED = 2
    """The documented rule over the stored rules, now."""
    EXPANDED = 4
    """Either of these, over the tree's rules expanded over the present branches."""
    MARGIN = 8
    """Any of these at a moment earlier by ``margin``."""
    PROTECTED = 16
    """A commit of a protected tag, one that a hold names, or one of the newest on a branch."""
    BEFORE = 32
    """Either of the first two, over the rules before their last change. Keeps nothing, but shows what is
    new."""


KEEPS = Keep.SERVER | Keep.DOCUMENTED | Keep.EXPANDED | Keep.MARGIN | Keep.PROTECTED


@dataclass(frozen=True)
class KeepRules:
    """The rule sets that decide which commits are kept. ``stored`` are the server's rules, ``expanded`` the
    tree's (None if the tree manages none), and ``before`` the server's before their last recorded change."""

    stored: GcRules
    as_of: datetime
    zone: tzinfo
    margin_seconds: int
    expanded: GcRules | None = None
    before: RulesBefore = None
    protected_tags: tuple[str, ...] = ()
    holds: tuple[Hold, ...] = field(default=())
    recorded: tuple[HeldCommit, ...] = field(default=())
    """The namespace's records of what holds kept at earlier marks."""
    newest: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By branch: numbers of the newest commits that the tree keeps on it."""
    pins: frozenset[str] = frozenset()
    """Branches that are pins, which rules have entries for. What is kept with or without them is kept."""


def keep_masks(graph: CommitGraph, refs: Refs, rules: KeepRules) -> list[int]:
    """Per commit number its ``Keep`` bits. ``graph`` is that of ``refs``. Raises LakeplanError for a hold on
    a branch, tag or commit that does not certainly keep a commit."""
    if not graph.branches:
        raise LakeplanError(
            "the repository has no branches, so nothing would be kept",
            hint="Run the command again. If the error persists, do not sweep the repository.",
        )
    masks = _rule_masks(graph, rules)
    if rules.pins:
        without = _rule_masks(graph.without_branches(rules.pins), _without_entries(rules))
        masks = [one | other for one, other in zip(masks, without, strict=True)]
    for commit in protected_commits(graph, refs, rules):
        masks[commit] |= Keep.PROTECTED
    return masks


def _without_entries(rules: KeepRules) -> KeepRules:
    def without(one: GcRules | None) -> GcRules | None:
        if one is None:
            return None
        left = {branch: days for branch, days in one.branches.items() if branch not in rules.pins}
        return GcRules(one.default_retention_days, left)

    stored = without(rules.stored) or rules.stored
    return replace(rules, stored=stored, expanded=without(rules.expanded), before=None)


def _rule_masks(graph: CommitGraph, rules: KeepRules) -> list[int]:
    earlier = rules.as_of - timedelta(seconds=rules.margin_seconds)
    masks = [0] * len(graph)

    def judge(of: GcRules, server: Keep, documented: Keep, margin: Keep | None) -> None:
        for rule, bit in ((ServerWalk(graph, of), server), (DocumentedRule(graph, of), documented)):
            _set(masks, rule.active(rules.as_of, rules.zone), bit)
            if margin is not None:
                _set(masks, rule.active(earlier, rules.zone), margin)

    judge(rules.stored, Keep.SERVER, Keep.DOCUMENTED, Keep.MARGIN)
    if rules.expanded is not None and rules.expanded != rules.stored:
        judge(rules.expanded, Keep.EXPANDED, Keep.EXPANDED, Keep.MARGIN)
    if rules.before is NO_RULES:  # nothing expired without rules
        _set(masks, all_kept(graph), Keep.BEFORE)
    elif rules.before is not None and rules.before != rules.stored:
        judge(rules.before, Keep.BEFORE, Keep.BEFORE, None)
    return masks


def protected_commits(graph: CommitGraph, refs: Refs, rules: KeepRules) -> set[int]:
    """Numbers of the commits that protected tags, unexpired holds and records of holds name, and of the
    newest on branches. Holds on prefixes name paths, not commits. A hold on a branch names all ancestors of
    its HEAD, along every parent. Raises LakeplanError for a hold that does not certainly keep a commit."""
    for hold in active_holds(rules.holds, rules.as_of):
        if problem := hold_problem(hold, refs):
            recorded = {r.commit_id for r in rules.recorded if (r.kind, r.name) == (hold.kind, hold.name)}
            raise LakeplanError(problem, hint=_instead_of(recorded))
    for record in rules.recorded:
        if record.commit_id and record.commit_id not in graph.index:
            raise LakeplanError(
                f"the hold on {record.kind} {record.name!r} kept commit {record.commit_id}, which is no"
                " longer in the repository",
                hint=(
                    "Find out why the commit is missing. If its data may be deleted, remove the hold from the"
                    " tree."
                ),
            )
    return {commit for _, commits in _named(graph, refs, rules) for commit in commits}


def _instead_of(recorded: set[str]) -> str:
    if not recorded:
        return "Correct the hold in the tree, or remove it."
    ids = ", ".join(sorted(recorded)[:3])
    return f"Replace the hold with one on the commit that it kept ({ids}), or remove the hold from the tree."


def _set(masks: list[int], flags: Iterable[int], bit: int) -> None:
    for commit, flag in enumerate(flags):
        if flag:
            masks[commit] |= bit


FIRST_BIT = 8
"""Lower ones are ``Keep``'s."""
MOST_NAMES = 32
"""The most protectors with a separate bit. A mask has 62 bits, and the rest is for other repositories."""
BRANCHES_A_COMMIT = 10
OTHERS = "(others)"


@dataclass(frozen=True)
class Protectors:
    """The branches, tags and holds that keep commits which the server lets expire. Each of ``names`` is a
    kind, a blank and a name, such as ``tag v1.0``; the bit of ``names[i]`` is ``FIRST_BIT + i``. ``masks``:
    per commit number, the bits of those that keep it, or 0 if the server or nothing keeps it."""

    names: tuple[str, ...]
    masks: list[int]


def protectors(graph: CommitGraph, refs: Refs, rules: KeepRules, masks: list[int]) -> Protectors:
    """The protectors of commits. ``masks`` are those of ``keep_masks``. At most ``BRANCHES_A_COMMIT``
    branches are named for a commit. The names that keep most commits have a separate bit. The others of a
    kind share one."""
    wanted = [mask & KEEPS if not mask & Keep.SERVER else 0 for mask in masks]
    by_name: dict[str, set[int]] = {}
    for name, commits in _named(graph, refs, rules):
        if kept := {commit for commit in commits if wanted[commit] & Keep.PROTECTED}:
            by_name.setdefault(name, set()).update(kept)
    for name, commit in _branches(graph, rules, wanted):
        by_name.setdefault(f"branch {name}", set()).add(commit)
    largest = sorted(by_name, key=lambda name: (-len(by_name[name]), name))
    names = [name if at < MOST_NAMES else _others(name) for at, name in enumerate(largest)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    masks_of = [0] * len(graph)
    for name, shown in zip(largest, names, strict=True):
        for commit in by_name[name]:
            masks_of[commit] |= 1 << FIRST_BIT + numbers[shown]
    return Protectors(tuple(numbers), masks_of)


def _others(name: str) -> str:
    return f"{name.partition(' ')[0]} {OTHERS}"


def _named(graph: CommitGraph, refs: Refs, rules: KeepRules) -> Iterator[tuple[str, set[int]]]:
    """Yields tags, branches and holds, with the numbers of the commits that they keep."""
    for branch, newest in rules.newest.items():
        yield f"branch {branch}", set(newest)
    for tag in refs.tags:
        if any(matches(tag.id, glob) for glob in rules.protected_tags):
            yield f"tag {tag.id}", _numbers(graph, {tag.commit_id})
    commits = {commit.id: commit for commit in refs.commits}
    held: dict[tuple[str, str], set[str]] = {}
    for hold in active_holds(rules.holds, rules.as_of):
        held.setdefault((hold.kind, hold.name), set()).update(commits_named(hold, refs))
    for record in rules.recorded:
        if record.kind != "prefix":
            held.setdefault((record.kind, record.name), set()).add(record.commit_id)
    for (kind, name), ids in held.items():
        yield f"hold {kind} {name}", _numbers(graph, reachable(commits, ids) if kind == "branch" else ids)


def _numbers(graph: CommitGraph, ids: set[str]) -> set[int]:
    return {graph.index[id] for id in ids if id in graph.index}


def _branches(graph: CommitGraph, rules: KeepRules, wanted: list[int]) -> Iterator[tuple[str, int]]:
    """Yields branches and the commits that they keep by a rule other than the server's walk now."""
    earlier = rules.as_of - timedelta(seconds=rules.margin_seconds)
    by: list[tuple[Keep, GcRules | None, bool]] = [
        (Keep.DOCUMENTED, rules.stored, False),
        (Keep.EXPANDED, rules.expanded, False),
        (Keep.MARGIN, rules.stored, True),
        (Keep.MARGIN, rules.expanded, True),
    ]
    for bit, of, before in by:
        if of is None or not any(mask & bit for mask in wanted):
            continue
        sets = branch_sets(graph, of, earlier if before else rules.as_of, rules.zone)
        names: Mapping[int, tuple[str, ...]] = {
            at: sets.names_in(mask, BRANCHES_A_COMMIT) for at, mask in enumerate(sets.masks)
        }
        for commit, mask in enumerate(wanted):
            if mask & bit:
                for name in names[sets.of_commit[commit]]:
                    yield name, commit

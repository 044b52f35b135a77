"""What holds keep: branches, commits and paths. Every command that deletes asks here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from lakeplan.core.globs import matches
from lakeplan.core.lifecycle.history import reachable
from lakeplan.model.refs import Commit, Refs
from lakeplan.model.sweep import Hold

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://(?P<rest>.*)", re.DOTALL)


def active_holds(holds: Iterable[Hold], at: datetime) -> tuple[Hold, ...]:
    """Those that have not expired (``until`` is the last day, UTC)."""
    return tuple(hold for hold in holds if hold.holds_on(at.date()))


def held_prefixes(holds: Iterable[Hold], at: datetime) -> tuple[str, ...]:
    """Path prefixes that unexpired holds name."""
    return tuple(sorted({hold.name for hold in active_holds(holds, at) if hold.kind == "prefix"}))


def names_branch(holds: Iterable[Hold], branch_id: str) -> bool:
    """Whether one of these holds names the branch itself."""
    return any(hold.kind == "branch" and matches(branch_id, hold.name) for hold in holds)


def commits_named(hold: Hold, refs: Refs) -> set[str]:
    """Ids of the commits that a hold names now: HEADs of its branches, commits of its tags, its commit
    (several where an abbreviated id is ambiguous); none for a prefix."""
    match hold.kind:
        case "branch":
            return {branch.commit_id for branch in refs.branches if matches(branch.id, hold.name)}
        case "tag":
            return {tag.commit_id for tag in refs.tags if matches(tag.id, hold.name)}
        case "commit":
            found = {commit.id for commit in refs.commits if commit.id.startswith(hold.name)}
            return {hold.name} if hold.name in found else found
        case _:
            return set()


def hold_problem(hold: Hold, refs: Refs) -> str:
    """Why a hold on a branch, a tag or a commit keeps nothing for certain; "" when it does."""
    if hold.kind == "prefix":
        return ""
    named = commits_named(hold, refs)
    if not named:
        return f"the hold on {hold.kind} {hold.name!r} keeps nothing: the repository has none of that name"
    if hold.kind == "commit" and len(named) > 1:
        return f"the hold on commit {hold.name} is ambiguous: {len(named)} commits have ids that begin so"
    return ""


def needed_branches(refs: Refs, leaving: Collection[str], held: Iterable[str]) -> set[str]:
    """Of the branches that would be deleted together (``leaving``), those that alone lead to a held commit:
    no tag and no branch that stays does."""
    commits = {commit.id: commit for commit in refs.commits}
    lost = set(held) - _settled(refs, commits, leaving)
    if not lost:
        return set()
    heads = {branch.id: branch.commit_id for branch in refs.branches if branch.id in leaving}
    return {name for name, head in heads.items() if lost & reachable(commits, [head])}


def own_commits(refs: Refs, leaving: Collection[str]) -> dict[str, set[str]]:
    """By branch that would be deleted: commits that it leads to, and no tag and no branch that stays does."""
    commits = {commit.id: commit for commit in refs.commits}
    settled = _settled(refs, commits, leaving)
    heads = {branch.id: branch.commit_id for branch in refs.branches if branch.id in leaving}
    return {name: reachable(commits, [head]) - settled for name, head in heads.items()}


def _settled(refs: Refs, commits: Mapping[str, Commit], leaving: Collection[str]) -> set[str]:
    staying = [branch.commit_id for branch in refs.branches if branch.id not in leaving]
    return reachable(commits, [*staying, *(tag.commit_id for tag in refs.tags)])


def prefix_problem(prefix: str) -> str:
    """Why no path of an object can begin so, with what to write instead; "" when one can. Paths begin without
    a slash and contain no repository, no branch and no wildcards."""
    if (url := _URL.match(prefix)) is not None:
        # lakefs://repository/ref/path
        path = url["rest"].split("/", 2)[-1] if url["rest"].count("/") >= 2 else ""
        return _instead("a prefix is the beginning of a path, not a URL", path)
    if prefix != prefix.strip():
        return _instead("a prefix does not begin or end with white space", prefix.strip())
    if "\\" in prefix:
        return _instead("paths have slashes, not backslashes", prefix.replace("\\", "/"))
    if prefix.startswith(("/", "./", "../")):
        return _instead("paths of objects begin without a slash or dots", re.sub(r"^(\.{0,2}/)+", "", prefix))
    if (wild := re.search(r"[*?]", prefix)) is not None:
        return _instead(
            "a prefix has no wildcards: it holds every path that begins so", prefix[: wild.start()]
        )
    return ""


def _instead(problem: str, text: str) -> str:
    nested = prefix_problem(text) if text else ""
    return f"{problem}; write {text!r}" if text and not nested else f"{problem}; write one such as 'legal/'"

"""What a person means by WHAT: a path (at a ref or anywhere), a commit, a branch, or a physical address."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from lakeplan.errors import UsageError
from lakeplan.retention.graph import CommitGraph

Kind = Literal["path", "commit", "branch", "address"]
KINDS: tuple[Kind, ...] = ("path", "commit", "branch", "address")
SHORTEST_PREFIX = 6
NAMED = 5

_HEX = re.compile(r"[0-9a-f]{6,64}\Z")
_ADDRESS = re.compile(r"data/[0-9a-v]{20}/[0-9a-v]{20}\Z")
"""Where a server puts new objects (``lakefs/format.md``); no path that people give looks so."""


@dataclass(frozen=True)
class What:
    """``text``: the path, full commit id, branch or address. ``ref`` and ``ref_commit``: where the path is
    meant (None: anywhere). ``via`` says how a commit was named when not by its id: ``tag v1.0``."""

    kind: Kind
    text: str
    ref: str | None = None
    ref_commit: str | None = None
    via: str | None = None


def read_what(text: str, graph: CommitGraph, *, ref: str | None = None, kind: Kind | None = None) -> What:
    """Raises UsageError: nothing given, an unknown ref or branch, a prefix of several commits."""
    if not text:
        raise UsageError("WHAT is empty", hint="a path, a commit, a branch or an address")
    if ref is not None:
        if kind not in (None, "path"):
            raise UsageError(f"--ref goes with a path, not with a {kind}", hint="leave out --ref")
        return What("path", text, ref, _commit_of(ref, graph))
    match kind:
        case "address":
            return What("address", text)
        case "branch":
            return _branch(text, graph)
        case "commit":
            return _commit(text, graph)
        case "path":
            return _path(text, graph)
        case None:
            return _guess(text, graph)


def _guess(text: str, graph: CommitGraph) -> What:
    if "://" in text or _ADDRESS.match(text):
        return What("address", text)
    if any(branch.id == text for branch in graph.branches):
        return What("branch", text)
    tag = next((t for t in graph.tags if t.id == text), None)
    if tag is not None:
        return What("commit", tag.commit_id, via=f"tag {tag.id}")
    if _HEX.match(text) and _with_prefix(text, graph):
        return _commit(text, graph)
    return _path(text, graph)


def _path(text: str, graph: CommitGraph) -> What:
    before, colon, path = text.partition(":")
    # A path may hold a colon: only what names something before it is a ref.
    if colon and path and (commit := _find_ref(before, graph)) is not None:
        return What("path", path, before, commit)
    return What("path", text)


def _branch(text: str, graph: CommitGraph) -> What:
    if not any(branch.id == text for branch in graph.branches):
        raise UsageError(f"there is no branch {text!r}", hint="lakectl branch list names them")
    return What("branch", text)


def _commit(text: str, graph: CommitGraph) -> What:
    tag = next((t for t in graph.tags if t.id == text), None)
    if tag is not None:
        return What("commit", tag.commit_id, via=f"tag {tag.id}")
    found = _with_prefix(text, graph) if _HEX.match(text) else []
    if text in graph.index:
        found = [text]
    if len(found) == 1:
        return What("commit", found[0])
    if found:
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise UsageError(
            f"{text} begins {len(found)} commits: {', '.join(i[:16] for i in found[:NAMED])}{more}",
            hint="give more of the id",
        )
    raise UsageError(f"there is no commit {text!r}", hint=f"a full id, or at least {SHORTEST_PREFIX} digits")


def _commit_of(ref: str, graph: CommitGraph) -> str:
    commit = _find_ref(ref, graph)
    if commit is None:
        raise UsageError(f"there is no branch, tag or commit {ref!r}", hint="check --ref")
    return commit


def _find_ref(ref: str, graph: CommitGraph) -> str | None:
    heads = {tag.id: tag.commit_id for tag in graph.tags}
    heads.update((branch.id, branch.commit_id) for branch in graph.branches)
    if ref in heads:
        return heads[ref]
    if ref in graph.index:
        return ref
    found = _with_prefix(ref, graph) if _HEX.match(ref) else []
    if len(found) > 1:
        return _commit(ref, graph).text  # raises: it is ambiguous
    return found[0] if found else None


def _with_prefix(prefix: str, graph: CommitGraph) -> list[str]:
    first = bisect_left(graph.ids, prefix)
    return list(
        takewhile(lambda i: i.startswith(prefix), (graph.ids[n] for n in range(first, len(graph.ids))))
    )

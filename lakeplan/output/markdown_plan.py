"""A plan as a comment on a pull request: one summary line, what was loosened and what is BLOCKED, then a
table per repository with its details folded.

A comment has a limit. What a reviewer must see stays whole; details go repository by repository, the
quietest first, then tables, and the comment says what was cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeplan.output.markdown_repository import changes_of, details_of, loudest_first, run_branches
from lakeplan.output.page import code, folded, length, names, prose, table
from lakeplan.output.plan import circumstances, summary_text
from lakeplan.output.plan_changes import STRICTER, key_of, loosened, loosening_title, writing
from lakeplan.output.plan_impact import failure_groups, gates_of, scope_of
from lakeplan.output.text import counted

Json = Mapping[str, Any]

COMMENT_LIMIT = 65_536
"""Characters that GitHub takes; GitLab takes more."""
_NOTE = 3_000
"""Kept free for the words about what was cut."""
_NAMES = 8
_ROWS = 20


def marker(tree: str = "", kind: str = "plan") -> str:
    """The first line of every comment about a tree (its folder in the git repository, ``""`` at the top): by
    it a comment is found again, and updated instead of repeated."""
    where = "".join(c if c.isalnum() or c in "/._" else f"%{ord(c):x}" for c in tree)
    return f"<!-- lakeplan:{kind}:{where or '.'} -->"


def render_markdown(document: Json, *, tree: str = "", limit: int = COMMENT_LIMIT) -> str:
    """The comment, never longer than ``limit`` (at least 8,000) by any way of counting."""
    blocks = [
        _Block(key_of(r), changes_of(r), details_of(r)) for r in sorted(_shown(document), key=loudest_first)
    ]
    room = limit - _NOTE
    head, tail = _head(document, tree), _tail(document)
    if length(head) > room:
        head = _head(document, tree, compact=True)
    if length(head) > room:
        head = cut_lines(head, room)
    if length(head) + length(tail) > room:
        tail = _circumstances(document)
    if length(head) + length(tail) > room:
        tail = ""
    text = head + _fitting(blocks, room - length(head) - length(tail)) + tail
    return text if length(text) <= limit else cut_lines(text, limit)


def _shown(document: Json) -> list[Json]:
    """What is written to, and where ``branches run`` deletes branches."""
    written = writing(document)
    return [*written, *(r for r in document["repositories"] if r not in written and run_branches(r))]


@dataclass(frozen=True)
class _Block:
    key: str
    changes: str
    details: str


def _fitting(blocks: Sequence[_Block], room: int) -> str:
    """As much as fits, from the loudest on: details go first, then tables."""
    whole = sum(length(b.changes) + length(b.details) for b in blocks)
    detailed, shown = len(blocks), len(blocks)
    while whole > room and detailed:
        detailed -= 1
        whole -= length(blocks[detailed].details)
    while whole > room and shown:
        shown -= 1
        whole -= length(blocks[shown].changes)
    text = "".join(b.changes + (b.details if i < detailed else "") for i, b in enumerate(blocks[:shown]))
    cut = []
    if detailed < len(blocks):
        cut.append(f"the details of {_several([b.key for b in blocks[detailed:]])}")
    if shown < len(blocks):
        cut.append(f"the changes of {_several([b.key for b in blocks[shown:]])}")
    if not cut:
        return text
    return f"{text}\n**Cut to fit a comment:** {', and '.join(cut)}. The plan file has everything.\n"


def _several(keys: Sequence[str]) -> str:
    return f"{counted(len(keys), 'repository')} ({_names(keys)})"


def _names(values: Sequence[str], limit: int | None = _NAMES) -> str:
    return names(values, limit, code)


def _head(document: Json, tree: str, *, compact: bool = False) -> str:
    """All that is never cut. ``compact`` names a few repositories a gate instead of all of them."""
    summary = summary_text(document).replace("BLOCKED", "**BLOCKED**")
    where = f" for {code(tree)}" if tree else ""
    lines = [marker(tree), f"**lakeplan**{where}: {summary}", ""]
    gates = _blocked(document, compact=compact) + _opened(document, compact=compact)
    return "\n".join(lines) + _loosened(document) + gates + _failed(document)


def _loosened(document: Json) -> str:
    found = loosened(document)
    if not found:
        return ""
    rows = [
        [
            code(f.path) + (f" of {_names(f.scopes)}" if f.scopes else ""),
            prose(f.before),
            f"**{prose(f.after)}**",
            code(f.where) if f.where else "",
        ]
        for f in found
    ]
    title = f"\n### :warning: {prose(loosening_title(document))}\n\n"
    note = f"\nReview these first: {STRICTER}.\n"
    return title + table(("what", "at the base", "here", "where"), rows) + note


def _blocked(document: Json, *, compact: bool) -> str:
    lines = _gates(document, ("refused",), "override with ", compact=compact)
    if compact and lines:
        lines += "\n**Cut to fit a comment:** what each gate says. The plan file has everything.\n"
    return "\n### :no_entry: BLOCKED\n\n" + lines if lines else ""


def _opened(document: Json, *, compact: bool) -> str:
    """Gates that somebody opened: what a reviewer agrees to."""
    lines = _gates(document, ("overridden", "allowed"), "", compact=compact)
    return "\n### Gates overridden in this plan\n\n" + lines if lines else ""


def _gates(document: Json, outcomes: Sequence[str], word: str, *, compact: bool) -> str:
    """A line per gate that says the same, with the repositories it is about."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for gate in gates_of(document):
        if gate["outcome"] in outcomes:
            message = "" if compact else gate["message"]
            groups.setdefault((gate["gate"], message, gate["opens_with"]), []).append(scope_of(gate["scope"]))
    lines = []
    for (name, message, opens), scopes in groups.items():
        about = _names(scopes, _NAMES if compact else None)
        text = f": {prose(message)}" if message else f" ({counted(len(scopes), 'gate')})"
        opening = f" — {word}{prose(opens)}" if opens else ""
        lines.append(f"- {code(name)} of {about}{text}{opening}\n")
    return "".join(lines)


def _failed(document: Json) -> str:
    groups = failure_groups(document["repositories"])
    if not groups:
        return ""
    lines = []
    for (reason, place, hint), keys in list(groups.items())[:_ROWS]:
        at = f" ({prose(place)})" if place and place not in keys else ""
        lines.append(f"- {_names(keys)}{at}: {prose(reason)}{f' — {prose(hint)}' if hint else ''}\n")
    if len(groups) > _ROWS:
        lines.append(f"- and {len(groups) - _ROWS:,} more kinds of failure, in the plan file\n")
    return "\n### Failed: not planned, and not written by an apply\n\n" + "".join(lines)


def _tail(document: Json) -> str:
    notes = []
    for gate in gates_of(document):
        if gate["outcome"] == "warned":
            text = f"{code(gate['gate'])} of {code(scope_of(gate['scope']))}"
            notes.append(f"- {text}: {prose(gate['message'])}\n")
    notes += [f"- {prose(text)}\n" for text in document["warnings"]]
    for repository in document["repositories"]:
        notes += [f"- {code(key_of(repository))}: {prose(text)}\n" for text in repository["warnings"]]
    if document["unmanaged"]:
        count = counted(len(document["unmanaged"]), "repository")
        notes.append(f"- named by no entry, and not touched: {count}, {_names(document['unmanaged'])}\n")
    more = f"- and {len(notes) - _ROWS:,} more, in the plan file\n" if len(notes) > _ROWS else ""
    body = "".join(notes[:_ROWS]) + more
    return ("\n" + folded(counted(len(notes), "note"), body) if notes else "") + _circumstances(document)


def _circumstances(document: Json) -> str:
    """As the plan on a terminal has them; that it was read only is no matter of the comment."""
    parts = circumstances({**document, "read_only": False}, code, _NAMES)
    return f"\n<sub>{', '.join(parts)}, plan {code(document['digest'][:12])}.</sub>\n"


def cut_lines(text: str, room: int) -> str:
    """Whole lines from the top, and that there were more: the last resort."""
    kept, used = [], 0
    note = "\n**Cut to fit a comment:** there is more than fits. The plan file has everything.\n"
    for line in text.splitlines(keepends=True):
        used += length(line)
        if used > room - length(note):
            break
        kept.append(line)
    return "".join(kept) + note

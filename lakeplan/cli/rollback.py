"""Brings the checked-out tree to say what a rollback restores: all of it, or nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakeplan.app.history_rollback import Disagreement, Restoration, disagreements
from lakeplan.config.files import ROOT_FILE
from lakeplan.config.gc_edit import add_entry, set_gc
from lakeplan.config.tree import Tree, load_tree
from lakeplan.core.files import SHARED, inside, write_file
from lakeplan.core.tree_text import gc_lines, setting_lines
from lakeplan.errors import ConfigError, LakeplanError, StalePlan
from lakeplan.limits import read_file, why_unreadable
from lakeplan.ports.lakefs import LakeFSReader

Connect = Callable[[str], LakeFSReader]


def edit_text(found: Disagreement) -> str:
    """The edit that a person would make, with where."""
    desired, before = found.desired, found.restoration.settings
    lines = gc_lines(found.restoration.before) if found.rules else []
    lines += [line for kind in found.settings for line in setting_lines(kind, before[kind][0])]
    if desired is None or desired.by_glob or desired.source is None:
        head = f"{found.restoration.repository}: an entry of its own, under repositories of any file:"
        lines = [f"{found.restoration.repository}:", *(f"  {line}" for line in lines)]
    else:
        blocks = ["gc"] * found.rules + [kind.value for kind in found.settings]
        head = (
            f"{found.restoration.repository}: in its entry at {desired.source}, in place of its"
            f" {' and '.join(blocks)} block:"
        )
    return "\n".join([head, *(f"    {line}" for line in lines)])


def needs_edits(found: Sequence[Disagreement], run_id: str) -> StalePlan:
    """The error of a rollback that would need another tree."""
    edits = "\n  ".join(edit_text(f).replace("\n", "\n  ") for f in found)
    return StalePlan(
        f"the tree does not say what was there before run {run_id}; an apply plans again from the tree, so it"
        f" has to. No plan was made, nothing was changed. The edits:\n  {edits}",
        hint="make them by hand, or run again with --edit-tree; then commit them with the plan",
    )


@dataclass
class TreeEdit:
    """Edits files of a tree in place. ``restore`` puts every file back as it was."""

    root: Path
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _originals: dict[Path, str] = field(default_factory=dict, init=False)

    @property
    def files(self) -> tuple[str, ...]:
        """What was changed, relative to the tree."""
        top = inside(self.root, self.root)
        return tuple(sorted(p.relative_to(top).as_posix() for p in self._originals))

    def make(self, tree: Tree, wanted: Sequence[Restoration], connect: Connect) -> Tree:
        """The tree after the edits: it says what is wanted, and the same as before of everything else.
        Raises StalePlan with the edits to make by hand, and nothing changed, when that cannot be reached."""
        first = disagreements(tree, wanted, connect)
        if any(found.settings for found in first):
            raise _by_hand(first, "policies and object rules are not edited by lakeplan")
        try:
            edited = self._pass(first, {})
            again = disagreements(edited, wanted, connect)
            if again:  # rules that the entry inherits have to be removed by name
                edited = self._pass(again, {d.restoration.repository: d for d in again})
                again = disagreements(edited, wanted, connect)
            if again or not _same_elsewhere(tree, edited, wanted):
                raise ConfigError("the edits do not give what is wanted")
        except ConfigError as error:
            self.restore()
            raise _by_hand(first, "\n  ".join(error.problems)) from None
        except BaseException:
            self.restore()
            raise
        return edited

    def restore(self) -> None:
        for path, text in self._originals.items():
            write_file(path, text, mode=SHARED)
        self._originals.clear()

    def _pass(self, found: Iterable[Disagreement], leftover: Mapping[str, Disagreement]) -> Tree:
        for item in found:
            key = item.restoration.repository
            lines = gc_lines(item.restoration.before, leftover[key].leftover if key in leftover else ())
            self._edit(item, lines)
        return load_tree(self.root, self.environ)

    def _edit(self, item: Disagreement, lines: list[str]) -> None:
        desired = item.desired
        own = desired is not None and not desired.by_glob and desired.source is not None
        path = inside(
            self.root, self.root / (desired.source.file if own and desired and desired.source else ROOT_FILE)
        )
        text = _read(path)
        key = desired.entry if own and desired else item.restoration.repository
        changed = set_gc(text, key, lines) if own else add_entry(text, key, lines)
        if changed is None:
            raise ConfigError("an entry is not written in a way that can be edited")
        self._originals.setdefault(path, text)
        write_file(path, changed, mode=SHARED)


def _by_hand(found: Sequence[Disagreement], problems: str) -> StalePlan:
    why = f"\n  {problems}" if problems else ""
    return StalePlan(
        f"the tree could not be edited so that it says what was there before{why}\n"
        "nothing was changed. Bring it to:\n  "
        + "\n  ".join(edit_text(d).replace("\n", "\n  ") for d in found),
        hint="make the edits by hand, then run the rollback again",
    )


def _same_elsewhere(before: Tree, after: Tree, wanted: Iterable[Restoration]) -> bool:
    """Whether every other repository that can be named without a server resolves as it did."""
    edited = {r.repository for r in wanted}

    def hashes(tree: Tree) -> dict[str, str]:
        return {
            d.key: d.config_hash
            for server in tree.servers
            for d in tree.resolve(server, ())
            if d.key not in edited
        }

    return hashes(before) == hashes(after)


def _read(path: Path) -> str:
    try:
        return read_file(path).decode()
    except (OSError, ValueError) as error:
        raise LakeplanError(f"cannot read: {why_unreadable(error)}", where=str(path)) from None

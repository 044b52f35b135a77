"""Whether a server can have pins: it must know hidden branches."""

from __future__ import annotations

from collections.abc import Iterator

from lakeplan.doctor.repositories import Found, grant, of_error
from lakeplan.errors import LakeplanError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.review.selection import Selection
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import LiveBranch
from lakeplan.values.pins import looks_like_pin

CHECK = "hidden branches, for pins"
_HINT = (
    "Servers from before November 2024 have none. An apply makes one pin first, and deletes it again if it is"
    " visible. Grant fs:CreateBranch, fs:ReadBranch and fs:DeleteBranch."
)


def check_hidden_branches(tree: DesiredTree, reader: LakeFSReader, selection: Selection) -> Iterator[Found]:
    """Nothing where the tree asks for no pins. Pins that there are prove it; doctor makes none."""
    try:
        live = [repository.id for repository in reader.list_repositories()]
    except LakeplanError:
        return  # the check of fs:ListRepositories says so
    try:
        asking = [d for d in tree.resolve(reader.name, live) if d.asks_for_pins and selection.takes(d)]
        named = [branch for d in asking if d.name in live for branch in reader.list_pins(d.name)]
    except LakeplanError as error:
        yield of_error(CHECK, error, grant("fs:ListBranches", error))
        return
    if asking:
        yield _judged(named)


def _judged(named: list[LiveBranch]) -> Found:
    pins = [branch for branch in named if looks_like_pin(branch)]
    others = [branch.id for branch in named if not looks_like_pin(branch)]
    if others:
        text = f"{others[0]} is named like a pin, and is visible or was moved ({len(others):,} in all)"
        return Found(CHECK, "warn", text, "Find out who made it. lakeplan deletes only its own pins.")
    if pins:
        return Found(CHECK, "ok", f"the server has {len(pins):,} pin{'s' * (len(pins) != 1)}, all hidden")
    return Found(CHECK, "warn", "not tried: doctor makes no branch", _HINT)

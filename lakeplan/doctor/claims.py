"""Whether a named tree may claim its repositories: it records its name in their metadata on the server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from lakeplan.doctor.repositories import WORKERS, Found, grant, of_error, summed
from lakeplan.errors import GateRefused, LakeplanError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.review.claims import check_claims, claims_in
from lakeplan.review.selection import Selection
from lakeplan.tree.tree import DesiredTree

CHECK = "fs:UpdateRepository"
_HINT = (
    "Grant it: the first apply claims the repository for this tree, and ends without a write if it may not."
    " docs/permissions.md has the whole policy."
)


def check_may_claim(tree: DesiredTree, reader: LakeFSReader, selection: Selection) -> Iterator[Found]:
    """Nothing for a tree without a name, which claims nothing. Only GET requests: the server has no request
    that asks for this permission and changes nothing. A claim of this tree that is there proves it."""
    if not tree.name:
        return
    try:
        live = [repository.id for repository in reader.list_repositories()]
    except LakeplanError:
        return  # the check of fs:ListRepositories says so
    found = [d.name for d in tree.resolve(reader.name, live) if selection.takes(d) and d.name in live]
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        looked = dict(zip(found, pool.map(lambda name: [_look(tree.name, reader, name)], found), strict=True))
    yield from summed(looked)


def _look(tree: str, reader: LakeFSReader, name: str) -> Found:
    try:
        metadata = reader.metadata(name)
        check_claims(metadata, tree, f"{reader.name}/{name}")
    except GateRefused as error:
        return of_error(CHECK, error)
    except LakeplanError as error:
        return of_error(CHECK, error, grant("fs:ReadRepository", error))
    if tree in claims_in(metadata):
        return Found(CHECK, "ok", f"{name} is claimed for this tree")
    return Found(
        CHECK, "warn", "not tried: doctor changes no metadata, and this tree has no claim yet", _HINT
    )

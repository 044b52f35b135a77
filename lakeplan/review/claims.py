"""Which tree a repository belongs to. Trees may have different states, so the claim is on the server: each
named tree has a key in the repository's metadata, which ``apply`` sets before it writes.

A server changes this metadata as one record and keeps other keys. A tree that sets its key and reads the
metadata back therefore sees every key that was set earlier. If two trees begin at the same time, at least the
later one is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from lakeplan.errors import GateRefused, LakeplanError
from lakeplan.lakefs.protocols import MetadataWriter
from lakeplan.review.run import Run, read_back
from lakeplan.values.plan import RepositoryPlan
from lakeplan.values.records import utc_text
from lakeplan.values.units import count_of

CLAIM = "lakeplan.tree."
"""The beginning of a claim's key. The tree's name follows. The value is the time of the claim."""
_SHOWN = 5


class Metadata(Protocol):
    """The key-value map that a repository carries."""

    def metadata(self, repository: str) -> Mapping[str, str]: ...


class ClaimServer(Protocol):
    @property
    def reader(self) -> Metadata: ...
    @property
    def metadata_writer(self) -> MetadataWriter: ...


def claims_in(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the trees that claim a repository, sorted. They are untrusted, because anyone may have set
    them."""
    return tuple(sorted(key.removeprefix(CLAIM) for key in metadata if key.startswith(CLAIM)))


def check_claims(metadata: Mapping[str, str], tree: str, where: str) -> None:
    """Raises GateRefused if a tree with a name other than ``tree`` (``""``: no name) claims the
    repository."""
    others = [name for name in claims_in(metadata) if name != tree or not tree]
    if not others:
        return
    shown = ", ".join(repr(name) for name in others[:_SHOWN])
    hint = (
        "Exclude the repository from this tree, for example with `manages`, or take it over with `lakeplan"
        f" claim --take {shlex.quote(where)}`."
    )
    if not tree:
        hint += " If this is the same tree, add its name to lakeplan.yaml (`name: …`)."
    raise GateRefused(f"another tree manages this repository: {shown}", where=where, hint=hint)


def claim(repository: str, where: str, tree: str, server: ClaimServer, run: Run) -> bool:
    """Records that ``tree`` manages a repository, unless this is already recorded. Returns whether it was
    written now. Raises GateRefused if another tree claims the repository, before or at the same time, and the
    server's errors."""
    metadata = server.reader.metadata(repository)
    check_claims(metadata, tree, where)
    key = CLAIM + tree
    if not tree or key in metadata:
        return False
    server.metadata_writer.set_metadata(repository, {key: utc_text(run.now())})
    metadata = read_back(lambda: server.reader.metadata(repository), lambda answer: key in answer, run.sleep)
    if key not in metadata:
        raise LakeplanError(
            "the server did not return the claim that lakeplan just recorded for this tree",
            where=where,
            hint="Run the command again. If the error persists, check the server's log.",
        )
    try:
        check_claims(metadata, tree, where)
    except GateRefused:
        server.metadata_writer.delete_metadata(repository, [key])
        raise
    return True


def claim_all(
    repositories: Iterable[RepositoryPlan], tree: str, connect: Callable[[str], ClaimServer], run: Run
) -> str:
    """Claims repositories that need no write, so that no other tree can claim them. Returns a note on
    repositories that could not be claimed, or ""."""
    problems = []
    for repository in repositories if tree else ():
        if repository.failure is not None:
            continue
        try:
            claim(repository.name, repository.key, tree, connect(repository.server), run)
        except LakeplanError as error:
            problems.append(f"{repository.key}: {error.message}")
    if not problems:
        return ""
    more = f", and {len(problems) - 3:,} more" if len(problems) > 3 else ""
    unclaimed = count_of(len(problems), "repository")
    return f"{unclaimed} could not be claimed for this tree: {'; '.join(problems[:3])}{more}"


def take(repository: str, tree: str, server: ClaimServer, run: Run) -> tuple[str, ...]:
    """Claims a repository for ``tree`` and removes the claims of other trees, whose names it returns."""
    others = tuple(name for name in claims_in(server.reader.metadata(repository)) if name != tree)
    server.metadata_writer.set_metadata(repository, {CLAIM + tree: utc_text(run.now())})
    if others:
        server.metadata_writer.delete_metadata(repository, [CLAIM + name for name in others])
    return others


def release(repository: str, tree: str, server: ClaimServer) -> bool:
    """Removes the claim of ``tree``. Returns whether there was one."""
    if tree not in claims_in(server.reader.metadata(repository)):
        return False
    server.metadata_writer.delete_metadata(repository, [CLAIM + tree])
    return True

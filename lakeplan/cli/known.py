"""What ``explain`` knows beside rules: the tree's holds and tags, marks in storage, other repositories."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lakeplan.cli.completing import entry_of
from lakeplan.cli.wiring import Session
from lakeplan.errors import LakeplanError
from lakeplan.explain.protections import Known
from lakeplan.sweep.documents import TraceRow
from lakeplan.values.repository import Refs, Repository


def known_of(
    session: Session, server: str, repository: Repository, refs: Refs, *, other_repositories: bool
) -> Known:
    """Of a repository of a tree. Storage is opened, and other repositories are read, when they are asked."""
    desired = entry_of(session.tree, server, repository.id)

    def marks(addresses: Collection[str]) -> tuple[Mapping[str, Sequence[TraceRow]], Sequence[str]]:
        return _marks(session, server, repository, addresses)

    def others(addresses: Collection[str]) -> tuple[Mapping[str, Sequence[str]], Sequence[str]]:
        return _others(session, server, repository, addresses)

    return Known(
        refs=refs,
        holds=() if desired is None else desired.holds,
        protected_tags=() if desired is None else desired.safety.protected_tags,
        min_age_seconds=None if desired is None else desired.sweep.min_age_seconds,
        marks=marks,
        others=others if other_repositories else None,
    )


def _marks(
    session: Session, server: str, repository: Repository, addresses: Collection[str]
) -> tuple[Mapping[str, Sequence[TraceRow]], Sequence[str]]:
    key = f"{server}/{repository.id}"
    try:
        state = session.state()
        if not state.list_keys("sweep/marks/"):
            return {}, ()
        # Parts are Parquet, which takes long to import: only who has marks pays for it.
        from lakeplan.cli.sweeping import open_store
        from lakeplan.sweep.traces import has_marks, trace

        if not has_marks(state, key):
            return {}, ()
        config = session.tree.servers[server]
        store = open_store(
            config, repository, session.environ, approve=session.approve, timeouts=session.timeouts
        )
        found = trace(store, state, key, addresses)
    except LakeplanError as error:
        return {}, (f"marks of the repository were not searched: {error}",)
    return found.rows, found.notes


def _others(
    session: Session, server: str, repository: Repository, addresses: Collection[str]
) -> tuple[Mapping[str, Sequence[str]], Sequence[str]]:
    """Other repositories of the server whose entries mean these addresses."""
    from lakeplan.formats.range_arrays import unpack_odd
    from lakeplan.simulation.foreign import ForeignReader
    from lakeplan.simulation.observing import Addresses
    from lakeplan.simulation.requests import ForeignRanges
    from lakeplan.sweep.ports import RefsMemory

    reader, memory, notes = session.reader(server), RefsMemory(), []
    foreign = []
    for other in reader.list_repositories():
        if other.id == repository.id:
            continue
        try:
            metaranges = memory.metaranges(server, reader, other)
            metadata = memory.metadata(server, reader, other)
        except LakeplanError as error:
            notes.append(f"repository {other.id} was not searched: {error.message}")
            continue
        foreign.append(ForeignRanges(f"{server}/{other.id}", metadata, metaranges))
    book, wanted = Addresses((repository.storage_namespace,)), set(addresses)
    found: dict[str, set[str]] = {}
    for one in ForeignReader(session.runners.open, session.progress, None).entries(foreign):
        for text, kind in unpack_odd(one.packed):
            inside, may_mean = book.foreign(text, kind)
            for address in wanted.intersection({*may_mean, *([inside] if inside is not None else ())}):
                found.setdefault(address, set()).update(one.repositories)
    return {address: sorted(names) for address, names in found.items()}, notes

"""What a command read of refs dumps. Their ids are hashes: the same ids are the same refs."""

from __future__ import annotations

from lakeplan.app.gather import read_dump
from lakeplan.model.refs import Refs, RefsDumpIds
from lakeplan.model.repository import Repository
from lakeplan.ports.lakefs import LakeFSReader, MetadataReader


class RefsMemory:
    """One for a command. Every question has the refs dumped anew. May be used from several threads, each for
    repositories of its own."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[RefsDumpIds, tuple[str, ...]]] = {}
        self._metadata: dict[tuple[str, Repository], MetadataReader] = {}

    def read(self, server: str, reader: LakeFSReader, repository: Repository) -> Refs:
        """All refs as they are now. Raises as ``read_all_refs``."""
        ids = reader.dump_refs(repository.id)
        return self._read(server, reader, repository, ids)

    def metaranges(self, server: str, reader: LakeFSReader, repository: Repository) -> tuple[str, ...]:
        """Those of all commits as they are now, sorted. Raises as ``read_all_refs``."""
        ids = reader.dump_refs(repository.id)
        known = self._known.get((server, repository.id))
        if known is None or known[0] != ids:
            self._read(server, reader, repository, ids)
        return self._known[server, repository.id][1]

    def metadata(self, server: str, reader: LakeFSReader, repository: Repository) -> MetadataReader:
        """Raises ServerError."""
        key = (server, repository)
        if key not in self._metadata:
            self._metadata[key] = reader.metadata_reader(repository.id)
        return self._metadata[key]

    def _read(self, server: str, reader: LakeFSReader, repository: Repository, ids: RefsDumpIds) -> Refs:
        metadata = self.metadata(server, reader, repository)
        refs = read_dump(reader, repository.id, ids, metadata)
        metaranges = {commit.meta_range_id for commit in refs.commits if commit.meta_range_id}
        self._known[server, repository.id] = ids, tuple(sorted(metaranges))
        return refs

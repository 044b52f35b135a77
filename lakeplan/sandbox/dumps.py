"""Refs dumps written into a namespace."""

from __future__ import annotations

from lakeplan.formats.namespace import REFS_MANIFEST_KEY, metadata_key
from lakeplan.formats.refs_dump import write_manifest, write_refs_dump
from lakeplan.model.refs import RefsDumpIds
from lakeplan.model.repository import Repository
from lakeplan.sandbox.service import Service


def dump_refs(service: Service, repository: Repository, *, manifest: bool) -> RefsDumpIds:
    """Writes all commits, branches (hidden too) and tags; the manifest only when asked to."""
    namespace = service.namespace(repository)
    ids, files = write_refs_dump(service.records.refs(repository.id))
    for id, data in files.items():
        namespace.write_once(metadata_key(id), data)
    if manifest:
        namespace.write(REFS_MANIFEST_KEY, write_manifest(ids))
    return ids

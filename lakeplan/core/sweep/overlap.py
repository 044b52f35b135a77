"""Namespaces that share storage: a sweep by one repository would delete the other's data."""

from __future__ import annotations

from collections.abc import Iterable

from lakeplan.model.repository import Repository

_SAME_STORE = {"s3a": "s3", "s3n": "s3"}


def overlapping(repository: Repository, others: Iterable[Repository]) -> list[tuple[Repository, str]]:
    """Repositories whose namespace equals, contains or lies inside this one's, and how, in words."""
    own = _parts(repository.storage_namespace)
    found = []
    for other in others:
        if other.id == repository.id:
            continue
        theirs = _parts(other.storage_namespace)
        shorter = min(len(own), len(theirs))
        if own[:shorter] != theirs[:shorter]:
            continue
        if len(own) == len(theirs):
            how = "has the same storage namespace"
        elif len(own) < len(theirs):
            how = "has its storage namespace inside this one's"
        else:
            how = "has a storage namespace that contains this one's"
        found.append((other, how))
    return found


def _parts(url: str) -> list[str]:
    scheme, separator, rest = url.partition("://")
    if not separator:
        return [part for part in url.split("/") if part]
    scheme = _SAME_STORE.get(scheme.lower(), scheme.lower())
    host, _, path = rest.partition("/")
    return [scheme, host.lower(), *(part for part in path.split("/") if part)]

"""Namespaces that share storage: a sweep by one repository would delete the other's data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from lakeplan.model.repository import Repository

_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "http": "azure", "https": "azure"} | dict.fromkeys(
    ("abfs", "abfss", "wasb", "wasbs"), "azure"
)


@dataclass(frozen=True)
class Place:
    """A namespace taken apart. ``store`` is the account of an Azure URL, else ""; an endpoint of S3 is not in
    its URL. ``parts`` begin with the bucket or container."""

    scheme: str
    store: str
    parts: tuple[str, ...]

    def how(self, other: Place, *, any_store: bool) -> str:
        """How another namespace lies to this one, in words; "" where they have nothing in common."""
        if self.scheme != other.scheme or not (any_store or self.store == other.store):
            return ""
        shorter = min(len(self.parts), len(other.parts))
        if self.parts[:shorter] != other.parts[:shorter]:
            return ""
        if len(self.parts) == len(other.parts):
            return "has the same storage namespace"
        if len(self.parts) < len(other.parts):
            return "has its storage namespace inside this one's"
        return "has a storage namespace that contains this one's"


def overlapping(
    repository: Repository, others: Iterable[Repository], *, any_store: bool = False
) -> list[tuple[Repository, str]]:
    """Repositories whose namespace equals, contains or lies inside this one's, in any spelling, and how, in
    words. ``any_store``: also those that do so only if another endpoint or account means the same storage."""
    own = places(repository.storage_namespace)
    found = []
    for other in others:
        if other.id == repository.id:
            continue
        theirs = places(other.storage_namespace)
        hows = (a.how(b, any_store=any_store) for a in own for b in theirs)
        if how := next(filter(None, hows), ""):
            found.append((other, how))
    return found


@lru_cache(maxsize=4096)
def places(url: str) -> tuple[Place, ...]:
    """The place that a namespace means, and others that it may mean: a server drops a query and decodes
    escapes, and some stores resolve ``..``."""
    scheme, rest = _taken_apart(url)
    cut = rest.partition("?")[0]
    texts = (rest, cut, unquote(cut))
    both = [parts for text in texts for parts in (_plain(text), resolved(text))]
    return tuple(dict.fromkeys(_place(scheme, parts) for parts in both))


@lru_cache(maxsize=4096)
def place_of(url: str) -> Place:
    """The place that a namespace most probably means."""
    scheme, rest = _taken_apart(url)
    return _place(scheme, resolved(unquote(rest.partition("?")[0])))


def _taken_apart(url: str) -> tuple[str, str]:
    scheme, separator, rest = url.partition("://")
    return (_SAME_SCHEME.get(scheme.lower(), scheme.lower()), rest) if separator else ("", url)


def resolved(path: str) -> list[str]:
    """The parts of a path without empty and dot segments."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def _plain(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _place(scheme: str, parts: list[str]) -> Place:
    if not parts:
        return Place(scheme, "", ())
    user, at, host = parts[0].lower().rpartition("@")
    if scheme != "azure":
        return Place(scheme, "", (host, *parts[1:]))
    name = host.partition(":")[0]
    if (
        name == "localhost" or name.replace(".", "").isdigit() or "[" in name
    ):  # Azurite: the account is in the path
        return Place(scheme, *((parts[1], tuple(parts[2:])) if len(parts) > 1 else ("", ())))
    container = (user,) if at else ()
    return Place(scheme, name.partition(".")[0], (*container, *parts[1:]))

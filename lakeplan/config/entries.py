"""Entries: which repositories a key names, on which server, and what layers apply to one repository."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from lakeplan.config.layers import Layer, Value
from lakeplan.config.merge import Merged, merge
from lakeplan.core.globs import is_glob, matches, specificity
from lakeplan.model.desired import Source

MAX_PROFILE_DEPTH = 20
"""How many profiles may build on each other in a row."""


@dataclass(frozen=True)
class Entry:
    """One key of ``repositories``. ``broken`` entries have problems of their own and are not resolved."""

    key: str
    server: str
    name: str
    layer: Layer
    broken: bool = False

    @property
    def is_glob(self) -> bool:
        return is_glob(self.name)

    @property
    def source(self) -> Source:
        return self.layer.source

    def covers(self, name: str) -> bool:
        return matches(name, self.name) if self.is_glob else name == self.name


@dataclass(frozen=True)
class Naming:
    """What names one repository: globs from the least to the most specific, then perhaps an exact entry."""

    globs: tuple[Entry, ...]
    exact: Entry | None

    @property
    def entry(self) -> Entry:
        """The one that counts as naming it: the exact one, or else the most specific glob."""
        return self.exact if self.exact is not None else self.globs[-1]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (*self.globs, self.exact) if self.exact is not None else self.globs


class Directory:
    """Entries by server, and profiles by name."""

    def __init__(self, entries: Iterable[Entry], profiles: Mapping[str, Layer]) -> None:
        self._exact: dict[str, dict[str, Entry]] = {}
        self._globs: dict[str, list[Entry]] = {}
        self.profiles = profiles
        for entry in entries:
            if entry.is_glob:
                self._globs.setdefault(entry.server, []).append(entry)
            else:
                self._exact.setdefault(entry.server, {})[entry.name] = entry
        for globs in self._globs.values():
            globs.sort(key=lambda e: (specificity(e.name), e.name))

    def exact_names(self, server: str) -> set[str]:
        return set(self._exact.get(server, {}))

    def globs(self, server: str) -> Sequence[Entry]:
        """From the least to the most specific; equally specific ones by name."""
        return self._globs.get(server, ())

    def names_any(self, server: str) -> bool:
        """Whether any entry, exact or a glob, is of a server."""
        return server in self._exact or server in self._globs

    def naming(self, server: str, name: str) -> Naming | None:
        """What names a repository; None when no entry does."""
        globs = tuple(e for e in self.globs(server) if matches(name, e.name))
        exact = self._exact.get(server, {}).get(name)
        return Naming(globs, exact) if globs or exact is not None else None

    def merged(self, naming: Naming) -> Merged:
        """Profiles left to right, then globs from the least to the most specific, then the exact entry."""
        groups: list[list[Layer]] = [[p] for p in self.profile_layers(naming.entries)]
        for _, equal in groupby(naming.globs, key=lambda e: specificity(e.name)):
            groups.append([e.layer for e in equal])
        if naming.exact is not None:
            groups.append([naming.exact.layer])
        return merge(groups)

    def profile_layers(self, entries: Iterable[Entry]) -> list[Layer]:
        """Profiles of all entries in their order. One that is named again counts where it is named last; one
        that others build on comes before them, once. Names without a profile are left out."""
        named: dict[str, None] = {}
        for entry in entries:
            for value in entry.layer.use:
                named.pop(str(value.value), None)
                named[str(value.value)] = None
        ordered: dict[str, Layer] = {}
        for name in named:
            self._expand(name, ordered, 0)
        return list(ordered.values())

    def _expand(self, name: str, ordered: dict[str, Layer], depth: int) -> None:
        profile = self.profiles.get(name)
        if profile is None or name in ordered or depth > MAX_PROFILE_DEPTH:
            return
        for base in profile.use:
            self._expand(str(base.value), ordered, depth + 1)
        ordered[name] = profile


def find_cycle(profiles: Mapping[str, Layer], start: str) -> list[Value] | None:
    """The shortest chain of ``use`` items that leads from a profile back to itself; None when none does."""
    pending: list[list[Value]] = [[value] for value in profiles[start].use]
    seen: set[str] = set()
    while pending:
        chain = pending.pop(0)
        name = str(chain[-1].value)
        if name == start:
            return chain
        if name in profiles and name not in seen:
            seen.add(name)
            pending.extend([*chain, value] for value in profiles[name].use)
    return None


def profile_depths(profiles: Mapping[str, Layer]) -> dict[str, int]:
    """How many profiles stand under each one in its longest row. Cut off beyond the most that is allowed,
    so that a cycle ends too."""
    depths = dict.fromkeys(profiles, 0)
    for _ in range(MAX_PROFILE_DEPTH + 2):
        before = dict(depths)
        for name, profile in profiles.items():
            depths[name] = max(
                (1 + before[str(v.value)] for v in profile.use if v.value in before), default=0
            )
        if depths == before:
            break
    return depths

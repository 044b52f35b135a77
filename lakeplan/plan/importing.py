"""Makes a tree from stored rules: files, entries, and profiles for rules that several repositories share.
Writes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from lakeplan.branches.pin_records import read_stored
from lakeplan.errors import FeatureMissing, LakeplanError
from lakeplan.lakefs.protocols import LakeFSReader
from lakeplan.plan.gather import read_setting
from lakeplan.retention.patterns import names_repository
from lakeplan.review.run import GC, Run
from lakeplan.state.store import Sighting
from lakeplan.tree.editing import gc_lines, quoted, setting_lines
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import SettingItem, SettingKind, item_body
from lakeplan.values.progress import Progress, in_parallel
from lakeplan.values.rules import MAX_DAYS, GcRules

Split = Literal["repository", "server", "owner"]
ROOT_FILE = "lakeplan.yaml"
UNOWNED = "unowned"
WORKERS = 8


@dataclass(frozen=True)
class Imported:
    """One repository with what a server stores, or with the rules in a file for lakectl. ``rules`` None: it
    has only ``settings``, the policies or object rules of a lakeFS Enterprise server."""

    server: str
    name: str
    rules: GcRules | None
    owner: str | None = None
    settings: Mapping[SettingKind, tuple[SettingItem, ...]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.server}/{self.name}"


@dataclass(frozen=True)
class SkippedRepository:
    """A repository that was left out of the tree, and why. ``is_problem``: it has, or may have, rules."""

    repository: str
    reason: str
    is_problem: bool = True


@dataclass(frozen=True)
class Import:
    """An imported tree. ``files`` maps each path in the tree to its text."""

    files: Mapping[str, str]
    imported: tuple[Imported, ...]
    left_out: tuple[SkippedRepository, ...] = ()
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Owners:
    """``GLOB=OWNER`` pairs, of which the first that matches counts. Servers do not record owners."""

    pairs: tuple[tuple[str, str], ...] = field(default=())

    def of(self, server: str, name: str) -> str | None:
        return next((o for g, o in self.pairs if names_repository(g, server, name)), None)


def read_servers(
    servers: Iterable[str],
    connect: Callable[[str], LakeFSReader],
    owners: Owners,
    progress: Progress,
    *,
    takes: Callable[[str, str], bool],
) -> tuple[list[Imported], list[SkippedRepository]]:
    """The rules, policies and object rules of every live repository for which ``takes(server, name)`` is
    true, and those that could not be read. Raises ServerError if a server does not answer."""
    imported: list[Imported] = []
    left_out: list[SkippedRepository] = []
    for server in servers:
        reader = connect(server)
        names = [r.id for r in reader.list_repositories() if takes(server, r.id)]
        with progress.task(f"reading {server}", len(names)) as step:
            read = in_parallel(_ServerImport(server, reader, owners).read, names, WORKERS, step)
        for repository, missing in read:
            imported += [repository] if repository is not None else []
            left_out += missing
    return imported, left_out


@dataclass(frozen=True)
class _ServerImport:
    """Reads the repositories of one server. A feature that it lacks is requested only once."""

    _server: str
    _reader: LakeFSReader
    _owners: Owners
    _lacking: set[SettingKind] = field(default_factory=set)

    def read(self, name: str) -> tuple[Imported | None, list[SkippedRepository]]:
        key, owner = f"{self._server}/{name}", self._owners.of(self._server, name)
        try:
            rules = read_stored(self._reader, name).bare
        except LakeplanError as error:
            return None, [SkippedRepository(key, error.message)]
        settings: dict[SettingKind, tuple[SettingItem, ...]] = {}
        left_out = []
        for kind in SettingKind:
            items = self._items(kind, name)
            if isinstance(items, LakeplanError):
                left_out.append(SkippedRepository(key, f"its {kind.label}: {items.message}"))
            elif items:
                settings[kind] = items
        if rules is None and not settings:
            missing = [] if left_out else [SkippedRepository(key, "it has no GC rules", is_problem=False)]
            return None, [*left_out, *missing]
        return Imported(self._server, name, rules, owner, settings), left_out

    def _items(self, kind: SettingKind, name: str) -> tuple[SettingItem, ...] | LakeplanError | None:
        if kind in self._lacking:
            return None
        try:
            return read_setting(self._reader, kind, name).items
        except FeatureMissing:
            self._lacking.add(kind)
            return None
        except LakeplanError as error:
            return error


def sightings(
    imported: Iterable[Imported], tree: DesiredTree, run: Run, *, at: datetime
) -> dict[str, dict[str, Sighting]]:
    """The values that were read of each repository, by ``server/name`` and setting, for its baseline."""
    hashes = {d.key: d.config_hash for server in tree.servers for d in tree.resolve(server, ())}
    by_key = {}
    for repository in imported:
        bodies: dict[str, Any] = {k.value: [item_body(i) for i in v] for k, v in repository.settings.items()}
        if repository.rules is not None:
            bodies[GC] = repository.rules.to_body()
        by_key[repository.key] = {
            name: Sighting(body, hashes[repository.key], run.run_id, at, "import")
            for name, body in bodies.items()
        }
    return by_key


def make_tree(
    endpoints: Mapping[str, str],
    repositories: Sequence[Imported],
    left_out: Sequence[SkippedRepository],
    split: Split,
    *,
    state: str | None = None,
) -> Import:
    """The files of a tree that requires exactly these rules. Repositories with stored values that no tree can
    have are left out, which a comment says."""
    good = []
    out = list(left_out)
    for repository in sorted(repositories, key=lambda r: r.key):
        invalid = _invalid_days(repository.rules)
        if invalid:
            out.append(SkippedRepository(repository.key, f"no tree can express the stored rules: {invalid}"))
        else:
            good.append(repository)
    out.sort(key=lambda item: item.repository)
    profiles = _profiles(good)
    engines = {r.server for r in good if SettingKind.BRANCH_LIFECYCLE in r.settings}
    files = {ROOT_FILE: _root(endpoints, engines, profiles, out, state)}
    for path, group in _groups(good, split, several=len(endpoints) > 1).items():
        files[path] = _file(group, profiles, several=len(endpoints) > 1)
    return Import(files, tuple(good), tuple(out), tuple(profiles.values()))


def _invalid_days(rules: GcRules | None) -> str:
    if rules is None:
        return ""
    days = {"the default": rules.default_retention_days, **rules.branches}
    return ", ".join(f"{d} days for {name}" for name, d in days.items() if not 1 <= d <= MAX_DAYS)


def _profiles(repositories: Iterable[Imported]) -> dict[GcRules, str]:
    """Names for the rules that more than one repository has."""
    counts = Counter(r.rules for r in repositories if r.rules is not None)
    shared = sorted(
        (rules for rules, n in counts.items() if n > 1),
        key=lambda r: (r.default_retention_days, len(r.branches), list(r.branches.items())),
    )
    names: dict[GcRules, str] = {}
    for rules in shared:
        name = f"days-{rules.default_retention_days}"
        if len(rules.branches) == 1:
            (branch, days), *_ = rules.branches.items()
            name += f"-{_file_name(branch)}-{days}"
        number, free = 2, name
        while free in names.values():
            free, number = f"{name}-{number}", number + 1
        names[rules] = free
    return names


def _groups(repositories: Iterable[Imported], split: Split, *, several: bool) -> dict[str, list[Imported]]:
    """Repositories by their file. Names that differ only in case, or in what file names cannot have, share
    one."""
    groups: dict[str, list[Imported]] = {}
    paths: dict[str, str] = {}  # some file systems ignore case
    for repository in repositories:
        match split:
            case "owner":
                name = _file_name(repository.owner or UNOWNED)
            case "server":
                name = _file_name(repository.server)
            case "repository":
                name = _file_name(repository.name)
                if several:
                    name = f"{_file_name(repository.server)}/{name}"
        path = paths.setdefault(name.lower(), f"repositories/{name}.yaml")
        groups.setdefault(path, []).append(repository)
    return groups


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)[:100]


def _root(
    endpoints: Mapping[str, str],
    engines: Collection[str],
    profiles: Mapping[GcRules, str],
    left_out: Iterable[SkippedRepository],
    state: str | None,
) -> str:
    lines = ["apiVersion: lakeplan/v1", "servers:"]
    for name, url in endpoints.items():
        engine = ", branch_lifecycle: {engine: server}" if name in engines else ""
        lines.append(f"  {quoted(name)}: {{endpoint_url: {quoted(url)}{engine}}}")
    if state is not None:
        lines.append(f"state: {{url: {quoted(state)}}}")
    if profiles:
        lines.append("profiles:")
        for rules, name in profiles.items():
            lines += [f"  {quoted(name)}:", *(f"    {line}" for line in gc_lines(rules))]
    lines.append("unmanaged: warn  # repositories without an entry")
    lines.append('include: ["repositories/**/*.yaml"]')
    notes = [f"#   {_comment(f'{item.repository}: {item.reason}')}" for item in left_out]
    if notes:
        lines += ["", "# Not imported, so not managed:", *notes]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _file(repositories: Iterable[Imported], profiles: Mapping[GcRules, str], *, several: bool) -> str:
    lines = ["apiVersion: lakeplan/v1", "repositories:"]
    for repository in repositories:
        lines.append(f"  {quoted(repository.key if several else repository.name)}:")
        if repository.owner is not None:
            lines.append(f"    owner: {quoted(repository.owner)}")
        body = _gc(repository.rules, profiles) if repository.rules is not None else []
        for kind, items in repository.settings.items():
            body += setting_lines(kind, items)
        lines += [f"    {line}" for line in body]
    return "\n".join(lines) + "\n"


def _gc(rules: GcRules, profiles: Mapping[GcRules, str]) -> list[str]:
    return [f"use: [{quoted(profiles[rules])}]"] if rules in profiles else gc_lines(rules)

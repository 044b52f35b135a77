"""A loaded tree, and what planning asks of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from lakeplan.tree.files import ROOT_FILE, relative_folder
from lakeplan.tree.layers import Directory, Entry, Layer
from lakeplan.tree.loading import TreeReader
from lakeplan.tree.policies import build, check_complete, conflict_text, describe
from lakeplan.tree.yaml import TOP, Problem, Problems, TreeError
from lakeplan.values.desired import Bounds, Check, DesiredRepository, Override, Safety, ServerConfig, Source
from lakeplan.values.notify import NotifyConfig


class DesiredTree(Protocol):
    """A loaded tree, every problem already reported."""

    @property
    def servers(self) -> Mapping[str, ServerConfig]: ...
    @property
    def safety(self) -> Safety: ...
    @property
    def overrides(self) -> Sequence[Override]: ...
    @property
    def unmanaged_policy(self) -> Literal["ignore", "warn", "fail"]: ...
    @property
    def checks(self) -> Sequence[Check]: ...
    @property
    def name(self) -> str:
        """What it is called; "" when it has no name."""

    @property
    def digest(self) -> str:
        """Tells one tree from another; the same for the same tree at another place or commit."""

    def resolve(self, server: str, live_repositories: Iterable[str]) -> list[DesiredRepository]:
        """Every repository that an entry names: exact entries always, globs over the live ones."""

    def may_manage(self, server: str, name: str) -> bool:
        """Whether ``manages`` leaves a repository to this tree."""

    def unmanaged(self, server: str, live_repositories: Iterable[str]) -> list[str]:
        """Live repositories that no entry names. Those that ``manages`` leaves out are other trees'."""


DEFAULT_STATE = "file://.lakeplan"


@dataclass(frozen=True)
class Tree:
    """A tree without problems of its own. ``state_url`` is absolute; ``entries`` are in the order of files
    and keys. ``places`` says where the values stand that gates are judged by: ``safety.on_tag_loss``,
    ``bounds``, ``state.url``, ``unmanaged`` and the like."""

    root: Path
    servers: Mapping[str, ServerConfig]
    default_server: str | None
    safety: Safety
    bounds: Bounds
    unmanaged_policy: Literal["ignore", "warn", "fail"]
    overrides: tuple[Override, ...]
    state_url: str
    declared_state_url: str | None
    profiles: Mapping[str, Layer]
    entries: tuple[Entry, ...]
    directory: Directory
    files: tuple[str, ...]
    places: Mapping[str, Source] = field(default_factory=dict)
    runner: str | None = None
    """What simulates, where the command line says nothing; None where the tree says nothing either."""
    notify: NotifyConfig | None = None
    approvers: str | None = None
    name: str = ""
    """What tells the tree from other trees of the same servers; "" when it has no name."""
    manages: tuple[str, ...] | None = None
    """Globs over the repositories that the tree may manage; None: all."""
    checks: tuple[Check, ...] = ()
    contents: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 (hex) of each file of the tree, files of rules too."""

    @property
    def content_digest(self) -> str:
        """SHA-256 (hex) over the names and contents of its files."""
        return hashlib.sha256(json.dumps(dict(self.contents), sort_keys=True).encode()).hexdigest()

    @property
    def digest(self) -> str:
        """Tells one tree from another: SHA-256 (hex) over the names and endpoints of its servers and the
        state URL as written. The same at another place or commit, and when repositories change."""
        identity = {
            "servers": {name: server.endpoint_url for name, server in self.servers.items()},
            "state": self.declared_state_url,
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def resolve(self, server: str, live_repositories: Iterable[str]) -> list[DesiredRepository]:
        """Every repository of a server that an entry names, by name: exact entries always, globs over the
        live ones. Raises ConfigError when a glob gives a live repository settings that cannot be meant."""
        live = set(live_repositories)
        problems = Problems()
        found = []
        for name in sorted(self.directory.exact_names(server) | live):
            repository = self._resolve_one(server, name, problems)
            if repository is not None:
                found.append(repository)
        problems.raise_any(where=str(self.root / ROOT_FILE))
        return found

    def _resolve_one(self, server: str, name: str, problems: Problems) -> DesiredRepository | None:
        naming = self.directory.naming(server, name)
        if naming is None:
            return None
        merged = self.directory.merged(naming)
        before = len(problems)
        check_complete(merged, ("repositories", name), problems)
        for conflict in merged.conflicts:
            text = f"{name!r}: {conflict_text(conflict, 'one glob', 'another')}"
            problems.add(conflict.other.source, ("repositories", name, describe(conflict.path)), text)
        if len(problems) > before:
            return None
        return build(server, name, naming, merged, self.safety, tree=self.name)

    def may_manage(self, server: str, name: str) -> bool:
        """Whether ``manages`` leaves a repository to this tree."""
        return self.directory.may_manage(server, name)

    def unmanaged(self, server: str, live_repositories: Iterable[str]) -> list[str]:
        """Live repositories of a server that no entry names and that ``manages`` allows, sorted."""
        mine = (n for n in set(live_repositories) if self.directory.may_manage(server, n))
        return sorted(n for n in mine if self.directory.naming(server, n) is None)

    def owner_of(self, repository: str) -> str:
        """Who owns ``server/name`` by its entry; "" when no entry says so."""
        server, _, name = repository.partition("/")
        found = self._resolve_one(server, name, Problems()) if server in self.servers else None
        return (found.owner if found is not None else None) or ""

    def servers_of(self, repository: str) -> list[str]:
        """Servers on which some entry names a repository, given as ``name`` or ``server/name``."""
        server, slash, name = repository.rpartition("/")
        candidates = [server] if slash else list(self.servers)
        return [s for s in candidates if self.directory.naming(s, name) is not None]


def load_tree(root: Path, environ: Mapping[str, str], *, is_base: bool = False) -> Tree:
    """Reads ``lakeplan.yaml`` in ``root`` and every file it includes.

    ``environ`` is where ``${VAR}`` in the settings of servers is read from (``LAKEPLAN_VAR_*`` only).
    ``is_base``: this is the tree of ``--base``, where keys may have their old names (``with_present_names``),
    so that a change can rename them.
    Raises ConfigError with every problem of the tree, sorted by position; nothing else for any content.
    """
    if not (root / ROOT_FILE).is_file():
        other = root / "lakeplan.yml"
        hint = f"Rename {other.name} to {ROOT_FILE}." if other.is_file() else "Name its folder with -C DIR."
        missing = Problem(Source(ROOT_FILE, 1, 1), TOP, "there is no such file")
        message = f"there is no {ROOT_FILE} in {root}"
        raise TreeError([missing], message=message, hint=hint, silent=True)
    problems = Problems()
    reader = TreeReader(root, environ, problems, is_base=is_base)
    reader.read()
    problems.raise_any(where=str(root / ROOT_FILE))
    declared = reader.state_url
    return Tree(
        root=root,
        servers=reader.servers,
        default_server=reader.default_server,
        safety=reader.safety,
        bounds=reader.bounds,
        unmanaged_policy=reader.unmanaged,
        runner=reader.runner,
        notify=reader.notify,
        name=reader.name,
        manages=reader.manages,
        checks=reader.checks,
        approvers=reader.approvers,
        overrides=tuple(item for _, item in reader.overrides),
        state_url=_absolute(declared or DEFAULT_STATE, root),
        declared_state_url=declared,
        profiles=reader.profiles,
        entries=tuple(reader.entries),
        directory=Directory(reader.entries, reader.profiles, reader.manages),
        files=tuple(reader.files_read),
        places=reader.places,
        contents=dict(reader.digests),
    )


def _absolute(url: str, root: Path) -> str:
    """A relative ``file://`` URL is relative to the tree."""
    relative = relative_folder(url)
    return url if relative is None else f"{root.resolve().as_uri().rstrip('/')}/{relative}"

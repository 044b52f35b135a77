"""Loads a tree, checks it as a whole, and resolves its repositories."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, cast, get_args

from lakeplan import limits
from lakeplan.retention.patterns import (
    REPOSITORY_NAMES,
    TooManyGlobs,
    is_glob,
    pattern_problem,
    why_no_repository,
)
from lakeplan.tree.checks import SettingsCheck
from lakeplan.tree.crosscheck import (
    build,
    check_complete,
    check_duplicates,
    check_entries,
    check_managed,
    check_names_of_servers,
    check_overrides,
    check_profiles,
    conflict_text,
    read_overrides,
    too_many_values,
)
from lakeplan.tree.files import ROOT_FILE, TreeFiles
from lakeplan.tree.layers import (
    SET,
    Directory,
    Entry,
    Layer,
    Naming,
    WhatIf,
    laid_over,
    make_layer,
    read_what_if,
    refuse_wrong,
)
from lakeplan.tree.servers import (
    ServersReader,
    read_bounds,
    read_checks,
    read_manages,
    read_notify,
    read_places,
    read_safety,
    relative_folder,
    why_no_state,
)
from lakeplan.tree.structure import check_structure, listed, suggestion
from lakeplan.tree.yaml import (
    TOP,
    ListNode,
    MapNode,
    Node,
    NodePath,
    Problem,
    Problems,
    ScalarNode,
    TreeError,
    show_path,
    text_of,
    walk,
)
from lakeplan.values.desired import Bounds, Check, DesiredRepository, Override, Safety, ServerConfig, Source
from lakeplan.values.notify import Event, NotifyConfig


class KeyReader:
    """Reads the server and the name or glob of a key of ``repositories``."""

    def __init__(self, servers: Collection[str], default_server: str | None, problems: Problems) -> None:
        self._servers = servers
        self._default = default_server
        self._problems = problems

    def read(self, key: str, given: Node | None, at: Source, path: NodePath) -> tuple[str, str] | None:
        """Return server and name. Return None and add a problem if either is unknown. ``given`` is the
        entry's ``server``."""
        prefix, slash, name = key.rpartition("/")
        server = self._server(prefix if slash else None, given, at, path)
        name_is_good = self._is_name(name, at, path)
        return (server, name) if server is not None and name_is_good else None

    def _server(self, prefix: str | None, given: Node | None, at: Source, path: NodePath) -> str | None:
        written = text_of(given)
        if given is not None and written is not None:
            if prefix is not None and prefix != written:
                text = f"the key specifies the server {prefix!r}, but `server` is {written!r}"
                self._problems.add(given.source, (*path, "server"), text)
                return None
            return written if self.known_server(written, given.source, (*path, "server")) else None
        if prefix is not None:
            return prefix if self.known_server(prefix, at, path) else None
        if self._default is None and self._servers:
            text = f"the tree has several servers ({listed(self._servers)}); choose one with `server:`"
            self._problems.add(at, path, text)
        # An unknown default server is already a problem at its own place.
        return self._default if self._default in self._servers else None

    def known_server(self, name: str, at: Source, path: NodePath) -> bool:
        """Return whether a server exists, and otherwise add a problem that suggests one."""
        if name in self._servers:
            return True
        if self._servers:
            text = f"there is no server {name!r}; {suggestion(name, self._servers)}"
            self._problems.add(at, path, text)
        return False

    def _is_name(self, name: str, at: Source, path: NodePath) -> bool:
        if is_glob(name):
            if problem := pattern_problem(name, why_no_repository):
                self._problems.add(at, path, problem)
            return problem is None
        if not REPOSITORY_NAMES.allows(name):
            text = (
                f"{name!r} is not a valid repository name: use 3 to 63 of a-z, 0-9 and -, and do not begin"
                " with -"
            )
            self._problems.add(at, path, text)
            return False
        return True


Policy = Literal["ignore", "warn", "fail"]
DEFAULT_INCLUDE = "repositories/**/*.yaml"
_SIMILAR = "repositories/**/*.[yY]*[lL]"
"""Also matches the files whose names end with .yml or .YAML, which people take for files of the tree."""
_FIRST = Source(ROOT_FILE, 1, 1)
_FILE_SCHEMAS = {"gc": "repository#gc_file", "branch_lifecycle": "repository#policies_file"}


@dataclass(frozen=True, kw_only=True)
class RootFile:
    """The settings of ``lakeplan.yaml`` other than profiles and entries. ``places`` has the places of those
    that gates depend on, such as ``safety.on_tag_loss``, ``bounds``, ``state.url`` and ``unmanaged``."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    default_server: str | None = None
    safety: Safety = field(default_factory=Safety)
    bounds: Bounds = field(default_factory=Bounds)
    unmanaged_policy: Policy = "warn"
    declared_state_url: str | None = None
    places: Mapping[str, Source] = field(default_factory=dict)
    runner: str | None = None
    """The runner of simulations if no option sets it, or None if the tree does not set it."""
    notify: NotifyConfig | None = None
    approvers: str | None = None
    name: str = ""
    """The name that distinguishes the tree from other trees of the same servers, or "" if it has none."""
    manages: tuple[str, ...] | None = None
    """Globs over the repositories that the tree may manage, or None for all."""
    checks: tuple[Check, ...] = ()


class TreeReader:
    """Reads a tree once. ``read`` sets the attributes, which are complete only without problems."""

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        problems: Problems,
        *,
        is_base: bool = False,
        what_if: WhatIf | None = None,
        edited: Mapping[Path, str] | None = None,
    ) -> None:
        self._is_base = is_base
        self._what_if = what_if
        self.over: Layer | None = None
        self._edited = edited
        self._files = TreeFiles(root, problems, edited)
        self._files.ignores_links = is_base  # the change may correct this
        self._environ = environ
        self._problems = problems
        self._rules_files: dict[str, MapNode | None] = {}
        self._wrong: dict[str, set[NodePath]] = {}
        self._unreadable = False
        self.root_file = RootFile()
        self.profiles: dict[str, Layer] = {}
        self.entries: list[Entry] = []
        self.overrides: list[tuple[NodePath, Override]] = []
        self.files_read: list[str] = []
        self._check = SettingsCheck(problems, self.root_file.bounds)

    @property
    def directory(self) -> Directory:
        return Directory(self.entries, self.profiles, self.root_file.manages, self.over)

    def read(self) -> None:
        root = self._read_file(ROOT_FILE, "tree", Source(ROOT_FILE, 1, 1), ())
        if root is None:
            return
        if self._what_if is not None:
            root = laid_over(root, self._what_if.tree)
            self._wrong[ROOT_FILE] |= check_structure(root, "tree", self._problems)
        self._read_root(root)
        if self._what_if is not None:
            self.over = self._layer_over(self._what_if.repository)
        maps = [(ROOT_FILE, root), *self._included(root)]
        entries: list[Entry] = []
        for file, node in maps:
            self.files_read.append(file)
            self.overrides.extend(read_overrides(node, self._problems))
            entries.extend(self._read_entries(file, node))
        broken = {name for name in self.profiles if self._is_broken(ROOT_FILE, ("profiles", name))}
        bad_profiles = check_profiles(self.profiles, self._problems) | broken
        self.entries = check_duplicates(entries, self._problems)
        directory, servers = self.directory, self.root_file.servers
        check_managed(self.entries, directory, self._problems)
        try:
            check_entries(self.entries, directory, bad_profiles, servers, self._problems)
            if not self._is_base:  # the change may correct this
                check_names_of_servers(self.entries, directory, servers, self._problems)
            if not self._unreadable:
                # The repository may be in a file that could not be read.
                check_overrides(self.overrides, self.entries, self._problems)
        except TooManyGlobs:
            text = (
                "the globs overlap in too many ways to compare; use fewer globs, or fewer wildcards in them"
            )
            self._problems.add(Source(ROOT_FILE, 1, 1), ("repositories",), text)

    @property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 (hex) of every file that was read, including rules files."""
        return self._files.digests

    # ---- files
    def _read_file(self, file: str, schema: str, at: Source, path: NodePath) -> MapNode | None:
        node = self._files.parse(file, at, path)
        if node is None:
            self._unreadable = self._unreadable or schema == "repository"
            return None
        self._wrong[file] = check_structure(node, schema, self._problems) | self._files.lost[file]
        return node if isinstance(node, MapNode) else None

    def _included(self, root: MapNode) -> list[tuple[str, MapNode]]:
        """Return the files that ``include`` names, without rules files."""
        node = root.items.get("include")
        places: dict[str, tuple[Source, NodePath]] = {}
        similar: list[str] = []
        patterns: list[tuple[str, Source, NodePath]] = [(DEFAULT_INCLUDE, _FIRST, ())]
        if node is not None:
            items = node.items if isinstance(node, ListNode) else ()
            patterns = [(text_of(item) or "", item.source, ("include", n)) for n, item in enumerate(items)]
        for pattern, at, path in patterns:
            # A change may correct the names and links in its base.
            wider = _SIMILAR if pattern == DEFAULT_INCLUDE and not self._is_base else pattern
            files = self._files.expand(wider, at, path) if wider else []
            if pattern == DEFAULT_INCLUDE:
                similar, files = files, [file for file in files if file.endswith(".yaml")]
            for file in files:
                places.setdefault(file, (at, path))
        rules = self._named_rules_files([ROOT_FILE, *places])
        for file in similar:
            if file not in rules and file not in places and file.lower().endswith((".yaml", ".yml")):
                text = "the file is not part of the tree, because its name does not end with .yaml; rename it"
                self._problems.add(Source(file, 1, 1), (), text)
        included = []
        for file, (at, path) in sorted(places.items()):
            if file not in rules and (child := self._read_file(file, "repository", at, path)) is not None:
                included.append((file, child))
        return included

    def _named_rules_files(self, files: list[str]) -> set[str]:
        """Return the files that ``file:`` keys name, to distinguish them from repository files."""
        named: set[str] = set()
        quiet = TreeFiles(self._files.root, Problems(), self._edited)
        for file in files:
            if not quiet.mentions(file, "file"):
                continue
            node = quiet.parse(file, Source(file, 1, 1), ())
            for path, child in walk(node) if node is not None else ():
                if path[-1:] == ("file",) and path[-2:-1] in (("gc",), ("branch_lifecycle",)):
                    target = quiet.resolve(file, text_of(child) or "", child.source, path)
                    named |= {target} if target else set()
        return named

    def _rules_file(self, base: NodePath, block: str, reference: ScalarNode) -> MapNode | None:
        """Return the map in a file for lakectl. The file is read and checked once."""
        at, path = reference.source, (*base, block, "file")
        target = self._files.resolve(at.file, text_of(reference) or "", at, path)
        if target is None:
            self._wrong[at.file].add(path)
            return None
        if target not in self._rules_files:
            node = self._read_file(target, _FILE_SCHEMAS[block], at, path)
            self._rules_files[target] = node
            if node is not None and block == "gc":
                self._check.gc(node, ())
            elif node is not None:
                self._check.branch_lifecycle(node, ())
        if self._rules_files[target] is None or self._wrong.get(target):
            self._wrong[at.file].add(path)
        return self._rules_files[target]

    # ---- lakeplan.yaml
    def _read_root(self, root: MapNode) -> None:
        block = root.items.get("servers")
        servers = (
            ServersReader(self._problems, self._environ).read(block) if isinstance(block, MapNode) else {}
        )
        unmanaged = text_of(root.items.get("unmanaged"))
        self.root_file = RootFile(
            bounds=read_bounds(root, self._problems),
            safety=read_safety(root, self._problems),
            places=read_places(root),
            notify=read_notify(root, self._problems),
            servers=servers,
            name=text_of(root.items.get("name")) or "",
            checks=read_checks(root, self._problems),
            manages=read_manages(root, servers, self._problems),
            runner=text_of(_inner(root, "simulation", "runner")),
            approvers=text_of(root.items.get("approvers")),
            unmanaged_policy=cast(Policy, unmanaged) if unmanaged in get_args(Policy) else "warn",
            declared_state_url=self._state_url(_inner(root, "state", "url")),
            default_server=self._default_server(servers, _inner(root, "defaults", "server")),
        )
        self._check = SettingsCheck(self._problems, self.root_file.bounds)
        profiles = root.items.get("profiles")
        for name, node in profiles.items.items() if isinstance(profiles, MapNode) else ():
            path: NodePath = ("profiles", name)
            self._check.settings(node, path, may_clear=False)
            source = profiles.where(name) if isinstance(profiles, MapNode) else root.source
            self.profiles[name] = make_layer(f"profile {name}", source, node, partial(self._rules_file, path))

    def _state_url(self, node: Node | None) -> str | None:
        url = text_of(node)
        if node is not None and url is not None and (why := why_no_state(url)):
            self._problems.add_first(node.source, ("state", "url"), why)
        return url

    def _default_server(self, servers: Mapping[str, ServerConfig], node: Node | None) -> str | None:
        name = text_of(node)
        if node is None or name is None:
            return next(iter(servers)) if len(servers) == 1 else None
        KeyReader(servers, None, self._problems).known_server(name, node.source, ("defaults", "server"))
        return name

    # ---- entries
    def _layer_over(self, node: MapNode) -> Layer:
        """Return the layer of ``--set`` for every entry."""
        check_structure(node, "repository#entry", self._problems)
        self._check.settings(node, (), may_clear=True)
        return make_layer(SET, node.source, node, self._no_file)

    def _no_file(self, block: str, reference: ScalarNode) -> None:
        text = f"{SET} does not support `file`; specify the values directly"
        self._problems.add(reference.source, (block, "file"), text)

    def _read_entries(self, file: str, root: MapNode) -> Iterator[Entry]:
        keys = KeyReader(self.root_file.servers, self.root_file.default_server, self._problems)
        node = root.items.get("repositories")
        for key, child in node.items.items() if isinstance(node, MapNode) else ():
            path: NodePath = ("repositories", key)
            at = node.where(key) if isinstance(node, MapNode) else root.source
            given = child.items.get("server") if isinstance(child, MapNode) else None
            names = keys.read(key, given, at, path)
            self._check.settings(child, path, may_clear=not is_glob(key))
            layer = make_layer(f"entry {key}", at, child, partial(self._rules_file, path))
            if names is not None:
                broken = not isinstance(child, MapNode) or self._is_broken(file, path)
                yield Entry(key, *names, layer, broken)

    def _is_broken(self, file: str, path: NodePath) -> bool:
        """Return whether values of an entry or profile may be missing, because of a problem in it."""
        return any(wrong[: len(path)] == path for wrong in self._wrong[file])


class DesiredTree(Protocol):
    """A loaded tree without problems."""

    @property
    def servers(self) -> Mapping[str, ServerConfig]: ...
    @property
    def safety(self) -> Safety: ...
    @property
    def overrides(self) -> Sequence[Override]: ...
    @property
    def unmanaged_policy(self) -> Policy: ...
    @property
    def checks(self) -> Sequence[Check]: ...
    @property
    def name(self) -> str:
        """Its name, or "" if it has none."""

    @property
    def digest(self) -> str:
        """Identifies the tree, even at another place or commit."""

    def resolve(self, server: str, live_repositories: Iterable[str]) -> list[DesiredRepository]:
        """Return every repository that an exact entry names, and every live repository that a glob names."""

    def find(self, server: str, name: str) -> DesiredRepository | None:
        """Return a repository, live or not, or None if no entry names it."""

    def globs(self, server: str) -> list[DesiredRepository]:
        """Return each glob of a server as if it were a repository's name, with its owner and blocks."""

    def may_manage(self, server: str, name: str) -> bool:
        """Return whether ``manages`` includes a repository."""

    def unmanaged(self, server: str, live_repositories: Iterable[str]) -> list[str]:
        """Return live repositories that ``manages`` includes but that have no entry."""


DEFAULT_STATE = "file://.lakeplan"


@dataclass(frozen=True, kw_only=True)
class Tree(RootFile):
    """A loaded tree. ``state_url`` is absolute, and ``entries`` are in the order of files and keys."""

    root: Path
    state_url: str
    overrides: tuple[Override, ...]
    profiles: Mapping[str, Layer]
    entries: tuple[Entry, ...]
    directory: Directory
    files: tuple[str, ...]
    contents: Mapping[str, str]
    """SHA-256 (hex) of each file of the tree, including rules files."""

    @property
    def content_digest(self) -> str:
        """SHA-256 (hex) over the names and contents of its files."""
        return hashlib.sha256(json.dumps(dict(self.contents), sort_keys=True).encode()).hexdigest()

    @property
    def digest(self) -> str:
        """Identifies the tree: SHA-256 (hex) over the names and endpoints of its servers and the state URL as
        written. It stays the same at another place or commit, and after repositories change."""
        identity = {
            "servers": {name: server.endpoint_url for name, server in self.servers.items()},
            "state": self.declared_state_url,
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def resolve(self, server: str, live_repositories: Iterable[str]) -> list[DesiredRepository]:
        """Return every repository of a server that an exact entry names, and every live one that a glob
        names, sorted by name. Raises ConfigError if globs give a live repository invalid settings."""
        live = set(live_repositories)
        problems = Problems()
        repositories, values = [], 0
        for name in sorted(self.directory.exact_names(server) | live):
            repository = self._resolve_one(server, name, problems)
            if repository is None:
                continue
            values += len(repository.values)
            if values > limits.RESOLVED_VALUES:
                path = ("repositories", repository.entry)
                problems.add(repository.source or Source(ROOT_FILE, 1, 1), path, too_many_values())
                break
            repositories.append(repository)
        problems.raise_any(where=str(self.root / ROOT_FILE))
        return repositories

    def find(self, server: str, name: str) -> DesiredRepository | None:
        """Return the configuration of a repository, live or not, or None if no entry names it. Raises like
        ``resolve``."""
        problems = Problems()
        desired = self._resolve_one(server, name, problems)
        problems.raise_any(where=str(self.root / ROOT_FILE))
        return desired

    def _resolve_one(self, server: str, name: str, problems: Problems) -> DesiredRepository | None:
        naming = self.directory.naming(server, name)
        if naming is None:
            return None
        merged = self.directory.merged(naming)
        before = len(problems)
        check_complete(merged, ("repositories", name), problems)
        for conflict in merged.conflicts:
            text = f"{name!r}: {conflict_text(conflict, 'one glob', 'another')}"
            problems.add(conflict.other.source, ("repositories", name, show_path(conflict.path)), text)
        if len(problems) > before:
            return None
        desired = build(server, name, naming, merged, self.safety, tree=self.name)
        if self.notify is None:
            return desired
        channel = self.notify.channel_for(Event.BRANCH_DELETION, desired.owner)
        return replace(desired, notice_channel=channel.name if channel is not None else "")

    def globs(self, server: str) -> list[DesiredRepository]:
        """Return each glob of a server as if it were a repository's name, with the owner and the blocks
        (``resolved``) of its entry. The result may be incomplete without the settings of another glob."""
        globs = []
        for entry in self.directory.globs(server):
            merged = self.directory.merged(Naming((entry,), None))
            owner = merged.values.get(("owner",))
            glob = DesiredRepository(
                server, entry.name, entry.key, None, "", dict(merged.blocks), {}, source=entry.source
            )
            globs.append(replace(glob, owner=str(owner.value)) if owner is not None else glob)
        return globs

    def may_manage(self, server: str, name: str) -> bool:
        """Return whether ``manages`` includes a repository."""
        return self.directory.may_manage(server, name)

    def unmanaged(self, server: str, live_repositories: Iterable[str]) -> list[str]:
        """Return the live repositories that ``manages`` includes but that have no entry, sorted."""
        mine = (n for n in set(live_repositories) if self.directory.may_manage(server, n))
        return sorted(n for n in mine if self.directory.naming(server, n) is None)

    def owner_of(self, repository: str) -> str:
        """Return the owner of ``server/name``, or "" if its entry has none."""
        server, _, name = repository.partition("/")
        desired = self._resolve_one(server, name, Problems()) if server in self.servers else None
        return (desired.owner if desired is not None else None) or ""

    def servers_of(self, repository: str) -> list[str]:
        """Return the servers on which an entry names a repository, given as ``name`` or ``server/name``."""
        server, slash, name = repository.rpartition("/")
        candidates = [server] if slash else list(self.servers)
        return [s for s in candidates if self.directory.naming(s, name) is not None]


def load_tree(
    root: Path,
    environ: Mapping[str, str],
    *,
    is_base: bool = False,
    what_if: Sequence[str] = (),
    edited: Mapping[Path, str] | None = None,
) -> Tree:
    """Read ``lakeplan.yaml`` in ``root`` and every file that it includes.

    ``environ`` has the values of ``${VAR}`` in the settings of servers (``LAKEPLAN_VAR_*`` only).
    ``is_base``: this is the tree of ``--base``, whose entries may name a repository under two names of one
    server, and whose folder may have files that are ignored, so that a change can correct that. ``what_if``:
    settings of ``plan --set``, each ``PATH=VALUE``, which override the files. Raises UsageError if they are
    invalid. ``edited``: texts, by real path, that are read instead of the files. Raises ConfigError with all
    problems of the tree, sorted by position.
    """
    if not (root / ROOT_FILE).is_file():
        other = root / "lakeplan.yml"
        hint = (
            f"Rename {other.name} to {ROOT_FILE}."
            if other.is_file()
            else "Pass the folder of the tree with -C DIR."
        )
        missing = Problem(Source(ROOT_FILE, 1, 1), TOP, "the file does not exist")
        message = f"there is no {ROOT_FILE} in {root}"
        raise TreeError([missing], message=message, hint=hint, silent=True)
    problems = Problems()
    assumed = read_what_if(what_if) if what_if else None
    reader = TreeReader(root, environ, problems, is_base=is_base, what_if=assumed, edited=edited)
    reader.read()
    refuse_wrong(problems)
    problems.raise_any(where=str(root / ROOT_FILE))
    return Tree(
        **vars(reader.root_file),
        root=root,
        state_url=_absolute(reader.root_file.declared_state_url or DEFAULT_STATE, root),
        overrides=tuple(item for _, item in reader.overrides),
        profiles=reader.profiles,
        entries=tuple(reader.entries),
        directory=reader.directory,
        files=tuple(reader.files_read),
        contents=dict(reader.digests),
    )


def _inner(root: MapNode, block: str, key: str) -> Node | None:
    node = root.items.get(block)
    return node.items.get(key) if isinstance(node, MapNode) else None


def _absolute(url: str, root: Path) -> str:
    """Return a URL with a relative ``file://`` path resolved in the tree."""
    relative = relative_folder(url)
    return url if relative is None else f"{root.resolve().as_uri().rstrip('/')}/{relative}"

"""The keys of ``repositories``: a name or a glob, alone or as ``server/name``."""

from __future__ import annotations

from collections.abc import Collection

from lakeplan.config.checks import text_of
from lakeplan.config.nearest import nearest
from lakeplan.config.problems import Path, Problems
from lakeplan.config.yaml_nodes import Node
from lakeplan.core.globs import REPOSITORY_NAMES, is_glob, pattern_problem, why_no_repository
from lakeplan.model.desired import Source


class KeyReader:
    """Tells which server and which name or glob a key means."""

    def __init__(self, servers: Collection[str], default_server: str | None, problems: Problems) -> None:
        self._servers = servers
        self._default = default_server
        self._problems = problems

    def read(self, key: str, given: Node | None, at: Source, path: Path) -> tuple[str, str] | None:
        """Server and name; None, with a problem, when they cannot be told. ``given`` is the entry's
        ``server``."""
        prefix, slash, name = key.rpartition("/")
        server = self._server(prefix if slash else None, given, at, path)
        name_is_good = self._is_name(name, at, path)
        return (server, name) if server is not None and name_is_good else None

    def _server(self, prefix: str | None, given: Node | None, at: Source, path: Path) -> str | None:
        written = text_of(given)
        if given is not None and written is not None:
            if prefix is not None and prefix != written:
                text = f"the key says server {prefix!r}, this says {written!r}"
                self._problems.add(given.source, (*path, "server"), text)
                return None
            return written if self.known_server(written, given.source, (*path, "server")) else None
        if prefix is not None:
            return prefix if self.known_server(prefix, at, path) else None
        if self._default is None and self._servers:
            text = f"several servers ({', '.join(self._servers)}): name one with `server:`"
            self._problems.add(at, path, text)
        # An unknown default is a problem where it stands, once.
        return self._default if self._default in self._servers else None

    def known_server(self, name: str, at: Source, path: Path) -> bool:
        """Whether a server is there; a problem with the nearest one when it is not."""
        if name in self._servers:
            return True
        if self._servers:
            close = nearest(name, self._servers)
            hint = f"did you mean {close}?" if close else f"there are {', '.join(self._servers)}"
            self._problems.add(at, path, f"there is no server {name!r}: {hint}")
        return False

    def _is_name(self, name: str, at: Source, path: Path) -> bool:
        if is_glob(name):
            if problem := pattern_problem(name, why_no_repository):
                self._problems.add(at, path, problem)
            return problem is None
        if not REPOSITORY_NAMES.allows(name):
            text = f"{name!r} cannot be a repository's name (3 to 63 of a-z, 0-9, - and not - first)"
            self._problems.add(at, path, text)
            return False
        return True

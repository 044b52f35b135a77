"""Which repository of a tree is which at its base: servers are the same by their endpoints, whatever the
trees call them, so that a new name for a server lets nothing go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lakeplan.adapters.lakefs.endpoint import normalise_endpoint
from lakeplan.config.tree import Tree
from lakeplan.core.planning.loosening import WHOLE_TREE, changed_server
from lakeplan.model.desired import DesiredRepository, Safety, ServerConfig
from lakeplan.model.lifecycle import LifecycleSettings
from lakeplan.model.plan import Loosening, Plan
from lakeplan.model.sweep import SweepSettings

Pair = tuple[DesiredRepository, DesiredRepository | None]


@dataclass(frozen=True)
class Pairing:
    """Two trees. ``base`` is None where the commit has none; ``safety`` is the base's."""

    base: Tree | None
    head: Tree
    safety: Safety

    def repositories(self, plan: Plan) -> Iterator[Pair]:
        """(at the base, in the tree) of the repositories the plan saw, and of those the base names, both by
        the tree's name of their server. Where the base has no entry its defaults are the base; None: the
        tree names it no more. One that the base names on a server under several names has several pairs."""
        seen = {(r.server, r.name) for r in plan.repositories}
        seen |= {(server, name) for server, _, name in (key.partition("/") for key in plan.unmanaged)}
        for server in self.head.servers:
            live = {name for at, name in seen if at == server}
            now = _by_name(self.head, server, live)
            before = self.before(server, live)
            for name in {**before, **now}:
                if (server, name) in seen or (name in before and not plan.targets):
                    for one in before.get(name) or [self._unnamed(now[name])]:
                        yield one, now.get(name)
        for server in self._unpaired() if not plan.targets else ():
            for one in _by_name(self.base, server, set()).values():
                yield one, None

    def lost_servers(self) -> Iterator[Loosening]:
        """Servers of the base with repositories whose endpoint is none of the tree's: nothing is compared
        there, and what was held there is held by nothing."""
        if self.base is None:
            return
        known = {_endpoint(server) for server in self.head.servers.values()}
        for name, server in self.base.servers.items():
            if _endpoint(server) in known or not self.base.directory.names_any(name):
                continue
            now = self.head.servers.get(name)
            after = now.endpoint_url if now is not None else "renamed or dropped"
            where = str(now.source) if now is not None and now.source else ""
            yield Loosening(WHOLE_TREE, f"server {name}", server.endpoint_url, after, where)

    def changed_servers(self) -> Iterator[Loosening]:
        """Changes of servers that are in both trees. Of several names at the base each is compared."""
        if self.base is None:
            return
        for name, now in self.head.servers.items():
            for at_base in self._names_at_base(name):
                yield from changed_server(self.base.servers[at_base], now)

    def before(self, server: str, live: set[str]) -> Mapping[str, list[DesiredRepository]]:
        """The base's repositories on a server of the tree. Of several names of the server at the base its
        own counts, where an entry names the repository there."""
        found: dict[str, list[DesiredRepository]] = {}
        for at_base in self._names_at_base(server):
            for name, one in _by_name(self.base, at_base, live).items():
                # The present name comes first, so only names that are no more add to each other.
                if name not in found or found[name][0].server != server:
                    found.setdefault(name, []).append(one)
        return {name: [replace(one, server=server) for one in several] for name, several in found.items()}

    def _names_at_base(self, server: str) -> list[str]:
        """What the base calls a server of the tree, its present name first. A server that is new by its
        endpoint is held to the one that had its name."""
        old = self.base.servers if self.base is not None else {}
        endpoint = _endpoint(self.head.servers[server])
        same = [name for name, config in old.items() if _endpoint(config) == endpoint]
        if not same:
            return [server] if server in old else []
        return sorted(same, key=lambda name: name != server)

    def _unpaired(self) -> list[str]:
        paired = {name for server in self.head.servers for name in self._names_at_base(server)}
        return [name for name in (self.base.servers if self.base is not None else ()) if name not in paired]

    def _unnamed(self, repository: DesiredRepository) -> DesiredRepository:
        return replace(
            repository,
            resolved={},
            holds=(),
            sweep=SweepSettings(),
            lifecycle=LifecycleSettings(),
            safety=self.safety,
        )


def _endpoint(server: ServerConfig) -> str:
    return normalise_endpoint(server.endpoint_url, what=f"server {server.name}")


def _by_name(tree: Tree | None, server: str, live: set[str]) -> dict[str, DesiredRepository]:
    if tree is None or server not in tree.servers:
        return {}
    return {d.name: d for d in tree.resolve(server, live)}

"""The one place where ports meet their adapters: tree, servers, state, simulation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated

from lakeplan.branches.pin_records import PinRecords
from lakeplan.branches.recall import Readers
from lakeplan.cli import options
from lakeplan.cli.addresses import address_question, is_state_inside
from lakeplan.cli.console import say, stderr
from lakeplan.cli.namespaces import CacheChoice, LazySimulator
from lakeplan.cli.process import ci_of, moment_of, now_utc
from lakeplan.cli.progress import progress_for
from lakeplan.lakefs import writers
from lakeplan.lakefs.client import LakeFSBranchReader, LakeFSServer
from lakeplan.lakefs.credentials import (
    STATE_URL,
    Approve,
    Credentials,
    LakectlSettings,
    check_binding,
    find_credentials,
    read_lakectl,
    several,
)
from lakeplan.lakefs.transport import Pace, RetryPolicy, Timeouts
from lakeplan.plan.planning import BranchPorts
from lakeplan.review.notify import Clocks, Notifier
from lakeplan.review.selection import Selection
from lakeplan.simulation.requests import Simulator
from lakeplan.simulation.runners import Runners
from lakeplan.state.store import ListedOnce
from lakeplan.stores.open import StateWriter, open_state
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.desired import ServerConfig, server_variable
from lakeplan.values.notify import NoPublisher, NotifyConfig, Occasion, Publisher
from lakeplan.values.progress import Progress
from lakeplan.values.repository import ServerIdentity


@dataclass(frozen=True)
class ServerConnection:
    """A server to write to: its readers and, separately, the writers of rules and of policies."""

    reader: LakeFSServer
    writer: writers.LakeFSRulesWriter
    settings_writer: writers.LakeFSSettingsWriter
    branches: LakeFSBranchReader
    metadata_writer: writers.LakeFSMetadataWriter
    branch_writer: writers.LakeFSBranchWriter


@dataclass(frozen=True)
class Session:
    """The tree, the time of the run, and the connections that one command uses. Each server is connected to
    once, when the command first needs it."""

    tree: Tree
    as_of: datetime
    progress: Progress
    simulator: Simulator
    runners: Runners = field(default_factory=Runners)
    lakectl_config: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    timeouts: Timeouts | None = None
    approve: Approve | None = None
    """Asks about an address that only the tree names; None without a terminal."""
    pace: Pace | None = None
    """The timeouts of requests to servers."""
    _readers: dict[str, LakeFSServer] = field(default_factory=dict, init=False)
    _branches: dict[str, LakeFSBranchReader] = field(default_factory=dict, init=False)
    _branch_writers: dict[str, writers.LakeFSBranchWriter] = field(default_factory=dict, init=False)

    def reader(self, server: str) -> LakeFSServer:
        """Raises CredentialsError when there are none, or when they belong to another endpoint."""
        if server not in self._readers:
            storage = several(self.environ.get(server_variable(server, "STORAGE_URL"), ""))
            reader = LakeFSServer.connect(*self._access(server), timeouts=self.timeouts, storage=storage)
            self._readers[server] = reader.paced(self.pace)
        return self._readers[server]

    def connection(self, server: str) -> ServerConnection:
        access = self._access(server)
        return ServerConnection(
            self.reader(server),
            writers.LakeFSRulesWriter.connect(*access),
            writers.LakeFSSettingsWriter.connect(*access),
            LakeFSBranchReader.connect(*access),
            writers.LakeFSMetadataWriter.connect(*access),
            self.branch_writer(server),
        )

    def branch_readers(self, server: str) -> Readers:
        """The readers of a server's branches. Their only request that writes is the refs dump."""
        if server not in self._branches:
            self._branches[server] = LakeFSBranchReader.connect(*self._access(server)).paced(self.pace)
        return Readers(self.reader(server), self._branches[server])

    def branch_ports(self) -> BranchPorts:
        """The ports with which a plan lists branches."""
        return BranchPorts(self.branch_readers, ListedOnce(self.state()))

    def rules_writer(self, server: str) -> writers.LakeFSRulesWriter:
        return writers.LakeFSRulesWriter.connect(*self._access(server))

    def pins(self) -> PinRecords:
        """The records of pins in the state."""
        return PinRecords(self.state())

    def branch_writer(self, server: str) -> writers.LakeFSBranchWriter:
        """Deletes and creates branches, on a separate connection."""
        if server not in self._branch_writers:
            self._branch_writers[server] = writers.LakeFSBranchWriter.connect(*self._access(server))
        return self._branch_writers[server]

    def preparer(self, server: str) -> writers.LakeFSPreparer:
        """Asks a server to record its uncommitted objects."""
        return writers.LakeFSPreparer.connect(*self._access(server), timeouts=self.timeouts).paced(self.pace)

    def identify(self, server: str) -> ServerIdentity:
        """Return who the server says it is, asked once and briefly. Raises CredentialsError and
        ServerError."""
        brief, once = Timeouts(connect=10.0, read=10.0, total=30.0), RetryPolicy(tries=1)
        return LakeFSServer.connect(*self._access(server), timeouts=brief, retries=once).identify()

    def publisher(self, config: NotifyConfig | None) -> Publisher:
        """The publisher to these channels, whose URLs are in the environment."""
        if config is None:
            return NoPublisher()
        from lakeplan.output.occasions import payload  # most runs have no channels

        link = ci_of(self.environ).get("run_url", "")
        return Notifier(config, self.environ, payload, Clocks(now_utc), link=link)

    def notify(self, occasion: Occasion | None, reviewed: NotifyConfig | None = None) -> None:
        """Notifies the channels of the tree, and warns about each that fails. ``reviewed`` is the base tree's
        ``notify``, which a pull request cannot change for itself. Without either, nothing is sent."""
        config = reviewed or self.tree.notify
        if occasion is None or config is None:
            return
        sent = self.publisher(config).publish(occasion.event, occasion.title, occasion.items, occasion.hint)
        for channel, problem in dict.fromkeys((part.channel, part.problem) for part in sent if part.problem):
            where = f" (channel {channel})" if channel else ""
            text = f"the notification of {occasion.event.value} could not be delivered: {problem}{where}"
            say(stderr(), f"warning: {text}", label=("warning:", "yellow"))

    def unbound(self, server: str) -> str:
        """The variable that would bind a server's credentials to its address, or "" if bound."""
        name = server_variable(server, "ENDPOINT_URL")
        alone = len(self.tree.servers) == 1
        access_key = self.environ.get(server_variable(server, "ACCESS_KEY_ID"))
        by_lakectl = alone and not access_key and self._lakectl().endpoint_url
        return "" if self.environ.get(name) or by_lakectl else name

    def state(self) -> StateWriter:
        """The tree's state store. Raises CredentialsError when one outside the tree is not bound, and
        LakeplanError for a folder of the tree that a link leads out of it."""
        url = self.tree.state_url
        if not is_state_inside(url, self.tree.root):
            bound = self.environ.get(STATE_URL)
            check_binding("state", url, bound, variable=STATE_URL, approve=self.approve, with_folders=True)
        return open_state(url)

    def credentials(self, server: str) -> Credentials:
        """Raises CredentialsError when there are none, or when they belong to another endpoint."""
        lakectl = self._lakectl() if len(self.tree.servers) == 1 else None
        config = self.tree.servers[server]
        return find_credentials(config, self.environ, approve=self.approve, lakectl=lakectl)

    def _access(self, server: str) -> tuple[ServerConfig, Credentials]:
        return self.tree.servers[server], self.credentials(server)

    def _lakectl(self) -> LakectlSettings:
        return read_lakectl(self.environ, self.lakectl_config)


@dataclass(frozen=True)
class Opening:
    """How a command opens its session: with bars only if it has ``--no-progress``."""

    lakectl_config: options.LakectlConfig = None
    no_progress: bool = True
    quiet: bool = False

    def session(
        self,
        tree: Path,
        *,
        as_of: str | None = None,
        runners: Runners = Runners(),  # noqa: B008 - frozen
        cache: CacheChoice | None = None,
        timeouts: Timeouts | None = None,
        what_if: Sequence[str] = (),
    ) -> Session:
        """Loads the tree and settles the moment of the run. Raises ConfigError, UsageError."""
        progress = progress_for(shown=not (self.no_progress or self.quiet))
        loaded = load_tree(tree, os.environ, what_if=what_if)
        runners = runners.or_else(loaded.runner)
        return Session(
            approve=address_question(tree, os.environ, progress),
            tree=loaded,
            as_of=moment_of(as_of),
            progress=progress,
            simulator=LazySimulator(runners, progress, cache or CacheChoice()),
            runners=runners,
            lakectl_config=self.lakectl_config,
            timeouts=timeouts,
        )


SessionOptions = Annotated[Opening, options.Options(Opening)]


def _timeouts(
    connect_timeout: options.ConnectTimeout = 10.0, read_timeout: options.ReadTimeout = 60.0
) -> Timeouts:
    return Timeouts(connect_timeout, read_timeout)


TimeoutOptions = Annotated[Timeouts, options.Options(_timeouts)]


def _selection(
    target: options.Targets = None, owner: options.Owner = None, server: options.Server = None
) -> Selection:
    return Selection(tuple(target or ()), owner, server)


SelectionOptions = Annotated[Selection, options.Options(_selection)]

"""Histories: the commits of a repository, what rules make of them, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo

from lakeplan.formats.namespace import metadata_key
from lakeplan.formats.ranges import read_metarange, read_range
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keepers import branch_sets
from lakeplan.retention.rules import NEVER_EXPIRES, documented_verdict, server_verdict
from lakeplan.simulation.inputs import read_refs_dump
from lakeplan.stores.open import open_namespace
from lakeplan.values.objects import Entry
from lakeplan.values.repository import Commit, Refs
from lakeplan.values.rules import GcRules

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_US = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True)
class CommitVerdict:
    """What becomes of one commit under a rule set at one moment.

    ``server``: the server's walk keeps it. ``documented``: the documented rule does. ``branches``: those that
    keep it by that rule, ascending. ``kept_until``: the last instant (UTC) at which the rule keeps it if
    nobody writes; in the past for one that has expired, None for a HEAD.
    """

    commit_id: str
    server: bool
    documented: bool
    branches: tuple[str, ...]
    kept_until: datetime | None

    @property
    def at_risk(self) -> bool:
        """The rule keeps it and the server lets it go."""
        return self.documented and not self.server


def judge(
    refs: Refs, rules: GcRules, as_of: datetime, zone: tzinfo = timezone.utc
) -> Mapping[str, CommitVerdict]:
    """The verdict on every commit, by commit id, at ``as_of`` (aware) with the server in ``zone``. Needs no
    Spark and no server. Raises LakeplanError for a history that cannot be one: a HEAD that is missing, a
    commit that is its own ancestor."""
    graph = CommitGraph.from_refs(refs)
    server = server_verdict(graph, rules, as_of, zone)
    documented = documented_verdict(graph, rules, as_of, zone)
    sets = branch_sets(graph, rules, as_of, zone)
    return {
        id: CommitVerdict(
            id,
            bool(server[n]),
            bool(documented.active[n]),
            sets.branches(n),
            _moment(documented.kept_until_us[n]),
        )
        for n, id in enumerate(graph.ids)
    }


def read_refs(namespace: str, *, endpoint_url: str | None = None, region: str | None = None) -> Refs:
    """All commits, branches and tags in the newest refs dump of a namespace (``file:///…``, ``s3://…``,
    ``https://…blob…``). Raises StorageError, FormatError, and LakeplanError when the dump lacks a HEAD."""
    return read_refs_dump(open_namespace(namespace, endpoint_url=endpoint_url, region=region))[1]


def read_entries(
    namespace: str, commit: Commit, *, endpoint_url: str | None = None, region: str | None = None
) -> Iterator[Entry]:
    """The objects of a commit, in the order of their paths: its metarange, then range by range. Reads each
    file whole and verifies it. Raises StorageError and FormatError."""
    if not commit.meta_range_id:
        return
    reader = open_namespace(namespace, endpoint_url=endpoint_url, region=region)
    key = metadata_key(commit.meta_range_id)
    for info in read_metarange(reader.read(key), name=f"{reader.url}/{key}"):
        key = metadata_key(info.id)
        yield from read_range(reader.read(key), name=f"{reader.url}/{key}", verify_id=info.id)


def _moment(us: int) -> datetime | None:
    """None where there is no end; moments that ``datetime`` has no room for are its first and last."""
    if us == NEVER_EXPIRES:
        return None
    return _EPOCH + timedelta(microseconds=min(max(us, _FIRST_US), _LAST_US))

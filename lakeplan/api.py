"""The stable interface for scripts: load a tree, read plans and histories, judge commits, simulate.

Everything named in ``__all__`` is typed, keeps its meaning within a major version, and never writes to a
server. Errors are ``LakeplanError`` and its subclasses; each says what, where and what to do. The tests run
the examples of ``docs/api.md``. All other modules are lakeplan's own and change without notice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from operator import index
from pathlib import Path
from typing import Any

from lakeplan.errors import (
    ConfigError,
    ExitCode,
    FormatError,
    LakeplanError,
    SimulationFailed,
    StorageError,
    UsageError,
)
from lakeplan.formats.namespace import metadata_key
from lakeplan.formats.ranges import read_metarange, read_range
from lakeplan.limits import PLAN_BYTES, SHOWN_RECORDS, TooLarge, check_text
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.keep import branch_sets
from lakeplan.retention.patterns import expand
from lakeplan.retention.rules import NEVER_EXPIRES, documented_verdict, server_verdict
from lakeplan.simulation.documents import SimulateDocument, SimulateRequest, simulate_commits
from lakeplan.simulation.inputs import read_refs_dump, read_rules
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.verdicts import COMPARE, RULES, RuleSet
from lakeplan.stores.open import open_namespace
from lakeplan.tree.schemas import schema_problem
from lakeplan.tree.tree import Tree
from lakeplan.tree.tree import load_tree as load_tree_of
from lakeplan.values.desired import NAME_HINT, DesiredRepository, GcDesired
from lakeplan.values.local import read_file, why_unreadable
from lakeplan.values.plan import Plan, RepositoryPlan
from lakeplan.values.plan_document import load_plan, needs_objects_file, with_objects
from lakeplan.values.progress import Silent
from lakeplan.values.records import moment_of
from lakeplan.values.repository import AddressType, Branch, Commit, Entry, RangeInfo, Refs, Tag
from lakeplan.values.rules import GcRules, rules_from_body
from lakeplan.values.shown_records import RECORD

__all__ = [
    "AddressType",
    "Branch",
    "Commit",
    "CommitVerdict",
    "ConfigError",
    "DesiredRepository",
    "Entry",
    "ExitCode",
    "FormatError",
    "GcRules",
    "LakeplanError",
    "Plan",
    "RangeInfo",
    "Refs",
    "RepositoryPlan",
    "RunnerOptions",
    "SimulateDocument",
    "SimulateOptions",
    "SimulationFailed",
    "StorageError",
    "Tag",
    "Tree",
    "UsageError",
    "find_repository",
    "judge",
    "load_tree",
    "objects_path",
    "read_entries",
    "read_metarange",
    "read_plan",
    "read_range",
    "read_refs",
    "read_rules",
    "rules_of",
    "simulate",
]

_DAY = timedelta(days=1)
OBJECTS_BYTES = 2 * SHOWN_RECORDS * RECORD.itemsize


# ---- trees and rules
def load_tree(folder: Path | str, environ: Mapping[str, str] | None = None) -> Tree:
    """The tree of ``lakeplan.yaml`` in ``folder`` and every file that it includes. Contacts no server.

    ``environ`` is where ``${X}`` in the settings of servers is read from (``LAKEPLAN_VAR_X``); by default the
    process's own. Raises ConfigError with every problem of the tree.
    """
    return load_tree_of(Path(folder), os.environ if environ is None else environ)


def find_repository(loaded: Tree, repository: str) -> DesiredRepository:
    """The configuration of one repository, given as ``name`` or ``server/name``, with profiles, globs and the
    exact entry merged. The repository need not exist on a server, and a matching glob is enough.

    Raises UsageError when no entry names it, or entries on several servers do.
    """
    servers = loaded.servers_of(repository)
    if len(servers) != 1:
        several = f"repository {repository!r} is on several servers: {', '.join(servers)}"
        message = several if servers else f"the tree has no entry for {repository!r}"
        raise UsageError(message, hint=NAME_HINT)
    name = repository.rpartition("/")[2]
    repository_config = loaded.find(servers[0], name)
    assert repository_config is not None  # an entry names it
    return repository_config


def rules_of(desired: DesiredRepository, branches: Iterable[str] = ()) -> GcRules | None:
    """The rules that a plan would set, patterns expanded over ``branches``. None where the tree does not
    manage them, or clears them (``desired.gc`` says which)."""
    return expand(desired.gc, branches).rules if isinstance(desired.gc, GcDesired) else None


# ---- histories
@dataclass(frozen=True)
class CommitVerdict:
    """The verdict on one commit under one rule set at one moment.

    ``server``: the server's walk keeps it. ``documented``: the documented rule does. ``branches``: those that
    keep it by the documented rule, ascending. ``kept_until``: the last instant (UTC) at which that rule keeps
    it if nobody writes; in the past for an expired commit, None for a HEAD.
    """

    commit_id: str
    server: bool
    documented: bool
    branches: tuple[str, ...]
    kept_until: datetime | None

    @property
    def at_risk(self) -> bool:
        """The rule keeps it, and the server would expire it."""
        return self.documented and not self.server


def judge(
    refs: Refs, rules: GcRules, as_of: datetime, zone: tzinfo = timezone.utc
) -> Mapping[str, CommitVerdict]:
    """The verdict on every commit, by commit id, at ``as_of`` (aware) with the server in ``zone``. Needs no
    Spark and no server. Raises LakeplanError for an impossible history: a HEAD that is missing, a
    commit that is its own ancestor. Raises UsageError for days that are not integers."""
    rules = _checked(rules)
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
            None if (us := documented.kept_until_us[n]) == NEVER_EXPIRES else moment_of(us),
        )
        for n, id in enumerate(graph.ids)
    }


def _checked(rules: GcRules) -> GcRules:
    """Return the rules, with integers of numpy as ints. Raises UsageError for days that no server can store.
    NaN from a table would expire everything."""
    try:
        branches = {branch: index(days) for branch, days in rules.branches.items()}
        return rules_from_body(GcRules(index(rules.default_retention_days), branches).to_body())
    except (TypeError, ValueError) as error:
        raise UsageError(f"invalid GC rules: {error}", hint="Use a whole number of days.") from None


def read_refs(namespace: str, *, endpoint_url: str | None = None, region: str | None = None) -> Refs:
    """All commits, branches and tags in the newest refs dump of a namespace (``file:///…``, ``s3://…``,
    ``https://…blob…``). Raises StorageError, FormatError, and LakeplanError when the dump lacks a HEAD."""
    return read_refs_dump(open_namespace(namespace, endpoint_url=endpoint_url, region=region))[1]


def read_entries(
    namespace: str, commit: Commit, *, endpoint_url: str | None = None, region: str | None = None
) -> Iterator[Entry]:
    """The objects of a commit, in the order of their paths: its metarange, then range by range. Reads and
    verifies each file completely. Raises StorageError and FormatError."""
    if not commit.meta_range_id:
        return
    reader = open_namespace(namespace, endpoint_url=endpoint_url, region=region)
    key = metadata_key(commit.meta_range_id)
    for info in read_metarange(reader.read(key), name=f"{reader.url}/{key}"):
        key = metadata_key(info.id)
        yield from read_range(reader.read(key), name=f"{reader.url}/{key}", verify_id=info.id)


# ---- plan files
def objects_path(path: Path | str) -> Path:
    """The file beside a plan file, which names the objects that would be deleted when there are many."""
    return Path(f"{path}.objects")


def read_plan(path: Path | str) -> Plan:
    """A plan file that ``lakeplan plan --out FILE`` wrote, with the file beside it if there is one.

    Raises LakeplanError that names the file when it cannot be read, was edited, or is of another version.
    """
    try:
        data = read_file(path, PLAN_BYTES)
        check_text(data)
        text = data.decode()
        del data
    except (OSError, ValueError) as error:
        reason = why_unreadable(error)
        raise LakeplanError(
            f"cannot read the plan: {reason}",
            where=str(path),
            hint="Run `lakeplan plan --out FILE` to create one.",
        ) from None
    plan = load_plan(text, where=str(path), problem=_problem)
    return _with_objects(plan, objects_path(path)) if needs_objects_file(plan) else plan


def _with_objects(plan: Plan, path: Path) -> Plan:
    """The plan with the objects of the file beside it. Without that file the plan can still be shown, but not
    compared."""
    try:
        return with_objects(plan, read_file(path, OBJECTS_BYTES))
    except FileNotFoundError:
        return plan
    except (OSError, ValueError) as error:
        reason = why_unreadable(error) if isinstance(error, (OSError, TooLarge)) else str(error)
        raise LakeplanError(
            f"cannot use the plan's objects file: {reason}",
            where=str(path),
            hint="Keep the plan file and its objects file together, as `lakeplan plan --format json --out"
            " FILE` wrote them.",
        ) from None


def _problem(document: dict[str, Any]) -> str:
    """Return how a plan document violates the schema, or "" if it does not. Branches are left out, because
    there may be millions, and decoding checks them too."""
    repositories = document.get("repositories")
    if isinstance(repositories, list) and all(isinstance(r, dict) for r in repositories):
        without = [{**r, "branches": {}} if isinstance(r.get("branches"), dict) else r for r in repositories]
        document = {**document, "repositories": without}
    return schema_problem("plan", document)


# ---- simulations
@dataclass(frozen=True)
class SimulateOptions:
    """Options of a simulation. ``commits_only`` stops at commits and starts no runner. ``listing``: only what
    is stored counts, where it can be listed. ``zone`` is the server's time zone. ``overwrite`` replaces the
    tables of an earlier run. ``endpoint_url`` and ``region`` are of the S3 store."""

    commits_only: bool = False
    listing: bool = True
    min_age: timedelta = _DAY
    max_uncommitted_age: timedelta = _DAY
    zone: tzinfo = timezone.utc
    overwrite: bool = False
    endpoint_url: str | None = None
    region: str | None = None


@dataclass(frozen=True)
class RunnerOptions:
    """The runner, ``auto``, ``local`` or ``spark`` (``docs/simulation.md``), and Spark's settings."""

    name: str | None = None
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    spark_home: str | None = None


def simulate(
    namespace: str,
    rules: GcRules,
    *,
    as_of: datetime,
    compare: GcRules | None = None,
    output: Path | str | None = None,
    options: SimulateOptions = SimulateOptions(),
    runner: RunnerOptions = RunnerOptions(),
) -> SimulateDocument:
    """The document of ``lakeplan simulate`` (``schemas/simulate.v1.json``) for a namespace with a refs dump.
    With ``output`` Parquet tables are written there. ``as_of`` is aware. Nothing is cached.

    Raises UsageError for rules, ages or an output that the command refuses, StorageError and FormatError for
    what cannot be read, SimulationFailed when Spark stops. There is no partial answer.
    """
    sets = [RuleSet(RULES, _checked(rules))]
    sets += [] if compare is None else [RuleSet(COMPARE, _checked(compare))]
    if min(options.min_age, options.max_uncommitted_age) < timedelta():
        raise UsageError(
            "min_age and max_uncommitted_age must not be negative",
            hint="Use a duration of zero or more, for example timedelta(days=1).",
        )
    request = SimulateRequest(
        rule_sets=tuple(sets),
        as_of=as_of,
        min_age_seconds=int(options.min_age.total_seconds()),
        zone=options.zone,
        listing=options.listing,
        max_uncommitted_age_seconds=int(options.max_uncommitted_age.total_seconds()),
        output=None if output is None else Path(output),
        overwrite=options.overwrite,
    )
    reader = open_namespace(namespace, endpoint_url=options.endpoint_url, region=options.region)
    if options.commits_only:
        return simulate_commits(request, reader)
    # Spark takes longer to import than everything else here takes to run.
    from lakeplan.simulation import run

    runners = Runners(runner.name, runner.master, tuple(runner.spark_conf.items()), runner.spark_home)
    return run.simulate(request, reader, runners, Silent())

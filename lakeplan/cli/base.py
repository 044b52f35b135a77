"""``--base``: the tree at another commit, and the checks of a tree on a plan, which run with its files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from lakeplan.cli.git import commit_of, find_work_folder, has_file, write_folder
from lakeplan.errors import ConfigError, LakeplanError, UsageError
from lakeplan.lakefs.credentials import normalise_endpoint
from lakeplan.limits import FILE_BYTES
from lakeplan.retention.patterns import is_glob
from lakeplan.review.base import HeldTree, Place, judge, not_yet_judging, own_folder
from lakeplan.review.differences import branch_path
from lakeplan.review.gates import GateOverrides
from lakeplan.review.strictness import (
    ABSENT,
    WHOLE_TREE,
    Guards,
    changed_server,
    guard_of,
    held_to_guard,
    weakened_repository,
    weakened_settings,
    weaker_later,
    weaker_on_server,
)
from lakeplan.tree.files import ROOT_FILE
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.desired import BranchSettings, Check, DesiredRepository, Safety, ServerConfig
from lakeplan.values.local import OutsideFolder, read_inside
from lakeplan.values.pins import PinSettings
from lakeplan.values.plan import GateResult, Plan, RepositoryPlan, SweepGuard, WeakenedSetting
from lakeplan.values.plan_document import dump_plan
from lakeplan.values.sweep import SweepSettings

Pair = tuple[DesiredRepository, DesiredRepository | None]


@dataclass(frozen=True)
class Pairing:
    """The tree at the base commit (None if that commit has none) and the checked-out tree. ``safety`` is the
    base's."""

    base: Tree | None
    head: Tree
    safety: Safety

    def repositories(self, plan: Plan) -> Iterator[Pair]:
        """Pairs (at the base, in the tree) of the repositories that the plan contains or the base names, both
        by the tree's name of their server. Without an entry at the base, the first has the base's defaults.
        The second is None if the tree no longer names the repository. If the base has several names for a
        server, a repository may have several pairs."""
        planned = {(r.server, r.name) for r in plan.repositories if not is_glob(r.name)}
        planned |= {(server, name) for server, _, name in (key.partition("/") for key in plan.unmanaged)}
        for server in self.head.servers:
            live = {name for at, name in planned if at == server}
            now = _by_name(self.head, server, live)
            before = self.before(server, live)
            for name in {**before, **now}:
                if (server, name) in planned or (name in before and not plan.targets):
                    for one in before.get(name) or [self._unnamed(now[name])]:
                        yield one, now.get(name)
        for server in self._unpaired() if not plan.targets else ():
            for one in _by_name(self.base, server, set()).values():
                yield one, None

    def is_same(self, before: DesiredRepository, now: DesiredRepository) -> bool:
        """Whether the tree configures a repository as the base does, on a server with the same engine."""
        engine = self.head.servers[now.server].branch_lifecycle_engine
        before_engines = [old.branch_lifecycle_engine for old in self._servers_at_base(now.server).values()]
        return before.resolved == now.resolved and before_engines == [engine]

    def lost_servers(self) -> Iterator[WeakenedSetting]:
        """The servers of the base that have repositories and whose endpoint the tree no longer has. Nothing
        can be compared there, so the base's safety settings no longer apply. Also the names that now belong
        to another server: overrides, ``manages`` and everything else with that name now apply to the other
        one."""
        if self.base is None:
            return
        known = {_endpoint(server) for server in self.head.servers.values()}
        for name, server in self.base.servers.items():
            now = self.head.servers.get(name)
            is_another = now is not None and _endpoint(now) != _endpoint(server)
            is_lost = is_another or _endpoint(server) not in known
            if not is_lost or not self.base.directory.names_any(name):
                continue
            after = now.endpoint_url if now is not None else "renamed or removed"
            where = str(now.source) if now is not None and now.source else ""
            yield WeakenedSetting(WHOLE_TREE, f"server {name}", server.endpoint_url, after, where)

    def changed_servers(self) -> Iterator[WeakenedSetting]:
        """Changes of servers that are in both trees. If a server has several names at the base, each is
        compared."""
        for name, now in self.head.servers.items():
            for old in self._servers_at_base(name).values():
                yield from changed_server(old, now)

    def before(self, server: str, live: set[str]) -> Mapping[str, list[DesiredRepository]]:
        """The base's repositories on a server of the tree, by name. If the base has several names for the
        server, an entry under the present name wins."""
        by_name: dict[str, list[DesiredRepository]] = {}
        for at_base in self._servers_at_base(server):
            for name, one in _by_name(self.base, at_base, live).items():
                # The present name comes first. Only entries under former names are collected together.
                if name not in by_name or by_name[name][0].server != server:
                    by_name.setdefault(name, []).append(one)
        return {name: [replace(one, server=server) for one in several] for name, several in by_name.items()}

    def _servers_at_base(self, server: str) -> Mapping[str, ServerConfig]:
        """The base's servers with the endpoint of a server of the tree, by name, the present name first. If
        the endpoint is new: the base's server of the same name."""
        old = self.base.servers if self.base is not None else {}
        endpoint = _endpoint(self.head.servers[server])
        same = [name for name, config in old.items() if _endpoint(config) == endpoint]
        if not same:
            same = [server] if server in old else []
        return {name: old[name] for name in sorted(same, key=lambda name: name != server)}

    def _unpaired(self) -> list[str]:
        paired = {name for server in self.head.servers for name in self._servers_at_base(server)}
        return [name for name in (self.base.servers if self.base is not None else ()) if name not in paired]

    def _unnamed(self, repository: DesiredRepository) -> DesiredRepository:
        return replace(
            repository,
            resolved={},
            holds=(),
            sweep=SweepSettings(),
            branch_settings=BranchSettings(),
            pins=PinSettings(),
            safety=self.safety,
        )


def _endpoint(server: ServerConfig) -> str:
    return normalise_endpoint(server.endpoint_url, what=f"server {server.name}")


def _by_name(tree: Tree | None, server: str, live: set[str]) -> dict[str, DesiredRepository]:
    if tree is None or server not in tree.servers:
        return {}
    return {d.name: d for d in tree.resolve(server, live)}


@dataclass(frozen=True)
class Base:
    """The base of a plan. ``tree`` is None if the commit has no tree. The default settings then apply."""

    ref: str
    commit: str
    tree: Tree | None

    @property
    def guards(self) -> Guards:
        return Guards() if self.tree is None else guards_of(self.tree)

    def hold(self, tree: Tree) -> HeldTree:
        return HeldTree(tree, self.guards, self.ref, Pairing(self.tree, tree, self.guards.safety).before)

    def finish(self, plan: Plan, tree: Tree, held: HeldTree) -> Plan:
        """Return the plan with its base, every weakened setting, and the limits for its apply."""
        mine = guards_of(tree)
        # A first tree has moved no state and given up no repository.
        before = self.guards
        if self.tree is None:
            before = replace(before, state_url=mine.state_url, manages=mine.manages, name=mine.name)
        today = plan.as_of.date()
        loosenings = weakened_settings(before, mine, today)
        warnings = plan.warnings
        if self.tree is None:
            warnings += (f"{self.ref} has no {ROOT_FILE}, so the tree is compared with the default settings",)
        pairing = Pairing(self.tree, tree, self.guards.safety)
        pairs = tuple(pairing.repositories(plan))
        looser = [loosening for before, now in pairs for loosening in weakened_repository(before, now, today)]
        planned = {r.key: r for r in plan.repositories}
        for old, now in pairs:
            if now is not None and old.resolved:  # a new entry is a section of the plan
                looser += _weaker_later(old, now, planned.get(now.key), tree)
        listed = (*loosenings, *pairing.lost_servers(), *pairing.changed_servers(), *looser)
        return replace(
            plan,
            base=self.commit,
            loosenings=_overrides_last(listed),
            sweep_guards=_guards(pairs),
            impact_tolerance_percent=held.safety.impact_tolerance_percent,
            max_plan_age_seconds=held.safety.max_plan_age_seconds,
            warnings=warnings,
            same_as_base=frozenset(now.key for before, now in pairs if now and pairing.is_same(before, now)),
        )


def _weaker_later(
    old: DesiredRepository, now: DesiredRepository, plan: RepositoryPlan | None, tree: Tree
) -> Iterator[WeakenedSetting]:
    """Changes that keep less and that the plan of a repository does not show."""
    paths = [change.path for change in plan.changes] if plan is not None else []
    changed = {path.removeprefix(branch_path("")) for path in paths if path.startswith(branch_path(""))}
    if plan is not None and (stored := plan.before) is not None and (after := plan.after) is not None:
        # A plan compares with the server, where somebody may have set fewer days.
        changed = {name for name in changed if after.days_for(name) < stored.days_for(name)}
    policies = plan.branch_lifecycle if plan is not None else None
    runs = tree.servers[now.server].branch_lifecycle_engine == "lakeplan"
    shown = {change.item for change in policies.changes} if policies is not None else set()
    yield from weaker_later(
        old, now, changed, runs_policies=runs or policies is not None, shown_policies=shown
    )
    if plan is not None:
        yield from weaker_on_server(old, now, plan)


def _overrides_last(listed: Iterable[WeakenedSetting]) -> tuple[WeakenedSetting, ...]:
    """Sort overrides last: a change can add any number of them, and some outputs show only the first
    settings."""
    return tuple(sorted(listed, key=lambda item: item.path.startswith("overrides: ")))


def read_base(folder: Path, ref: str, *, is_new: bool = False) -> Base:
    """Reads the tree of ``folder`` at ``ref``. ``is_new``: there is no tree at ``ref``. Raises LakeplanError
    if the tree cannot be read or is missing, UsageError if a new tree already exists there, and ConfigError
    if it does not validate."""
    work = find_work_folder(folder)
    commit = commit_of(work, ref)
    has_tree = has_file(work, commit, ROOT_FILE)
    if has_tree and is_new:
        raise UsageError(
            f"--new-tree was given, but {ref} already has a tree", hint="Run without --new-tree."
        )
    if not has_tree:
        if not is_new:
            raise LakeplanError(
                f"{ref} has no {ROOT_FILE} to compare with",
                where=str(folder),
                hint="Add --new-tree if this change adds the tree.",
            )
        return Base(ref, commit, None)
    with TemporaryDirectory(prefix="lakeplan-base-") as name:
        write_folder(work, commit, Path(name))
        try:
            return Base(ref, commit, load_tree(Path(name), os.environ, is_base=True))
        except ConfigError as error:
            raise ConfigError(
                f"the tree at {ref} has problems, so its safety settings are unknown",
                problems=error.problems,
                where=str(folder),
                hint="Fix that tree, or plan without --base and have the safety settings reviewed.",
            ) from None


def guards_of(tree: Tree) -> Guards:
    return Guards(
        safety=tree.safety,
        min_retention_days=tree.bounds.min_retention_days,
        max_retention_days=tree.bounds.max_retention_days,
        unmanaged=tree.unmanaged_policy,
        checks=tuple(map(str, tree.checks)),
        manages=Guards.manages if tree.manages is None else ", ".join(sorted(tree.manages)),
        state_url=tree.declared_state_url,
        notify=tree.notify,
        name=tree.name or None,
        approvers=tree.approvers,
        overrides=tree.overrides,
        places=tree.places,
    )


def _guards(pairs: Iterable[Pair]) -> dict[str, SweepGuard]:
    """The guards by ``server/name``. If several pairs are of one repository, the strictest of each."""
    guards: dict[str, SweepGuard] = {}
    for before, now in pairs:
        if now is None:
            continue
        held = held_to_guard(now, guards[now.key]) if now.key in guards else now
        guard = guard_of(before, held)
        if guard is not None:
            guards[now.key] = guard
    return guards


@dataclass(frozen=True)
class PlanChecks:
    """The checks that a command runs. ``forced``: ``--run-checks`` was given."""

    tree: Tree
    overrides: GateOverrides
    base: Base | None = None
    forced: bool = False

    @property
    def may_run(self) -> bool:
        """Whether checks may run. Without a base, they come from the checkout, so only a person who trusts
        it may run them."""
        return self.base is not None or self.forced or sys.stdin.isatty()

    @property
    def checks(self) -> tuple[Check, ...]:
        if self.base is None:
            return self.tree.checks
        return self.base.tree.checks if self.base.tree is not None else ()

    def judge(self, plan: Plan) -> tuple[tuple[GateResult, ...], tuple[str, ...]]:
        """Gates and warnings. Raises LakeplanError when the base's files cannot be written."""
        if not self.checks:
            return (), ()
        with self._place() as place:
            given = dump_plan(plan).encode()
            return judge(self.checks, plan, given, place, self.overrides, os.environ.get("PATH", os.defpath))

    def added_to(self, plan: Plan) -> Plan:
        """The plan with its checks' results, or with a warning for each check that did not run."""
        if not self.may_run:
            warnings = tuple(
                f"check {check.name} was not run: add --base REF or, if you trust the tree, --run-checks"
                for check in self.checks
            )
            return replace(plan, warnings=(*plan.warnings, *warnings))
        gates, warnings = self.judge(plan)
        if self.base is not None:
            known = {check.name: str(check) for check in self.checks}
            ref, added = self.base.ref, [check for check in self.tree.checks if check.name not in known]
            gates += tuple(not_yet_judging(check, ref) for check in added)
            warnings += tuple(
                f"check {check.name} has changed since {ref}, so lakeplan runs the version at {ref} on"
                " this change"
                for check in self.tree.checks
                if known.get(check.name, str(check)) != str(check)
            )
        return replace(
            plan,
            gates=(*plan.gates, *gates),
            warnings=(*plan.warnings, *warnings),
            loosenings=_overrides_last((*plan.loosenings, *self._changed_files())),
        )

    def _changed_files(self) -> tuple[WeakenedSetting, ...]:
        """The files that the base's checks name and that this change changes. This change is judged by the
        base's version of them, and every later change by the new version."""
        words = {os.path.normpath(word): None for check in self.checks for word in check.run}
        if self.base is None or not words:
            return ()
        changes, root = [], self.tree.root.resolve()
        with self._place() as place:
            for word in words:
                named = not os.path.isabs(word) and word.partition(os.sep)[0] not in (os.curdir, os.pardir)
                if named and (before := _contents(place.folder, word)) and before != _contents(root, word):
                    after, where = ("changed", f"{word}:1:1") if (root / word).exists() else (ABSENT, "")
                    changes.append(
                        WeakenedSetting(WHOLE_TREE, f"checks: {word}", "as in the base tree", after, where)
                    )
        return tuple(changes)

    @contextmanager
    def _place(self) -> Iterator[Place]:
        root = self.tree.root.resolve()
        if self.base is None:
            yield Place(root)
            return
        work = find_work_folder(root)
        with own_folder("lakeplan-checks-") as name:
            folder = Path(name)
            write_folder(work, self.base.commit, folder)
            _drop_links_out(folder)
            yield Place(folder, judged=work.top)


def _contents(top: Path, word: str) -> dict[str, bytes | None]:
    """SHA-256 of a file of a tree, or of all in a folder, also through links that stay in the tree; None for
    one that cannot be read."""
    inner = (os.path.join(at, name) for at, _, names in os.walk(top / word) for name in names)
    digests: dict[str, bytes | None] = {}
    for file in (str(top / word), *inner):
        if os.path.isfile(file):
            name = os.path.relpath(file, top)
            try:
                digests[name] = sha256(read_inside(top, file, FILE_BYTES)).digest()
            except OutsideFolder:
                continue
            except (OSError, ValueError):
                digests[name] = None
    return digests


def _drop_links_out(folder: Path) -> None:
    """Removes symbolic links that lead out of a folder, because their targets may be any files."""
    top = os.path.realpath(folder)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            target = os.path.realpath(path)
            if os.path.islink(path) and target != top and not target.startswith(top + os.sep):
                os.unlink(path)

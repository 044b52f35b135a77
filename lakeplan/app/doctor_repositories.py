"""Permissions on the repositories of a server one by one, and values it stores but should not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from lakeplan.app.doctor_found import POLICIES, SHOWN, Found, grant, names, of_error, on_repositories
from lakeplan.app.plan import Selection
from lakeplan.errors import LakeplanError, PermissionDenied
from lakeplan.model.repository import Repository
from lakeplan.model.rules import GcRules
from lakeplan.ports.lakefs import GcRulesWriter, LakeFSReader
from lakeplan.ports.progress import Progress
from lakeplan.ports.tree import DesiredTree

WORKERS = 8
_MOST_DAYS = 36500


@dataclass(frozen=True)
class _Looked:
    """One repository: what failed, by permission, and what is odd about its rules."""

    repository: str
    failures: dict[str, LakeplanError]
    oddities: tuple[str, ...] = ()


def check_repositories(
    tree: DesiredTree,
    reader: LakeFSReader,
    writer: GcRulesWriter | None,
    selection: Selection,
    progress: Progress,
    *,
    read_only: bool,
) -> Iterator[Found]:
    """Every permission a plan needs, on all selected repositories whose rules the tree manages; with a
    ``writer`` those of an apply too. The refs dump and metadata are tried on one of them. Stored rules are
    looked at on the others too, as far as they can be read: a missing permission there is no failure."""
    try:
        live = {r.id: r for r in reader.list_repositories()}
    except LakeplanError as error:
        yield of_error("fs:ListRepositories", error, grant("fs:ListRepositories", error))
        return
    yield Found("fs:ListRepositories", "ok", f"{len(live):,} repositories")
    managed = [d for d in tree.resolve(reader.name, live) if d.gc is not None and selection.takes(d)]
    missing = [d.name for d in managed if d.name not in live]
    if missing:
        text = f"the tree names what the server does not have, or does not show: {names(missing)}"
        yield Found("repositories", "fail", text, "correct the names, or grant fs:ReadRepository on them")
    found = [d.name for d in managed if d.name in live]
    others = [n for n in live if n not in set(found) and selection.takes_named(reader.name, n, None)]
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        rest = list(pool.map(lambda name: _Looked(name, {}, _odd(reader, name)), others))
    if not found:
        yield _oddities(rest)
        text = "no repository of the tree is on it, so permissions on repositories were not checked"
        yield Found("repositories", "warn", text, "check again once there is an entry")
        return
    with (
        progress.task(f"checking {reader.name}", len(found)) as step,
        ThreadPoolExecutor(max_workers=WORKERS) as pool,
    ):

        def one(name: str) -> _Looked:
            try:
                return _look(live[name], reader, writer)
            finally:
                step()

        looked = list(pool.map(one, found))
    permissions = [name for name, _ in _asked(reader, writer, found[0])]
    for permission in permissions:
        yield _summed(permission, looked)
    yield from _on_one(reader, _sample(looked), read_only=read_only)
    yield _oddities([*looked, *rest])


def _asked(
    reader: LakeFSReader, writer: GcRulesWriter | None, name: str
) -> list[tuple[str, Callable[[], object]]]:
    asked: list[tuple[str, Callable[[], object]]] = [
        ("fs:ReadRepository", partial(reader.get_repository, name)),
        ("retention:GetGarbageCollectionRules", partial(reader.get_gc_rules, name)),
        ("fs:ListBranches", lambda: next(iter(reader.list_branches(name)), None)),
        ("fs:ListTags", lambda: next(iter(reader.list_tags(name)), None)),
    ]
    if writer is not None:
        asked.append(("retention:SetGarbageCollectionRules", partial(_preflight, writer, name)))
    return asked


def _preflight(writer: GcRulesWriter, name: str) -> None:
    if not writer.can_set_gc_rules(name):
        raise PermissionDenied("the server says that these credentials may not")


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except LakeplanError as error:
        return error


def _look(repository: Repository, reader: LakeFSReader, writer: GcRulesWriter | None) -> _Looked:
    name = repository.id
    answers = {permission: _answer(ask) for permission, ask in _asked(reader, writer, name)}
    failures = {p: answer for p, answer in answers.items() if isinstance(answer, LakeplanError)}
    rules = answers.get("retention:GetGarbageCollectionRules")
    oddities: tuple[str, ...] = ()
    if isinstance(rules, GcRules):
        branches: set[str] | None = None
        if rules.branches and "fs:ListBranches" not in failures:
            try:
                branches = {b.id for b in reader.list_branches(name)}
            except LakeplanError as error:
                failures["fs:ListBranches"] = error
        oddities = tuple(stored_nonsense(rules, branches))
    return _Looked(name, failures, oddities)


def _odd(reader: LakeFSReader, name: str) -> tuple[str, ...]:
    """What is odd about the rules of a repository that the tree does not manage."""
    try:
        rules = reader.get_gc_rules(name)
        if rules is None:
            return ()
        branches = {b.id for b in reader.list_branches(name)} if rules.branches else set()
    except LakeplanError:
        return ()  # nobody asked for a permission there
    return tuple(stored_nonsense(rules, branches))


def stored_nonsense(rules: GcRules, branches: set[str] | None) -> Iterator[str]:
    """What a server stored although it means nothing (it validates nothing). ``branches`` None: not known."""
    days = {"the default": rules.default_retention_days}
    days |= {f"branch {name!r}": value for name, value in rules.branches.items()}
    for name, value in days.items():
        if value < 0:
            yield f"{value} days for {name}: negative, perhaps a larger number cut to 32 bits"
        elif value == 0:
            yield f"0 days for {name}: every commit but the HEAD may go at once"
        elif value > _MOST_DAYS:
            yield f"{value:,} days for {name}: more than a century"
    if branches is not None:
        yield from (
            f"a rule for branch {name!r}, which does not exist"
            for name in rules.branches
            if name not in branches
        )


def _oddities(looked: Sequence[_Looked]) -> Found:
    odd = [f"{item.repository}: {text}" for item in looked for text in item.oddities]
    if not odd:
        return Found("stored rules", "ok", "none that should not be there")
    shown = "; ".join(odd[:SHOWN]) + (f"; and {len(odd) - SHOWN:,} more" if len(odd) > SHOWN else "")
    return Found("stored rules", "warn", shown, "plan and apply what the tree says, or correct the tree")


def _summed(permission: str, looked: Sequence[_Looked]) -> Found:
    broken = [item for item in looked if permission in item.failures]
    if not broken:
        return Found(permission, "ok", on_repositories(len(looked)))
    error = broken[0].failures[permission]
    text = f"{error.message} (on {names([item.repository for item in broken])})"
    return Found(permission, "fail", text, grant(permission, error))


def _sample(looked: Sequence[_Looked]) -> str:
    """A repository on which everything else worked, or else the first."""
    return next((item.repository for item in looked if not item.failures), looked[0].repository)


def _on_one(reader: LakeFSReader, name: str, *, read_only: bool) -> Iterator[Found]:
    try:
        head = next((b.commit_id for b in reader.list_branches(name)), None)
        if head is not None:
            commit = reader.get_commit(name, head)
            yield Found("fs:ReadCommit", "ok", f"on {name}")
            if commit.meta_range_id:
                reader.metadata_reader(name).read_metadata("meta_range", commit.meta_range_id)
            yield Found("fs:ListObjects", "ok", f"metadata of {name} can be read")
    except PermissionDenied as error:
        permission = "fs:ReadCommit" if "commit" in error.message else "fs:ListObjects"
        yield Found(permission, "fail", f"{error.message} (on {name})", grant(permission, error))
    except LakeplanError as error:
        yield Found("metadata", "fail", f"{error.message} (on {name})", error.hint or POLICIES)
    if read_only:
        text = "not tried (--read-only): a plan asks for a refs dump"
        yield Found("fs:ListCommits", "warn", text, "check without --read-only, or plan with it too")
        return
    try:
        reader.dump_refs(name)
    except LakeplanError as error:
        yield Found("fs:ListCommits", "fail", f"{error.message} (on {name})", grant("fs:ListCommits", error))
    else:
        yield Found("fs:ListCommits", "ok", f"the refs of {name} can be dumped")

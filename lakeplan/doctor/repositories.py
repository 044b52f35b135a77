"""What the doctor finds of repositories: claims of named trees, branch policies, hidden branches for pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from lakeplan.branches.pin_records import read_stored
from lakeplan.errors import GateRefused, LakeplanError, PermissionDenied
from lakeplan.lakefs.protocols import BranchReader, GcRulesWriter, LakeFSReader
from lakeplan.review.claims import check_claims, claims_in
from lakeplan.review.selection import Selection
from lakeplan.state.clocks import MAX_DIFFERENCE
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import PoliciesDesired
from lakeplan.values.pins import may_be_pin
from lakeplan.values.progress import Progress
from lakeplan.values.repository import Repository
from lakeplan.values.rules import GcRules

POLICIES = "docs/permissions.md has the whole policy"
SHOWN = 5
SKEW_WARN_SECONDS = 60
SKEW_FAIL_SECONDS = MAX_DIFFERENCE.total_seconds()
Purpose = Literal["plan", "apply", "branches", "sweep"]
Word = Literal["ok", "warn", "fail"]
_RANK: dict[Word, int] = {"ok": 0, "warn": 1, "fail": 2}


@dataclass(frozen=True)
class CheckResult:
    """``hint`` is what to do when it is not ok."""

    name: str
    result: Word
    message: str
    hint: str = ""


def of_error(name: str, error: LakeplanError, hint: str = "") -> CheckResult:
    """A failure. ``hint`` wins over the error's own."""
    return CheckResult(name, "fail", error.message, hint or error.hint or POLICIES)


def grant(permission: str, error: LakeplanError) -> str:
    """What to do about a failed check of a permission."""
    if isinstance(error, PermissionDenied):
        return f"grant {permission}; {POLICIES}"
    return error.hint or POLICIES


def names(found: Sequence[str]) -> str:
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def on_repositories(count: int) -> str:
    return f"on {count:,} repositories" if count != 1 else "on 1 repository"


def summed(looked: Mapping[str, Sequence[CheckResult]]) -> list[CheckResult]:
    """One finding a check, over all repositories (``looked``: by name): the worst, and on which it is so."""
    checks = dict.fromkeys(one.name for found in looked.values() for one in found)
    return [_sum(check, looked) for check in checks]


def _sum(check: str, looked: Mapping[str, Sequence[CheckResult]]) -> CheckResult:
    by_repository = {name: one for name, found in looked.items() for one in found if one.name == check}
    worst = max(by_repository.values(), key=lambda one: _RANK[one.result])
    if worst.result == "ok":
        text = worst.message if len(by_repository) == 1 else on_repositories(len(by_repository))
        return CheckResult(check, "ok", text)
    where = [name for name, one in by_repository.items() if one.result == worst.result]
    return CheckResult(check, worst.result, f"{worst.message} (on {names(where)})", worst.hint)


def clock(name: str, date: datetime, now: datetime, hint: str) -> CheckResult:
    """Another clock against this machine's."""
    seconds = round((now - date).total_seconds())
    text = f"{abs(seconds):,} s {'behind' if seconds > 0 else 'ahead of'} this machine's"
    if abs(seconds) <= SKEW_WARN_SECONDS:
        return CheckResult(name, "ok", "agrees with this machine's" if abs(seconds) <= 2 else text)
    return CheckResult(name, "warn" if abs(seconds) <= SKEW_FAIL_SECONDS else "fail", text, hint)


WORKERS = 8


def check_lifecycle(
    tree: DesiredTree, reader: LakeFSReader, branches: BranchReader, selection: Selection
) -> Iterator[CheckResult]:
    """On every selected repository that has policies in the tree. Only GET requests."""
    yield _engine(tree.servers[reader.name].branch_lifecycle_engine)
    try:
        live = {r.id: r for r in reader.list_repositories()}
    except LakeplanError:
        return  # said already
    managed = [
        d.name
        for d in tree.resolve(reader.name, live)
        if isinstance(d.branch_lifecycle, PoliciesDesired) and selection.takes(d) and d.name in live
    ]
    if not managed:
        text = "no repository of the tree that is on it has branch_lifecycle policies"
        yield CheckResult("policies", "warn", text, "Run doctor again when there are some.")
        return
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        looked = dict(zip(managed, pool.map(lambda name: _look(live[name], branches), managed), strict=True))
    yield from summed(looked)
    text = "not tried: doctor makes and deletes no branch"
    hint = "Grant it, and fs:UpdateRepository, and fs:CreateBranch for undo."
    yield CheckResult("fs:DeleteBranch", "warn", text, hint)


def _engine(engine: str) -> CheckResult:
    name, hint = "lifecycle engine", "Set servers.<name>.branch_lifecycle.engine: lakeplan."
    if engine == "lakeplan":
        return CheckResult(name, "ok", "lakeplan deletes branches on this server")
    if engine == "server":
        return CheckResult(
            name,
            "warn",
            "the server deletes branches itself; lakeplan only shows them",
            (f"Nothing to do, or: {hint}"),
        )
    return CheckResult(name, "fail", "nothing deletes branches on this server", hint)


def _look(repository: Repository, reader: BranchReader) -> list[CheckResult]:
    name, default = repository.id, repository.default_branch
    asked: list[tuple[str, str, Callable[[], object]]] = [
        ("branches, hidden ones too", "fs:ListBranches", lambda: reader.list_live(name)),
        ("one branch", "fs:ReadBranch", lambda: reader.find_branch(name, default)),
        ("uncommitted changes", "fs:ListObjects", lambda: reader.staged(name, default)),
        ("open pull requests", "pr:ListPullRequests", lambda: next(iter(reader.open_pulls(name)), None)),
        (
            "branch protection rules",
            "branches:GetBranchProtectionRules",
            lambda: next(iter(reader.protected_patterns(name)), None),
        ),
    ]
    return [_tried(what, permission, ask) for what, permission, ask in asked]


def _tried(what: str, permission: str, ask: Callable[[], object]) -> CheckResult:
    name = f"{what} ({permission})"
    try:
        ask()
    except LakeplanError as error:
        return of_error(name, error, grant(permission, error))
    return CheckResult(name, "ok", "can be read")


_MOST_DAYS = 36500


@dataclass(frozen=True)
class _RepositoryAnswers:
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
) -> Iterator[CheckResult]:
    """Every permission a plan needs, on all selected repositories whose rules the tree manages; with a
    ``writer`` those of an apply too. The refs dump and metadata are tried on one of them. Stored rules are
    looked at on the others too, as far as they can be read: a missing permission there is no failure."""
    try:
        live = {r.id: r for r in reader.list_repositories()}
    except LakeplanError as error:
        yield of_error("fs:ListRepositories", error, grant("fs:ListRepositories", error))
        return
    yield CheckResult("fs:ListRepositories", "ok", f"{len(live):,} repositories")
    managed = [d for d in tree.resolve(reader.name, live) if d.gc is not None and selection.takes(d)]
    missing = [d.name for d in managed if d.name not in live]
    if missing:
        text = f"the tree names what the server does not have, or does not show: {names(missing)}"
        yield CheckResult(
            "repositories", "fail", text, "Correct the names, or grant fs:ReadRepository on them."
        )
    found = [d.name for d in managed if d.name in live]
    others = [n for n in live if n not in set(found) and selection.takes_named(reader.name, n, None)]
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        rest = list(pool.map(lambda name: _RepositoryAnswers(name, {}, _odd(reader, name)), others))
    if not found:
        yield _oddities(rest)
        text = "no repository of the tree is on it, so permissions on repositories were not checked"
        yield CheckResult("repositories", "warn", text, "Run doctor again when there is an entry.")
        return
    with (
        progress.task(f"checking {reader.name}", len(found)) as step,
        ThreadPoolExecutor(max_workers=WORKERS) as pool,
    ):

        def one(name: str) -> _RepositoryAnswers:
            try:
                return _inspect_repository(live[name], reader, writer)
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
        ("retention:GetGarbageCollectionRules", lambda: read_stored(reader, name).bare),
        ("fs:ListBranches", lambda: next(iter(reader.list_branches(name)), None)),
        ("fs:ListTags", lambda: next(iter(reader.list_tags(name)), None)),
    ]
    if writer is not None:
        asked.append(("retention:SetGarbageCollectionRules", partial(_preflight, writer, name)))
    return asked


def _preflight(writer: GcRulesWriter, name: str) -> None:
    if not writer.can_set_gc_rules(name):
        raise PermissionDenied("the server says that these credentials lack the permission")


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except LakeplanError as error:
        return error


def _inspect_repository(
    repository: Repository, reader: LakeFSReader, writer: GcRulesWriter | None
) -> _RepositoryAnswers:
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
    return _RepositoryAnswers(name, failures, oddities)


def _odd(reader: LakeFSReader, name: str) -> tuple[str, ...]:
    """What is odd about the rules of a repository that the tree does not manage."""
    try:
        rules = read_stored(reader, name).bare
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
            yield f"0 days for {name}: every commit but the HEAD may expire at once"
        elif value > _MOST_DAYS:
            yield f"{value:,} days for {name}: more than a century"
    if branches is not None:
        yield from (
            f"a rule for branch {name!r}, which does not exist"
            for name in rules.branches
            if name not in branches
        )


def _oddities(looked: Sequence[_RepositoryAnswers]) -> CheckResult:
    odd = [f"{item.repository}: {text}" for item in looked for text in item.oddities]
    if not odd:
        return CheckResult("stored rules", "ok", "none that is unexpected")
    shown = "; ".join(odd[:SHOWN]) + (f"; and {len(odd) - SHOWN:,} more" if len(odd) > SHOWN else "")
    return CheckResult(
        "stored rules", "warn", shown, ("Run `lakeplan plan` and `lakeplan apply`, or correct the tree.")
    )


def _summed(permission: str, looked: Sequence[_RepositoryAnswers]) -> CheckResult:
    broken = [item for item in looked if permission in item.failures]
    if not broken:
        return CheckResult(permission, "ok", on_repositories(len(looked)))
    error = broken[0].failures[permission]
    text = f"{error.message} (on {names([item.repository for item in broken])})"
    return CheckResult(permission, "fail", text, grant(permission, error))


def _sample(looked: Sequence[_RepositoryAnswers]) -> str:
    """A repository on which everything else worked, or else the first."""
    return next((item.repository for item in looked if not item.failures), looked[0].repository)


def _on_one(reader: LakeFSReader, name: str, *, read_only: bool) -> Iterator[CheckResult]:
    try:
        head = next((b.commit_id for b in reader.list_branches(name)), None)
        if head is not None:
            commit = reader.get_commit(name, head)
            yield CheckResult("fs:ReadCommit", "ok", f"on {name}")
            if commit.meta_range_id:
                reader.metadata_reader(name).read_metadata("meta_range", commit.meta_range_id)
            yield CheckResult("fs:ListObjects", "ok", f"metadata of {name} can be read")
    except PermissionDenied as error:
        permission = "fs:ReadCommit" if "commit" in error.message else "fs:ListObjects"
        yield CheckResult(permission, "fail", f"{error.message} (on {name})", grant(permission, error))
    except LakeplanError as error:
        yield CheckResult("metadata", "fail", f"{error.message} (on {name})", error.hint or POLICIES)
    if read_only:
        text = "not tested (--read-only): a plan requests a refs dump"
        yield CheckResult("fs:ListCommits", "warn", text, "Check without --read-only, or also plan with it.")
        return
    try:
        reader.dump_refs(name)
    except LakeplanError as error:
        yield CheckResult(
            "fs:ListCommits", "fail", f"{error.message} (on {name})", grant("fs:ListCommits", error)
        )
    else:
        yield CheckResult("fs:ListCommits", "ok", f"the refs of {name} can be dumped")


HIDDEN = "hidden branches, for pins"
_HIDDEN_HINT = (
    "Servers from before November 2024 have none. An apply makes one pin first, and deletes it again if it is"
    " visible. Grant fs:CreateBranch, fs:ReadBranch and fs:DeleteBranch."
)


def check_hidden_branches(
    tree: DesiredTree, reader: LakeFSReader, selection: Selection
) -> Iterator[CheckResult]:
    """Nothing where the tree requires no pins. Pins that there are prove it; doctor makes none."""
    try:
        live = [repository.id for repository in reader.list_repositories()]
    except LakeplanError:
        return  # the check of fs:ListRepositories says so
    try:
        asking = [d for d in tree.resolve(reader.name, live) if d.asks_for_pins and selection.takes(d)]
        named = [branch for d in asking if d.name in live for branch in reader.list_pins(d.name)]
    except LakeplanError as error:
        yield of_error(HIDDEN, error, grant("fs:ListBranches", error))
        return
    if asking:
        yield _judged(named)


def _judged(named: list[LiveBranch]) -> CheckResult:
    pins = [branch for branch in named if may_be_pin(branch)]
    others = [branch.id for branch in named if not may_be_pin(branch)]
    if others:
        text = f"{others[0]} is named like a pin, and is visible or was moved ({len(others):,} in all)"
        return CheckResult(HIDDEN, "warn", text, "Find out who made it. lakeplan deletes only its own pins.")
    if pins:
        return CheckResult(
            HIDDEN, "ok", f"the server has {len(pins):,} pin{'s' * (len(pins) != 1)}, all hidden"
        )
    return CheckResult(HIDDEN, "warn", "not tested: doctor creates no branches", _HIDDEN_HINT)


CLAIMS = "fs:UpdateRepository"
_CLAIM_HINT = (
    "Grant it: the first apply claims the repository for this tree, and ends without a write if it may not."
    " docs/permissions.md has the whole policy."
)


def check_may_claim(tree: DesiredTree, reader: LakeFSReader, selection: Selection) -> Iterator[CheckResult]:
    """Nothing for a tree without a name, which claims nothing. Only GET requests: the server has no request
    that asks for this permission and changes nothing. A claim of this tree that is there proves it."""
    if not tree.name:
        return
    try:
        live = [repository.id for repository in reader.list_repositories()]
    except LakeplanError:
        return  # the check of fs:ListRepositories says so
    found = [d.name for d in tree.resolve(reader.name, live) if selection.takes(d) and d.name in live]
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        looked = dict(
            zip(found, pool.map(lambda name: [_inspect_claim(tree.name, reader, name)], found), strict=True)
        )
    yield from summed(looked)


def _inspect_claim(tree: str, reader: LakeFSReader, name: str) -> CheckResult:
    try:
        metadata = reader.metadata(name)
        check_claims(metadata, tree, f"{reader.name}/{name}")
    except GateRefused as error:
        return of_error(CLAIMS, error)
    except LakeplanError as error:
        return of_error(CLAIMS, error, grant("fs:ReadRepository", error))
    if tree in claims_in(metadata):
        return CheckResult(CLAIMS, "ok", f"{name} is claimed for this tree")
    return CheckResult(
        CLAIMS, "warn", "not tested: doctor changes no metadata, and this tree has no claim yet", _CLAIM_HINT
    )

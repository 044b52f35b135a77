"""Checks of repositories: permissions, stored rules, claims, branch policies, hidden branches for pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal, TypeVar

from lakeplan.branches.pin_records import read_stored
from lakeplan.errors import GateRefused, LakeplanError, PermissionDenied
from lakeplan.lakefs.protocols import BranchReader, GcRulesWriter, LakeFSReader
from lakeplan.review.claims import check_claims, claims_in
from lakeplan.state.clocks import MAX_DIFFERENCE
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import BranchSettings, DesiredRepository, PoliciesDesired
from lakeplan.values.pins import may_be_pin
from lakeplan.values.progress import Progress, in_parallel
from lakeplan.values.repository import Repository
from lakeplan.values.rules import GcRules
from lakeplan.values.units import count_of, first_of

POLICIES = "See docs/permissions.md for the complete policy."
SHOWN = 5
WORKERS = 8
SKEW_WARN_SECONDS = 60
SKEW_FAIL_SECONDS = MAX_DIFFERENCE.total_seconds()
R = TypeVar("R")
Purpose = Literal["plan", "apply", "branches", "sweep"]
Result = Literal["ok", "warn", "fail"]
_RANK: dict[Result, int] = {"ok": 0, "warn": 1, "fail": 2}


@dataclass(frozen=True)
class Check:
    """The result of one check. ``hint`` says what to do if the result is not ok. ``area`` is what was
    inspected: ``tree``, ``server prod``, ``state``, ``spark``."""

    name: str
    result: Result
    message: str
    hint: str = ""
    area: str = ""


def of_error(name: str, error: LakeplanError, hint: str = "") -> Check:
    """A failed check. ``hint`` replaces the hint of the error."""
    return Check(name, "fail", error.message, hint or error.hint or POLICIES)


def grant(permission: str, error: LakeplanError) -> str:
    """The hint for a failed check of a permission."""
    if isinstance(error, PermissionDenied):
        return f"Grant {permission}. {POLICIES}"
    return error.hint or POLICIES


def names(items: Sequence[str]) -> str:
    return first_of(items, SHOWN)


def on_each(repositories: Sequence[str], inspect: Callable[[str], R]) -> dict[str, R]:
    """The results of ``inspect`` for each repository. Several run at the same time."""
    return dict(zip(repositories, in_parallel(inspect, repositories, WORKERS), strict=True))


def summed(results: Mapping[str, Sequence[Check]]) -> list[Check]:
    """The worst result of each check, and the repositories that have it. ``results`` are by repository."""
    checks = dict.fromkeys(one.name for of_one in results.values() for one in of_one)
    return [_sum(check, results) for check in checks]


def _sum(check: str, results: Mapping[str, Sequence[Check]]) -> Check:
    by_repository = {name: one for name, checks in results.items() for one in checks if one.name == check}
    worst = max(by_repository.values(), key=lambda one: _RANK[one.result])
    if worst.result == "ok":
        text = (
            worst.message if len(by_repository) == 1 else f"on {count_of(len(by_repository), 'repository')}"
        )
        return Check(check, "ok", text)
    where = [name for name, one in by_repository.items() if one.result == worst.result]
    return Check(check, worst.result, f"{worst.message} (on {names(where)})", worst.hint)


def clock(name: str, date: datetime, now: datetime, hint: str) -> Check:
    """Compare another clock with this machine's."""
    seconds = round((now - date).total_seconds())
    text = f"{abs(seconds):,} s {'behind' if seconds > 0 else 'ahead of'} this machine's clock"
    if abs(seconds) <= SKEW_WARN_SECONDS:
        return Check(name, "ok", "agrees with this machine's clock" if abs(seconds) <= 2 else text)
    return Check(name, "warn" if abs(seconds) <= SKEW_FAIL_SECONDS else "fail", text, hint)


def check_branch_protectors(
    selected: Sequence[DesiredRepository], live: Mapping[str, Repository], reader: BranchReader
) -> list[Check]:
    """Check that lakeplan can read what protects branches from the policies of the selected repositories."""
    managed = [d for d in selected if isinstance(d.branch_lifecycle, PoliciesDesired) and d.name in live]
    settings = {d.name: d.branch_settings for d in managed}
    return summed(on_each(list(settings), lambda name: _read_protectors(name, settings[name], reader)))


def check_branch_policies(
    selected: Sequence[DesiredRepository], live: Mapping[str, Repository], branches: BranchReader
) -> Iterator[Check]:
    """Check the selected repositories that have policies in the tree. Sends only GET requests."""
    managed = [d.name for d in selected if isinstance(d.branch_lifecycle, PoliciesDesired) and d.name in live]
    if not managed:
        text = "no repository on this server has branch_lifecycle policies in the tree"
        yield Check("policies", "warn", text, "Run `lakeplan doctor` again after you add policies.")
        return
    yield from summed(on_each(managed, lambda name: _read_branches(live[name], branches)))
    yield from check_branch_protectors(selected, live, branches)
    text = "not tested: doctor does not create or delete branches"
    hint = "Grant fs:DeleteBranch and fs:UpdateRepository, and fs:CreateBranch for undo."
    yield Check("fs:DeleteBranch", "warn", text, hint)


def check_engine(engine: str) -> Check:
    """Check that lakeplan deletes branches on this server."""
    name, hint = "lifecycle engine", "Set servers.<name>.branch_lifecycle.engine to lakeplan."
    if engine == "lakeplan":
        return Check(name, "ok", "lakeplan deletes branches on this server")
    if engine == "server":
        text = "the server itself deletes branches; lakeplan only shows them"
        return Check(name, "warn", text, f"{hint} Then lakeplan deletes branches instead of the server.")
    return Check(name, "fail", "nothing deletes branches on this server", hint)


def _read_branches(repository: Repository, reader: BranchReader) -> list[Check]:
    name, default = repository.id, repository.default_branch
    asked: list[tuple[str, str, Callable[[], object]]] = [
        ("branches, including hidden ones", "fs:ListBranches", lambda: reader.list_live(name)),
        ("one branch", "fs:ReadBranch", lambda: reader.find_branch(name, default)),
        ("uncommitted changes", "fs:ListObjects", lambda: reader.staged(name, default)),
    ]
    return [_tried(what, permission, ask) for what, permission, ask in asked]


def _read_protectors(name: str, settings: BranchSettings, reader: BranchReader) -> list[Check]:
    checks = []
    if settings.keep_with_open_pull_request:
        pulls = partial(reader.open_pulls, name)
        checks.append(_tried("open pull requests", "pr:ListPullRequests", lambda: next(iter(pulls()), None)))
    if settings.keep_protected:
        rules, permission = partial(reader.protected_patterns, name), "branches:GetBranchProtectionRules"
        checks.append(_tried("branch protection rules", permission, lambda: next(iter(rules()), None)))
    return checks


def _tried(what: str, permission: str, ask: Callable[[], object]) -> Check:
    name = f"{what} ({permission})"
    try:
        ask()
    except LakeplanError as error:
        return of_error(name, error, grant(permission, error))
    return Check(name, "ok", "can be read")


@dataclass(frozen=True)
class _Permissions:
    """The permissions on one repository, and the invalid values in its stored rules."""

    checks: tuple[Check, ...] = ()
    oddities: tuple[str, ...] = ()


def check_repositories(
    selected: Sequence[DesiredRepository],
    live: Mapping[str, Repository],
    others: Sequence[str],
    reader: LakeFSReader,
    writer: GcRulesWriter | None,
    progress: Progress,
    *,
    read_only: bool,
) -> Iterator[Check]:
    """Check every permission that a plan needs, and with a ``writer`` those of an apply, on the selected
    repositories whose rules the tree manages. The refs dump and metadata are tried on one of them. Stored
    rules of ``others`` are inspected if they can be read; a missing permission there is not a failure."""
    managed = [d.name for d in selected if d.gc is not None]
    missing = [name for name in managed if name not in live]
    if missing:
        text = (
            f"these repositories in the tree do not exist on the server or are not visible: {names(missing)}"
        )
        yield Check(
            "repositories",
            "fail",
            text,
            "Correct the names in the tree, or grant fs:ReadRepository on these repositories.",
        )
    readable = [name for name in managed if name in live]
    unmanaged = [name for name in others if name not in set(readable)]
    rest = on_each(unmanaged, lambda name: _Permissions(oddities=_odd(reader, name)))
    if not readable:
        yield _oddities(rest)
        text = (
            "no repository whose GC rules the tree manages was found on this server, so permissions on"
            " repositories were not checked"
        )
        hint = "Add an entry with gc rules or correct the names, then run `lakeplan doctor` again."
        yield Check("repositories", "warn", text, hint)
        return
    with progress.task(f"checking {reader.name}", len(readable)) as step:

        def one(name: str) -> _Permissions:
            try:
                return _inspect_repository(name, reader, writer)
            finally:
                step()

        inspected = on_each(readable, one)
    yield from summed({name: item.checks for name, item in inspected.items()})
    works = (name for name, item in inspected.items() if all(check.result == "ok" for check in item.checks))
    yield from _on_one(reader, next(works, readable[0]), read_only=read_only)
    yield _oddities(inspected | rest)


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
        raise PermissionDenied("the server reports that these credentials lack the permission")


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except LakeplanError as error:
        return error


def _inspect_repository(name: str, reader: LakeFSReader, writer: GcRulesWriter | None) -> _Permissions:
    answers = {permission: _answer(ask) for permission, ask in _asked(reader, writer, name)}
    rules = answers["retention:GetGarbageCollectionRules"]
    oddities: tuple[str, ...] = ()
    if isinstance(rules, GcRules):
        branches: set[str] | None = None
        if rules.branches and not isinstance(answers["fs:ListBranches"], LakeplanError):
            try:
                branches = {b.id for b in reader.list_branches(name)}
            except LakeplanError as error:
                answers["fs:ListBranches"] = error
        oddities = tuple(rules.oddities(branches))
    checks = (
        of_error(permission, answer, grant(permission, answer))
        if isinstance(answer, LakeplanError)
        else Check(permission, "ok", "on 1 repository")
        for permission, answer in answers.items()
    )
    return _Permissions(tuple(checks), oddities)


def _odd(reader: LakeFSReader, name: str) -> tuple[str, ...]:
    """The invalid values in the rules of a repository that the tree does not manage."""
    try:
        rules = read_stored(reader, name).bare
        if rules is None:
            return ()
        branches = {b.id for b in reader.list_branches(name)} if rules.branches else set()
    except LakeplanError:
        return ()  # doctor requires no permission there
    return tuple(rules.oddities(branches))


def _oddities(inspected: Mapping[str, _Permissions]) -> Check:
    odd = [f"{name}: {text}" for name, item in inspected.items() for text in item.oddities]
    if not odd:
        return Check("stored rules", "ok", "no unexpected values")
    shown = "; ".join(odd[:SHOWN]) + (f"; and {len(odd) - SHOWN:,} more" if len(odd) > SHOWN else "")
    hint = "Run `lakeplan plan` and `lakeplan apply`, or correct the tree."
    return Check("stored rules", "warn", shown, hint)


def _on_one(reader: LakeFSReader, name: str, *, read_only: bool) -> Iterator[Check]:
    try:
        head = next((b.commit_id for b in reader.list_branches(name)), None)
        if head is not None:
            commit = reader.get_commit(name, head)
            yield Check("fs:ReadCommit", "ok", f"on {name}")
            if commit.meta_range_id:
                reader.metadata_reader(name).read_metadata("meta_range", commit.meta_range_id)
            yield Check("fs:ListObjects", "ok", f"metadata of {name} can be read")
    except PermissionDenied as error:
        permission = "fs:ReadCommit" if "commit" in error.message else "fs:ListObjects"
        yield Check(permission, "fail", f"{error.message} (on {name})", grant(permission, error))
    except LakeplanError as error:
        yield Check("metadata", "fail", f"{error.message} (on {name})", error.hint or POLICIES)
    if read_only:
        text = "not tested with --read-only, because the test requests a refs dump"
        yield Check(
            "fs:ListCommits",
            "warn",
            text,
            "Run `lakeplan doctor` without --read-only, or use --read-only for plans too.",
        )
        return
    try:
        reader.dump_refs(name)
    except LakeplanError as error:
        yield Check("fs:ListCommits", "fail", f"{error.message} (on {name})", grant("fs:ListCommits", error))
    else:
        yield Check("fs:ListCommits", "ok", f"the server created a refs dump of {name}")


HIDDEN = "hidden branches, for pins"
_HIDDEN_HINT = (
    "Grant fs:CreateBranch, fs:ReadBranch and fs:DeleteBranch. lakeFS versions from before November 2024"
    " do not support hidden branches. An apply creates one pin first, and deletes it if it is visible."
)


def check_hidden_branches(
    selected: Sequence[DesiredRepository], live: Mapping[str, Repository], reader: LakeFSReader
) -> Iterator[Check]:
    """Check whether the server supports hidden branches, if the tree requires pins. Existing pins prove it;
    doctor creates none."""
    asking = [d.name for d in selected if d.requires_pins]
    try:
        named = [branch for name in asking if name in live for branch in reader.list_pins(name)]
    except LakeplanError as error:
        yield of_error(HIDDEN, error, grant("fs:ListBranches", error))
        return
    if asking:
        yield _judged(named)


def _judged(named: list[LiveBranch]) -> Check:
    pins = [branch for branch in named if may_be_pin(branch)]
    others = [branch.id for branch in named if not may_be_pin(branch)]
    if others:
        such = count_of(len(others), "such branch")
        text = f"{others[0]} is named like a pin, but is visible or was moved ({such})"
        return Check(
            HIDDEN, "warn", text, "Find out who created the branch. lakeplan deletes only its own pins."
        )
    if pins:
        return Check(HIDDEN, "ok", f"the server has {count_of(len(pins), 'pin')}, all hidden")
    return Check(HIDDEN, "warn", "not tested: doctor creates no branches", _HIDDEN_HINT)


CLAIMS = "fs:UpdateRepository"
_CLAIM_HINT = (
    f"Grant fs:UpdateRepository. The first apply claims the repository for this tree, and writes nothing if"
    f" the claim is denied. {POLICIES}"
)


def check_may_claim(
    tree: str, selected: Sequence[DesiredRepository], live: Mapping[str, Repository], reader: LakeFSReader
) -> Iterator[Check]:
    """Check whether a tree with a name may claim its repositories. An existing claim of this tree proves it.
    Sends only GET requests, because nothing else tests this permission without a change."""
    existing = [d.name for d in selected if d.name in live] if tree else []
    yield from summed(on_each(existing, lambda name: [_inspect_claim(tree, reader, name)]))


def _inspect_claim(tree: str, reader: LakeFSReader, name: str) -> Check:
    try:
        metadata = reader.metadata(name)
        check_claims(metadata, tree, f"{reader.name}/{name}")
    except GateRefused as error:
        return of_error(CLAIMS, error)
    except LakeplanError as error:
        return of_error(CLAIMS, error, grant("fs:ReadRepository", error))
    if tree in claims_in(metadata):
        return Check(CLAIMS, "ok", f"{name} is claimed for this tree")
    return Check(
        CLAIMS, "warn", "not tested: doctor changes no metadata, and this tree has no claim yet", _CLAIM_HINT
    )

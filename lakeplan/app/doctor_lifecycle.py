"""What deleting branches by policy needs of a server, as far as it can be tried without deleting one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from lakeplan.app.doctor_found import Found, grant, of_error, summed
from lakeplan.app.plan import Selection
from lakeplan.errors import LakeplanError
from lakeplan.model.desired import PoliciesDesired
from lakeplan.model.repository import Repository
from lakeplan.ports.branches import BranchReader
from lakeplan.ports.lakefs import LakeFSReader
from lakeplan.ports.tree import DesiredTree

WORKERS = 8


def check_lifecycle(
    tree: DesiredTree, reader: LakeFSReader, branches: BranchReader, selection: Selection
) -> Iterator[Found]:
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
        yield Found("policies", "warn", text, "check again once there are some")
        return
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        looked = dict(zip(managed, pool.map(lambda name: _look(live[name], branches), managed), strict=True))
    yield from summed(looked)
    text = "not tried: doctor makes and deletes no branch"
    hint = "grant it, and fs:UpdateRepository, and fs:CreateBranch for undo"
    yield Found("fs:DeleteBranch", "warn", text, hint)


def _engine(engine: str) -> Found:
    name, hint = "lifecycle engine", "set servers.<name>.branch_lifecycle.engine: lakeplan"
    if engine == "lakeplan":
        return Found(name, "ok", "lakeplan deletes branches of this server")
    if engine == "server":
        return Found(name, "warn", "the server deletes by itself; lakeplan only shows it", f"fine, or {hint}")
    return Found(name, "fail", "nobody deletes branches of this server", hint)


def _look(repository: Repository, reader: BranchReader) -> list[Found]:
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


def _tried(what: str, permission: str, ask: Callable[[], object]) -> Found:
    name = f"{what} ({permission})"
    try:
        ask()
    except LakeplanError as error:
        return of_error(name, error, grant(permission, error))
    return Found(name, "ok", "can be read")

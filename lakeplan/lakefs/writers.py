"""The writes of applies and branch runs, and the requests of marks, each with a separate connection."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakeplan.errors import FeatureMissing, NotFound, PermissionDenied, ReadOnlyRepository, RepositoryNotFound
from lakeplan.lakefs.answers import Fields, parse_json, read, read_commit, unexpected
from lakeplan.lakefs.client import PATHS
from lakeplan.lakefs.transport import Adapter, Call, of_repository
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import SettingItem, SettingKind, item_body
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import UncommittedRun


class _Writer(Adapter):
    def _send(self, method: str, repository: str, *path: str, operation: str, **options: Any) -> None:
        self._transport.request(of_repository(method, repository, *path, operation=operation, **options))

    def _may(self, repository: str, *path: str, operation: str) -> bool:
        try:
            self._send("GET", repository, *path, operation=operation)
        except (PermissionDenied, ReadOnlyRepository):
            return False
        return True


class LakeFSRulesWriter(_Writer):
    """Implements ``GcRulesWriter`` over HTTP. The server stores rules without validating them
    (lakefs/api.md)."""

    _ALLOWED = re.compile(
        r"GET /repositories/[^/]+/gc/rules/set_allowed|(PUT|DELETE) /repositories/[^/]+/settings/gc_rules"
    )

    def can_set_gc_rules(self, repository: str) -> bool:
        operation = "check whether GC rules may be set"
        return self._may(repository, "gc", "rules", "set_allowed", operation=operation)

    def set_gc_rules(self, repository: str, rules: GcRules) -> None:
        path = ("settings", "gc_rules")
        self._send("PUT", repository, *path, operation="set the GC rules", body=rules.to_body())

    def delete_gc_rules(self, repository: str) -> None:
        self._send("DELETE", repository, "settings", "gc_rules", operation="delete the GC rules")


class LakeFSSettingsWriter(_Writer):
    """Implements ``SettingsWriter`` over HTTP."""

    _ALLOWED = re.compile(
        r"GET /repositories/[^/]+/settings/branch_lifecycle/set_allowed"
        r"|(PUT|DELETE) /repositories/[^/]+/settings/(branch_lifecycle/policies|object_lifecycle)"
    )

    def can_set(self, repository: str, kind: SettingKind) -> bool:
        if kind is not SettingKind.BRANCH_LIFECYCLE:
            return True  # there is no preflight request: the write fails
        operation = f"check whether {kind.label} may be set"
        return self._may(repository, "settings", "branch_lifecycle", "set_allowed", operation=operation)

    def set_items(
        self, repository: str, kind: SettingKind, items: Sequence[SettingItem], *, if_match: str
    ) -> None:
        self._send(
            *("PUT", repository, *PATHS[kind]),
            operation=f"set the {kind.label}",
            # The server refuses an empty If-Match (400). A setting that is unset has no ETag.
            headers={"If-Match": if_match} if if_match else {},
            body={kind.items_key: [item_body(item) for item in items]},
        )

    def delete_items(self, repository: str, kind: SettingKind) -> None:
        self._send("DELETE", repository, *PATHS[kind], operation=f"delete the {kind.label}")


class LakeFSMetadataWriter(_Writer):
    """Implements ``MetadataWriter`` over HTTP."""

    _ALLOWED = re.compile(r"(POST|DELETE) /repositories/[^/]+/metadata")

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None:
        body = {"metadata": dict(values)}
        self._send("POST", repository, "metadata", operation="set the repository's metadata", body=body)

    def delete_metadata(self, repository: str, keys: Sequence[str]) -> None:
        operation = "remove keys from the repository's metadata"
        self._send("DELETE", repository, "metadata", operation=operation, body={"keys": list(keys)})


class LakeFSBranchWriter(LakeFSMetadataWriter):
    """Implements ``BranchWriter`` over HTTP."""

    _ALLOWED = re.compile(
        r"DELETE /repositories/[^/]+/branches/[^/]+|POST /repositories/[^/]+/(branches|metadata)"
        r"|GET /repositories/[^/]+/commits/[^/]+"
    )

    def delete_branch(self, repository: str, branch_id: str) -> None:
        self._send("DELETE", repository, "branches", branch_id, operation="delete a branch")

    def create_branch(self, repository: str, branch: LiveBranch) -> None:
        # After a cherry-pick, lakeFS can create it at a commit that does not exist (lakefs/api.md).
        read_commit(self._transport, repository, branch.commit_id)
        body = {"name": branch.id, "source": branch.commit_id, "hidden": branch.hidden}
        self._send("POST", repository, "branches", operation="create a branch", body=body)


MAX_PAGES = 1_000_000
BRANCH_TRIES = 4


class LakeFSPreparer(Adapter):
    """Implements ``UncommittedPreparer`` over HTTP."""

    _ALLOWED = re.compile(r"POST /repositories/[^/]+/gc/prepare_uncommited|GET /config/garbage-collection")

    def prepare_uncommitted(self, repository: str) -> tuple[UncommittedRun, ...]:
        """Return the run of each page, until one has no continuation token (lakefs/api.md). The server fails
        if a branch is deleted in the meantime. Then all pages are requested again."""
        tries = BRANCH_TRIES
        while True:
            tries -= 1
            try:
                return self._prepare(repository)
            except NotFound as error:
                if isinstance(error, RepositoryNotFound) or "branch" not in error.message:
                    raise
                if not tries:
                    hint = "Run the command again. Branches were deleted in the meantime."
                    raise error.replaced(hint=hint) from error

    def _prepare(self, repository: str) -> tuple[UncommittedRun, ...]:
        runs: list[UncommittedRun] = []
        token, tokens = "", {hash("")}
        for _ in range(MAX_PAGES):
            call = of_repository(
                *("POST", repository, "gc", "prepare_uncommited"),
                operation="prepare uncommitted addresses",
                body={"continuation_token": token} if token else {},
                repeatable=True,  # each request makes a new run; runs that are not returned are never read
                retry_timeouts=False,
            )
            response = self._transport.request(call)
            run, after = parse_json(self._transport, call, response, _answer)
            if not run.location:
                run = replace(run, first=_place(token) or ("", ""), end=_place(after))
            runs.append(run)
            if not after:
                return tuple(runs)
            if hash(after) in tokens:  # the listing is circular
                break
            token = after
            tokens.add(hash(after))
        problem = (
            "the server repeated a continuation token or returned too many pages, without reaching the"
            " end of the listing"
        )
        raise unexpected(self._transport, call, response, problem, "Check the server's log.")

    def grace_period_seconds(self) -> int | None:
        call = Call("GET", ("config", "garbage-collection"), "read the grace period")
        try:
            seconds = read(self._transport, call, lambda fields: fields.integer("grace_period", 0))
        except (FeatureMissing, NotFound, PermissionDenied):
            return None
        return seconds if seconds > 0 else None


def _answer(fields: Fields) -> tuple[UncommittedRun, str]:
    """Return the run, whose location is "" if nothing is uncommitted, and the continuation token."""
    token = fields.data.get("continuation_token")
    location = fields.text("gc_uncommitted_location")
    return UncommittedRun(fields.name("run_id"), location), fields.text("continuation_token") if token else ""


def _place(token: str) -> tuple[str, str] | None:
    """Return the branch and path at which a continuation token goes on; None if it does not say that."""
    try:
        mark = json.loads(base64.b64decode(token, altchars=b"-_" if {*token} & {*"-_"} else None))
        branch, path = mark["branch"], mark["path"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (branch, path) if isinstance(branch, str) and isinstance(path, str) else None

"""The writes of an apply and of branch deletion, each on a connection of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lakeplan.errors import PermissionDenied, ReadOnlyRepository
from lakeplan.lakefs.client import LIST, PATHS
from lakeplan.lakefs.transport import Adapter, of_repository
from lakeplan.values.branches import LiveBranch
from lakeplan.values.rules import GcRules
from lakeplan.values.settings import SettingItem, SettingKind, item_body


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
    """``GcRulesWriter`` over HTTP. The server validates nothing (lakefs/api.md): what is
    given here is what gets stored."""

    _ALLOWED = re.compile(
        r"GET /repositories/[^/]+/gc/rules/set_allowed|(PUT|DELETE) /repositories/[^/]+/settings/gc_rules"
    )

    def can_set_gc_rules(self, repository: str) -> bool:
        operation = "ask whether GC rules may be set"
        return self._may(repository, "gc", "rules", "set_allowed", operation=operation)

    def set_gc_rules(self, repository: str, rules: GcRules) -> None:
        path = ("settings", "gc_rules")
        self._send("PUT", repository, *path, operation="set the GC rules", body=rules.to_body())

    def delete_gc_rules(self, repository: str) -> None:
        self._send("DELETE", repository, "settings", "gc_rules", operation="delete the GC rules")


class LakeFSSettingsWriter(_Writer):
    """``lakeplan.lakefs.protocols.SettingsWriter`` over HTTP."""

    _ALLOWED = re.compile(
        r"GET /repositories/[^/]+/settings/branch_lifecycle/set_allowed"
        r"|(PUT|DELETE) /repositories/[^/]+/settings/(branch_lifecycle/policies|object_lifecycle)"
    )

    def can_set(self, repository: str, kind: SettingKind) -> bool:
        if kind is not SettingKind.BRANCH_LIFECYCLE:
            return True  # there is no preflight: the write itself is refused
        operation = f"ask whether {kind.label} may be set"
        return self._may(repository, "settings", "branch_lifecycle", "set_allowed", operation=operation)

    def set_items(
        self, repository: str, kind: SettingKind, items: Sequence[SettingItem], *, if_match: str
    ) -> None:
        self._send(
            *("PUT", repository, *PATHS[kind]),
            operation=f"set the {kind.label}",
            # An empty If-Match is refused (400); what is unset has no ETag to match.
            headers={"If-Match": if_match} if if_match else {},
            body={LIST[kind]: [item_body(item) for item in items]},
        )

    def delete_items(self, repository: str, kind: SettingKind) -> None:
        self._send("DELETE", repository, *PATHS[kind], operation=f"delete the {kind.label}")


class LakeFSMetadataWriter(_Writer):
    """``lakeplan.lakefs.protocols.MetadataWriter`` over HTTP."""

    _ALLOWED = re.compile(r"(POST|DELETE) /repositories/[^/]+/metadata")

    def set_metadata(self, repository: str, values: Mapping[str, str]) -> None:
        body = {"metadata": dict(values)}
        self._send("POST", repository, "metadata", operation="set the repository's metadata", body=body)

    def delete_metadata(self, repository: str, keys: Sequence[str]) -> None:
        operation = "remove keys of the repository's metadata"
        self._send("DELETE", repository, "metadata", operation=operation, body={"keys": list(keys)})


class LakeFSBranchWriter(LakeFSMetadataWriter):
    """``lakeplan.lakefs.protocols.BranchWriter`` over HTTP."""

    _ALLOWED = re.compile(
        r"DELETE /repositories/[^/]+/branches/[^/]+|POST /repositories/[^/]+/(branches|metadata)"
    )

    def delete_branch(self, repository: str, branch_id: str) -> None:
        self._send("DELETE", repository, "branches", branch_id, operation="delete a branch")

    def create_branch(self, repository: str, branch: LiveBranch) -> None:
        body = {"name": branch.id, "source": branch.commit_id, "hidden": branch.hidden}
        self._send("POST", repository, "branches", operation="create a branch", body=body)


connect_metadata_writer = LakeFSMetadataWriter.connect
connect_rules_writer = LakeFSRulesWriter.connect
connect_settings_writer = LakeFSSettingsWriter.connect
connect_branch_writer = LakeFSBranchWriter.connect

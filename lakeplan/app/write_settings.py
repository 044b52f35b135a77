"""Writing policies or object rules: check, record HEADs, write with the server's ETag, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakeplan.app.attempt import Attempt
from lakeplan.app.lifecycle.memory import record_heads
from lakeplan.app.run import Connection, Run
from lakeplan.app.state import History, record_setting
from lakeplan.core.lifecycle.verdicts import takes
from lakeplan.core.settings import same_setting, what_changed, with_server_ids
from lakeplan.errors import PermissionDenied, StalePlan
from lakeplan.model.lifecycle import Policy
from lakeplan.model.plan import RepositoryPlan
from lakeplan.model.setting_plan import ObjectRulesPlan, PoliciesPlan
from lakeplan.model.settings import ObjectRule, SettingItem, SettingKind, Stored, item_body, setting_etag
from lakeplan.ports.storage import StateWriter

_PERMISSIONS = {SettingKind.BRANCH_LIFECYCLE: "branches:SetBranchLifecyclePolicies"}
Found = Stored[Policy] | Stored[ObjectRule]


class SettingAttempt(Attempt):
    """One list. ``force`` skips the ETag checks and sends no precondition."""

    def __init__(
        self,
        repository: RepositoryPlan,
        live: RepositoryPlan | None,
        setting: PoliciesPlan | ObjectRulesPlan,
        run: Run,
        state: StateWriter,
        history: History,
        *,
        force: bool,
    ) -> None:
        super().__init__(repository, live, run, state, history, setting=setting.kind.value, force=force)
        self._plan = setting
        self._seen: Found = Stored(None)
        self._before: Sequence[SettingItem] | None = setting.before
        self._etag = ""

    @property
    def called(self) -> str:
        return f"the {self._plan.kind.label}"

    def etags(self) -> tuple[str, str]:
        return setting_etag(self._before), self._plan.after_etag

    def action(self) -> str:
        return self._plan.action.value

    def check(self, connection: Connection) -> bool:
        kind, name = self._plan.kind, self.repository.name
        self.read(connection)
        self._before, self._etag = self._seen.items, self._seen.etag
        if same_setting(self._seen.items, self._plan.after):
            return False
        judged = [s for s in (self.live.settings if self.live else ()) if s.kind is kind]
        if any(same_setting(setting.before, self._plan.after) for setting in judged):
            raise self.changed_since_judged()
        if not self.force:
            self.check_unchanged()
        if not connection.settings_writer.can_set(name, kind):
            raise PermissionDenied(
                f"the credentials may not change this repository's {kind.label}",
                where=self.repository.key,
                hint=f"grant {_PERMISSIONS[kind]} on it" if kind in _PERMISSIONS else "",
            )
        return True

    def bodies(self) -> Mapping[str, Any]:
        return {"before": _bodies(self._before), "after": _bodies(self._plan.after)}

    def prepare(self, connection: Connection) -> None:
        if isinstance(self._plan, PoliciesPlan) and self._plan.after:
            self._record_heads(connection, self._plan.after)

    def put(self, connection: Connection) -> None:
        kind, name, after = self._plan.kind, self.repository.name, self._plan.after
        if not after:
            connection.settings_writer.delete_items(name, kind)
            return
        # What is unset has no ETag to match: then reading before and after is all there is.
        etag = "" if self.force else self._etag
        items = with_server_ids(after, self._before)
        connection.settings_writer.set_items(name, kind, items, if_match=etag)

    def read(self, connection: Connection) -> None:
        if self._plan.kind is SettingKind.BRANCH_LIFECYCLE:
            self._seen = connection.reader.get_policies(self.repository.name)
        else:
            self._seen = connection.reader.get_object_rules(self.repository.name)

    def is_stored(self) -> bool:
        return same_setting(self._seen.items, self._plan.after)

    def is_as_checked(self) -> bool:
        return self._seen.etag == self._etag and same_setting(self._seen.items, self._before)

    def found(self) -> Any:
        return _bodies(self._seen.items)

    def difference(self) -> str:
        return what_changed(self._plan.after, self._seen.items)

    def record(self) -> None:
        """Bodies with the server's ids, and both ETags."""
        record_setting(
            self.state,
            self.repository.key,
            self._plan.kind.value,
            {
                "etag": self._plan.after_etag,
                "server_etag": self._seen.etag,
                "body": _bodies(self._seen.items),
            },
            config_hash=self.repository.config_hash,
            run_id=self.run.run_id,
            at=self.run.now(),
        )

    def check_unchanged(self) -> None:
        if self._seen.etag == self._plan.server_etag and same_setting(self._seen.items, self._plan.before):
            return
        raise StalePlan(
            f"{self.called} on the server changed since the plan:"
            f" {what_changed(self._plan.before, self._seen.items)}",
            where=self.repository.key,
            hint="plan again and have it reviewed; --force skips this check",
        )

    def _record_heads(self, connection: Connection, policies: Sequence[Policy]) -> None:
        """Remembers branch → HEAD of every branch that a policy names, so that ``lifecycle undo`` can make
        again what the server's job deletes. Commits made after this are not in it."""
        live = connection.branches.list_live(self.repository.name)
        named = [branch for branch in live if any(takes(policy, branch.id) for policy in policies)]
        record_heads(self.state, self.repository.key, named, self.run)


def _bodies(items: Sequence[SettingItem] | None) -> list[dict[str, Any]] | None:
    """A list in wire form."""
    return None if items is None else [item_body(item) for item in items]

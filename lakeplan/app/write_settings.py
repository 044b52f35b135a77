"""Pushing policies or object rules: check, record HEADs, write with the server's ETag, read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from lakeplan.app.lifecycle.memory import Deletion, DeletionRecord, Fate, text_of
from lakeplan.app.run import Connection, Outcome, Run
from lakeplan.core.lifecycle.verdicts import takes
from lakeplan.core.settings import same_setting, what_changed, with_server_ids
from lakeplan.errors import PermissionDenied, PreconditionFailed, StalePlan
from lakeplan.model.lifecycle import Policy
from lakeplan.model.plan import RepositoryPlan
from lakeplan.model.setting_plan import ObjectRulesPlan, PoliciesPlan
from lakeplan.model.settings import ObjectRule, SettingItem, SettingKind, Stored, item_body
from lakeplan.ports.storage import StateWriter

_PERMISSIONS = {SettingKind.BRANCH_LIFECYCLE: "branches:SetBranchLifecyclePolicies"}


@dataclass(frozen=True)
class Pushed:
    """How it ended, and what the server has now: ids it gave and its ETag."""

    outcome: Outcome
    stored: Stored[Policy] | Stored[ObjectRule]


def push_setting(
    repository: RepositoryPlan,
    setting: PoliciesPlan | ObjectRulesPlan,
    connection: Connection,
    state: StateWriter,
    run: Run,
    *,
    force: bool,
) -> Pushed:
    """Writes one list. ``force`` skips the ETag checks and sends no precondition. Raises StalePlan (exit 5)
    when the server has something else than was planned on, saying what changed."""
    kind, name = setting.kind, repository.name
    stored = _read(connection, kind, name)
    if same_setting(stored.items, setting.after):
        return Pushed(Outcome.ALREADY, stored)
    if not force:
        _check_unchanged(repository, setting, stored)
    if not connection.settings_writer.can_set(name, kind):
        raise PermissionDenied(
            f"the credentials may not change this repository's {kind.label}",
            where=repository.key,
            hint=f"grant {_PERMISSIONS[kind]} on it" if kind in _PERMISSIONS else "",
        )
    if isinstance(setting, PoliciesPlan) and setting.after:
        record_heads(repository, setting.after, connection, state, run)
    if setting.after:
        items = with_server_ids(setting.after, stored.items)
        try:
            # What is unset has no ETag to match: then the check above and the read-back are all there is.
            connection.settings_writer.set_items(name, kind, items, if_match="" if force else stored.etag)
        except PreconditionFailed:
            # Ours, when an answer got lost and the write was tried again; the read-back tells.
            if not same_setting(_read(connection, kind, name).items, setting.after):
                _check_unchanged(repository, setting, _read(connection, kind, name))
                raise
    else:
        connection.settings_writer.delete_items(name, kind)
    now = _read(connection, kind, name)
    if not same_setting(now.items, setting.after):
        raise StalePlan(
            f"the {kind.label} read back differ from those written: {what_changed(setting.after, now.items)};"
            " somebody else wrote too, or the server changed them",
            where=repository.key,
            hint="look at them on the server, then plan again",
        )
    return Pushed(Outcome.APPLIED, now)


def _check_unchanged(
    repository: RepositoryPlan,
    setting: PoliciesPlan | ObjectRulesPlan,
    stored: Stored[Policy] | Stored[ObjectRule],
) -> None:
    if stored.etag == setting.server_etag and same_setting(stored.items, setting.before):
        return
    raise StalePlan(
        f"the {setting.kind.label} on the server changed since the plan:"
        f" {what_changed(setting.before, stored.items)}",
        where=repository.key,
        hint="plan again and have it reviewed; --force skips this check",
    )


def record_heads(
    repository: RepositoryPlan,
    policies: Sequence[Policy],
    connection: Connection,
    state: StateWriter,
    run: Run,
) -> None:
    """Remembers branch → HEAD of every branch that a policy names, so that ``lifecycle undo`` can make again
    what the server's job deletes. Commits made after this are not in it."""
    live = connection.branches.list_live(repository.name)
    going = {
        branch.id: Deletion(branch.commit_id, hidden=branch.hidden, fate=Fate.SEEN)
        for branch in live
        if any(takes(policy, branch.id) for policy in policies)
    }
    at: datetime = run.now()
    record = DeletionRecord(
        state,
        repository.key,
        run.run_id,
        at=text_of(at) or "",
        by=run.holder,
        branches=going,
        finished=True,
    )
    if going:
        record.save()


def _read(connection: Connection, kind: SettingKind, name: str) -> Stored[Policy] | Stored[ObjectRule]:
    if kind is SettingKind.BRANCH_LIFECYCLE:
        return connection.reader.get_policies(name)
    return connection.reader.get_object_rules(name)


def applied_record(setting: PoliciesPlan | ObjectRulesPlan, pushed: Pushed) -> dict[str, object]:
    """What the state keeps of a list that was read back: bodies with the server's ids, and both ETags."""
    items: Sequence[SettingItem] = pushed.stored.items or ()
    return {
        "etag": setting.after_etag,
        "server_etag": pushed.stored.etag,
        "body": bodies(items),
    }


def bodies(items: Sequence[SettingItem] | None) -> list[dict[str, object]] | None:
    """A list in wire form, for the history and the state."""
    return None if items is None else [item_body(item) for item in items]

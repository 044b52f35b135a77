"""Branch lifecycle policies, object rules and durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

from lakeplan.values import records
from lakeplan.values.declare import (
    ALL_OF_BOTH,
    BRANCH_GLOBS,
    COUNT,
    FLAG,
    MORE,
    NOTICE_PERIOD,
    ON,
    setting,
    settings_of,
    strictest_first,
    words,
)
from lakeplan.values.rules import ABSENT_ETAG


@dataclass(frozen=True)
class Policy:
    """A branch lifecycle policy. ``id`` is None until a server assigns one. It has one or two thresholds, and
    deletes a branch that has crossed all of them."""

    id: str | None
    patterns: tuple[str, ...]
    max_age_seconds: int | None = None
    max_idle_seconds: int | None = None
    description: str = ""


@dataclass(frozen=True)
class BranchSettings:
    """Settings of ``branch_lifecycle`` that keep lakeplan itself from deleting a branch."""

    exempt: tuple[str, ...] = setting(
        BRANCH_GLOBS,
        [],
        stricter=ALL_OF_BOTH,
        help="Glob patterns for branches that are never deleted. The patterns are added to inherited ones.",
    )
    require_merged: bool = setting(
        FLAG,
        False,
        stricter=ON,
        help="Delete only merged branches. A branch is merged if its HEAD is in the history of the default"
        " branch.",
    )
    min_keep: int = setting(
        COUNT,
        0,
        stricter=MORE,
        help="Of the branches that a policy matches, keep at least this many: the most recently written"
        " ones.",
    )
    keep_with_uncommitted: bool = setting(
        FLAG, True, stricter=ON, help="Keep branches with uncommitted changes."
    )
    keep_with_open_pull_request: bool = setting(
        FLAG, True, stricter=ON, help="Keep the sources and destinations of open pull requests."
    )
    # Stricter than the server, which lets an administrator delete such a branch.
    keep_protected: bool = setting(
        FLAG, True, stricter=ON, help="Keep branches that match a branch protection rule on the server."
    )
    assume_created: Literal["never", "head_commit"] = setting(
        words("never", "head_commit"),
        "never",
        stricter=strictest_first("never", "head_commit"),
        help="How lakeplan determines the age of a branch. `never`: the age is counted from lakeplan's first"
        " inspection. `head_commit`: if the branch existed at the first inspection, the age is counted"
        " from the creation of its HEAD commit.",
    )
    notice_period_seconds: int = setting(
        NOTICE_PERIOD,
        "0s",
        stricter=MORE,
        help="Before deleting a branch, wait this long after the repository owner's channel in `notify`"
        " has accepted a notice. With `0s`, branches are deleted without notice.",
    )


BRANCH_SETTINGS = settings_of("branch_lifecycle", BranchSettings)


class Evidence(str, Enum):
    """The source of a moment. ``SERVER``: fields of lakeFS Enterprise. ``OBSERVED``: lakeplan's own record.
    ``HEAD_COMMIT`` and ``STAGED``: read from the repository. ``ASSUMED``: ``assume_created: head_commit``."""

    SERVER = "server"
    OBSERVED = "observed"
    HEAD_COMMIT = "head_commit"
    STAGED = "staged"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class BranchFacts:
    """The known facts about one branch. ``created`` is None without a recorded creation time, which exempts
    the branch. If ``last_write`` is None, the creation time counts instead."""

    branch_id: str
    commit_id: str
    created: datetime | None
    created_evidence: Evidence | None
    last_write: datetime | None
    last_write_evidence: Evidence | None
    hidden: bool = False


class SettingKind(str, Enum):
    """A kind of setting. ``value`` is the block's name in the tree, ``label`` its name in messages."""

    BRANCH_LIFECYCLE = "branch_lifecycle"
    OBJECT_LIFECYCLE = "object_lifecycle"

    @property
    def items_key(self) -> str:
        """The key of the list, in the tree and on the server."""
        return "policies" if self is SettingKind.BRANCH_LIFECYCLE else "rules"

    @property
    def label(self) -> str:
        return f"{self.value.replace('_', ' ')} {self.items_key}"


@dataclass(frozen=True)
class ObjectRule:
    """An object lifecycle rule: a commit by the server deletes objects under ``prefix`` ("" is everything)
    from these branches after ``expire_after_days``."""

    id: str
    branches: tuple[str, ...]
    prefix: str
    expire_after_days: int
    description: str = ""


SettingItem = Policy | ObjectRule
T = TypeVar("T", bound=SettingItem)


@dataclass(frozen=True)
class Stored(Generic[T]):
    """A setting as a server stores it. ``items`` is None if nothing is set, and an empty list means the same.
    ``etag`` is the server's, to be sent back unchanged in ``If-Match``, or "" if the server sent no ETag."""

    items: tuple[T, ...] | None
    etag: str = ""


def item_body(item: SettingItem) -> dict[str, Any]:
    """Return the item as the API writes it: durations in seconds, and no key without a value."""
    if isinstance(item, Policy):
        body: dict[str, Any] = {"name_patterns": list(item.patterns)}
        optional: dict[str, Any] = {
            "id": item.id,
            "max_age": item.max_age_seconds,
            "max_inactivity_time": item.max_idle_seconds,
            "description": item.description or None,
        }
        return body | {key: value for key, value in optional.items() if value is not None}
    body = {
        "id": item.id,
        "branches": list(item.branches),
        "prefix": item.prefix,
        "expire_after_days": item.expire_after_days,
    }
    return body | ({"description": item.description} if item.description else {})


def items_from_body(kind: SettingKind, body: Sequence[Mapping[str, Any]]) -> tuple[SettingItem, ...]:
    """Return the items of bodies that ``item_body`` wrote. Raises ValueError for other bodies."""
    is_policy = kind is SettingKind.BRANCH_LIFECYCLE
    records.list_of(_POLICY if is_policy else _RULE)(list(body), "")
    return tuple(_policy(item) if is_policy else _rule(item) for item in body)


_TEXTS, _SECONDS = records.list_of(records.text), records.count
_POLICY = records.record(
    {"name_patterns": _TEXTS},
    {"id": records.text, "max_age": _SECONDS, "max_inactivity_time": _SECONDS, "description": records.text},
)
_RULE = records.record(
    {"id": records.text, "branches": _TEXTS, "prefix": records.text, "expire_after_days": records.days},
    {"description": records.text},
)


def _policy(item: Mapping[str, Any]) -> Policy:
    return Policy(
        item.get("id"),
        tuple(item["name_patterns"]),
        item.get("max_age"),
        item.get("max_inactivity_time"),
        item.get("description") or "",
    )


def _rule(item: Mapping[str, Any]) -> ObjectRule:
    return ObjectRule(
        item["id"],
        tuple(item["branches"]),
        item["prefix"],
        item["expire_after_days"],
        item.get("description") or "",
    )


def canonical(item: SettingItem) -> SettingItem:
    """Return the item with its patterns or branches sorted and without duplicates: order and duplicates have
    no meaning."""
    if isinstance(item, Policy):
        return replace(item, patterns=tuple(sorted(set(item.patterns))))
    return replace(item, branches=tuple(sorted(set(item.branches))))


def setting_etag(items: Sequence[SettingItem] | None) -> str:
    """Return lakeplan's own ETag: the digest of the canonical list, or ``absent`` if nothing is set.

    Policies keep their order, which decides which one is recorded as the reason of a deletion. Object rules
    are sorted by id.
    """
    if not items:
        return ABSENT_ETAG
    bodies = [item_body(canonical(item)) for item in items]
    if all(isinstance(item, ObjectRule) for item in items):
        bodies.sort(key=lambda body: str(body["id"]))
    return records.json_digest(bodies)


def duration_text(seconds: int | None) -> str:
    """Return a duration in days, hours, minutes and seconds, such as ``10d12h``, or "" for None."""
    if seconds is None:
        return ""
    text, rest = "", seconds
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        text += f"{number}{unit}" if number else ""
    return text or "0s"

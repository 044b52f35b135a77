"""Branch-lifecycle policies, object rules and durations: what a server's settings say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

from lakeplan.values.rules import ABSENT_ETAG


@dataclass(frozen=True)
class Policy:
    """One policy. ``id`` is None until a server assigns one. A branch must cross every threshold that is
    given; at least one is."""

    id: str | None
    patterns: tuple[str, ...]
    max_age_seconds: int | None = None
    max_idle_seconds: int | None = None
    description: str = ""


@dataclass(frozen=True)
class LifecycleSettings:
    """Settings of ``branch_lifecycle`` that keep lakeplan itself from deleting a branch.

    ``exempt`` are globs over branch names. ``require_merged``: only branches whose HEAD the default branch
    reaches. ``min_keep``: so many of the branches that a policy matches stay, the most recently written.
    ``assume_created``: ``head_commit`` takes the HEAD commit's date for the creation time of branches that
    were there when lakeplan first looked; ``never`` counts from that first look.
    ``keep_protected``: what a branch protection rule of the server matches stays, although the server itself
    lets an administrator delete it.
    """

    exempt: tuple[str, ...] = ()
    require_merged: bool = False
    min_keep: int = 0
    keep_with_uncommitted: bool = True
    keep_with_open_pull_request: bool = True
    assume_created: Literal["never", "head_commit"] = "never"
    keep_protected: bool = True


class Evidence(str, Enum):
    """How a moment became known. ``SERVER``: the Enterprise fields; ``OBSERVED``: lakeplan's ledger saw it;
    ``HEAD_COMMIT`` and ``STAGED``: read from the repository; ``ASSUMED``: ``assume_created: head_commit``."""

    SERVER = "server"
    OBSERVED = "observed"
    HEAD_COMMIT = "head_commit"
    STAGED = "staged"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class BranchFacts:
    """What is known of one branch. ``created`` None: no recorded creation time, so it is exempt.
    ``last_write`` None: the creation time counts."""

    branch_id: str
    commit_id: str
    created: datetime | None
    created_evidence: Evidence | None
    last_write: datetime | None
    last_write_evidence: Evidence | None
    hidden: bool = False


class SettingKind(str, Enum):
    """``value`` is the block's name in the tree; ``label`` what messages call it."""

    BRANCH_LIFECYCLE = "branch_lifecycle"
    OBJECT_LIFECYCLE = "object_lifecycle"

    @property
    def label(self) -> str:
        return (
            "branch lifecycle policies" if self is SettingKind.BRANCH_LIFECYCLE else "object lifecycle rules"
        )


@dataclass(frozen=True)
class ObjectRule:
    """One object lifecycle rule: objects under ``prefix`` ("" is everything) on exactly named ``branches``
    go, by a commit of the server's, after ``expire_after_days``."""

    id: str
    branches: tuple[str, ...]
    prefix: str
    expire_after_days: int
    description: str = ""


SettingItem = Policy | ObjectRule
T = TypeVar("T", bound=SettingItem)


@dataclass(frozen=True)
class Stored(Generic[T]):
    """What a server answered: ``items`` None while nothing is set (an empty list is the same), and its own
    ETag as it is, to be sent back in ``If-Match``; "" when it gave none."""

    items: tuple[T, ...] | None
    etag: str = ""


def item_body(item: SettingItem) -> dict[str, Any]:
    """The wire form: seconds, the server's names, nothing that is not given."""
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
    """The inverse of ``item_body``, for what lakeplan stored. Raises KeyError or TypeError for others."""
    return tuple(_policy(item) if kind is SettingKind.BRANCH_LIFECYCLE else _rule(item) for item in body)


def _policy(item: Mapping[str, Any]) -> Policy:
    return Policy(
        item.get("id"),
        tuple(item["name_patterns"]),
        item.get("max_age"),
        item.get("max_inactivity_time"),
        item.get("description", ""),
    )


def _rule(item: Mapping[str, Any]) -> ObjectRule:
    return ObjectRule(
        item["id"],
        tuple(item["branches"]),
        item["prefix"],
        item["expire_after_days"],
        item.get("description", ""),
    )


def canonical(item: SettingItem) -> SettingItem:
    """The item without what means nothing: the order of patterns or branches, and names given twice."""
    if isinstance(item, Policy):
        return Policy(
            item.id,
            tuple(sorted(set(item.patterns))),
            item.max_age_seconds,
            item.max_idle_seconds,
            item.description,
        )
    branches = tuple(sorted(set(item.branches)))
    return ObjectRule(item.id, branches, item.prefix, item.expire_after_days, item.description)


def setting_etag(items: Sequence[SettingItem] | None) -> str:
    """lakeplan's own ETag: SHA-256 (hex) of the canonical list, ``absent`` when nothing is set.

    Policies keep their order (it says which one is recorded as the deleter); object rules are sorted by id
    (they are judged one by one).
    """
    if not items:
        return ABSENT_ETAG
    bodies = [item_body(canonical(item)) for item in items]
    if all(isinstance(item, ObjectRule) for item in items):
        bodies.sort(key=lambda body: str(body["id"]))
    text = json.dumps(bodies, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def duration_text(seconds: int | None) -> str:
    """``7d``, ``1w3d12h`` written shortest in d, h, m, s; "" when not set."""
    if seconds is None:
        return ""
    text, rest = "", seconds
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        text += f"{number}{unit}" if number else ""
    return text or "0s"

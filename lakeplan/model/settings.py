"""Settings of a repository that carry an ETag of the server's: branch lifecycle policies and object rules.

Both are lists of items with ids, replaced as a whole (api.md, "Branch lifecycle", "Object lifecycle"). Their
wire form is here; what people write is in the tree (``lakeplan.config``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from lakeplan.model.lifecycle import Policy
from lakeplan.model.rules import ABSENT_ETAG


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

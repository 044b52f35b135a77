"""Reading branch lifecycle policies and object lifecycle rules over HTTP (lakeFS Enterprise; api.md).

An open-source server, or one whose licence lapsed, answers 404 "invalid API endpoint": FeatureMissing, and
never "no policies".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from lakeplan.adapters.lakefs.answers import Fields, Malformed, check_globs, checked_glob, parse_json
from lakeplan.adapters.lakefs.transport import Transport
from lakeplan.errors import NotFound, RepositoryNotFound
from lakeplan.model.lifecycle import Policy
from lakeplan.model.settings import ObjectRule, SettingItem, SettingKind, Stored

T = TypeVar("T", bound=SettingItem)

PATHS = {
    SettingKind.BRANCH_LIFECYCLE: ("settings", "branch_lifecycle", "policies"),
    SettingKind.OBJECT_LIFECYCLE: ("settings", "object_lifecycle"),
}
LIST = {SettingKind.BRANCH_LIFECYCLE: "policies", SettingKind.OBJECT_LIFECYCLE: "rules"}
_UNSET = re.compile(r"cannot [^:]*: (.*(polic|rule|lifecycle)[^:]*:? )?not found")
"""A 404 that says the setting is not there. Any other 404 must not pass for "nothing set"."""


def read_policies(transport: Transport, repository: str) -> Stored[Policy]:
    return _read(transport, repository, SettingKind.BRANCH_LIFECYCLE, policy_of)


def read_object_rules(transport: Transport, repository: str) -> Stored[ObjectRule]:
    return _read(transport, repository, SettingKind.OBJECT_LIFECYCLE, object_rule_of)


def patterns_of(item: SettingItem) -> tuple[str, ...]:
    return item.patterns if isinstance(item, Policy) else item.branches


def _read(
    transport: Transport, repository: str, kind: SettingKind, parse: Callable[[Fields], T]
) -> Stored[T]:
    operation = f"read the {kind.label}"
    try:
        response = transport.request(
            *("GET", "repositories", repository, *PATHS[kind]), operation=operation, repository=repository
        )
    except RepositoryNotFound:
        raise
    except NotFound as error:
        if _UNSET.fullmatch(error.message):
            return Stored(None)
        raise

    def parse_items(fields: Fields) -> tuple[T, ...]:
        found = tuple(parse(Fields.of(item)) for item in fields.items(LIST[kind]))
        check_globs([pattern for item in found for pattern in patterns_of(item)], "the list")
        return found

    items = parse_json(
        response,
        parse_items,
        transport=transport,
        operation=operation,
        repository=repository,
    )
    return Stored(items or None, response.headers.get("ETag", "").strip())


def policy_of(fields: Fields) -> Policy:
    """One policy in wire form (seconds). What the server stores is taken as it is, but must be a policy: one
    without patterns or thresholds would be judged as something it is not."""
    patterns = _globs(fields, "name_patterns")
    max_age, max_idle = _seconds(fields, "max_age"), _seconds(fields, "max_inactivity_time")
    if max_age is None and max_idle is None:
        raise Malformed("a policy has neither max_age nor max_inactivity_time")
    return Policy(
        _optional(fields, "id") or None, patterns, max_age, max_idle, _optional(fields, "description")
    )


def object_rule_of(fields: Fields) -> ObjectRule:
    days = fields.integer("expire_after_days")
    if days < 1:
        raise Malformed(f"expire_after_days is {days}")
    return ObjectRule(
        id=fields.name("id"),
        branches=_globs(fields, "branches"),
        prefix=fields.text("prefix"),
        expire_after_days=days,
        description=_optional(fields, "description"),
    )


def _globs(fields: Fields, name: str) -> tuple[str, ...]:
    found = fields.items(name)
    texts = tuple(checked_glob(text, name) for text in found if isinstance(text, str) and text)
    if not texts or len(texts) != len(found):
        raise Malformed(f"{name} is not a list of names")
    return texts


def _seconds(fields: Fields, name: str) -> int | None:
    if fields.data.get(name) is None:
        return None
    seconds = fields.integer(name)
    if seconds < 1:
        raise Malformed(f"{name} is {seconds}")
    return seconds


def _optional(fields: Fields, name: str) -> str:
    return "" if fields.data.get(name) is None else fields.text(name)

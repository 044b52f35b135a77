"""The ``object_lifecycle`` block as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.config.layers import CLEAR
from lakeplan.model.desired import Cleared, ObjectRulesDesired, ObjectRulesSetting, Source
from lakeplan.model.settings import ObjectRule

BLOCK = "object_lifecycle"


def object_rules_setting(document: Mapping[str, Any], sources: Mapping[str, Source]) -> ObjectRulesSetting:
    """The rules of a merged document that ``check_complete`` found nothing wrong with."""
    block = document.get(BLOCK)
    if block is None:
        return None
    if block == CLEAR:
        return Cleared.CLEAR
    rules = tuple(
        ObjectRule(
            id=item["id"],
            branches=tuple(item["branches"]),
            prefix=item["prefix"],
            expire_after_days=item["expire_after_days"],
            description=item.get("description", ""),
        )
        for item in block["rules"]
    )
    places = [sources[f"/{BLOCK}/rules/{n}/expire_after_days"] for n in range(len(rules))]
    return ObjectRulesDesired(rules, min(places))

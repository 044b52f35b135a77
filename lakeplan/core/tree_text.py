"""Pieces of a tree as YAML text, written so that a person would have written them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from lakeplan.core.settings.difference import duration_text
from lakeplan.model.desired import BranchRule
from lakeplan.model.lifecycle import Policy
from lakeplan.model.rules import GcRules
from lakeplan.model.settings import SettingItem, SettingKind

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""What YAML takes for something else than a text."""


def quoted(text: str) -> str:
    """A YAML scalar that is read back as this text: plain where that is safe, in double quotes elsewhere."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in json.dumps(text, ensure_ascii=False))


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def gc_lines(rules: GcRules | None, remove: Iterable[BranchRule] = ()) -> list[str]:
    """The block that gives these rules: ``gc: clear`` for none. ``remove`` drops inherited rules."""
    if rules is None:
        return ["gc: clear"]
    items = [f"{{branch_id: {quoted(b)}, retention_days: {d}}}" for b, d in rules.branches.items()]
    items += [
        f"{{{'pattern' if r.is_pattern else 'branch_id'}: {quoted(r.name)}, remove: true}}" for r in remove
    ]
    lines = ["gc:", f"  default_retention_days: {rules.default_retention_days}"]
    if items:
        lines += ["  branches:", *(f"    - {item}" for item in items)]
    return lines


def setting_lines(kind: SettingKind, items: Sequence[SettingItem]) -> list[str]:
    """The block that gives these policies or object rules: ``clear`` for none."""
    if not items:
        return [f"{kind.value}: clear"]
    key = "policies" if kind is SettingKind.BRANCH_LIFECYCLE else "rules"
    return [f"{kind.value}:", f"  {key}:", *(f"    - {_item(item)}" for item in items)]


def _item(item: SettingItem) -> str:
    if isinstance(item, Policy):
        values = {
            "id": quoted(item.id) if item.id is not None else "",
            "patterns": _list(item.patterns),
            "max_age": duration_text(item.max_age_seconds),
            "max_idle_age": duration_text(item.max_idle_seconds),
        }
    else:
        values = {
            "id": quoted(item.id),
            "branches": _list(item.branches),
            "prefix": quoted(item.prefix),
            "expire_after_days": str(item.expire_after_days),
        }
    values["description"] = quoted(item.description) if item.description else ""
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items() if value) + "}"


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(quoted(name) for name in names)}]"

"""``retention/gc/rules/config.json``: protobuf despite its name; an empty file means no rules."""

from __future__ import annotations

from lakeplan.formats import wire
from lakeplan.formats.damage import blame
from lakeplan.model.rules import GcRules


def read_gc_rules(data: bytes, *, name: str) -> GcRules | None:
    """The stored rules, nonsense values included; None when the file is empty. Raises FormatError."""
    if not data:
        return None
    default = 0
    branches: dict[str, int] = {}
    with blame(name):
        for number, value in wire.read_fields(data):
            if number == 1:
                default = wire.as_int32(value)
            elif number == 2:
                key, days = wire.as_pair(value)
                branches[wire.as_text(key)] = 0 if days is None else wire.as_int32(days)
    return GcRules(default, branches)


def write_gc_rules(rules: GcRules | None) -> bytes:
    """The file of ``rules``; the empty file for None. Rules that hold only zeros are written as an explicit
    zero, which protobuf allows: an empty file would mean no rules."""
    if rules is None:
        return b""
    body = wire.field_int(1, rules.default_retention_days) + b"".join(
        wire.field_bytes(2, wire.field_bytes(1, branch.encode()) + wire.field_int(2, days, explicit=True))
        for branch, days in rules.branches.items()
    )
    return body or wire.field_int(1, 0, explicit=True)

from __future__ import annotations

from lakeplan.formats.wire import write_gc_rules
from lakeplan.values.rules import GcRules

REAL = (
    b"\x08\x15\x12\x10\n\x03dev\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    b"\x12\x08\n\x04main\x10\x1c\x12\x08\n\x04zero\x10\x00"
)
"""A real server's file, with its map in the order of the names."""


def it_writes_what_a_real_server_writes_nonsense_included() -> None:
    assert write_gc_rules(GcRules(21, {"main": 28, "dev": -1, "zero": 0})) == REAL


def it_writes_an_empty_file_for_no_rules_only() -> None:
    assert write_gc_rules(None) == b""
    assert write_gc_rules(GcRules(0, {})) == b"\x08\x00"

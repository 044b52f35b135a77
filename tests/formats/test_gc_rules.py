from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.errors import FormatError
from lakeplan.formats.wire import read_gc_rules, write_gc_rules
from lakeplan.values.rules import GcRules

DAYS = st.integers(-(2**31), 2**31 - 1)


def it_reads_a_real_servers_file() -> None:
    data = (
        b"\x08\x15\x12\x08\n\x04main\x10\x1c\x12\x10\n\x03dev\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        b"\x12\x08\n\x04zero\x10\x00"
    )
    assert read_gc_rules(data, name="x") == GcRules(21, {"main": 28, "dev": -1, "zero": 0})


def it_takes_an_empty_file_for_no_rules() -> None:
    assert read_gc_rules(b"", name="x") is None
    assert write_gc_rules(None) == b""


@given(DAYS, st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), DAYS, max_size=4))
def it_reads_what_it_writes_nonsense_included(default: int, branches: dict[str, int]) -> None:
    rules = GcRules(default, branches)
    assert read_gc_rules(write_gc_rules(rules), name="x") == rules


def it_gives_a_branch_without_days_zero() -> None:
    assert read_gc_rules(b"\x12\x03\n\x01b", name="x") == GcRules(0, {"b": 0})


@pytest.mark.parametrize(
    "data", [b'{"default_retention_days": 1}', b"\x08", b"\x12\x05", b"\x12\x02\x10\xff"]
)
def it_names_a_damaged_file(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read_gc_rules(data, name="_lakefs/retention/gc/rules/config.json")
    assert caught.value.where == "_lakefs/retention/gc/rules/config.json"

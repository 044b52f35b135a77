from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.output.text import json_text
from lakeplan.values.plan_document import dump_plan, to_document

TEXT = st.text(st.characters() | st.sampled_from("\udc80\udcff"))


@given(st.dictionaries(TEXT, TEXT), st.sampled_from(["utf-8", "ascii", "cp1252"]))
def it_can_be_written_and_read_back_in_any_encoding(document: dict[str, str], encoding: str) -> None:
    data = json_text(document, encoding=encoding).encode(encoding)
    assert json.loads(data.decode(encoding)) == document


def it_prints_a_plan_as_its_file_has_it(plans: Any) -> None:
    plan = plans.full()
    assert json_text(to_document(plan)) == dump_plan(plan)


def it_keeps_readable_text_readable() -> None:
    assert json_text({"b": "dév", "a": 1}) == '{\n  "a": 1,\n  "b": "dév"\n}\n'


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def it_escapes_where_the_terminal_is_not_unicode(encoding: str) -> None:
    assert json_text({"a": "→🌊"}, encoding=encoding) == '{\n  "a": "\\u2192\\ud83c\\udf0a"\n}\n'

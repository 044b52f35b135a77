"""Forms with a file in them."""

from __future__ import annotations

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.sandbox.messages import ApiError, read_part


def prepared(**files):
    form = requests.Request("POST", "http://host", files=files).prepare()
    return form.body, form.headers["Content-Type"]


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_bytes_come_out_as_they_went_in(data, other):
    body, content_type = prepared(other=("o", other), content=("name", data, "text/x"))
    assert read_part(body, content_type, "content") == (data, "text/x")


def test_a_part_without_a_type_has_none():
    body, content_type = prepared(content=("name", b"x"))
    assert read_part(body, content_type, "content") == (b"x", "")


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=zzz"])
def test_a_form_without_the_part_is_refused(content_type):
    with pytest.raises(ApiError, match="no part"):
        read_part(b"--abc\r\n\r\n\r\n--abc--", content_type, "content")

"""Namespaces on disk."""

from __future__ import annotations

import pytest

from lakeplan.sandbox.messages import ApiError
from lakeplan.sandbox.state import open_namespace


@pytest.mark.parametrize(
    "url",
    ["s3://x", "local://", "local:///", "local://.sandbox", "local://a/../b", "local://a/.b", "mem://x"],
)
def test_a_namespace_of_another_kind_is_refused(tmp_path, url):
    with pytest.raises(ApiError, match="invalid namespace"):
        open_namespace(tmp_path, url)


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/passwd", "", ".."])
def test_a_key_cannot_lead_out(tmp_path, key):
    namespace = open_namespace(tmp_path, "local://a")
    with pytest.raises(ApiError, match="path traversal"):
        namespace.write(key, b"x")


def test_namespaces_lie_under_the_directory(tmp_path):
    namespace = open_namespace(tmp_path, "local://team/repo")
    namespace.write("data/p/o", b"1")
    assert (tmp_path / "team/repo/data/p/o").read_bytes() == b"1"
    assert namespace.read("data/p/o") == b"1"
    assert namespace.read("data/p") is None
    assert namespace.read("data/p/o/x") is None
    assert namespace.full_address("data/p/o") == "local://team/repo/data/p/o"


def test_a_file_that_is_named_by_its_content_is_written_once(tmp_path):
    namespace = open_namespace(tmp_path, "local://a")
    namespace.write_once("k", b"1")
    namespace.write_once("k", b"2")
    assert namespace.read("k") == b"1"

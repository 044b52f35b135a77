"""Test vectors from a real server: contents that it stored, and their ids."""

from __future__ import annotations

import pytest

from lakeplan.formats.refs import compute_commit_id
from lakeplan.formats.sstable import encode_int64, encode_string, encode_string_map, file_id, file_id_of_body
from lakeplan.values.repository import Commit

FIRST = Commit("", 1795226198_000_000, "", message="Repository created")
WITH_METADATA = Commit(
    "",
    1794015408_000_000,
    "32ed010877b2c52be43a25ee887109e465c8e86e087e9f2a539bce85fb6c82fa",
    ("2a37a858aca93f09bac7c71ec03e7e21e909869dfcdeb15b81db6fc4900200c1",),
    committer="admin",
    message="op 46",
    metadata=(("seq", "46"),),
)
MERGE = Commit(
    "",
    1795226200_000_000,
    "431c08ec5695f1e089dae107a7f7a5f268dcf79dcb98a88813a9083e81558574",
    (
        "0ec4316fc344c6d486cd7d04f3fdeacf7e0fed6f190f8406202973e784818cb2",
        "1f9a5aeff085ca48accdecf8797bfb242f5113f42006f4dde98492b334591e0b",
    ),
    committer="admin",
    message="merge",
    metadata=((".lakefs.merge.strategy", "default"),),
)


@pytest.mark.parametrize(
    ("commit", "id"),
    [
        (FIRST, "acc4e13c5de0dca78b0c7dae05f48f07e0021df5487d389fb5d71560c2d54e5d"),
        (WITH_METADATA, "01daf08429bab98d37f5d6aca7c46faa36ac1f3473fd0cb891febcdba0d52718"),
        (MERGE, "67ae6908a9bc16f5ce39116e32162750fed314da1087d2e161efacf3ac533a39"),
    ],
)
def it_gives_commits_the_ids_that_the_server_gave_them(commit: Commit, id: str) -> None:
    assert compute_commit_id(commit) == id


def it_encodes_types_as_format_md_says() -> None:
    assert encode_int64(-2) == b"\x02\x08" + b"\xff" * 7 + b"\xfe"
    assert encode_string("é") == b"\x01" + encode_int64(2) + "é".encode()
    pairs = encode_string("a") + encode_string("2") + encode_string("b") + encode_string("1")
    assert encode_string_map({"b": "1", "a": "2"}) == b"\x04" + encode_int64(2) + pairs


def it_tells_records_apart_however_they_are_cut() -> None:
    ids = {
        file_id(rows, {"type": "ranges"})
        for rows in ([], [(b"ab", b"c")], [(b"a", b"bc")], [(b"a", b"b"), (b"c", b"")])
    }
    assert len(ids) == 4


def it_gives_the_same_id_however_many_records_go_at_once() -> None:
    rows = [(b"%06d" % i, b"v") for i in range(9000)]
    body = b"".join(b"6%b|1v|" % key for key, _ in rows)
    for pieces in ([body], [body[:7], body[7:]]):
        assert file_id(iter(rows), {"type": "ranges"}) == file_id_of_body(pieces, {"type": "ranges"})

from __future__ import annotations

import pytest

from lakeplan.errors import FormatError
from lakeplan.formats import wire
from lakeplan.formats.refs import (
    compute_commit_id,
    decode_branch,
    decode_commit,
    decode_tag,
    encode_commit,
    encode_pointer,
)
from lakeplan.values.repository import Branch, Commit, Tag

# a record of a real server
MESSAGE = (
    b"\n@01daf08429bab98d37f5d6aca7c46faa36ac1f3473fd0cb891febcdba0d52718\x12\x05admin\x1a\x05op 46"
    b'"\x06\x08\xb0\x81\xba\xd7\x06*@32ed010877b2c52be43a25ee887109e465c8e86e087e9f2a539bce85fb6c82fa'
    b"2\t\n\x03seq\x12\x0246:@2a37a858aca93f09bac7c71ec03e7e21e909869dfcdeb15b81db6fc4900200c1@\x01H\t"
)
COMMIT = Commit(
    id="01daf08429bab98d37f5d6aca7c46faa36ac1f3473fd0cb891febcdba0d52718",
    creation_us=1794015408_000000,
    meta_range_id="32ed010877b2c52be43a25ee887109e465c8e86e087e9f2a539bce85fb6c82fa",
    parents=("2a37a858aca93f09bac7c71ec03e7e21e909869dfcdeb15b81db6fc4900200c1",),
    version=1,
    generation=9,
    message="op 46",
    committer="admin",
    metadata=(("seq", "46"),),
)


def it_reads_and_writes_a_real_commit() -> None:
    assert decode_commit(MESSAGE) == COMMIT
    assert encode_commit(COMMIT) == MESSAGE
    assert compute_commit_id(COMMIT) == COMMIT.id


def it_keeps_the_order_of_parents_and_version_0() -> None:
    commit = Commit("c", -1_500_000, "", ("b", "a"), version=0)
    assert decode_commit(encode_commit(commit)) == commit


def it_reads_and_writes_branches_and_tags() -> None:
    assert decode_branch(encode_pointer(Branch("dev", "c1"))) == Branch("dev", "c1")
    assert decode_tag(encode_pointer(Tag("v1", "c1"))) == Tag("v1", "c1")


def it_passes_over_a_branchs_staging_tokens() -> None:
    message = encode_pointer(Branch("dev", "c1")) + wire.field_text(3, "token") + wire.field_int(5, 1)
    assert decode_branch(message) == Branch("dev", "c1")


@pytest.mark.parametrize("decode", [decode_commit, decode_branch, decode_tag])
@pytest.mark.parametrize("message", [b"", MESSAGE[:-1], b"\x08\x01", b"\x0a\x01\xff"])
def it_refuses_what_is_none(decode: object, message: bytes) -> None:
    with pytest.raises(FormatError):
        decode(message)  # type: ignore[operator]

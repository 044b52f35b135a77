"""Hashes of texts, which are the same wherever the text is."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.formats.range_arrays import hash_spans, hash_texts


@given(st.lists(st.text(max_size=40)), st.binary(max_size=9))
def test_a_span_has_the_hash_of_its_text_wherever_it_stands(texts: list[str], before: bytes) -> None:
    data, starts, ends = before, [], []
    for text in texts:
        starts.append(len(data))
        data += text.encode()
        ends.append(len(data))
        data += before
    buffer = np.frombuffer(data + bytes(8), np.uint8)
    found, ascii_only = hash_spans(buffer, np.array(starts, np.int64), np.array(ends, np.int64))
    assert found.tolist() == hash_texts(texts).tolist()
    assert ascii_only == all(text.isascii() for text in texts)


@given(st.lists(st.text(alphabet="ab\0", max_size=20), unique=True))
def test_texts_that_differ_have_hashes_that_differ(texts: list[str]) -> None:
    # 64 bits: among a few hundred texts two that share one would be a defect, not bad luck
    assert len(set(hash_texts(texts).tolist())) == len(texts)


def it_spreads_addresses_over_all_bits() -> None:
    hashes = hash_texts([f"data/partition/{n:020}" for n in range(20_000)])
    assert len(set(hashes.tolist())) == 20_000
    bits = np.unpackbits(hashes.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    assert ((bits > 0.47) & (bits < 0.53)).all()


def it_gives_the_hashes_that_caches_hold() -> None:
    """Should this change, so must ``digests.FORMAT``: caches would be read as something else."""
    assert [f"{n:016x}" for n in hash_texts(["", "a", "data/p/1", "data/p/12"]).tolist()] == [
        "1a7ce5b2f533b603",
        "ca26f6f0187e583c",
        "c89a9a87b9c0f2f9",
        "647d2c72c1d7626c",
    ]

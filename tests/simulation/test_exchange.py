from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.simulation.local import (
    PACKETS,
    TEXTS,
    Packet,
    PacketKind,
    from_bytes,
    packets_in,
    to_batch,
    to_bytes,
)

packets = st.builds(
    Packet,
    st.integers(0, 2**31 - 1),
    st.integers(0, 99),
    st.integers(0, 99),
    st.sampled_from(PacketKind).map(int),
    st.binary(max_size=50),
)


@given(st.lists(packets, max_size=8), st.booleans())
def test_pieces_arrive_as_they_were_sent(sent: list[Packet], together: bool) -> None:
    batches = [to_batch(packet) for packet in sent]
    if together and batches:
        batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
    assert all(batch.schema == PACKETS for batch in batches)
    assert list(packets_in(batches)) == sent


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.text(), st.none() | st.text()), max_size=8))
def test_tables_arrive_as_they_were_sent(rows: list[tuple[int, str, str | None]]) -> None:
    table = pa.Table.from_pylist(
        [{"pair": n, "hash": n, "address": a, "path": p, "version": None} for n, a, p in rows], schema=TEXTS
    )
    assert from_bytes(to_bytes(table)) == table

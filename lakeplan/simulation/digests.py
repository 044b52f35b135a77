"""What a simulation takes of a range: an address's hash, size and kind a row; texts for those who ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeplan.formats.hashing import Bytes, Hashes, Ints, hash_texts
from lakeplan.formats.namespace import is_candidate_key
from lakeplan.formats.range_arrays import RangeArrays
from lakeplan.model.objects import AddressType
from lakeplan.simulation.addresses import Addresses
from lakeplan.simulation.seen import Seen

_PLAIN, _CANDIDATE = int(Seen.ENTRY), int(Seen.ENTRY | Seen.CANDIDATE)


@dataclass(frozen=True)
class Digest:
    """One row for each entry inside the namespace, and for each alias. ``seen`` are bits of ``Seen``."""

    hashes: Hashes
    sizes: Ints
    seen: Bytes

    def __len__(self) -> int:
        return int(self.hashes.size)


Texts = Callable[[Ints], tuple[pa.Array, pa.Array]]
"""Addresses (relative to the namespace) and paths of some rows of a digest."""


def digest_of(arrays: RangeArrays, addresses: Addresses) -> tuple[Digest, Texts]:
    """Of a range as it was read."""
    relative = (arrays.address_types == AddressType.RELATIVE) & ~arrays.unusual
    rows = np.flatnonzero(relative)
    seen = np.where(arrays.candidates(rows), _CANDIDATE, _PLAIN).astype(np.uint8)
    if relative.all():
        return Digest(arrays.hashes, arrays.sizes, seen), _texts_of(arrays, rows, {})
    others = np.flatnonzero(~relative)
    texts: list[str] = []
    of: list[int] = []
    kinds: list[int] = []
    for row, text in zip(others.tolist(), arrays.addresses(others), strict=True):
        inside, may_mean = addresses.meaning(text, int(arrays.address_types[row]))
        if inside is not None:
            texts.append(inside)
            kinds.append(_CANDIDATE if is_candidate_key(inside) else _PLAIN)
        texts += may_mean
        kinds += [int(Seen.ALIAS)] * len(may_mean)
        of += [row] * (len(texts) - len(of))
    named = dict(enumerate(texts, rows.size))
    all_rows = np.concatenate((rows, np.array(of, dtype=np.int64)))
    digest = Digest(
        np.concatenate((arrays.hashes[rows], hash_texts(texts))),
        arrays.sizes[all_rows],
        np.concatenate((seen, np.array(kinds, dtype=np.uint8))),
    )
    return digest, _texts_of(arrays, all_rows, named)


def _texts_of(arrays: RangeArrays, rows: Ints, named: dict[int, str]) -> Texts:
    """``rows`` are entries by row of the digest; ``named``, rows whose address is not as it is stored."""

    def texts(wanted: Ints) -> tuple[pa.Array, pa.Array]:
        addresses = arrays.addresses(rows[wanted])
        if named:
            addresses = [named.get(n, text) for n, text in zip(wanted.tolist(), addresses, strict=True)]
        return pa.array(addresses, pa.string()), pa.array(arrays.paths(rows[wanted]), pa.string())

    return texts

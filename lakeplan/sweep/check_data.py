"""Reads objects and compares their bytes with the checksums of their entries."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from lakeplan.errors import LakeplanError, StorageNotFound
from lakeplan.formats.namespace import is_usual_key
from lakeplan.simulation.requests import SampledEntry
from lakeplan.stores.protocols import PieceReader, SweepStore
from lakeplan.sweep.documents import ReadRow
from lakeplan.values.objects import batches
from lakeplan.values.progress import Progress
from lakeplan.values.simulation import Amount

PIECE = 8 << 20
THREADS = 8
AT_ONCE = 256
_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass
class DataRead:
    """``differing`` objects have other bytes than their entries say."""

    amount: Amount = field(default_factory=Amount)
    matched: int = 0
    incomparable: int = 0
    unreadable: int = 0
    differing: list[SampledEntry] = field(default_factory=list)

    def to_row(self, share: float) -> ReadRow:
        return {
            "percent": share * 100,
            "read": self.amount.to_row(),
            "matched": self.matched,
            "differs": len(self.differing),
            "incomparable": self.incomparable,
            "unreadable": self.unreadable,
        }


def read_data(store: SweepStore, entries: Iterable[SampledEntry], progress: Progress) -> DataRead:
    """Reads the objects of these entries. What differs is read twice. Raises StorageError, and LakeplanError
    for a store that cannot read in pieces."""
    if not isinstance(store, PieceReader):
        raise LakeplanError(
            "objects of this storage cannot be read in pieces",
            where=store.url,
            hint="Run the check without --read-data.",
        )
    pieces: PieceReader = store
    found = DataRead()

    def compared(entry: SampledEntry) -> tuple[SampledEntry, str]:
        return entry, _compared(store, pieces, entry)

    with progress.task("reading objects", None) as step, ThreadPoolExecutor(THREADS) as pool:
        for some in batches(entries, AT_ONCE):
            comparable = [one for one in some if _md5_of(one.e_tag) and is_usual_key(one.address)]
            found.incomparable += len(some) - len(comparable)
            for entry, outcome in pool.map(compared, comparable):
                step()
                _count(found, entry, outcome)
    return found


def _count(found: DataRead, entry: SampledEntry, outcome: str) -> None:
    if outcome == "unreadable":
        found.unreadable += 1
        return
    found.amount += Amount(1, entry.size_bytes)
    if outcome == "matched":
        found.matched += 1
    elif outcome == "incomparable":
        found.incomparable += 1
    else:
        found.differing.append(entry)


def _compared(store: SweepStore, pieces: PieceReader, entry: SampledEntry) -> str:
    wanted = _md5_of(entry.e_tag)
    try:
        facts = store.stat(entry.address)
        if facts is None or not facts.readable:
            return "unreadable"
        for _ in range(2):
            if _digest(pieces, entry.address, facts.size) == wanted:
                return "matched"
    except StorageNotFound:
        return "unreadable"
    # A store that encrypts makes ETags of its own: where the entry has the store's, it is no MD5.
    return "incomparable" if _md5_of(facts.e_tag) == wanted else "differs"


def _digest(pieces: PieceReader, key: str, size: int) -> str:
    digest, at = hashlib.md5(usedforsecurity=False), 0
    while at < size:
        piece = pieces.read_piece(key, at, min(PIECE, size - at))
        if not piece:
            break
        digest.update(piece)
        at += len(piece)
    return digest.hexdigest()


def _md5_of(e_tag: str) -> str:
    """ "" for what is no MD5: tags of multipart uploads, and other stores' tags."""
    text = e_tag.strip().strip('"').lower()
    return text if _MD5.fullmatch(text) else ""

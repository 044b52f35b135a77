"""Marking and sweeping without Spark, for tests only: sets and loops over whole files, nothing shared with
the product's engine but the formats and what addresses mean. The deletions themselves are the product's
(``sweep_parts``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lakeplan.errors import LakeplanError
from lakeplan.formats.collector import read_uncommitted
from lakeplan.formats.marks import LISTING, MARKED, read_part, write_part
from lakeplan.formats.namespace import Addresses, check_not_nested
from lakeplan.formats.ranges import read_metarange, read_range
from lakeplan.lakefs.protocols import MetadataReader
from lakeplan.retention.keep import FIRST_BIT, Keep
from lakeplan.retention.rules import to_us
from lakeplan.simulation.requests import (
    DeleteRequest,
    DeleteSettings,
    ForeignRanges,
    MarkRequest,
    RecheckRequest,
    RoundEnd,
)
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.deleting import Waiting, delete_all, sweep_parts
from lakeplan.sweep.rules import Throttle
from lakeplan.values.repository import Entry, StoredObject
from lakeplan.values.simulation import Amount, MarkClass, Marked, Part, PartResult
from lakeplan.values.sweep import Deletion


@dataclass
class Held:
    """What is known of one address: the bits of all its commits, the last of them, its paths."""

    mask: int = 0
    last: int = -1
    paths: set[str] = field(default_factory=set)
    held: bool = False
    aliased: bool = False
    """Some full address, in a spelling that nobody knows, may mean it."""
    alias_mask: int = 0
    """The bits of the commits with such addresses."""


class PlainMarker:
    """``Marker``. ``rows`` is the size of a part. ``listed`` is called when the listing
    is done, ``marking`` before the parts are written."""

    def __init__(self, rows: int = 3) -> None:
        self.rows = rows
        self.listed: Callable[[], None] = _nothing
        self._number = 0

    def list_candidates(self, store: SweepStore, prefix: str, *, older_than: datetime) -> tuple[Part, ...]:
        stored = list(store.list_objects())
        for each in stored:
            check_not_nested(each.key)
        found = sorted(
            (o.key, o.size, o.version, o.modified_us)
            for o in stored
            if _is_candidate(o.key) and o.modified_us < to_us(older_than)
        )
        parts = []
        for start in range(0, len(found), self.rows):
            rows = found[start : start + self.rows]
            columns = {name: [row[n] for row in rows] for n, name in enumerate(LISTING.names)}
            data, sha256 = write_part(columns, LISTING)
            name = f"{prefix}listing/part-{start:06}.parquet"
            store.create(name, data)
            parts.append(Part(name, len(rows), sum(row[1] for row in rows), sha256))
        self.listed()
        return tuple(parts)

    def mark(self, request: MarkRequest) -> Marked:
        book = Addresses((request.storage_namespace, request.store.url))
        held: dict[str, Held] = {}
        for id, facts in request.metaranges.items():
            for entry in entries_of(request.metadata, id):
                key, others = book.meaning(entry.address, entry.address_type)
                if key is not None:
                    known = held.setdefault(key, Held())
                    known.mask |= facts.mask
                    known.last = max(known.last, facts.last)
                    known.paths.add(entry.path)
                    known.held |= entry.path.startswith(tuple(request.held_prefixes))
                for alias in others:
                    known = held.setdefault(alias, Held())
                    known.last = max(known.last, facts.last)
                    known.paths.add(entry.path)
                    known.aliased = True
                    known.alias_mask |= facts.mask
        staged = _staged(request.store, request.uncommitted, book)
        foreign, maybe = _foreign(request.foreign, book)
        for address in maybe:
            held.setdefault(address, Held()).aliased = True
        others = {o.name: set[str]().union(*_foreign([o], book)) for o in request.foreign}
        going: list[dict[str, object]] = []
        kept: list[dict[str, object]] = []
        amounts: dict[MarkClass, Amount] = {}
        for part in request.listing:
            table = read_part(request.store.read(part.name), name=part.name, sha256=part.sha256)
            for row in table.to_pylist():
                address, size = row["address"], row["size_bytes"]
                known = held.get(address)
                kind = None if address in staged else class_of(known, address in foreign)
                if kind is None:
                    continue
                amounts[kind] = amounts.get(kind, Amount()) + Amount(1, size)
                goes = kind in (MarkClass.BACKLOG, MarkClass.NEWLY_EXPIRED) or (
                    kind is MarkClass.NEVER_COMMITTED and request.collect_never_committed
                )
                marked = {**row, **_row(known, kind, request)}
                named = [f"repository {name}" for name, held_too in others.items() if address in held_too]
                marked["kept_by"] = sorted([*marked["kept_by"], *named])
                (going if goes else kept).append(marked)
        return Marked(
            tuple(self._write(request, "going", going)), tuple(self._write(request, "kept", kept)), amounts
        )

    def held_again(self, request: RecheckRequest, *, limit: int) -> frozenset[str]:
        book = Addresses((request.storage_namespace, request.store.url))
        held = _staged(request.store, request.uncommitted, book).union(*_foreign(request.foreign, book))
        for id in request.metaranges:
            for entry in entries_of(request.metadata, id):
                held.update(book.protected(entry.address, entry.address_type))
        for id in request.other_metaranges:
            for entry in entries_of(request.metadata, id):
                if entry.path.startswith(request.held_prefixes):
                    held.update(book.protected(entry.address, entry.address_type))
        marked: set[str] = set()
        if held:
            for part in request.parts:
                data = request.store.read(request.prefix + part.name)
                keys = read_part(data, name=part.name, sha256=part.sha256).column(0).to_pylist()
                marked |= {*keys, *(request.copies + key for key in keys if request.copies)}
        return frozenset(sorted(held & marked)[: limit + 1])

    def _write(
        self, request: MarkRequest, table: str, rows: Sequence[Mapping[str, object]]
    ) -> Iterator[Part]:
        for start in range(0, len(rows), self.rows):
            some = rows[start : start + self.rows]
            data, sha256 = write_part({name: [r[name] for r in some] for name in some[0]}, MARKED)
            self._number += 1
            name = f"{table}/part-{self._number:06}.parquet"
            request.store.create(request.prefix + name, data)
            yield Part(name, len(some), sum(int(str(r["size_bytes"])) for r in some), sha256)


def class_of(known: Held | None, foreign: bool) -> MarkClass | None:
    """The rule of the issue, read aloud: whoever keeps an object, in this order."""
    mask = Keep(known.mask) if known else Keep(0)
    if mask & Keep.SERVER:
        return None
    if mask & Keep.DOCUMENTED:
        return MarkClass.AT_RISK
    if foreign or mask & Keep.PROTECTED or (known and known.held):
        return MarkClass.PROTECTED
    if known and known.aliased:
        return MarkClass.UNCERTAIN_ADDRESS
    if mask & (Keep.EXPANDED | Keep.MARGIN):
        return MarkClass.NEAR_LIMIT
    if known is None:
        return MarkClass.NEVER_COMMITTED
    return MarkClass.NEWLY_EXPIRED if mask & Keep.BEFORE else MarkClass.BACKLOG


def entries_of(metadata: MetadataReader, metarange: str) -> Iterator[Entry]:
    for info in read_metarange(metadata.read_metadata("meta_range", metarange), name=metarange):
        yield from read_range(metadata.read_metadata("range", info.id), name=info.id, verify_id=info.id)


def _staged(store: SweepStore, keys: Sequence[str], book: Addresses) -> set[str]:
    found: set[str] = set()
    for key in keys:
        for address in read_uncommitted(store.read(key), name=key):
            found.update(book.staged(address))
    return found


def _foreign(foreign: Sequence[ForeignRanges], book: Addresses) -> tuple[set[str], set[str]]:
    """Addresses that other repositories hold, and those that they may hold."""
    found: set[str] = set()
    maybe: set[str] = set()
    for other in foreign:
        for id in other.metaranges:
            for entry in entries_of(other.metadata, id):
                key, others = book.foreign(entry.address, entry.address_type)
                found |= {key} if key is not None else set()
                maybe.update(others)
    return found, maybe


def _is_candidate(key: str) -> bool:
    return key.startswith("data/") or ("/" not in key and key != "dummy")


def _row(known: Held | None, kind: MarkClass, request: MarkRequest) -> dict[str, Any]:
    reason = "expired" if known else "never_committed"
    known = known or Held()
    keepers = [
        n for at, n in enumerate(request.protectors) if (known.mask | known.alias_mask) >> FIRST_BIT + at & 1
    ]
    prefixes = [p for p in request.held_prefixes if any(path.startswith(p) for path in known.paths)]
    return {
        "paths": sorted(known.paths)[:10],
        "last_commit_id": request.last_commits.get(known.last),
        "last_commit_us": request.last_commits_us.get(known.last),
        "reason": reason,
        "class": kind.value,
        "kept_by": [*keepers, *(f"hold prefix {p}" for p in prefixes)],
    }


class PlainSweeper:
    """``Sweeper`` in this process. A round takes ``parts_a_round`` parts (None: all),
    those named in ``last`` at the end, and lasts as long as it takes unless ``by_the_clock``.
    ``before_round`` and ``after_round`` are called with the number of the round, from 1."""

    def __init__(self) -> None:
        self.parts_a_round: int | None = None
        self.last: frozenset[str] = frozenset()
        self.by_the_clock = False
        self.rounds = 0
        self.before_round: Callable[[int], None] = _nothing_of
        self.after_round: Callable[[int], None] = _nothing_of

    def delete(self, request: DeleteRequest) -> RoundEnd:
        self.rounds += 1
        self.before_round(self.rounds)
        work = request if self.by_the_clock else replace(request, until=None)
        parts = sorted(request.parts, key=lambda part: part.name in self.last)
        answers = list(sweep_parts(parts[: self.parts_a_round], work))
        self.after_round(self.rounds)
        problem = next((str(answer) for answer in answers if isinstance(answer, LakeplanError)), "")
        return RoundEnd([answer for answer in answers if isinstance(answer, PartResult)], problem)

    def delete_objects(
        self,
        store: SweepStore,
        objects: Sequence[StoredObject],
        settings: DeleteSettings,
        *,
        before_each: Callable[[], None] = lambda: None,
    ) -> list[Deletion]:
        waiting = Waiting(time.monotonic, time.sleep, lambda: 0.0)
        expected = {one.key: one for one in objects}
        throttle = Throttle(settings.rate)
        return list(
            delete_all(
                store, [*expected], settings, throttle, waiting, expected=expected, before_each=before_each
            )
        )


def _nothing() -> None:
    return


def _nothing_of(number: int) -> None:
    return

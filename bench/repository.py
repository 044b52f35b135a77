"""A repository of any size on disk, the same for the same numbers, as a server would have written it.

One branch; commits spread evenly over 100 days; each rewrites a share of the ranges, and in these a tenth of
the rows gets new objects at the same paths. Range files, metaranges and the refs dump are real; the objects
themselves are not written, so nothing can be listed. Identities of entries are random bytes: no reader of
ranges checks them, and computing them would take most of the time.
"""

from __future__ import annotations

import hashlib
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lakeplan.formats.namespace import REFS_MANIFEST_KEY
from lakeplan.formats.ranges import info_of, write_metarange
from lakeplan.formats.refs import write_manifest, write_refs_dump
from lakeplan.formats.sstable import write_sstable
from lakeplan.formats.wire import uvarint
from lakeplan.values.repository import Branch, Commit, RangeInfo, Refs

NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
DAYS = 100
ROWS_A_RANGE = 25_000
NEW_ROWS = 0.1
_ALPHABET = np.frombuffer(b"0123456789abcdefghijklmnopqrstuv", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Shape:
    """``rewrite``: the share of ranges that each commit rewrites. One more commit than ``commits`` is
    written; ``select`` says whether the refs dump has it."""

    objects: int = 2_000_000
    commits: int = 100
    rewrite: float = 0.05
    seed: int = 1

    @property
    def ranges(self) -> int:
        return max(1, round(self.objects / ROWS_A_RANGE))

    @property
    def name(self) -> str:
        text = repr(sorted(asdict(self).items())).encode()
        return f"{self.objects}-{self.commits}-{hashlib.sha256(text).hexdigest()[:12]}"


def make(folder: Path, shape: Shape, *, processes: int = 2) -> Path:
    """The namespace's folder; one that was made before is used as it is."""
    root = folder / shape.name
    if root.is_dir():
        return root
    draft = folder / f".{shape.name}"
    shutil.rmtree(draft, ignore_errors=True)
    meta = draft / "_lakefs"
    meta.mkdir(parents=True)
    versions = _versions(shape)
    with ProcessPoolExecutor(processes) as pool:
        jobs = [pool.submit(_write_versions, str(meta), shape, n, of) for n, of in enumerate(versions)]
        written = [job.result() for job in jobs]
    commits: list[Commit] = []
    current = [infos[0] for infos in written]
    for number in range(shape.commits + 1):
        for at, (of, infos) in enumerate(zip(versions, written, strict=True)):
            if number in of:
                current[at] = infos[of.index(number) + 1]
        metarange, data = write_metarange(current)
        (meta / metarange).write_bytes(data)
        parents = (commits[-1].id,) if commits else ()
        commits.append(Commit(_commit_id(shape, number), _created_us(shape, number), metarange, parents))
    for more in (False, True):
        chosen = tuple(commits if more else commits[:-1])
        ids, files = write_refs_dump(Refs(chosen, (Branch("main", chosen[-1].id),), ()))
        for name, data in files.items():
            (meta / name).write_bytes(data)
        (draft / _manifest(more)).write_bytes(write_manifest(ids))
    select(draft, one_more=False)
    draft.rename(root)
    return root


def select(root: Path, *, one_more: bool) -> None:
    """Makes the refs dump be that of all commits but the last, or of all."""
    shutil.copyfile(root / _manifest(one_more), root / REFS_MANIFEST_KEY)


def _manifest(one_more: bool) -> str:
    return f"manifest-{'after' if one_more else 'before'}.json"


def _versions(shape: Shape) -> list[list[int]]:
    """Per range, the commits that rewrite it."""
    chance = np.random.default_rng(shape.seed)
    each = max(1, round(shape.ranges * shape.rewrite))
    found: list[list[int]] = [[] for _ in range(shape.ranges)]
    for commit in range(1, shape.commits + 1):
        for number in chance.choice(shape.ranges, each, replace=False).tolist():
            found[number].append(commit)
    return found


def _write_versions(meta: str, shape: Shape, number: int, commits: list[int]) -> list[RangeInfo]:
    """The first version of a range, and one for each of the commits."""
    chance = np.random.default_rng((shape.seed, number))
    month = number % 12 + 1
    keys = [
        b"tables/t%05d/year=2026/month=%02d/part-%08d.parquet" % (number, month, row)
        for row in range(ROWS_A_RANGE)
    ]
    values = _values(chance, ROWS_A_RANGE)
    infos = [_write_range(meta, keys, values)]
    for _ in commits:
        rows = chance.choice(ROWS_A_RANGE, round(ROWS_A_RANGE * NEW_ROWS), replace=False)
        values[rows] = _values(chance, rows.size)
        infos.append(_write_range(meta, keys, values))
    return infos


def _write_range(meta: str, keys: list[bytes], values: Bytes) -> RangeInfo:
    data, width = values.tobytes(), values.shape[1]
    records = ((key, data[n * width : (n + 1) * width]) for n, key in enumerate(keys))
    table = write_sstable(records, user_properties={"type": "ranges"})
    Path(meta, table.id).write_bytes(table.data)
    return info_of(table)


def _values(chance: np.random.Generator, rows: int) -> Bytes:
    """Records' values, one a row: all numbers are drawn so that they take the same number of bytes."""

    def fixed(data: bytes) -> Bytes:
        return np.broadcast_to(np.frombuffer(data, np.uint8), (rows, len(data)))

    def number(low: int, high: int) -> Bytes:
        """An array of varints. ``low`` and ``high`` must need the same number of bytes."""
        drawn, width = chance.integers(low, high, rows), len(uvarint(low))
        parts = [(drawn >> 7 * n & 0x7F) | (0x80 if n < width - 1 else 0) for n in range(width)]
        return np.stack(parts, axis=1).astype(np.uint8)

    partition = _ALPHABET[chance.integers(0, 32, 20)].tobytes()
    address = [fixed(b"data/" + partition + b"/"), _ALPHABET[chance.integers(0, 32, (rows, 20))]]
    moment = fixed(b"\x08" + uvarint(1_770_000_000) + b"\x10"), number(1 << 21, 1 << 28)
    message = np.concatenate(
        [
            fixed(b"\x0a" + uvarint(46)),
            *address,
            fixed(b"\x12" + uvarint(sum(part.shape[1] for part in moment))),
            *moment,
            fixed(b"\x18"),
            number(1 << 14, 1 << 21),
            fixed(b"\x22" + uvarint(32)),
            _HEX[chance.integers(0, 16, (rows, 32))],
            fixed(b"\x30\x01\x3a" + uvarint(24) + b"application/octet-stream"),
        ],
        axis=1,
    )
    identity = chance.integers(0, 256, (rows, 32), dtype=np.uint8)
    parts = [fixed(uvarint(64)), identity, fixed(uvarint(2 * message.shape[1])), message]
    return np.concatenate(parts, axis=1)


def _commit_id(shape: Shape, number: int) -> str:
    return hashlib.sha256(b"%d/%d" % (shape.seed, number)).hexdigest()


def _created_us(shape: Shape, number: int) -> int:
    age = timedelta(days=DAYS) * ((shape.commits - number) / (shape.commits + 1))
    return int((NOW - age).timestamp() * 1_000_000)

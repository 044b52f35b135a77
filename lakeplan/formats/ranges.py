"""Ranges and metaranges: entries of a commit, read and verified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from lakeplan.errors import FormatError
from lakeplan.formats.damage import HINT, blame, damaged
from lakeplan.formats.entry import decode_entry
from lakeplan.formats.identity import file_id
from lakeplan.formats.range_data import decode_range
from lakeplan.formats.sstable import SSTable, read_sstable
from lakeplan.formats.value import split_value
from lakeplan.model.objects import Entry, RangeInfo

RANGES, METARANGES = "ranges", "metaranges"


@dataclass(frozen=True)
class RangeColumns:
    """A range as columns of equal length, in ascending order of paths.

    ``addresses`` and ``address_types`` are as stored (``addresses.normalize`` makes them comparable);
    ``sizes`` are bytes, ``last_modified_us`` UTC microseconds.
    """

    paths: list[str]
    addresses: list[str]
    address_types: list[int]
    sizes: list[int]
    last_modified_us: list[int]

    def __len__(self) -> int:
        return len(self.paths)


def read_range(data: bytes, *, name: str, verify_id: str | None = None) -> Iterator[Entry]:
    """The entries of a range in order of their paths. The whole file is verified before the first one.

    With ``verify_id`` the content must have that id. Raises FormatError naming ``name``.
    """
    table = read_table(data, name=name, kind=RANGES, verify_id=verify_id)
    with blame(name):
        for key, value in table:
            yield decode_entry(key, split_value(value)[1])


def read_range_columns(data: bytes, *, name: str, verify_id: str | None = None) -> RangeColumns:
    """The same as columns, and faster. A path that is not UTF-8 shows such bytes as ``\\xNN``."""
    columns = RangeColumns([], [], [], [], [])
    for entry in read_range(data, name=name, verify_id=verify_id):
        columns.paths.append(entry.path.encode(errors="surrogateescape").decode(errors="backslashreplace"))
        columns.addresses.append(entry.address)
        columns.address_types.append(int(entry.address_type))
        columns.sizes.append(entry.size)
        columns.last_modified_us.append(entry.last_modified_us)
    return columns


def read_metarange(data: bytes, *, name: str, verify_id: str | None = None) -> list[RangeInfo]:
    """The ranges of a metarange in ascending order; they never overlap. Raises FormatError."""
    return metarange_of(read_table(data, name=name, kind=METARANGES, verify_id=verify_id))


def metarange_of(table: SSTable) -> list[RangeInfo]:
    """The ranges that a metarange's table names."""
    with blame(table.name):
        infos = [decode_range(key, *split_value(value)) for key, value in table]
        for before, after in pairwise(infos):
            if after.min_key <= before.max_key:
                raise damaged("its ranges overlap")
    return infos


def read_table(data: bytes, *, name: str, kind: str, verify_id: str | None) -> SSTable:
    """A table whose ``type`` is ``kind``, and whose id is ``verify_id`` when given. Raises FormatError."""
    table = read_sstable(data, name=name)
    with blame(name):
        properties = table.user_properties
    stored = properties.get("type")
    if stored != kind:
        raise FormatError(f"holds {stored or 'something else'}, not {kind}", where=name, hint=HINT)
    if verify_id is not None and (found := file_id(table, properties)) != verify_id:
        raise FormatError(f"its content has the id {found}, not {verify_id}", where=name, hint=HINT)
    return table

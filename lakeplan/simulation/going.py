"""Objects that go as rows of output tables, and amounts by prefix. Column by column; a Python object is made
only of an object with several paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.formats.hashing import Ints
from lakeplan.model.simulation import Amount
from lakeplan.simulation.columns import EXPIRED, MAX_NAMES, MAX_PREFIX_DEPTH, NEVER_COMMITTED
from lakeplan.simulation.rulesets import RuleSetBits
from lakeplan.simulation.seen import Seen

_PATHS = pa.list_(pa.string())
_FILE_NAME = "[^/]*$"
PREFIXES = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("prefix", pa.string(), nullable=False),
        pa.field("objects", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
    ]
)
"""Amounts by prefix, on their way to the driver. ``name``: of the rule set."""
ByPrefix = dict[str, dict[str, Amount]]
"""By name, then by prefix."""


def goes(objects: pa.Table, bits: RuleSetBits, *, listing: bool) -> pa.Table:
    """Those of ``steps.OBJECTS`` that the server's collector would delete (shared/lakefs/retention.md)."""
    seen, both = _ints(objects["seen"]), _ints(objects["mask"]) | _ints(objects["alias_mask"])
    wanted = int(Seen.OLD if listing else Seen.ENTRY | Seen.CANDIDATE)
    going = (seen & wanted == wanted) & (seen & int(Seen.UNCOMMITTED) == 0) & (both & bits.server == 0)
    return objects if going.all() else objects.filter(pa.array(going))


def rows_of(going: pa.Table, last_commits: Mapping[int, str], bits: RuleSetBits) -> pa.Table:
    """The columns of ``objects/``, with ``rule_set`` last."""
    seen, both = _ints(going["seen"]), _ints(going["mask"]) | _ints(going["alias_mask"])
    committed = seen & int(Seen.ENTRY | Seen.ALIAS) != 0
    paths = sorted_paths(going["paths"])
    return pa.table(
        {
            "address": going["address"],
            "size_bytes": going["size"],
            "paths": pc.list_slice(paths, 0, MAX_NAMES) if _longest(paths) > MAX_NAMES else paths,
            "last_commit_id": _commit_ids(going["last"], last_commits),
            "reason": pc.if_else(pa.array(committed), EXPIRED, NEVER_COMMITTED),
            "at_risk": pa.array(both & bits.documented != 0),
            "rule_set": pa.repeat(pa.scalar(bits.name, pa.string()), going.num_rows),
        }
    )


def prefix_rows(name: str, objects: pa.Table) -> pa.Table:
    """``PREFIXES`` of some objects."""
    amounts = amounts_by_prefix(objects)
    columns = [
        pa.repeat(pa.scalar(name, pa.string()), len(amounts)),
        pa.array(amounts, pa.string()),
        pa.array([amount.objects for amount in amounts.values()], pa.int64()),
        pa.array([amount.size_bytes for amount in amounts.values()], pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=PREFIXES)


def add_prefixes(found: ByPrefix, tables: Iterable[pa.Table]) -> None:
    for table in tables:
        for row in table.to_pylist():
            of_name = found.setdefault(row["name"], {})
            amount = Amount(row["objects"], row["size_bytes"])
            of_name[row["prefix"]] = of_name.get(row["prefix"], Amount()) + amount


def _ints(column: pa.ChunkedArray) -> Ints:
    numbers: Ints = column.to_numpy().astype(np.int64)
    return numbers


def sorted_paths(column: pa.ChunkedArray) -> pa.ListArray:
    """Each list in order; an empty list for none."""
    paths = column.combine_chunks().cast(_PATHS)
    if paths.null_count:
        paths = pc.if_else(paths.is_valid(), paths, pa.scalar([], _PATHS))
    if _longest(paths) <= 1:
        return paths
    return pa.array([sorted(of_one) for of_one in paths.to_pylist()], _PATHS)


def _longest(paths: pa.ListArray) -> int:
    return int(pc.max(pc.list_value_length(paths)).as_py() or 0)


def _commit_ids(last: pa.ChunkedArray, names: Mapping[int, str]) -> pa.Array:
    positions = pa.array(names, pa.int64())
    places = pc.index_in(last.combine_chunks(), positions)
    return pa.array(names.values(), pa.string()).take(places)


def amounts_by_prefix(going: pa.Table) -> dict[str, Amount]:
    """Of ``steps.OBJECTS``; an object counts once for each distinct prefix of its paths."""
    paths, sizes = going["paths"].combine_chunks(), _ints(going["size"])
    lengths = _ints(pa.chunked_array([pc.list_value_length(paths)]))
    found: dict[str, Amount] = {}

    def add(prefixes: set[str], objects: int, size: int) -> None:
        for prefix in prefixes:
            found[prefix] = found.get(prefix, Amount()) + Amount(objects, size)

    none = lengths == 0
    if none.any():
        add({""}, int(none.sum()), sum(sizes[none].tolist()))
    for row in np.flatnonzero(lengths > 1).tolist():
        add(set().union(*map(prefixes_of, paths[row].as_py())), 1, int(sizes[row]))
    one = lengths == 1
    if one.any():
        folders = pc.replace_substring_regex(
            paths.filter(pa.array(one)).flatten(), pattern=_FILE_NAME, replacement=""
        )
        amounts = pa.table({"folder": folders, "size": sizes[one]}).group_by("folder")
        rows = amounts.aggregate([("size", "sum"), ("size", "count")]).to_pylist()
        for row in rows:
            add(prefixes_of(row["folder"]), row["size_count"], row["size_sum"])
    return found


def prefixes_of(path: str) -> set[str]:
    """ "" and every part up to a ``/``, up to the greatest depth."""
    parts = path.split("/")
    depth = min(len(parts) - 1, MAX_PREFIX_DEPTH)
    return {"", *("/".join(parts[:n]) + "/" for n in range(1, depth + 1))}

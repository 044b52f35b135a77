"""What goes, on the driver: the same rows as ``objects.going`` and ``objects.by_prefix`` give in Spark.

Up to ``writing.FEW`` objects this is quicker than planning and compiling a query. Column by column; a Python
object is made only of an object with several paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def going_table(
    objects: pa.Table, last_commits: Mapping[int, str], rule_sets: Sequence[RuleSetBits], listing: bool
) -> pa.Table:
    """The columns of ``objects/``, with ``rule_set`` last, and ``all_paths``."""
    return pa.concat_tables([_of_one(objects, last_commits, bits, listing) for bits in rule_sets])


def prefix_table(going: pa.Table) -> pa.Table:
    """The columns of ``prefixes/``, with ``rule_set`` last, of what ``going_table`` gave."""
    parts = []
    for name in pc.unique(going["rule_set"]).to_pylist():
        of_one = going.filter(pc.equal(going["rule_set"], name))
        amounts = amounts_by_prefix(
            of_one.select(["size_bytes", "all_paths"]).rename_columns(["size", "paths"])
        )
        columns = {
            "prefix": pa.array(amounts, pa.string()),
            "depth": pa.array([prefix.count("/") for prefix in amounts], pa.int32()),
            "objects": pa.array([amount.objects for amount in amounts.values()], pa.int64()),
            "size_bytes": pa.array([amount.size_bytes for amount in amounts.values()], pa.int64()),
            "rule_set": pa.array([name] * len(amounts), pa.string()),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def _of_one(objects: pa.Table, last_commits: Mapping[int, str], bits: RuleSetBits, listing: bool) -> pa.Table:
    seen, both = _ints(objects["seen"]), _ints(objects["mask"]) | _ints(objects["alias_mask"])
    wanted = int(Seen.OLD if listing else Seen.ENTRY | Seen.CANDIDATE)
    goes = (seen & wanted == wanted) & (seen & int(Seen.UNCOMMITTED) == 0) & (both & bits.server == 0)
    chosen = objects if goes.all() else objects.filter(pa.array(goes))
    seen, both = seen[goes], both[goes]
    committed = seen & int(Seen.ENTRY | Seen.ALIAS) != 0
    paths = _sorted(chosen["paths"].combine_chunks().cast(_PATHS))
    return pa.table(
        {
            "address": chosen["address"],
            "size_bytes": chosen["stored_size" if listing else "size"],
            "paths": pc.list_slice(paths, 0, MAX_NAMES) if _longest(paths) > MAX_NAMES else paths,
            "last_commit_id": _commit_ids(chosen["last"], last_commits),
            "reason": pc.if_else(pa.array(committed), EXPIRED, NEVER_COMMITTED),
            "at_risk": pa.array(both & bits.documented != 0),
            "rule_set": pa.repeat(pa.scalar(bits.name, pa.string()), chosen.num_rows),
            "all_paths": paths,
        }
    )


def _ints(column: pa.ChunkedArray) -> Ints:
    numbers: Ints = column.to_numpy().astype(np.int64)
    return numbers


def _sorted(paths: pa.ListArray) -> pa.ListArray:
    """Each list in order; an empty list for none."""
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
    """Of the columns ``paths`` and ``size``; an object counts once for each distinct prefix of its paths."""
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

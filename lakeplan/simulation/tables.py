"""Output tables that the driver writes itself, without Spark: commits, branches, and empty ones."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import NEVER_EXPIRES, NEVER_KEPT
from lakeplan.simulation.output import BRANCHES, COMMITS, MAX_NAMES, RULE_SET, Column, writing
from lakeplan.simulation.verdicts import BranchTotals, Judged

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "timestamp": _TIMESTAMP,
    "array<string>": pa.list_(pa.field("element", pa.string(), nullable=False)),
}
EARLIEST_US, LATEST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999: what readers of Parquet can show. Dates and rules outside are written as these."""


def schema(columns: Sequence[Column], *, with_rule_set: bool) -> pa.Schema:
    chosen = [*columns, RULE_SET] if with_rule_set else list(columns)
    return pa.schema([pa.field(c.name, _TYPES[c.type], nullable=c.nullable) for c in chosen])


def write(folder: Path, table: pa.Table) -> None:
    with writing(folder):
        folder.mkdir()
        pq.write_table(table, folder / "part-00000.parquet", compression="snappy")


def commits(graph: CommitGraph, judged: Sequence[Judged]) -> pa.Table:
    """``commits/``: every commit of the dump, once for each rule set; ordered by rule set, then id."""
    several = len(judged) > 1
    parts = [_commits(graph, one, with_rule_set=several) for one in judged]
    return pa.concat_tables(parts)


def _commits(graph: CommitGraph, judged: Judged, *, with_rule_set: bool) -> pa.Table:
    counts, names = [], []
    for count, shown in judged.branches.rows(MAX_NAMES):
        counts.append(count)
        names.append(shown)
    columns: dict[str, Sequence[object] | pa.Array] = {
        "commit_id": graph.ids,
        "creation_date": _moments(graph.creation_us),
        "branches": names,
        "branch_count": counts,
        "active": [bool(flag) for flag in judged.server],
        "active_documented": [bool(flag) for flag in judged.documented.active],
        "kept_until": _let_go(graph, judged.documented.kept_until_us),
    }
    if with_rule_set:
        columns["rule_set"] = [judged.rule_set.name] * len(graph)
    return table(columns, schema(COMMITS, with_rule_set=with_rule_set))


def branches(judged: Sequence[Judged], totals: Mapping[str, BranchTotals]) -> pa.Table:
    """``branches/``: every branch, once for each rule set."""
    several = len(judged) > 1
    parts = []
    for one in judged:
        held = totals[one.rule_set.name]
        columns: dict[str, Sequence[object] | pa.Array] = {
            "branch_id": one.branches.names,
            "commits": one.commits_of_branches(),
            "objects": held.objects,
            "size_bytes": held.size_bytes,
            "exclusive_objects": held.exclusive_objects,
            "exclusive_bytes": held.exclusive_bytes,
        }
        if several:
            columns["rule_set"] = [one.rule_set.name] * len(one.branches.names)
        parts.append(table(columns, schema(BRANCHES, with_rule_set=several)))
    return pa.concat_tables(parts)


def table(columns: Mapping[str, Sequence[object] | pa.Array], as_schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(columns[f.name], f.type) for f in as_schema]
    return pa.Table.from_arrays(arrays, schema=as_schema)


def _moments(us: array[int]) -> pa.Array:
    return pa.array([min(max(at, EARLIEST_US), LATEST_US) for at in us], _TIMESTAMP)


def _let_go(graph: CommitGraph, kept_until_us: array[int]) -> pa.Array:
    """When the documented rule lets each commit expire: the instant after the last one that it keeps it. A
    commit that no walk reaches expires at once, when it was made."""
    moments: list[int | None] = []
    for created, until in zip(graph.creation_us, kept_until_us, strict=True):
        if until == NEVER_EXPIRES:
            moments.append(None)
        else:
            gone = created if until == NEVER_KEPT else until + 1
            moments.append(min(max(gone, EARLIEST_US), LATEST_US))
    return pa.array(moments, _TIMESTAMP)

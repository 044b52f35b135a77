"""The folder of ``--output``, which is written completely or not at all, and its tables."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.retention.graph import CommitGraph
from lakeplan.retention.rules import NEVER_EXPIRES, NEVER_KEPT
from lakeplan.simulation.verdicts import BranchTotals, Judged
from lakeplan.values.local import PRIVATE_FOLDER, refuse_links

_TEXT, _WHOLE = pa.string(), pa.int64()
_TEXTS = pa.list_(pa.field("element", _TEXT, nullable=False))
_TIME = pa.timestamp("us", tz="UTC")


_MAY_BE_NULL = {"kept_until", "last_commit_id"}


def _columns(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=name in _MAY_BE_NULL) for name, kind in types.items()])


RULE_SET = pa.field("rule_set", _TEXT, nullable=False)
"""The last column of every table when two rule sets are compared."""
COMMITS = _columns(
    commit_id=_TEXT,
    creation_date=_TIME,
    branches=_TEXTS,
    branch_count=pa.int32(),
    active=pa.bool_(),
    active_documented=pa.bool_(),
    kept_until=_TIME,
)
OBJECTS = _columns(
    address=_TEXT,
    size_bytes=_WHOLE,
    paths=_TEXTS,
    last_commit_id=_TEXT,
    reason=_TEXT,
    at_risk=pa.bool_(),
)
BRANCHES = _columns(
    branch_id=_TEXT,
    commits=_WHOLE,
    objects=_WHOLE,
    size_bytes=_WHOLE,
    exclusive_objects=_WHOLE,
    exclusive_bytes=_WHOLE,
)
PREFIXES = _columns(prefix=_TEXT, depth=pa.int32(), objects=_WHOLE, size_bytes=_WHOLE)
TABLES = {"commits": COMMITS, "objects": OBJECTS, "branches": BRANCHES, "prefixes": PREFIXES}

MAX_NAMES = 10
"""The most branches of a commit, and paths of an object."""
MAX_PREFIX_DEPTH = 5
EXPIRED, NEVER_COMMITTED = "expired", "never_committed"
SUMMARY = "summary.json"
_OURS = {*TABLES, SUMMARY}


def check_target(target: Path, *, overwrite: bool) -> None:
    """Raises UsageError unless the target does not exist, is an empty folder, or (to be overwritten) has only
    the results of an earlier run."""
    refuse_links(target)
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise UsageError(
            "the output path is not a folder", where=str(target), hint="Use a different folder for --output."
        )
    names = {entry.name for entry in target.iterdir()}
    if not names:
        return
    if not overwrite:
        raise UsageError(
            "the output folder is not empty",
            where=str(target),
            hint="Use a different folder for --output, or add --overwrite.",
        )
    foreign = sorted(names - _OURS)
    if foreign or SUMMARY not in names:
        what = f"contains {foreign[0]}" if foreign else f"has no {SUMMARY}"
        raise UsageError(
            f"the folder {what}, so it was not created by an earlier run and will not be overwritten",
            where=str(target),
            hint="Use a different folder for --output.",
        )


@contextmanager
def written(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write to. It becomes ``target`` at the end of the block, or is removed if the block
    raises."""
    check_target(target, overwrite=overwrite)
    draft = target.with_name(f".{target.name}.{uuid4().hex[:12]}")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir(PRIVATE_FOLDER)
    try:
        yield draft
        check_target(target, overwrite=overwrite)
        with writing(target):
            _put(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _put(draft: Path, target: Path) -> None:
    old = draft.with_name(draft.name + ".old")
    with contextlib.suppress(FileNotFoundError):
        target.rename(old)
    draft.rename(target)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Translates OSError of the block into a LakeplanError that names the folder."""
    try:
        yield
    except OSError as error:
        raise LakeplanError(
            f"cannot write to the folder: {error.strerror or error}",
            where=str(target),
            hint="Check the permissions of the folder and its free disk space.",
        ) from error


def write_summary(folder: Path, document: Mapping[str, object]) -> None:
    with writing(folder):
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        (folder / SUMMARY).write_text(text, encoding="utf-8")


FIRST_SHOWN_US, LAST_SHOWN_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, which readers of Parquet can show. Earlier and later moments are written as these."""


def schema_of(columns: pa.Schema, *, with_rule_set: bool) -> pa.Schema:
    return columns.append(RULE_SET) if with_rule_set else columns


def write_table(folder: Path, table: pa.Table) -> None:
    with writing(folder):
        folder.mkdir()
        pq.write_table(table, folder / "part-00000.parquet", compression="snappy")


def commits_table(graph: CommitGraph, judged: Sequence[Judged]) -> pa.Table:
    """The table ``commits/``: each commit of the dump for each rule set, by rule set and id."""
    parts = []
    for one in judged:
        branches = list(one.branches.rows(MAX_NAMES))
        columns: dict[str, Sequence[object]] = {
            "commit_id": graph.ids,
            "creation_date": [_shown(created) for created in graph.creation_us],
            "branches": [names for _, names in branches],
            "branch_count": [count for count, _ in branches],
            "active": [bool(flag) for flag in one.server],
            "active_documented": [bool(flag) for flag in one.documented.active],
            "kept_until": list(map(_expiry, graph.creation_us, one.documented.kept_until_us)),
            "rule_set": [one.rule_set.name] * len(graph),
        }
        parts.append(table_of(columns, COMMITS, with_rule_set=len(judged) > 1))
    return pa.concat_tables(parts)


def branches_table(judged: Sequence[Judged], totals: Mapping[str, BranchTotals]) -> pa.Table:
    """The table ``branches/``: every branch, once for each rule set."""
    parts = []
    for one in judged:
        held = totals[one.rule_set.name]
        columns: dict[str, Sequence[object]] = {
            "branch_id": one.branches.names,
            "commits": one.commits_of_branches(),
            "objects": held.objects,
            "size_bytes": held.size_bytes,
            "exclusive_objects": held.exclusive_objects,
            "exclusive_bytes": held.exclusive_bytes,
            "rule_set": [one.rule_set.name] * len(one.branches.names),
        }
        parts.append(table_of(columns, BRANCHES, with_rule_set=len(judged) > 1))
    return pa.concat_tables(parts)


def table_of(values: Mapping[str, Sequence[object]], columns: pa.Schema, *, with_rule_set: bool) -> pa.Table:
    schema = schema_of(columns, with_rule_set=with_rule_set)
    return pa.Table.from_arrays([pa.array(values[f.name], f.type) for f in schema], schema=schema)


def _expiry(created_us: int, kept_until_us: int) -> int | None:
    """When a commit expires by the documented rule: just after the last instant at which it is kept. A commit
    that no walk reaches expires when it is created. None for a HEAD."""
    if kept_until_us == NEVER_EXPIRES:
        return None
    return _shown(created_us if kept_until_us == NEVER_KEPT else kept_until_us + 1)


def _shown(moment_us: int) -> int:
    return min(max(moment_us, FIRST_SHOWN_US), LAST_SHOWN_US)

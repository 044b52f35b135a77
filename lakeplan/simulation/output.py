"""``--output DIR``: all or nothing, and the columns of its tables."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from lakeplan.errors import LakeplanError, UsageError
from lakeplan.values.local import PRIVATE_FOLDER, refuse_links


@dataclass(frozen=True)
class Column:
    """``type`` is a Spark SQL type name."""

    name: str
    type: str
    nullable: bool = False


RULE_SET = Column("rule_set", "string")
"""The last column of every table when two rule sets are compared."""

COMMITS = (
    Column("commit_id", "string"),
    Column("creation_date", "timestamp"),
    Column("branches", "array<string>"),
    Column("branch_count", "int"),
    Column("active", "boolean"),
    Column("active_documented", "boolean"),
    Column("kept_until", "timestamp", nullable=True),
)
OBJECTS = (
    Column("address", "string"),
    Column("size_bytes", "long"),
    Column("paths", "array<string>"),
    Column("last_commit_id", "string", nullable=True),
    Column("reason", "string"),
    Column("at_risk", "boolean"),
)
BRANCHES = (
    Column("branch_id", "string"),
    Column("commits", "long"),
    Column("objects", "long"),
    Column("size_bytes", "long"),
    Column("exclusive_objects", "long"),
    Column("exclusive_bytes", "long"),
)
PREFIXES = (
    Column("prefix", "string"),
    Column("depth", "int"),
    Column("objects", "long"),
    Column("size_bytes", "long"),
)
TABLES = {"commits": COMMITS, "objects": OBJECTS, "branches": BRANCHES, "prefixes": PREFIXES}

MAX_NAMES = 10
"""At most so many branches of a commit, and paths of an object."""
MAX_PREFIX_DEPTH = 5
EXPIRED, NEVER_COMMITTED = "expired", "never_committed"


SUMMARY = "summary.json"
_OURS = {*TABLES, SUMMARY}


def check_target(target: Path, *, overwrite: bool) -> None:
    """Raises UsageError unless results can be put there: nothing is there, an empty folder, or (to be
    overwritten) nothing but the results of an earlier run."""
    refuse_links(target)
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise UsageError("this is not a folder", where=str(target), hint="Use another folder for --output.")
    found = {entry.name for entry in target.iterdir()}
    if not found:
        return
    if not overwrite:
        raise UsageError(
            "this folder is not empty",
            where=str(target),
            hint="Use another folder for --output, or add --overwrite.",
        )
    foreign = sorted(found - _OURS)
    if foreign or SUMMARY not in found:
        what = f"holds {foreign[0]}" if foreign else f"has no {SUMMARY}"
        raise UsageError(
            f"{what}, so it is not the result of an earlier run and is not overwritten",
            where=str(target),
            hint="Use another folder for --output.",
        )


@contextmanager
def written(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write to, which becomes ``target`` when the block ends well, and vanishes when not."""
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
    """What the system says about writing becomes an error that names the folder."""
    try:
        yield
    except OSError as error:
        raise _cannot_write(target, error) from error


def _cannot_write(target: Path, error: OSError) -> LakeplanError:
    return LakeplanError(
        f"cannot write: {error.strerror or error}",
        where=str(target),
        hint="Check the folder and its free space.",
    )


def write_summary(folder: Path, document: Mapping[str, object]) -> None:
    with writing(folder):
        (folder / SUMMARY).write_text(to_json(document), encoding="utf-8")


def to_json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

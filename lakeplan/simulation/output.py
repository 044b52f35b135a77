"""``--output DIR``: all or nothing. Tables are written beside it and renamed when everything is there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from lakeplan.core.files import PRIVATE_FOLDER, refuse_links
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.simulation.columns import TABLES

SUMMARY = "summary.json"
_OURS = {*TABLES, SUMMARY}


def check_target(target: Path, *, overwrite: bool) -> None:
    """Raises UsageError unless results can be put there: nothing stands there, an empty folder, or (to be
    overwritten) nothing but the results of an earlier run."""
    refuse_links(target)
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise UsageError("is not a folder", where=str(target), hint="name another --output")
    found = {entry.name for entry in target.iterdir()}
    if not found:
        return
    if not overwrite:
        raise UsageError("is not empty", where=str(target), hint="name another --output, or give --overwrite")
    foreign = sorted(found - _OURS)
    if foreign or SUMMARY not in found:
        what = f"holds {foreign[0]}" if foreign else f"has no {SUMMARY}"
        raise UsageError(
            f"{what}, so it is not the result of an earlier run and is not overwritten",
            where=str(target),
            hint="name another --output",
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
        f"cannot write: {error.strerror or error}", where=str(target), hint="check the folder and its space"
    )


def write_summary(folder: Path, document: Mapping[str, object]) -> None:
    with writing(folder):
        (folder / SUMMARY).write_text(to_json(document), encoding="utf-8")


def to_json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

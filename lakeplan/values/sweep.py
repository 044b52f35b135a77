"""Sweeps: settings, holds, and the results for objects of a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from lakeplan.values.declare import (
    AGE,
    BYTES,
    COUNT,
    FLAG,
    LESS,
    MORE,
    OFF,
    RATE,
    SinceMark,
    neutral,
    setting,
    settings_of,
    strictest_first,
    words,
)


class Versions(Enum):
    """The versions of an object that a deletion removes in a versioned store."""

    MARKER = "marker"
    """Only the current version. Older versions remain and use storage."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Deletion:
    """The result for one key of a batch.

    ``reason`` is "" if the store confirmed that the key has no object now (S3 does not say whether it had
    one). Otherwise it is the store's reason in a few words, without secrets. ``transient`` says whether the
    same request may succeed later (throttling, an internal error), and ``changed`` whether the object was
    kept because it is not the expected one.
    """

    key: str
    reason: str = ""
    transient: bool = False
    changed: bool = False

    @property
    def deleted(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """How a store treats deleted data. None if it does not report that (no permission, or no such request).

    ``versioned``: deleted objects remain as older versions. ``soft_delete``: deleted objects remain for some
    time and use storage.
    """

    versioned: bool | None = None
    soft_delete: bool | None = None


LAKEPLAN_PREFIX = "_lakeplan/"
"""Where lakeplan writes in a namespace. Neither lakeFS nor a collector reads it (lakefs/retention.md)."""
MARK_FORMAT: Final = "lakeplan.mark/v1"
SWEEP_FORMAT: Final = "lakeplan.sweep/v1"
HOUR = 3600
MARK_MAX_AGE_SECONDS = 72 * HOUR
"""Older marks are not swept, because too much may have changed."""
CHANGED = "changed since it was marked"
GONE = "gone when it was inspected"
MOVED = "moved to quarantine by an earlier round"
"""Reasons why a sweep keeps an object or counts it as deleted. Both engines use these texts."""
UNLISTED = (GONE, MOVED)


@dataclass(frozen=True)
class Hold:
    """Data that no sweep may delete before the end of a day (in UTC; None: no end). ``name`` is a path
    prefix, a branch or a pattern, a tag or a pattern, or a commit id or its beginning."""

    kind: Literal["prefix", "branch", "tag", "commit"]
    name: str
    until: date | None = None
    reason: str = ""

    def holds_on(self, today: date) -> bool:
        return self.until is None or today <= self.until


@dataclass(frozen=True)
class HeldCommit:
    """A commit that a hold kept at a mark. For a prefix, it is one that has a path below it, or "" if there
    is none. ``until`` is the last day of the hold, as last seen in the tree."""

    kind: Literal["prefix", "branch", "tag", "commit"]
    name: str
    commit_id: str
    until: date | None = None


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """The ``sweep`` block."""

    engine: Literal["builtin", "lakefs-spark-client"] = setting(
        words("builtin", "lakefs-spark-client"),
        "builtin",
        # lakeplan inspects again before every round and can save single objects; lakeFS's own job cannot.
        stricter=strictest_first("builtin", "lakefs-spark-client"),
        since_mark=SinceMark.ANY_CHANGE,
        help="What deletes objects: lakeplan itself (`builtin`), or lakeFS's own Spark job with lakeplan's"
        " rules (`lakefs-spark-client`).",
    )
    automatic: bool = setting(
        FLAG,
        False,
        stricter=OFF,
        since_mark=SinceMark.PERSON,
        help="Let `apply --sweep` delete objects without approval if the reviewed plan listed every object"
        " in the mark.",
    )
    mode: Literal["delete", "quarantine"] = setting(
        words("delete", "quarantine"),
        "delete",
        stricter=strictest_first("quarantine", "delete"),
        # A sweep of which only a part is in quarantine could be neither restored nor reported correctly.
        since_mark=SinceMark.NEW_MARK,
        help="Delete objects, or first move them to quarantine under `_lakeplan/quarantine/`.",
    )
    min_age_seconds: int = setting(
        AGE,
        "24h",
        stricter=MORE,
        # A mark does not record when its objects were written, only that they are older than its cutoff.
        since_mark=SinceMark.NEW_MARK,
        help="Keep objects younger than this.",
    )
    settle_seconds: int = setting(
        AGE,
        "24h",
        stricter=MORE,
        help="Wait this long after retention is shortened, or a rule is first seen, before sweeping."
        " After a hold is removed from the tree, the data that it protected is kept for the same"
        " period, or for one day if that is longer.",
    )
    margin_seconds: int = setting(
        AGE,
        "26h",
        stricter=MORE,
        help="Safety margin: also keep objects whose last commit is within this time of the cutoff, because"
        " the clocks and time zones of the server and of lakeplan can differ. `0s` means no margin.",
    )
    never_committed: Literal["keep", "collect"] = setting(
        words("keep", "collect"),
        "keep",
        stricter=strictest_first("keep", "collect"),
        help="What to do with objects that were never committed. `keep` keeps the objects. `collect` deletes"
        " an object if two inspections found it in no commit.",
    )
    versions: Versions = setting(
        words(Versions.MARKER, Versions.ALL),
        "marker",
        stricter=strictest_first(Versions.MARKER, Versions.ALL),
        since_mark=SinceMark.NEW_MARK,
        help="What to delete in a versioned bucket. `marker` deletes the current version of an object and"
        " keeps older ones. `all` deletes all versions.",
    )
    verify: Literal["sample", "all"] = setting(
        words("sample", "all"),
        "sample",
        stricter=strictest_first("all", "sample"),
        help="Which deleted objects a sweep checks to confirm that they are gone: a `sample` or `all`.",
    )
    max_objects: int = setting(
        COUNT,
        10_000_000,
        stricter=LESS,
        since_mark=SinceMark.GATE,
        help="Threshold of the sweep-limit gate: the maximum number of objects that one sweep may delete.",
    )
    max_bytes: int = setting(
        BYTES,
        "50TB",
        stricter=LESS,
        since_mark=SinceMark.GATE,
        help="Threshold of the sweep-limit gate: the maximum number of bytes that one sweep may delete.",
    )
    rate: int | None = setting(
        RATE,
        None,
        stricter=neutral("the speed does not change which objects are deleted"),
        help="The maximum number of objects to delete per second, across all workers. `null` means no limit.",
    )
    quarantine_age_seconds: int = setting(
        AGE, "7d", stricter=MORE, help="Minimum age of quarantined copies before `sweep purge` deletes them."
    )


SWEEP = settings_of("sweep", SweepSettings)
OFFICIAL_ENGINE: Final = "lakefs-spark-client"


SUPPORTED_BY_OFFICIAL: Final[Mapping[str, tuple[object, str]]] = {
    "mode": ("delete", "it only deletes"),
    "versions": (Versions.MARKER.value, "it deletes current versions only"),
    "rate": (None, "its speed cannot be limited"),
}
"""Settings of ``sweep`` for which lakeFS's own job supports only one value, with the reason."""


def unknown_to_official(key: str, value: object) -> str:
    """Return why lakeFS's own job does not support a value of a ``sweep`` setting, or "" if it does.
    ``value`` is as in a tree or a mark."""
    supported, why = SUPPORTED_BY_OFFICIAL.get(key, (value, ""))
    return why if value != supported else ""


if TYPE_CHECKING:

    class SettingsRow(TypedDict):
        """``SweepSettings`` in a document. Outputs read these fields by name, and list all other fields."""

        mode: Literal["delete", "quarantine"]
        never_committed: Literal["keep", "collect"]

else:
    SettingsRow = TypedDict("SettingsRow", {setting.field: setting.recorded_type for setting in SWEEP})

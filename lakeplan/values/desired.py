"""The desired configuration of repositories: the settings of a tree, with the place where each is set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import Enum
from typing import Any, Generic, Literal, TypedDict, TypeVar
from zoneinfo import ZoneInfo

from lakeplan.values import records
from lakeplan.values.declare import (
    ALL_OF_BOTH,
    BRANCH_GLOBS,
    BYTES,
    COUNT,
    DAYS,
    DURATION,
    FLAG,
    LESS,
    MORE,
    NOTICE_PERIOD,
    ON,
    PERCENT,
    POLICY,
    TAG_GLOBS,
    SinceMark,
    or_unlimited,
    setting,
    settings_of,
    strictest_first,
    words,
)
from lakeplan.values.pins import Kept, PinSettings
from lakeplan.values.rules import ABSENT_ETAG
from lakeplan.values.sweep import Hold, SweepSettings


@dataclass(frozen=True)
class Policy:
    """A branch lifecycle policy. ``id`` is None until a server assigns one. It has one or two thresholds, and
    deletes a branch that has crossed all of them."""

    id: str | None
    patterns: tuple[str, ...]
    max_age_seconds: int | None = None
    max_idle_seconds: int | None = None
    description: str = ""


@dataclass(frozen=True)
class BranchSettings:
    """Settings of ``branch_lifecycle`` that keep lakeplan itself from deleting a branch."""

    exempt: tuple[str, ...] = setting(
        BRANCH_GLOBS,
        [],
        stricter=ALL_OF_BOTH,
        help="Glob patterns for branches that are never deleted. The patterns are added to inherited ones.",
    )
    require_merged: bool = setting(
        FLAG,
        False,
        stricter=ON,
        help="Delete only merged branches. A branch is merged if its HEAD is in the history of the default"
        " branch.",
    )
    min_keep: int = setting(
        COUNT,
        0,
        stricter=MORE,
        help="Of the branches that a policy matches, keep at least this many: the most recently written"
        " ones.",
    )
    keep_with_uncommitted: bool = setting(
        FLAG, True, stricter=ON, help="Keep branches with uncommitted changes."
    )
    keep_with_open_pull_request: bool = setting(
        FLAG, True, stricter=ON, help="Keep the sources and destinations of open pull requests."
    )
    # Stricter than the server, which lets an administrator delete such a branch.
    keep_protected: bool = setting(
        FLAG, True, stricter=ON, help="Keep branches that match a branch protection rule on the server."
    )
    assume_created: Literal["never", "head_commit"] = setting(
        words("never", "head_commit"),
        "never",
        stricter=strictest_first("never", "head_commit"),
        help="How lakeplan determines the age of a branch. `never`: the age is counted from lakeplan's first"
        " inspection. `head_commit`: if the branch existed at the first inspection, the age is counted"
        " from the creation of its HEAD commit.",
    )
    notice_period_seconds: int = setting(
        NOTICE_PERIOD,
        "0s",
        stricter=MORE,
        help="Before deleting a branch, wait this long after the repository owner's channel in `notify`"
        " has accepted a notice. With `0s`, branches are deleted without notice.",
    )


BRANCH_SETTINGS = settings_of("branch_lifecycle", BranchSettings)


class Evidence(str, Enum):
    """The source of a moment. ``SERVER``: fields of lakeFS Enterprise. ``OBSERVED``: lakeplan's own record.
    ``HEAD_COMMIT`` and ``STAGED``: read from the repository. ``ASSUMED``: ``assume_created: head_commit``."""

    SERVER = "server"
    OBSERVED = "observed"
    HEAD_COMMIT = "head_commit"
    STAGED = "staged"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class BranchFacts:
    """The known facts about one branch. ``created`` is None without a recorded creation time, which exempts
    the branch. If ``last_write`` is None, the creation time counts instead."""

    branch_id: str
    commit_id: str
    created: datetime | None
    created_evidence: Evidence | None
    last_write: datetime | None
    last_write_evidence: Evidence | None
    hidden: bool = False


class SettingKind(str, Enum):
    """A kind of setting. ``value`` is the block's name in the tree, ``label`` its name in messages."""

    BRANCH_LIFECYCLE = "branch_lifecycle"
    OBJECT_LIFECYCLE = "object_lifecycle"

    @property
    def items_key(self) -> str:
        """The key of the list, in the tree and on the server."""
        return "policies" if self is SettingKind.BRANCH_LIFECYCLE else "rules"

    @property
    def label(self) -> str:
        return f"{self.value.replace('_', ' ')} {self.items_key}"


@dataclass(frozen=True)
class ObjectRule:
    """An object lifecycle rule: a commit by the server deletes objects under ``prefix`` ("" is everything)
    from these branches after ``expire_after_days``."""

    id: str
    branches: tuple[str, ...]
    prefix: str
    expire_after_days: int
    description: str = ""


SettingItem = Policy | ObjectRule
T = TypeVar("T", bound=SettingItem)


@dataclass(frozen=True)
class Stored(Generic[T]):
    """A setting as a server stores it. ``items`` is None if nothing is set, and an empty list means the same.
    ``etag`` is the server's, to be sent back unchanged in ``If-Match``, or "" if the server sent no ETag."""

    items: tuple[T, ...] | None
    etag: str = ""


def item_body(item: SettingItem) -> dict[str, Any]:
    """Return the item as the API writes it: durations in seconds, and no key without a value."""
    if isinstance(item, Policy):
        body: dict[str, Any] = {"name_patterns": list(item.patterns)}
        optional: dict[str, Any] = {
            "id": item.id,
            "max_age": item.max_age_seconds,
            "max_inactivity_time": item.max_idle_seconds,
            "description": item.description or None,
        }
        return body | {key: value for key, value in optional.items() if value is not None}
    body = {
        "id": item.id,
        "branches": list(item.branches),
        "prefix": item.prefix,
        "expire_after_days": item.expire_after_days,
    }
    return body | ({"description": item.description} if item.description else {})


def items_from_body(kind: SettingKind, body: Sequence[Mapping[str, Any]]) -> tuple[SettingItem, ...]:
    """Return the items of bodies that ``item_body`` wrote. Raises ValueError for other bodies."""
    is_policy = kind is SettingKind.BRANCH_LIFECYCLE
    records.list_of(_POLICY if is_policy else _RULE)(list(body), "")
    return tuple(_policy(item) if is_policy else _rule(item) for item in body)


_TEXTS, _SECONDS = records.list_of(records.text), records.count
_POLICY = records.record(
    {"name_patterns": _TEXTS},
    {"id": records.text, "max_age": _SECONDS, "max_inactivity_time": _SECONDS, "description": records.text},
)
_RULE = records.record(
    {"id": records.text, "branches": _TEXTS, "prefix": records.text, "expire_after_days": records.days},
    {"description": records.text},
)


def _policy(item: Mapping[str, Any]) -> Policy:
    return Policy(
        item.get("id"),
        tuple(item["name_patterns"]),
        item.get("max_age"),
        item.get("max_inactivity_time"),
        item.get("description") or "",
    )


def _rule(item: Mapping[str, Any]) -> ObjectRule:
    return ObjectRule(
        item["id"],
        tuple(item["branches"]),
        item["prefix"],
        item["expire_after_days"],
        item.get("description") or "",
    )


def canonical(item: SettingItem) -> SettingItem:
    """Return the item with its patterns or branches sorted and without duplicates: order and duplicates have
    no meaning."""
    if isinstance(item, Policy):
        return replace(item, patterns=tuple(sorted(set(item.patterns))))
    return replace(item, branches=tuple(sorted(set(item.branches))))


def setting_etag(items: Sequence[SettingItem] | None) -> str:
    """Return lakeplan's own ETag: the digest of the canonical list, or ``absent`` if nothing is set.

    Policies keep their order, which decides which one is recorded as the reason of a deletion. Object rules
    are sorted by id.
    """
    if not items:
        return ABSENT_ETAG
    bodies = [item_body(canonical(item)) for item in items]
    if all(isinstance(item, ObjectRule) for item in items):
        bodies.sort(key=lambda body: str(body["id"]))
    return records.json_digest(bodies)


def duration_text(seconds: int | None) -> str:
    """Return a duration in days, hours, minutes and seconds, such as ``10d12h``, or "" for None."""
    if seconds is None:
        return ""
    text, rest = "", seconds
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        text += f"{number}{unit}" if number else ""
    return text or "0s"


GB = 10**9
NAME_HINT = "Use a name, or server/name."
"""Hint of commands that need one repository of the tree."""


class PriceRow(TypedDict):
    """``Price`` in a document."""

    amount: float
    currency: str


@dataclass(frozen=True)
class Price:
    """A price per GB and month. ``currency`` is "" if the tree names none."""

    amount: float
    currency: str = ""

    def monthly(self, size_bytes: int) -> float:
        return size_bytes / GB * self.amount


@dataclass(frozen=True, order=True)
class Source:
    """The place of a value: a file relative to the tree's root, a line and a column, both from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class BranchRule:
    """An item of ``gc.branches``: an exact ``branch_id`` or a ``pattern`` (``*``, ``?``, ``[abc]``). ``kept``
    says which of the newest commits get pins, or is None."""

    name: str
    is_pattern: bool
    retention_days: int
    source: Source
    kept: Kept | None = None

    @property
    def key(self) -> tuple[bool, str]:
        """The identity in merges: items are merged by branch_id or pattern."""
        return (self.is_pattern, self.name)


@dataclass(frozen=True)
class GcDesired:
    """A resolved ``gc`` block. Patterns are not expanded yet."""

    default_retention_days: int
    branches: tuple[BranchRule, ...]
    source: Source


class Cleared(Enum):
    """``clear`` as the value of a block: the server's rules must be removed."""

    CLEAR = "clear"


GcSetting = GcDesired | Cleared | None
"""None if the key is absent, so that the tree does not manage the rules."""


@dataclass(frozen=True)
class PoliciesDesired:
    """A resolved ``branch_lifecycle`` block: the policies in the order of the tree, and their places."""

    policies: tuple[Policy, ...]
    sources: tuple[Source, ...]
    source: Source


PoliciesSetting = PoliciesDesired | Cleared | None


@dataclass(frozen=True)
class ObjectRulesDesired:
    """A resolved ``object_lifecycle`` block."""

    rules: tuple[ObjectRule, ...]
    source: Source


ObjectRulesSetting = ObjectRulesDesired | Cleared | None


@dataclass(frozen=True, kw_only=True)
class Safety:
    """The ``safety`` block: thresholds of the gates. None means no threshold."""

    max_expired_objects_percent: float | None = setting(
        or_unlimited(PERCENT),
        30,
        stricter=LESS,
        since_mark=SinceMark.GATE,
        help="Threshold of the expired-objects gate: the maximum percentage of currently kept objects that a"
        " plan may cause to expire.",
    )
    max_expired_bytes: int | None = setting(
        or_unlimited(BYTES),
        "5TB",
        stricter=LESS,
        since_mark=SinceMark.GATE,
        help="Threshold of the expired-bytes gate: the maximum number of bytes that a plan may cause to"
        " expire.",
    )
    max_deleted_branches: int | None = setting(
        or_unlimited(COUNT),
        20,
        stricter=LESS,
        help="Threshold of the deleted-branches gate: the maximum number of branches that one plan or one"
        " `branches run` may delete.",
    )
    protected_tags: tuple[str, ...] = setting(
        TAG_GLOBS,
        ["v*"],
        stricter=ALL_OF_BOTH,
        help="Glob patterns for tags whose data a sweep keeps. The tag-loss gate covers every tag,"
        " regardless of these patterns.",
    )
    on_tag_loss: Literal["ignore", "warn", "fail"] = setting(
        words("ignore", "warn", "fail"),
        "fail",
        stricter=POLICY,
        help="What the tag-loss gate does if a tag would lose data.",
    )
    on_server_divergence: Literal["ignore", "warn", "fail"] = setting(
        words("ignore", "warn", "fail"),
        "warn",
        stricter=POLICY,
        help="What the at-risk gate does if the server would delete objects that the documented rule keeps.",
    )
    impact_tolerance_percent: float = setting(
        PERCENT,
        10,
        stricter=LESS,
        help="Maximum percentage by which the number of objects, bytes or branches that an apply would"
        " delete may exceed the number reviewed.",
    )
    max_plan_age_seconds: int = setting(
        DURATION, "7d", stricter=LESS, help="Maximum age of a plan file. Older plan files cannot be applied."
    )


SAFETY = settings_of("safety", Safety)


@dataclass(frozen=True)
class Bounds:
    """The ``bounds`` block. A tree with retention days outside these inclusive bounds does not validate."""

    min_retention_days: int = setting(
        DAYS, 1, stricter=MORE, help="The lowest number of retention days that a tree may set."
    )
    max_retention_days: int = setting(
        DAYS, 36500, stricter=LESS, help="The highest number of retention days that a tree may set."
    )


BOUNDS = settings_of("bounds", Bounds)


@dataclass(frozen=True)
class Override:
    """A reviewed permission to override a gate for one repository, up to ``max`` (in the gate's unit; None:
    no limit), until ``expires`` (inclusive)."""

    repository: str
    gate: str
    max: float | None
    reason: str
    expires: date
    source: Source


INVENTORY_MAX_AGE_SECONDS = 8 * 86_400
"""S3 makes inventories daily or weekly, and delivery can take a day."""


@dataclass(frozen=True)
class StorageConfig:
    type: str
    """A kind in ``lakeplan.values.urls`` that a tree may use."""
    endpoint_url: str | None = None
    region: str | None = None
    path: str | None = None
    inventory: str | None = None
    """The URL of the manifest of an S3 inventory."""
    inventory_max_age_seconds: int = INVENTORY_MAX_AGE_SECONDS


SERVER_SUFFIXES = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "ENDPOINT_URL", "STORAGE_URL")
"""The environment variables of a server."""


def server_variable(server: str, suffix: str) -> str:
    """Return ``LAKEPLAN_<SERVER>_<SUFFIX>``, with the server's name in capitals and ``-`` as ``_``."""
    return f"LAKEPLAN_{server.upper().replace('-', '_')}_{suffix}"


@dataclass(frozen=True)
class ServerConfig:
    name: str
    endpoint_url: str
    branch_lifecycle_engine: Literal["server", "lakeplan", "none"] = "none"
    branch_lifecycle_schedule: str | None = None
    """The cron expression of the server's own job, if the tree has it. The API does not return it."""
    time_zone: str = "UTC"
    storages: Mapping[str, StorageConfig] = field(default_factory=dict)
    cost_per_gb_month: Price | None = None
    cost_source: Source | None = None
    source: Source | None = None

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)


@dataclass(frozen=True)
class DesiredRepository:
    """A repository that an entry of the tree names.

    ``entry`` is the key of the entry: the name (or ``server/name``), or a glob. ``resolved`` is the merged
    configuration as JSON data, and ``config_hash`` is the SHA-256 of its canonical JSON. Plan files record
    it, so that an apply can check that the reviewed configuration is still the tree's. ``values`` maps a JSON
    pointer in ``resolved`` to the place of that value.
    """

    server: str
    name: str
    entry: str
    gc: GcSetting
    config_hash: str
    resolved: Mapping[str, object]
    values: Mapping[str, Source]
    owner: str | None = None
    safety: Safety = field(default_factory=Safety)
    source: Source | None = None
    branch_lifecycle: PoliciesSetting = None
    branch_settings: BranchSettings = field(default_factory=BranchSettings)
    object_lifecycle: ObjectRulesSetting = None
    holds: tuple[Hold, ...] = ()
    sweep: SweepSettings = field(default_factory=SweepSettings)
    tree: str = ""
    """The name of the tree; "" if it has none."""
    pins: PinSettings = field(default_factory=PinSettings)
    notice_channel: str | None = None
    """The channel that is notified before a branch is deleted; "" for none. None without ``notify``."""

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The branch policies that the tree requires, or nothing if it has none or clears them."""
        setting = self.branch_lifecycle
        return setting.policies if isinstance(setting, PoliciesDesired) else ()

    @property
    def kept_tags(self) -> tuple[str, ...]:
        """Globs of the tags whose commits sweeps keep."""
        return (*self.safety.protected_tags, *self.pins.tags)

    @property
    def requires_pins(self) -> bool:
        newest = isinstance(self.gc, GcDesired) and any(rule.kept is not None for rule in self.gc.branches)
        return bool(newest or self.pins.tags or self.pins.holds or self.pins.at_risk)

    def wanted_items(self, kind: SettingKind) -> tuple[SettingItem, ...] | None:
        """Return the policies or object rules that the tree requires, or nothing if it clears them, and None
        if it does not manage them."""
        setting: PoliciesSetting | ObjectRulesSetting = self.object_lifecycle
        if kind is SettingKind.BRANCH_LIFECYCLE:
            setting = self.branch_lifecycle
        if isinstance(setting, PoliciesDesired):
            return setting.policies
        if isinstance(setting, ObjectRulesDesired):
            return setting.rules
        return None if setting is None else ()

    @property
    def by_glob(self) -> bool:
        return any(c in self.entry for c in "*?[")

    @property
    def key(self) -> str:
        """``server/name``, as in plans, state and messages."""
        return f"{self.server}/{self.name}"


DEFAULT_SECONDS = 60
LONGEST_SECONDS = 600


@dataclass(frozen=True)
class Check:
    """A check of plans. ``run`` is a program and its arguments. A program with a slash is a file of the
    tree."""

    name: str
    run: tuple[str, ...]
    time_limit_seconds: int = DEFAULT_SECONDS

    def __str__(self) -> str:
        from shlex import join

        return f"{self.name}: {join(self.run)}"

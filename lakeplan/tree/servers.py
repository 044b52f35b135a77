"""Reads ``lakeplan.yaml``: servers, variables, thresholds, channels (``notify``), and ``checks`` of plans."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, cast
from zoneinfo import available_timezones

from lakeplan import limits
from lakeplan.retention.patterns import matches, pattern_problem, why_no_repository, why_no_tag
from lakeplan.tree.structure import suggestion
from lakeplan.tree.yaml import ListNode, MapNode, Node, NodePath, Problems, ScalarNode, text_of
from lakeplan.values.declare import TAG_GLOBS, Setting
from lakeplan.values.desired import (
    BOUNDS,
    DEFAULT_SECONDS,
    INVENTORY_MAX_AGE_SECONDS,
    LONGEST_SECONDS,
    SAFETY,
    Bounds,
    Check,
    Price,
    Safety,
    ServerConfig,
    Source,
    StorageConfig,
    server_variable,
)
from lakeplan.values.notify import Channel, ChannelKind, Event, NotifyConfig
from lakeplan.values.units import parse_cron, parse_duration
from lakeplan.values.urls import (
    STORAGES,
    BadUrl,
    parse_bucket_url,
    parse_folder_url,
    parse_local_url,
    parse_web_url,
    storage_of,
)

Engine = Literal["server", "lakeplan", "none"]
WITH_INVENTORY = frozenset(kind.name for kind in STORAGES if kind.has_inventory)
EXAMPLE = "https://lakefs.example.com"
COST = "cost_per_gb_month"
VARIABLE_PREFIX = "LAKEPLAN_VAR_"
RESERVED_WORDS = ("NOTIFY", "STATE", "TEST", "VAR")
"""The variables of a server must not begin with these names: ``LAKEPLAN_STATE_URL`` binds the state,
``LAKEPLAN_NOTIFY_*`` are the URLs of channels, ``LAKEPLAN_VAR_*`` are the variables of a tree, and
``LAKEPLAN_TEST_*`` name the server of the contract suite."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
_REGION = re.compile(r"[A-Za-z0-9](-?[A-Za-z0-9]){0,62}", re.ASCII)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@lru_cache(maxsize=1)
def _time_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _check_time_zone(zone: str) -> None:
    if zone == "UTC" or zone in _time_zones():
        return
    if _time_zones():
        raise ValueError(f"{zone!r} is not a time zone; use a name such as Europe/Berlin or UTC")
    raise ValueError(
        "this machine has no data for time zones other than UTC; install the Python package tzdata"
    )


def _check_region(region: str) -> None:
    """Raise ValueError for an invalid region, which becomes part of a host's name."""
    if not _REGION.fullmatch(region):
        raise ValueError("a region can contain only letters, digits and -, for example eu-central-1")


def _check_manifest(url: str) -> None:
    if not parse_bucket_url(url).prefix.endswith("/manifest.json"):
        raise BadUrl("this is not the URL of a manifest.json")


class ServersReader:
    """Reads the ``servers`` block."""

    def __init__(self, problems: Problems, environ: Mapping[str, str]) -> None:
        self._problems = problems
        self._environ = environ

    def read(self, node: MapNode) -> dict[str, ServerConfig]:
        """Return the servers by name. Malformed settings, which already have a problem, are omitted."""
        self._check_names(node)
        return {
            name: self._server(name, child, ("servers", name))
            if isinstance(child, MapNode)
            else ServerConfig(name, "")
            for name, child in node.items.items()
        }

    def _check_names(self, node: MapNode) -> None:
        prefixes: dict[str, str] = {}
        for name in node.items:
            at, path = node.where(name), ("servers", name)
            if not _NAME.fullmatch(name):
                text = (
                    "a server name must begin with a letter and contain only letters, digits, - and _ (at"
                    " most 63 characters)"
                )
                self._problems.add(at, path, text)
                continue
            prefix = server_variable(name, "")
            reserved = next((r for r in RESERVED_WORDS if prefix.startswith(f"LAKEPLAN_{r}_")), None)
            if reserved:
                text = (
                    f"this server's environment variables would begin with LAKEPLAN_{reserved}_, a prefix"
                    " that lakeplan uses for something else; rename the server"
                )
                self._problems.add(at, path, text)
            other = prefixes.setdefault(prefix, name)
            if other != name:
                text = (
                    f"{name!r} and {other!r} would use the same environment variables, {prefix}…; rename"
                    " one of them"
                )
                self._problems.add(at, path, text)

    def _server(self, name: str, node: MapNode, path: NodePath) -> ServerConfig:
        engine, schedule = self._branch_lifecycle(node, (*path, "branch_lifecycle"))
        storages = node.items.get("storages")
        price = self._problems.parsed(node, COST, path, parse_price, None)
        by_id: dict[str, StorageConfig] = {}
        for id_, child in storages.items.items() if isinstance(storages, MapNode) else ():
            if isinstance(child, MapNode):
                by_id[id_] = self._storage(child, (*path, "storages", id_))
        return ServerConfig(
            name=name,
            endpoint_url=self._url(node, path) or "",
            branch_lifecycle_engine=engine,
            branch_lifecycle_schedule=schedule,
            time_zone=self._checked(node, "time_zone", path, _check_time_zone) or "UTC",
            storages=by_id,
            cost_per_gb_month=None if price is None else Price(*price),
            cost_source=cost.source if (cost := node.items.get(COST)) is not None else None,
            source=node.source,
        )

    def _branch_lifecycle(self, node: MapNode, path: NodePath) -> tuple[Engine, str | None]:
        """Return the engine, and the cron expression of the server's job."""
        block = node.items.get("branch_lifecycle")
        if not isinstance(block, MapNode):
            return "none", None
        engine = cast(Engine, text_of(block.items.get("engine")) or "none")
        line = self._checked(block, "schedule", path, parse_cron)
        if line is not None and engine != "server":
            text = "this is the schedule of the server's own job, so it requires `engine: server`"
            self._problems.add(block.items["schedule"].source, (*path, "schedule"), text)
        return engine, line

    def _storage(self, node: MapNode, path: NodePath) -> StorageConfig:
        kind = text_of(node.items.get("type"))
        if kind == "local" and "path" not in node.items:
            self._problems.add(node.source, path, "a storage of type local needs a path")
        return StorageConfig(
            type=kind or "",
            endpoint_url=self._url(node, path),
            region=self._checked(node, "region", path, _check_region),
            path=self._text(node, "path", path),
            inventory=self._inventory(node, path, kind),
            inventory_max_age_seconds=self._problems.parsed(
                node, "inventory_max_age", path, parse_duration, INVENTORY_MAX_AGE_SECONDS
            ),
        )

    def _inventory(self, node: MapNode, path: NodePath, kind: str | None) -> str | None:
        if "inventory" in node.items and kind not in WITH_INVENTORY:
            at, text = node.items["inventory"].source, "only a storage of type s3 can have an S3 inventory"
            self._problems.add(at, (*path, "inventory"), text)
        hint = "; write the URL of the manifest, such as s3://bucket/…/manifest.json"
        return self._checked(node, "inventory", path, _check_manifest, hint)

    def _url(self, node: MapNode, path: NodePath) -> str | None:
        hint = f"; write a URL such as {EXAMPLE}"
        url = self._checked(node, "endpoint_url", path, parse_web_url, hint)
        return None if url is None else url.rstrip("/")

    def _checked(
        self, node: MapNode, key: str, path: NodePath, check: Callable[[str], object], hint: str = ""
    ) -> str | None:
        """Return the text at a key. Return None and add a problem if ``check`` raises ValueError."""
        text = self._text(node, key, path)
        if text is None:
            return None
        try:
            check(text)
        except ValueError as error:
            self._problems.add(node.items[key].source, (*path, key), f"{error}{hint}")
            return None
        return text

    def _text(self, node: MapNode, key: str, path: NodePath) -> str | None:
        """Return a text with its variables replaced by their values, or None if the text or a variable is
        missing."""
        child = node.items.get(key)
        text = text_of(child)
        if text is None or not isinstance(child, ScalarNode):
            return None
        missing = False

        def read(match: re.Match[str]) -> str:
            nonlocal missing
            value = self._variable(match.group(1), child.source, (*path, key))
            missing = missing or value is None
            return value or ""

        expanded = _VARIABLE.sub(read, text)
        if "${" in _VARIABLE.sub("", text):
            self._problems.add(child.source, (*path, key), "a ${ has no closing }")
            return None
        return None if missing else expanded

    def _variable(self, name: str, at: Source, path: NodePath) -> str | None:
        """Return the variable ``LAKEPLAN_VAR_X`` for ``${X}`` and ``${LAKEPLAN_VAR_X}``."""
        full = name if name.startswith(VARIABLE_PREFIX) else VARIABLE_PREFIX + name
        if not _VARIABLE_NAME.fullmatch(name):
            self._problems.add(at, path, f"${{{name}}} is not a valid variable name")
            return None
        value = self._environ.get(full)
        if not value:
            text = (
                f"${{{name}}} reads the variable {full}, which is not set (a tree can read only variables"
                " that begin with LAKEPLAN_VAR_)"
            )
            self._problems.add(at, path, text)
            return None
        return value


def read_bounds(root: MapNode, problems: Problems) -> Bounds:
    """Return the bounds as written, and the widest bound for a value that cannot be read."""
    bounds = Bounds(**_settings(root, "bounds", BOUNDS, problems))
    low, high = bounds.min_retention_days, bounds.max_retention_days
    if low > high:
        text = f"min_retention_days ({low}) is greater than max_retention_days ({high})"
        problems.add(root.where("bounds"), ("bounds",), text)
        return Bounds()
    return bounds


def read_safety(root: MapNode, problems: Problems) -> Safety:
    """Return the limits as written, and the default for each absent limit."""
    return Safety(**_settings(root, "safety", SAFETY, problems))


def _settings(root: MapNode, block: str, settings: Iterable[Setting], problems: Problems) -> dict[str, Any]:
    """Return the fields that a block sets, by name. A value that cannot be read is omitted."""
    node = root.items.get(block)
    values: dict[str, Any] = {}
    if not isinstance(node, MapNode):
        return values
    for setting in settings:
        child = node.items.get(setting.key)
        if setting.kind is TAG_GLOBS:
            if isinstance(child, ListNode):
                values[setting.field] = tuple(_tag_patterns(child, (block, setting.key), problems))
            continue
        default = setting.kind.parse(setting.default)
        values[setting.field] = problems.parsed(node, setting.key, (block,), setting.kind.parse, default)
    return values


def read_manages(root: MapNode, servers: Collection[str], problems: Problems) -> tuple[str, ...] | None:
    """Return the globs of ``manages``, or None if the tree may manage every repository."""
    node = root.items.get("manages")
    if not isinstance(node, ListNode):
        return None
    if "name" not in root.items:
        text = "a tree with `manages` needs a name; add `name: …`, with a different name in each tree"
        problems.add(root.where("manages"), ("manages",), text)
    patterns = []
    for index, child in enumerate(node.items[: limits.GLOBS]):
        pattern = text_of(child)
        if not pattern:
            continue
        server, slash, name = pattern.rpartition("/")
        problem = pattern_problem(name, why_no_repository)
        if problem is None and slash and not any(matches(known, server) for known in servers):
            problem = f"this tree has no server {server!r}"
        if problem:
            problems.add(child.source, ("manages", index), problem)
        patterns.append(pattern)
    return tuple(patterns)


def read_places(root: MapNode) -> dict[str, Source]:
    """Return the places of the blocks and keys that gates depend on, such as ``safety.max_expired_bytes``."""
    places = {}
    for block in (
        "safety",
        "bounds",
        "state",
        "unmanaged",
        "notify",
        "manages",
        "checks",
        "name",
        "approvers",
    ):
        if block not in root.items:
            continue
        places[block] = root.where(block)
        child = root.items[block]
        if isinstance(child, MapNode):
            places |= {f"{block}.{key}": child.where(key) for key in child.items}
    return places


def _tag_patterns(node: ListNode, path: NodePath, problems: Problems) -> Iterator[str]:
    if len(node.items) > limits.GLOBS:
        problems.add(node.source, path, f"the list exceeds the limit of {limits.GLOBS:,} patterns")
    for index, child in enumerate(node.items[: limits.GLOBS]):
        pattern = text_of(child)
        if not pattern:
            continue
        if problem := pattern_problem(pattern, why_no_tag):
            problems.add(child.source, (*path, index), problem)
        yield pattern


def read_checks(root: MapNode, problems: Problems) -> tuple[Check, ...]:
    """Return the checks in order, without malformed ones, which already have a problem."""
    node = root.items.get("checks")
    by_name: dict[str, Check] = {}
    for index, child in enumerate(node.items if isinstance(node, ListNode) else ()):
        if not isinstance(child, MapNode):
            continue
        name, run = text_of(child.items.get("name")), child.items.get("run")
        words = [text_of(item) for item in run.items] if isinstance(run, ListNode) else []
        if name is None or not words or any(not word or "\0" in word for word in words):
            continue
        if name in by_name:
            problems.add(child.source, ("checks", index, "name"), f"two checks have the name {name!r}")
            continue
        by_name[name] = Check(name, tuple(w for w in words if w), _seconds(child, index, problems))
    return tuple(by_name.values())


def _seconds(check: MapNode, index: int, problems: Problems) -> int:
    path = ("checks", index)
    seconds = problems.parsed(check, "time_limit", path, parse_duration, DEFAULT_SECONDS)
    if 1 <= seconds <= LONGEST_SECONDS:
        return seconds
    problems.add(
        check.items["time_limit"].source, (*path, "time_limit"), "a time limit must be between 1s and 10m"
    )
    return DEFAULT_SECONDS


_KINDS = {kind.value: kind for kind in ChannelKind}
_EVENTS = {event.value: event for event in Event}


def read_notify(root: MapNode, problems: Problems) -> NotifyConfig | None:
    """Return ``notify``, or None without it. Malformed parts, which already have a problem, are omitted."""
    node = root.items.get("notify")
    if not isinstance(node, MapNode):
        return None
    channels = _channels(node.items.get("channels"), problems)
    owners: dict[str, str] = {}
    block = node.items.get("owners")
    for owner, child in block.items.items() if isinstance(block, MapNode) else ():
        if _is_known(child, ("notify", "owners", owner), channels, problems):
            owners[owner] = text_of(child) or ""
    default = node.items.get("default")
    if default is not None:
        _is_known(default, ("notify", "default"), channels, problems)
    only = next(iter(channels)) if len(channels) == 1 else None
    return NotifyConfig(channels, owners, text_of(default) or only)


def _channels(node: Node | None, problems: Problems) -> dict[str, Channel]:
    channels: dict[str, Channel] = {}
    variables: dict[str, str] = {}
    for name, child in node.items.items() if isinstance(node, MapNode) else ():
        assert isinstance(node, MapNode)
        at, path = node.where(name), ("notify", "channels", name)
        if not _NAME.fullmatch(name):
            text = (
                "a channel name must begin with a letter and contain only letters, digits, - and _ (at"
                " most 63 characters)"
            )
            problems.add(at, path, text)
            continue
        kind = _KINDS.get(text_of(child.items.get("kind")) or "") if isinstance(child, MapNode) else None
        if kind is None or not isinstance(child, MapNode):
            continue
        events = child.items.get("events")
        listed = [text_of(item) for item in events.items] if isinstance(events, ListNode) else list(_EVENTS)
        channel = Channel(name, kind, tuple(_EVENTS[e] for e in listed if e in _EVENTS))
        other = variables.setdefault(channel.variable, name)
        if other != name:
            text = (
                f"{name!r} and {other!r} would use the same environment variable, {channel.variable};"
                " rename one of them"
            )
            problems.add(at, path, text)
        channels[name] = channel
    return channels


def _is_known(node: Node, path: tuple[str, ...], channels: dict[str, Channel], problems: Problems) -> bool:
    name = text_of(node)
    if name is None or name in channels:
        return name is not None
    problems.add(node.source, path, f"there is no channel {name!r}; {suggestion(name, channels)}")
    return False


_PRICE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?: ([A-Z]{3}))?", re.ASCII)


def parse_price(value: float | str) -> tuple[float, str]:
    """Return the amount and the currency of ``0.023 USD``. The currency is "" if none is named. Raises
    ValueError, including for a number that the text form does not allow."""
    if not isinstance(value, str):
        if not 0 <= value < 10**9:  # the cost of any number of bytes must be finite
            raise ValueError("a price must be from 0 to 999999999")
        return abs(float(value)), ""
    match = _PRICE.fullmatch(value)
    if not match:
        raise ValueError(
            f"{value!r} is not a valid price: use an amount with or without a currency, for example 0.023"
            " or 0.023 USD"
        )
    return float(match.group(1)), match.group(2) or ""


_FILE = "file://"


def relative_folder(url: str) -> str | None:
    """Return ``x`` of ``file://x``, which is a folder of the tree, or None for any other URL."""
    if url[: len(_FILE)].lower() != _FILE or url[len(_FILE) :].startswith(("/", "localhost/")):
        return None
    return url[len(_FILE) :]


def why_no_state(url: str) -> str | None:
    """Return what is wrong with the URL of a state, without repeating it, or None if it is valid."""
    relative = relative_folder(url)
    try:
        if relative is not None:
            parse_local_url(f"local://{relative}")
        elif (kind := storage_of(url)) is not None and kind.holds_documents:
            kind.check_url(url)
        else:
            parse_folder_url(url)
    except BadUrl as error:
        return str(error)
    return None

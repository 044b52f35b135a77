"""The servers of a tree: their settings, the variables they may read, and the variables named after them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, cast
from zoneinfo import available_timezones

from lakeplan.config.checks import text_of
from lakeplan.config.problems import Path, Problems
from lakeplan.config.units import parse_duration, parse_price
from lakeplan.config.yaml_nodes import MapNode, ScalarNode
from lakeplan.core.cron import parse_cron
from lakeplan.model.desired import INVENTORY_MAX_AGE_SECONDS, ServerConfig, Source, StorageConfig
from lakeplan.model.price import Price
from lakeplan.model.urls import BadUrl, parse_bucket_url, parse_web_url

Engine = Literal["server", "lakeplan", "none"]
EXAMPLE = "https://lakefs.example.com"
COST = "cost_per_gb_month"
VARIABLE_PREFIX = "LAKEPLAN_VAR_"
SERVER_SUFFIXES = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "ENDPOINT_URL", "STORAGE_URL")
"""``LAKEPLAN_<SERVER>_…``: what the environment may say about a server (the design's "Credentials")."""

RESERVED_WORDS = ("STATE", "TEST", "VAR")
"""``LAKEPLAN_STATE_URL`` binds the state, ``LAKEPLAN_VAR_*`` are the variables of a tree and
``LAKEPLAN_TEST_*`` name the server of the contract suite: no server's variables may begin like these."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
_REGION = re.compile(r"[A-Za-z0-9](-?[A-Za-z0-9]){0,62}", re.ASCII)
_DURATION = re.compile(r"([0-9]{1,9}[smhdw])+", re.ASCII)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def environment_word(server: str) -> str:
    """``<SERVER>`` in ``LAKEPLAN_<SERVER>_ACCESS_KEY_ID``: capitals, ``-`` as ``_``."""
    return server.upper().replace("-", "_")


@lru_cache(maxsize=1)
def _time_zones() -> frozenset[str]:
    return frozenset(available_timezones())


class ServersReader:
    """Reads the ``servers`` block."""

    def __init__(self, problems: Problems, environ: Mapping[str, str]) -> None:
        self._problems = problems
        self._environ = environ

    def read(self, node: MapNode) -> dict[str, ServerConfig]:
        """Servers by name. What is not well formed has its problem and is kept with less."""
        self._check_names(node)
        return {
            name: self._server(name, child, ("servers", name))
            if isinstance(child, MapNode)
            else ServerConfig(name, "")
            for name, child in node.items.items()
        }

    def _check_names(self, node: MapNode) -> None:
        words: dict[str, str] = {}
        for name in node.items:
            at, path = node.where(name), ("servers", name)
            if not _NAME.fullmatch(name):
                text = "a server's name begins with a letter and has letters, digits, - and _ (at most 63)"
                self._problems.add(at, path, text)
                continue
            word = environment_word(name)
            reserved = next((r for r in RESERVED_WORDS if word == r or word.startswith(r + "_")), None)
            if reserved:
                text = f"LAKEPLAN_{reserved}_… means something else to lakeplan: give the server another name"
                self._problems.add(at, path, text)
            other = words.setdefault(word, name)
            if other != name:
                text = f"{name!r} and {other!r} share the variables LAKEPLAN_{word}_…: rename one of them"
                self._problems.add(at, path, text)

    def _server(self, name: str, node: MapNode, path: Path) -> ServerConfig:
        engine, schedule = self._lifecycle(node, (*path, "branch_lifecycle"))
        storages = node.items.get("storages")
        found: dict[str, StorageConfig] = {}
        for id_, child in storages.items.items() if isinstance(storages, MapNode) else ():
            if isinstance(child, MapNode):
                found[id_] = self._storage(child, (*path, "storages", id_))
        return ServerConfig(
            name=name,
            endpoint_url=self._url(node, path) or "",
            branch_lifecycle_engine=engine,
            branch_lifecycle_schedule=schedule,
            time_zone=self._time_zone(node, path),
            storages=found,
            cost_per_gb_month=self._price(node, path),
            cost_source=cost.source if (cost := node.items.get(COST)) is not None else None,
            source=node.source,
        )

    def _lifecycle(self, node: MapNode, path: Path) -> tuple[Engine, str | None]:
        """The engine, and the cron line of the server's job."""
        block = node.items.get("branch_lifecycle")
        if not isinstance(block, MapNode):
            return "none", None
        engine = cast(Engine, text_of(block.items.get("engine")) or "none")
        line = self._text(block, "schedule", path)
        if line is None:
            return engine, None
        at = block.items["schedule"].source
        if engine != "server":
            text = "this is the schedule of the server's own job, which works with the engine server only"
            self._problems.add(at, (*path, "schedule"), text)
        try:
            parse_cron(line)
        except ValueError as error:
            self._problems.add(at, (*path, "schedule"), str(error))
        return engine, line

    def _price(self, node: MapNode, path: Path) -> Price | None:
        child = node.items.get(COST)
        if not isinstance(child, ScalarNode) or not isinstance(child.value, (int, float, str)):
            return None
        try:
            return Price(*parse_price(child.value))
        except ValueError:
            return None  # the schema says so

    def _storage(self, node: MapNode, path: Path) -> StorageConfig:
        kind = text_of(node.items.get("type"))
        if kind == "local" and "path" not in node.items:
            self._problems.add(node.source, path, "a local storage needs its path")
        return StorageConfig(
            type=cast(Literal["s3", "azure", "local"], kind),
            endpoint_url=self._url(node, path),
            region=self._region(node, path),
            path=self._text(node, "path", path),
            inventory=self._inventory(node, path, kind),
            inventory_max_age_seconds=self._max_age(node, path),
        )

    def _inventory(self, node: MapNode, path: Path, kind: str | None) -> str | None:
        url = self._text(node, "inventory", path)
        if url is None:
            return None
        at = node.items["inventory"].source
        if kind != "s3":
            self._problems.add(at, (*path, "inventory"), "only a storage of the type s3 has an S3 inventory")
        try:
            if not parse_bucket_url(url).prefix.endswith("/manifest.json"):
                raise BadUrl("this names no manifest.json")
        except BadUrl as error:
            text = f"{error}; write where its manifest is, such as s3://bucket/…/manifest.json"
            self._problems.add(at, (*path, "inventory"), text)
            return None
        return url

    def _max_age(self, node: MapNode, path: Path) -> int:
        text = self._text(node, "inventory_max_age", path)
        if text is None:
            return INVENTORY_MAX_AGE_SECONDS
        try:
            return parse_duration(text)
        except ValueError as error:
            if _DURATION.fullmatch(text):  # else the schema says so
                at = node.items["inventory_max_age"].source
                self._problems.add(at, (*path, "inventory_max_age"), str(error))
            return INVENTORY_MAX_AGE_SECONDS

    def _url(self, node: MapNode, path: Path) -> str | None:
        url = self._text(node, "endpoint_url", path)
        if url is None:
            return None
        try:
            parse_web_url(url)
        except BadUrl as error:
            self._problems.add(
                node.items["endpoint_url"].source,
                (*path, "endpoint_url"),
                f"{error}; write a URL such as {EXAMPLE}",
            )
            return None
        return url.rstrip("/")

    def _region(self, node: MapNode, path: Path) -> str | None:
        """A region becomes a part of a host's name."""
        region = self._text(node, "region", path)
        if region is None or _REGION.fullmatch(region):
            return region
        text = "a region has letters, digits and - only, such as eu-central-1"
        self._problems.add(node.items["region"].source, (*path, "region"), text)
        return None

    def _time_zone(self, node: MapNode, path: Path) -> str:
        zone = self._text(node, "time_zone", path)
        if zone is None or zone == "UTC":
            return "UTC"
        if zone in _time_zones():
            return zone
        if _time_zones():
            text = f"there is no time zone {zone!r}: write one such as Europe/Berlin, or UTC"
        else:
            text = "this machine has no time zones but UTC: install the package tzdata"
        self._problems.add(node.items["time_zone"].source, (*path, "time_zone"), text)
        return "UTC"

    def _text(self, node: MapNode, key: str, path: Path) -> str | None:
        """A text with its variables read. None when it is absent or a variable is missing."""
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
            self._problems.add(child.source, (*path, key), "a ${ is never closed")
            return None
        return None if missing else expanded

    def _variable(self, name: str, at: Source, path: Path) -> str | None:
        """``${X}`` and ``${LAKEPLAN_VAR_X}`` both read ``LAKEPLAN_VAR_X``, and never any other variable."""
        full = name if name.startswith(VARIABLE_PREFIX) else VARIABLE_PREFIX + name
        if not _VARIABLE_NAME.fullmatch(name):
            self._problems.add(at, path, f"${{{name}}} is not the name of a variable")
            return None
        value = self._environ.get(full)
        if not value:
            text = (
                f"${{{name}}} reads the variable {full}, which is not set (a tree reads LAKEPLAN_VAR_* only)"
            )
            self._problems.add(at, path, text)
            return None
        return value

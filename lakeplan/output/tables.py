"""Tables of a plan as values: a terminal, Markdown and a report page each print the same cells their way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakeplan.output.text import UNKNOWN, Money, count, known, percent, size

Json = Mapping[str, Any]

HORIZONS = {"now": "now", "plus_7_days": "in 7 days", "plus_30_days": "in 30 days"}

MOMENT = ("moment", "commits kept", "commits expire", "objects expire", "of objects kept", "bytes expire")
"""Columns of the figures at a moment."""


@dataclass(frozen=True)
class Label:
    """Words of lakeplan's own."""

    text: str


@dataclass(frozen=True)
class Name:
    """A name or id, exactly as it is."""

    text: str


@dataclass(frozen=True)
class Amount:
    """A figure that matters when it is not nothing; an unknown one never looks like nothing."""

    value: int | None
    form: Callable[[int], str] = count
    at_risk: bool = False

    @property
    def text(self) -> str:
        return known(self.value, self.form)


@dataclass(frozen=True)
class Share:
    part: int | None
    whole: int | None

    @property
    def text(self) -> str:
        if self.part is None or (self.whole is None and self.part):
            return UNKNOWN
        return percent(self.part, self.whole or 0)


@dataclass(frozen=True)
class Change:
    before: str
    after: str


@dataclass(frozen=True)
class Cost:
    """Money; sorts as the bytes it is for."""

    text: str
    size_bytes: int | None


Value = Label | Name | Amount | Share | Change | Cost


def volume_cells(part: Json, cost: Money, *, at_risk: bool = False) -> list[Value]:
    """Objects, bytes and, where there is a price, money."""
    size_bytes = part["size_bytes"]
    return [Amount(part["objects"], at_risk=at_risk), Amount(size_bytes, size), *costs(cost, size_bytes)]


def costs(cost: Money, size_bytes: int | None) -> list[Cost]:
    """The cell behind a figure of bytes; none without a price."""
    return [Cost(text, size_bytes) for text in cost.cells(size_bytes)]


def moment_rows(repository: Json) -> list[dict[str, list[Value]]]:
    """What the plan does at each moment, by column; "cost" is empty without a price."""
    horizons, cost = repository["impact"]["horizons"], Money.of(repository)
    return [_moment(label, horizons[at], cost) for at, label in HORIZONS.items() if at in horizons]


def _moment(label: str, h: Json, cost: Money) -> dict[str, list[Value]]:
    kept = Change(count(h["commits_kept_before"]), count(h["commits_kept_after"]))
    return {
        "moment": [Label(label)],
        "commits kept": [kept],
        "commits expire": [Amount(h["commits_expire"])],
        "kept again": [Amount(h["commits_released"])],
        "objects expire": [Amount(h["objects_expire"])],
        "of objects kept": [Share(h["objects_expire"], h["objects_kept"])],
        "bytes expire": [Amount(h["bytes_expire"], size)],
        "cost": [*costs(cost, h["bytes_expire"])],
        "at risk": [Amount(h["objects_at_risk"], at_risk=True)],
    }


def picked(row: Mapping[str, list[Value]], columns: Iterable[str]) -> list[Value]:
    """The cells of some columns, in their order."""
    return [value for column in columns for value in row[column]]


def tag_rows(repository: Json) -> list[list[Value]]:
    """Tags that lose data: tag, commit, objects, bytes, money."""
    cost = Money.of(repository)
    return [
        [Name(tag["tag"]), Name(tag["commit_id"][:12]), *volume_cells(tag, cost, at_risk=True)]
        for tag in repository["impact"]["tags"]
    ]


def prefix_rows(prefixes: Iterable[Json], cost: Money) -> list[list[Value]]:
    """Folders, the largest first: prefix, objects, bytes, money."""
    largest_first = sorted(prefixes, key=lambda p: (-p["size_bytes"], -p["objects"], p["prefix"]))
    return [[Name(p["prefix"]), *volume_cells(p, cost)] for p in largest_first]

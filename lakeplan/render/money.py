"""What bytes cost a month, beside the bytes: a column or a few words where the tree has a price.

Every part of a document that is about one repository has its server's price as ``cost_per_gb_month``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakeplan.model.price import Price
from lakeplan.render.amounts import UNKNOWN

Json = Mapping[str, Any]
KEY = "cost_per_gb_month"


@dataclass(frozen=True)
class Money:
    """The money of one part. ``mixed``: it is a row among those of several servers, whose column is there
    for all, and empty where there is no price."""

    price: Price | None = None
    mixed: bool = False

    @classmethod
    def of(cls, part: Json, *, mixed: bool = False) -> Money:
        price = part.get(KEY)
        return cls(None if price is None else Price(price["amount"], price["currency"]), mixed)

    @property
    def shown(self) -> bool:
        """Whether there is a column."""
        return self.mixed or self.price is not None

    def header(self, between: str = "\n") -> tuple[str, ...]:
        """The column's header, or no column. The currency stands in it where all rows have the same."""
        currency = self.price.currency if self.price is not None and not self.mixed else ""
        return (between.join(part for part in (currency, "a month") if part),) if self.shown else ()

    def cells(self, size_bytes: int | None) -> tuple[str, ...]:
        """The column's cell, or no column."""
        if not self.shown:
            return ()
        if self.price is None:
            return ("",)
        if size_bytes is None:
            return (UNKNOWN,)
        return (money(self.price.monthly(size_bytes), self.price.currency if self.mixed else ""),)

    def words(self, size_bytes: int | None) -> str:
        """``, 71.30 USD a month`` behind a figure of bytes; "" without a price or bytes."""
        if self.price is None or not size_bytes:
            return ""
        return f", {money(self.price.monthly(size_bytes), self.price.currency)} a month"


def priced(parts: Iterable[Json]) -> bool:
    """Whether a table of these has money in it."""
    return any(part.get(KEY) is not None for part in parts)


def money(value: float, currency: str) -> str:
    """Two decimals; what is not nothing never reads 0.00."""
    shown = "<0.01" if 0 < value < 0.005 else f"{value:,.2f}"
    return f"{shown} {currency}".rstrip()


def sums(costs: Iterable[Json], key: str) -> str:
    """``, 62.00 EUR and 71.30 USD a month`` of a summary's costs; "" without any."""
    found = [money(cost[key], cost["currency"]) for cost in costs if cost[key]]
    return f", {' and '.join(found)} a month" if found else ""

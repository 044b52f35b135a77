"""Prices of the tree's servers, put beside every repository of a document (``cost_per_gb_month``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.config.tree import Tree
from lakeplan.model.plan_document import encode
from lakeplan.model.price import Price
from lakeplan.render.money import KEY


def with_costs(document: Mapping[str, Any], tree: Tree, *lists: str) -> dict[str, Any]:
    """The document with the price in itself, or in every item of its ``lists``, whose server has one.
    Nothing else differs."""
    prices = {name: s.cost_per_gb_month for name, s in tree.servers.items() if s.cost_per_gb_month}
    if not lists:
        return _priced(document, prices)
    return {
        key: [_priced(item, prices) for item in value] if key in lists else value
        for key, value in document.items()
    }


def _priced(part: Mapping[str, Any], prices: Mapping[str, Price]) -> dict[str, Any]:
    server = part["server"] if "server" in part else part["repository"].partition("/")[0]
    return {**part, KEY: encode(prices[server])} if server in prices else dict(part)

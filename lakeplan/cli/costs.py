"""Prices of the tree's servers beside every repository, and documents that commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from lakeplan.cli.outputs import Output, emit_document
from lakeplan.cli.redaction import shown
from lakeplan.errors import ExitCode
from lakeplan.output.metric_families import Owners
from lakeplan.output.text import KEY
from lakeplan.tree.tree import Tree
from lakeplan.values.desired import Price
from lakeplan.values.plan_document import encode


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


Json = Mapping[str, Any]


@dataclass(frozen=True)
class Way:
    """Where the documents of one command go. Owners come from the tree."""

    outputs: tuple[Output, ...]
    tree: Tree
    no_color: bool
    redact: bool = False

    def emit(
        self,
        document: Json,
        render: Callable[[Json, Console], None],
        metrics: Callable[[Json, Owners], str] | None = None,
        *,
        code: int = ExitCode.OK,
    ) -> None:
        """``metrics`` None: the command has no such format. ``code``: how the command ends."""
        emit_document(
            self.outputs,
            shown(document, redact=self.redact),
            render,
            no_color=self.no_color,
            metrics=None if metrics is None else lambda made: metrics(made, self.tree.owner_of),
            code=code,
        )

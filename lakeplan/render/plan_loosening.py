"""The very first part of a plan with a base: what its tree lets through and the base's does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakeplan.render.amounts import counted
from lakeplan.render.page import Cell, Page, names

Json = Mapping[str, Any]
STRICTER = "the plan is judged by the stricter limits of both"
_SCOPES_SHOWN = 10


@dataclass(frozen=True)
class Loosened:
    """One value that is looser, with the repositories it is about (none: the whole tree)."""

    path: str
    before: str
    after: str
    where: str
    scopes: tuple[str, ...]


def loosened(document: Json) -> list[Loosened]:
    """Loosenings in the document's order; equal ones of several repositories as one."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for item in document["loosenings"]:
        key = (item["path"], item["before"], item["after"], item["where"])
        groups.setdefault(key, []).extend([] if item["scope"] == "tree" else [item["scope"]])
    return [Loosened(*key, tuple(scopes)) for key, scopes in groups.items()]


def loosening_title(document: Json) -> str:
    count = len(document["loosenings"])
    return (
        f"This change loosens {counted(count, 'safeguard')} against {(document['base'] or 'its base')[:12]}"
    )


def render_loosenings(page: Page, document: Json) -> None:
    found = loosened(document)
    if not found:
        return
    page.heading(loosening_title(document))
    page.line(Cell(f"Review these first: {STRICTER}.", "dim"))
    for item in found:
        about = f"  {names(item.scopes, _SCOPES_SHOWN)}" if item.scopes else ""
        lines = [
            page.join(Cell(item.path, "bold"), about),
            page.join(item.before, f" {page.arrow} ", Cell(item.after, "bold yellow")),
        ]
        if item.where:
            lines.append(page.join(Cell(f"at {item.where}", "dim")))
        page.hanging(Cell("!", "bold red"), *lines)

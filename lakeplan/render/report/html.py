"""HTML put together from parts, none of which can break out: whatever is not ``Markup`` is escaped.

Names of branches, tags, paths and messages are other people's text. They are never markup, and characters
that hide or reorder text are shown as escapes (``render.page.safe``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from lakeplan.render.clean import safe


class Markup(str):
    """Text that is HTML already. Only this module makes it, and the files of ``assets``."""

    __slots__ = ()


Child = str | int | Iterable["Child"] | None
Attribute = str | int | float | bool | None

_TALL = 25
"""Rows from which on a table scrolls in a box of its own height."""
_VOID = frozenset({"meta", "input", "br", "col", "hr"})
_NAMES = {"cls": "class", "for_": "for", "type_": "type"}


def text(value: object) -> Markup:
    """Other people's text."""
    return value if isinstance(value, Markup) else Markup(escape(safe(str(value)), quote=True))


def join(children: Iterable[Child]) -> Markup:
    return Markup("".join(_flat(children)))


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, (str, int)):
            yield text(child)
        else:
            yield from _flat(child)


def el(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element. ``cls`` is class, ``for_`` for; underscores become dashes; True is an attribute without a
    value, False and None leave it out."""
    parts = [tag]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = _NAMES.get(key, key.replace("_", "-"))
        parts.append(name if value is True else f'{name}="{text(value)}"')
    opening = f"<{' '.join(parts)}>"
    return Markup(opening if tag in _VOID else f"{opening}{join(children)}</{tag}>")


def data_block(identifier: str, document: Any) -> Markup:
    """JSON inside a script element that no browser runs, and that nothing in it can end."""
    raw = json.dumps(document, separators=(",", ":"), ensure_ascii=True, sort_keys=True)
    for character in "<>&":
        raw = raw.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{text(identifier)}">{raw}</script>')


Cell = Child | tuple[Child, dict[str, Attribute]]


def table(
    caption: Child,
    headers: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    figures: Iterable[int] = (),
    sortable: bool = False,
    hidden_caption: bool = False,
) -> Markup:
    """A table in a box that scrolls by itself. The first cell of a row is its header. A cell may come with
    attributes, such as ``data_sort``; ``figures`` are columns of numbers."""
    numbers = frozenset(figures)

    def cell(n: int, value: Cell) -> Markup:
        content, given = value if isinstance(value, tuple) else (value, {})
        more = {k: v for k, v in given.items() if k != "cls"}
        cls = " ".join(filter(None, ["num" if n in numbers else "", str(given.get("cls") or "")])) or None
        if n == 0:
            return el("th", content, scope="row", cls=cls, **more)
        return el("td", content, cls=cls, **more)

    head = el(
        "tr", [el("th", h, scope="col", cls="num" if n in numbers else None) for n, h in enumerate(headers)]
    )
    body = [el("tr", [cell(n, value) for n, value in enumerate(row)]) for row in rows]
    return el(
        "div",
        el(
            "table",
            el("caption", caption, cls="unseen" if hidden_caption else None),
            el("thead", head),
            el("tbody", body),
            data_sortable=sortable,
        ),
        cls="scroll tall" if len(body) > _TALL else "scroll",
    )

"""The third part of a plan: gates, warnings, adopted, failed and unmanaged repositories."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from lakeplan.core.planning.impact import STAGED_DATA
from lakeplan.render.amounts import UNKNOWN, count, counted, size
from lakeplan.render.money import Money, priced
from lakeplan.render.page import Cell, Page, names
from lakeplan.render.plan_changes import key_of
from lakeplan.render.plan_impact import HORIZONS

Json = Mapping[str, Any]
Key = TypeVar("Key", bound=Hashable)

_STYLES = {
    "refused": Cell("REFUSED", "bold red"),
    "warned": Cell("warned", "yellow"),
    "allowed": Cell("allowed", "cyan"),
    "overridden": Cell("overridden", "cyan"),
    "passed": Cell("passed", "green"),
}
_TAGS_SHOWN = 10
_UNMANAGED_SHOWN = 20
_WARNED_SHOWN = 10


def gates_of(document: Json) -> list[Json]:
    return [*document["gates"], *(g for r in document["repositories"] for g in r["gates"])]


def render_gates(page: Page, gates: Iterable[Json], *, all_of_them: bool = False) -> None:
    """Gates that did not pass, refused ones first; equal ones of several repositories together."""
    order = list(_STYLES)
    shown = [g for g in gates if all_of_them or g["outcome"] != "passed"]
    if not shown:
        return
    page.heading("Gates")
    groups = _grouped(shown, lambda g: (g["outcome"], g["gate"], g["message"], g["opens_with"]))
    for (outcome, gate, message, opens), group in sorted(groups.items(), key=lambda i: order.index(i[0][0])):
        scopes = names(sorted({_scope(g["scope"]) for g in group}))
        lines = [page.join(Cell(gate, "bold"), f"  {scopes}"), page.join(message)]
        if outcome == "refused" and opens:
            lines.append(page.join(Cell("override with ", "dim"), opens))
        elif opens:
            lines.append(page.join(Cell("by " if outcome == "allowed" else "", "dim"), opens))
        page.hanging(_STYLES[outcome], *lines, lead_width=len("overridden"))


def _scope(scope: str) -> str:
    return "the whole plan" if scope == "plan" else scope


def _grouped(items: Iterable[Json], key: Callable[[Json], Key]) -> dict[Key, list[Json]]:
    groups: dict[Key, list[Json]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def render_warnings(
    page: Page,
    repositories: Sequence[Json],
    others: Sequence[str] = (),
    *,
    tags_shown: int | None = _TAGS_SHOWN,
) -> None:
    """Objects at risk, tags that lose data, then every other warning with the repositories it is about."""
    with_money = priced(repositories)
    at_risk = [row for r in repositories if (row := _risk_row(r, with_money=with_money)) is not None]
    tags = [r for r in repositories if r["impact"]["tags"]]
    texts: dict[str, list[str]] = {text: [] for text in others}
    for repository in repositories:
        for text in repository["warnings"]:
            texts.setdefault(text, []).append(key_of(repository))
        for text in repository["impact"]["blind_to"]:
            if text == STAGED_DATA:
                continue  # true of every plan: the heading of the impact says it
            texts.setdefault(f"not seen: {text}", []).append(key_of(repository))
    if not (at_risk or tags or texts):
        return
    page.heading("Warnings")
    bullet = Cell("!", "bold yellow")
    if at_risk:
        _at_risk(page, at_risk, Money(mixed=with_money))
    for repository in tags:
        _tags(page, repository, tags_shown)
    for text, keys in texts.items():
        where = f"{names(keys)}: " if len(keys) == 1 else ""
        after = (
            f" ({counted(len(keys), 'repository')}: {names(keys, _WARNED_SHOWN)})" if len(keys) > 1 else ""
        )
        page.hanging(bullet, page.join(Cell(where, "bold"), text, Cell(after, "dim")))


def _risk_row(repository: Json, *, with_money: bool) -> list[str] | None:
    """The worst moment of one repository; None when nothing is at risk."""
    horizons = repository["impact"]["horizons"]
    known = [(horizons[name], label) for name, label in HORIZONS.items() if name in horizons]
    worst = max(known, key=lambda pair: pair[0]["objects_at_risk"] or 0, default=None)
    if worst is None or not worst[0]["objects_at_risk"]:
        return None
    figures, label = worst
    size_bytes = figures["bytes_at_risk"]
    known_bytes = UNKNOWN if size_bytes is None else size(size_bytes)
    cost = Money.of(repository, mixed=with_money).cells(size_bytes)
    return [key_of(repository), label, count(figures["objects_at_risk"]), known_bytes, *cost]


def _at_risk(page: Page, rows: Sequence[Sequence[str]], cost: Money) -> None:
    text = (
        "the server would take these although the documented rule keeps them:"
        " its walk of the history can stop early"
    )
    page.hanging(Cell("!", "bold red"), page.join(Cell("objects at risk: ", "bold"), text))
    headers = ("", "when", "objects", "bytes", *cost.header())
    page.table(headers, rows, figures=(2, 3, 4), solid=(1,), indent=3)


def _tags(page: Page, repository: Json, limit: int | None) -> None:
    tags, cost = repository["impact"]["tags"], Money.of(repository)
    title = page.join(
        Cell(f"{key_of(repository)}: ", "bold"),
        f"{counted(len(tags), 'tag')} would lose data (now or within 30 days)",
    )
    page.hanging(Cell("!", "bold red"), title)
    rows = [
        [
            t["tag"],
            t["commit_id"][:12],
            UNKNOWN if t["objects"] is None else count(t["objects"]),
            UNKNOWN if t["size_bytes"] is None else size(t["size_bytes"]),
            *cost.cells(t["size_bytes"]),
        ]
        for t in tags[:limit]
    ]
    headers = ("tag", "commit", "objects lost", "bytes lost", *cost.header())
    page.table(headers, rows, figures=(2, 3, 4), solid=(1,), indent=3)
    if limit is not None and len(tags) > limit:
        page.line(Cell(f"and {count(len(tags) - limit)} more tags in the plan file", "dim"), indent=3)


def render_adopted(page: Page, document: Json) -> None:
    """Repositories that a glob newly matches: nobody named them."""
    adopted = [r for r in document["repositories"] if r["adopted"]]
    if not adopted:
        return
    page.heading("Adopted repositories", "a glob matches them for the first time; nobody named them")
    for (entry, source), group in _grouped(adopted, lambda r: (r["entry"], r["source"])).items():
        where = f" at {source}" if source else ""
        page.hanging(
            Cell("+", "bold yellow"),
            page.join(Cell(entry, "bold"), Cell(where, "dim"), ": " + names([key_of(r) for r in group])),
        )


def render_failures(page: Page, repositories: Sequence[Json]) -> None:
    """Repositories that could not be planned: what, where, what to do. Equal ones together."""
    failed = [r for r in repositories if r["failure"] is not None]
    if not failed:
        return
    page.heading("Failed", "not planned, and not written by an apply of this plan")
    groups = _grouped(failed, lambda r: tuple(r["failure"][k] for k in ("message", "where", "hint")))
    for (message, where, hint), group in groups.items():
        keys = [key_of(r) for r in group]
        place = f"{where}: " if where and where not in keys else ""
        lines = [page.join(Cell(names(keys), "bold")), page.join(f"{place}{message}")]
        if hint:
            lines.append(page.join(Cell("hint: ", "dim"), hint))
        page.hanging(Cell("x", "bold red"), *lines)


def render_unmanaged(page: Page, document: Json) -> None:
    """Repositories on the servers that no entry names: never touched, and worth knowing."""
    unmanaged = document["unmanaged"]
    if unmanaged:
        page.heading("Not managed", f"{counted(len(unmanaged), 'repository')} that no entry names")
        page.line(names(unmanaged, _UNMANAGED_SHOWN), indent=2)

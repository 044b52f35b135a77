"""What the change does: one row per repository, then each with its rules, moments and prefixes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakeplan.render.amounts import UNKNOWN, count, counted, percent, size
from lakeplan.render.money import Money, priced
from lakeplan.render.plan_changes import change_rows, key_of
from lakeplan.render.plan_impact import AT_MOST, HORIZONS, NO_REASON
from lakeplan.render.plan_settings import TITLES, settings_of
from lakeplan.render.report.html import Cell, Markup, el, join, table
from lakeplan.render.report.overview import more
from lakeplan.render.report.shell import Section

Json = Mapping[str, Any]

_DETAILED = 50
_ROWS = 1000
_PREFIX_ROWS = 60
_OPEN = 3
_NOT_ASKED: Cell = ("not asked", {"cls": "none", "data_sort": -2})


def impact_section(document: Json) -> Section:
    repositories = sorted(document["repositories"], key=_largest_first)
    if not repositories:
        return Section("impact", "Impact", el("p", "No repository changes."))
    parts = [el("p", f"{AT_MOST[0].upper()}{AT_MOST[1:]}.", cls="dim"), _summary(repositories)]
    for n, repository in enumerate(repositories[:_DETAILED]):
        parts.append(_details(repository, is_open=n < _OPEN))
    if len(repositories) > _DETAILED:
        rest = counted(len(repositories) - _DETAILED, "repository")
        parts.append(el("p", f"The details of {rest} are in the plan file.", cls="dim"))
    return Section("impact", "Impact by repository", join(parts))


def _largest_first(repository: Json) -> tuple[bool, int, str]:
    goes = (repository["impact"]["horizons"].get("now") or {}).get("bytes_expire")
    return (goes is not None, -(goes or 0), key_of(repository))


def _summary(repositories: Sequence[Json]) -> Markup:
    with_money = priced(repositories)
    headers = (
        "repository",
        "bytes expire now",
        *Money(mixed=with_money).header(),
        "of bytes kept",
        "objects now",
        "objects in 7 days",
        "objects in 30 days",
        "commits now",
        "at risk",
    )
    rows: list[list[Cell]] = []
    for repository in repositories[:_ROWS]:
        horizons = repository["impact"]["horizons"]
        if repository["impact"]["status"] == "not_asked":
            rows.append([key_of(repository), *([_NOT_ASKED] * (len(headers) - 1))])
            continue
        now, week, month = (horizons.get(name) or {} for name in HORIZONS)
        rows.append(
            [
                key_of(repository),
                amount(now.get("bytes_expire"), size),
                *money_cells(Money.of(repository, mixed=with_money), now.get("bytes_expire")),
                _share(now.get("bytes_expire"), now.get("bytes_kept")),
                amount(now.get("objects_expire")),
                amount(week.get("objects_expire")),
                amount(month.get("objects_expire")),
                amount(now.get("commits_expire")),
                amount(now.get("objects_at_risk"), cls="risk"),
            ]
        )
    made = table(
        "What expires through this plan, by repository",
        headers,
        rows,
        figures=range(1, len(headers)),
        sortable=True,
    )
    return join([made, *more(len(repositories), _ROWS)])


def amount(value: int | None, form: Any = count, cls: str = "some") -> Cell:
    """A figure with what to sort by; an unknown one never looks like nothing, and sorts first."""
    if value is None:
        return (UNKNOWN, {"cls": "unknown", "data_sort": -1})
    return (form(value), {"cls": cls if value else "none", "data_sort": value})


def money_cells(cost: Money, size_bytes: int | None) -> list[Cell]:
    """The cell behind a figure of bytes, which sorts as these do; none without a price."""
    return [
        (text, {"data_sort": -1 if size_bytes is None else size_bytes}) for text in cost.cells(size_bytes)
    ]


def _share(part: int | None, whole: int | None) -> Cell:
    if part is None or (whole is None and part):
        return (UNKNOWN, {"cls": "unknown", "data_sort": -1})
    if not whole:
        return ("0 %", {"cls": "none", "data_sort": 0})
    share = min(part / whole, 1.0)
    return (
        join([percent(part, whole), " ", bar(share)]),
        {"cls": "some" if part else "none", "data_sort": share},
    )


def bar(share: float) -> Markup:
    """A share as a picture beside its figure; nothing is said by it alone."""
    width = max(1.0, 60 * share) if share else 0
    return el(
        "svg",
        el("rect", cls="bar-back", width=60, height=8),
        el("rect", cls="bar", width=f"{width:.1f}", height=8),
        cls="share",
        viewBox="0 0 60 8",
        width=60,
        height=8,
        aria_hidden="true",
    )


def _details(repository: Json, *, is_open: bool) -> Markup:
    impact = repository["impact"]
    words = []
    if impact["status"] == "unknown":
        words.append(el("p", el("strong", UNKNOWN), f": {impact['reason'] or NO_REASON}", cls="alert"))
    elif impact["status"] == "not_asked":
        words.append(el("p", "Its impact was not asked for: nothing would be written here."))
    elif impact["reason"]:
        words.append(el("p", impact["reason"]))
    owner = f", owned by {repository['owner']}" if repository["owner"] else ""
    source = f"; {repository['source']}" if repository["source"] else ""
    body = [
        el("p", f"Entry {repository['entry']}{owner}{source}.", cls="dim"),
        *words,
        _rules(repository),
        *_settings(repository),
        _moments(repository),
        _prefixes(repository),
        _tags(impact["tags"], Money.of(repository)),
        _backlog(impact["backlog"], Money.of(repository)),
    ]
    title = el("h3", key_of(repository))
    return el("details", el("summary", title), *body, open=is_open, cls="repository")


def _rules(repository: Json) -> Markup | None:
    if repository["action"] == "none":
        return None
    rows = [[r.value, r.before, r.after, r.effect] for r in change_rows(repository)]
    caption = f"Days of retention, {key_of(repository)}"
    return table(caption, ("value", "now", "proposed", "effect"), rows[:_ROWS])


def _settings(repository: Json) -> list[Markup]:
    found = []
    for kind, setting in settings_of(repository):
        rows = [
            [c["item"], c["action"], _values(c["before"]), _values(c["after"])] for c in setting["changes"]
        ]
        if not rows:
            continue
        caption = f"{TITLES[kind].capitalize()}, {key_of(repository)}"
        found.append(table(caption, ("item", "what", "now", "proposed"), rows[:_ROWS]))
    return found


def _values(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _moments(repository: Json) -> Markup | None:
    horizons, cost = repository["impact"]["horizons"], Money.of(repository)
    rows = []
    for name, label in HORIZONS.items():
        h = horizons.get(name)
        if h is None:
            continue
        rows.append(
            [
                label,
                f"{count(h['commits_kept_before'])} → {count(h['commits_kept_after'])}",
                amount(h["commits_expire"]),
                amount(h["commits_released"]),
                amount(h["objects_expire"]),
                amount(h["bytes_expire"], size),
                *money_cells(cost, h["bytes_expire"]),
                amount(h["objects_at_risk"], cls="risk"),
            ]
        )
    if not rows:
        return None
    headers = (
        "moment",
        "commits kept",
        "commits expire",
        "kept again",
        "objects expire",
        "bytes expire",
        *cost.header(" "),
        "at risk",
    )
    return table(f"Three moments, {key_of(repository)}", headers, rows, figures=range(1, len(headers)))


def _prefixes(repository: Json) -> Markup | None:
    """Folders of what expires now, as a tree, each with its share of the whole."""
    prefixes, cost = (
        sorted(repository["impact"]["prefixes"], key=lambda p: p["prefix"]),
        Money.of(repository),
    )
    whole = max((p["size_bytes"] for p in prefixes), default=0)
    shown = sorted(prefixes, key=lambda p: (-p["size_bytes"], p["prefix"]))[:_PREFIX_ROWS]
    keep = {p["prefix"] for p in shown}
    rows: list[list[Cell]] = []
    for p in prefixes:
        if p["prefix"] not in keep:
            continue
        share = p["size_bytes"] / whole if whole else 0.0
        indent = "\u2003" * p["depth"]
        rows.append(
            [
                (join([Markup(indent), p["prefix"] or "everything"]), {"data_sort": p["prefix"]}),
                amount(p["objects"]),
                amount(p["size_bytes"], size),
                *money_cells(cost, p["size_bytes"]),
                (
                    join([percent(p["size_bytes"], whole) if whole else "", " ", bar(share)]),
                    {"data_sort": share},
                ),
            ]
        )
    if not rows:
        return None
    caption = f"Where it expires now, {key_of(repository)}"
    headers = ("prefix", "objects", "bytes", *cost.header(" "), "share")
    made = table(caption, headers, rows, figures=range(1, len(headers)), sortable=True)
    return join([made, *more(len(prefixes), len(rows))])


def _tags(tags: Sequence[Json], cost: Money) -> Markup | None:
    if not tags:
        return None
    rows = [
        [
            t["tag"],
            t["commit_id"][:12],
            amount(t["objects"], cls="risk"),
            amount(t["size_bytes"], size),
            *money_cells(cost, t["size_bytes"]),
        ]
        for t in tags
    ]
    headers = ("tag", "commit", "objects", "bytes", *cost.header(" "))
    made = table("Tags that lose data", headers, rows[:_ROWS], figures=(2, 3, 4))
    return join([made, *more(len(tags), _ROWS)])


def _backlog(backlog: Json | None, cost: Money) -> Markup | None:
    if backlog is None or not backlog["commits"]:
        return None
    words = f"The stored rules already let go of {counted(backlog['commits'], 'commit')}"
    if backlog["objects"] is not None:
        words += f" with {counted(backlog['objects'], 'object')}, {size(backlog['size_bytes'])}"
        words += cost.words(backlog["size_bytes"])
    return el("p", f"{words}, whatever this plan does.", cls="dim")

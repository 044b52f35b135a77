"""The second part of a plan: what the change does, now and later, and what speaks against it. Its tables
are values: a terminal, Markdown and a report page each print the same cells their way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from lakeplan.output.page import Cell, Page, names
from lakeplan.output.plan_changes import key_of, writing
from lakeplan.output.tables import Amount, Change, Label, Name, Share, Table, Value, costs, volume_cells
from lakeplan.output.text import UNKNOWN, Json, Money, amounts, count, count_of, priced, size
from lakeplan.values.plan import STAGED_DATA

HORIZONS = {"now": "now", "plus_7_days": "in 7 days", "plus_30_days": "in 30 days"}

MOMENT = ("moment", "commits kept", "commits expire", "objects expire", "of objects kept", "bytes expire")
"""Columns of the figures at a moment."""


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


def tag_table(repository: Json, title: str = "tag", lost: str = "") -> Table:
    """Tags that lose data. ``lost`` follows the names of the figures."""
    cost = Money.of(repository)
    rows = [
        [Name(tag["tag"]), Name(tag["commit_id"][:12]), *volume_cells(tag, cost, at_risk=True)]
        for tag in repository["impact"]["tags"]
    ]
    return Table((title, "commit", f"objects{lost}", f"bytes{lost}", *cost.header()), rows, names=2)


def tags_title(repository: Json) -> str:
    return f"{count_of(len(repository['impact']['tags']), 'tag')} would lose data (now or within 30 days)"


def prefix_table(prefixes: Iterable[Json], cost: Money) -> Table:
    """Folders of what expires now, the largest first."""
    largest_first = sorted(prefixes, key=lambda p: (-p["size_bytes"], -p["objects"], p["prefix"]))
    rows = [[Name(p["prefix"]), *volume_cells(p, cost)] for p in largest_first]
    return Table(("largest prefixes (now)", "objects", "bytes", *cost.header()), rows)


AT_MOST = "upper bounds: uncommitted changes were not read and can only reduce these numbers"
NO_REASON = "no reason was given"
_MANY = 8
_WIDE = 120
_PREFIXES = 5
_BACKLOG_ROWS = 20
_QUIET_SHOWN = 20


def render_impact(page: Page, document: Json) -> None:
    """Per repository: commits kept, objects and bytes that expire, at three moments."""
    repositories = writing(document)
    if not repositories:
        return
    page.heading("Impact", AT_MOST)
    quiet = [r for r in repositories if nothing_expires(r["impact"]) and not expires_by_rule(r)]
    loud = [r for r in repositories if not nothing_expires(r["impact"])]
    by_rule = [key_of(r) for r in repositories if expires_by_rule(r)]
    if len(loud) > _MANY:
        _summary_table(page, loud)
    else:
        for repository in loud:
            page.blank()
            page.line(Cell(key_of(repository), "bold"))
            impact_details(page, repository, prefixes=_PREFIXES)
    if quiet:
        page.blank()
        page.line("Nothing expires in ", names([key_of(r) for r in quiet], _QUIET_SHOWN), ".")
    if by_rule:
        page.blank()
        what = ": what object lifecycle rules expire is not simulated, in "
        page.line(Cell(UNKNOWN, "bold red"), what, names(by_rule, _QUIET_SHOWN), ".")


def expires_by_rule(repository: Json) -> bool:
    """Whether object rules are added or changed: their effect is not simulated."""
    rules = repository["object_lifecycle"]
    return bool(rules) and any(change["action"] != "clear" for change in rules["changes"])


def nothing_expires(impact: Json) -> bool:
    """True only when it is known, for every moment."""
    moments = impact["horizons"].values()
    known = impact["status"] in ("simulated", "unaffected") and bool(moments)
    return known and all(h["commits_expire"] == 0 and h["objects_expire"] == 0 for h in moments)


def impact_details(page: Page, repository: Json, *, prefixes: int | None) -> None:
    """The figures of one repository: a row per moment, then where the objects are."""
    impact, cost = repository["impact"], Money.of(repository)
    if impact["status"] == "unknown":
        page.line(Cell(UNKNOWN, "bold red"), f": {impact['reason'] or NO_REASON}", indent=2)
    elif impact["status"] == "not_asked":
        page.line("not requested", indent=2)
    elif impact["reason"]:
        page.line(impact["reason"], indent=2)
    horizons = [impact["horizons"][name] for name in HORIZONS if name in impact["horizons"]]
    if horizons:
        _moments(page, repository, horizons)
    released = max((h["commits_released"] for h in horizons), default=0)
    if released:
        text = f"{count_of(released, 'commit')} that expired under the stored rules would be kept again"
        page.line(Cell(text, "green"), indent=2)
    _prefixes(page, impact["prefixes"], prefixes, cost)


def _moments(page: Page, repository: Json, horizons: Sequence[Json]) -> None:
    """A row per moment; a wide terminal also gets what is kept."""
    wide = page.width >= _WIDE
    rows = [_figures(page, picked(row, (*MOMENT, "cost", "at risk"))) for row in moment_rows(repository)]
    headers = ["", *(name[::-1].replace(" ", "\n", 1)[::-1] for name in MOMENT[1:])]
    headers += [*Money.of(repository).header(), "objects\nat risk"]
    if wide:
        headers += ["objects\nkept", "bytes\nkept"]
        for row, h in zip(rows, horizons, strict=True):
            row.append(_before_after(page, h["objects_kept"], h["objects_expire"], count))
            row.append(_before_after(page, h["bytes_kept"], h["bytes_expire"], size))
    page.table(headers, rows, figures=range(1, len(headers)), solid=(0,))


def figure(page: Page, value: Value) -> str | Cell:
    """A cell of a table: what matters stands out, what is nothing stands back."""
    match value:
        case Label(text):
            return Cell(text, "dim")
        case Change(before, after):
            return f"{before} {page.arrow} {after}"
        case Amount(value=number, at_risk=at_risk):
            some = "bold red" if number is None or at_risk else "bold yellow"
            return Cell(value.text, "dim" if number == 0 else some)
        case Share(part=part):
            return Cell(value.text, "bold red" if value.text == UNKNOWN else "" if part else "dim")
        case _:
            return value.text


def _figures(page: Page, row: Iterable[Value]) -> list[str | Cell]:
    return [figure(page, value) for value in row]


def _before_after(page: Page, kept: int | None, expire: int | None, form: Any) -> str | Cell:
    if kept is None or expire is None:
        return Cell("not read", "dim")
    return f"{form(kept)} {page.arrow} {form(kept - expire)}"


def _prefixes(page: Page, prefixes: Sequence[Json], limit: int | None, cost: Money) -> None:
    """The largest folders of what expires now. A folder that only holds one other is left out."""
    held = {(p["prefix"], p["objects"], p["size_bytes"]) for p in prefixes}
    table = prefix_table((p for p in prefixes if p["prefix"] and not _same_child(p, held)), cost)
    table.print_on(page, limit)
    page.rest(len(table.rows), limit, "more in the plan file")


def _same_child(prefix: Json, held: Iterable[tuple[str, int, int]]) -> bool:
    return any(
        name != prefix["prefix"]
        and name.startswith(prefix["prefix"])
        and (objects, size_bytes) == (prefix["objects"], prefix["size_bytes"])
        for name, objects, size_bytes in held
    )


def _summary_table(page: Page, repositories: Sequence[Json]) -> None:
    """Many repositories, one line each: the unknown ones first, then by bytes that expire."""
    wide, with_money = page.width >= _WIDE, priced(repositories)
    rows: list[list[str | Cell]] = []
    unknown: dict[str, list[str]] = {}
    for repository in sorted(repositories, key=largest_first):
        impact = repository["impact"]
        if impact["status"] == "unknown":
            unknown.setdefault(impact["reason"], []).append(key_of(repository))
        if impact["horizons"]:
            cost = Money.of(repository, mixed=with_money)
            line = _one_line(page, impact["horizons"], cost, wide=wide)
            rows.append([Cell(key_of(repository), "bold"), *line])
    headers = ["", "commits\nexpire", "objects\nexpire", "of objects\nkept", "bytes\nexpire"]
    headers += [
        *Money(mixed=with_money).header(),
        "objects in\n30 days",
        *(("bytes in\n30 days", "commits\nkept") if wide else ()),
    ]
    headers.append("objects\nat risk")
    if rows:
        page.table(headers, rows, figures=range(1, len(headers)), indent=0)
    for reason, keys in unknown.items():
        where = f"{count_of(len(keys), 'repository')}: {names(keys)}"
        page.line(Cell(UNKNOWN, "bold red"), f": {reason or NO_REASON} ({where})")


def largest_first(repository: Json) -> tuple[bool, int, str]:
    """Unknown impacts, then by bytes that expire."""
    size_bytes = (repository["impact"]["horizons"].get("now") or {}).get("bytes_expire")
    return (size_bytes is not None, -(size_bytes or 0), key_of(repository))


def _one_line(page: Page, horizons: Json, cost: Money, *, wide: bool) -> list[str | Cell]:
    now, month = horizons.get("now", {}), horizons.get("plus_30_days", {})
    cells: list[Value] = [
        Amount(now.get("commits_expire")),
        Amount(now.get("objects_expire")),
        Share(now.get("objects_expire"), now.get("objects_kept")),
        Amount(now.get("bytes_expire"), size),
        *costs(cost, now.get("bytes_expire")),
        Amount(month.get("objects_expire")),
    ]
    if wide:
        cells.append(Amount(month.get("bytes_expire"), size))
        kept = Change(count(now["commits_kept_before"]), count(now["commits_kept_after"])) if now else None
        cells.append(kept or Amount(None))
    return _figures(page, [*cells, Amount(now.get("objects_at_risk"), at_risk=True)])


def render_backlog(page: Page, document: Json) -> None:
    """What the stored rules already let expire, whatever this plan does."""
    having = [r for r in document["repositories"] if (r["impact"]["backlog"] or {}).get("commits")]
    with_money = priced(having)
    found = [(key_of(r), r["impact"]["backlog"], Money.of(r, mixed=with_money)) for r in having]
    if not found:
        return
    page.heading("Backlog", "collectable under the stored rules already, whatever this plan does")
    read = any(b["objects"] is not None for _, b, _ in found)
    found.sort(key=lambda item: (-(item[1]["size_bytes"] or 0), -item[1]["commits"], item[0]))
    rows = [
        [
            key,
            count(b["commits"]),
            *([_read(b["objects"], count), _read(b["size_bytes"], size), *_cost(cost, b)] if read else []),
        ]
        for key, b, cost in found[:_BACKLOG_ROWS]
    ]
    money = found[0][2].header()
    headers = ("repository", "commits", *(("objects", "bytes", *money) if read else ()))
    page.table(headers, rows, figures=range(1, len(headers)))
    page.rest(len(found), _BACKLOG_ROWS, noun="repository")
    if not read:
        page.dim("its objects were not read; --backlog reads them")


def _cost(cost: Money, backlog: Json) -> tuple[str, ...]:
    return cost.cells(backlog["size_bytes"]) if backlog["size_bytes"] is not None else ("",) * cost.shown


def _read(value: int | None, form: Any) -> str:
    return "not read" if value is None else form(value)


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
        scopes = names(sorted({scope_of(g["scope"]) for g in group}))
        lines = [page.join(Cell(gate, "bold"), f"  {scopes}"), page.join(message)]
        if outcome == "refused" and opens:
            lines.append(page.join(Cell("override with ", "dim"), opens))
        elif opens:
            lines.append(page.join(Cell("by " if outcome == "allowed" else "", "dim"), opens))
        page.hanging(_STYLES[outcome], *lines, lead_width=len("overridden"))


def scope_of(scope: str) -> str:
    """What a gate is about, in words."""
    return "the whole plan" if scope == "plan" else scope


def _grouped(items: Iterable[Json], key: Callable[[Json], Key]) -> dict[Key, list[Json]]:
    groups: dict[Key, list[Json]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def failure_groups(repositories: Iterable[Json]) -> dict[tuple[str, str, str], list[str]]:
    """The keys of repositories that could not be planned, by message, place and hint."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for repository in repositories:
        if repository["failure"] is not None:
            message, where, hint = (repository["failure"][key] for key in ("message", "where", "hint"))
            groups.setdefault((message, where, hint), []).append(key_of(repository))
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
            f" ({count_of(len(keys), 'repository')}: {names(keys, _WARNED_SHOWN)})" if len(keys) > 1 else ""
        )
        page.hanging(bullet, page.join(Cell(where, "bold"), text, Cell(after, "dim")))


def _risk_row(repository: Json, *, with_money: bool) -> list[str] | None:
    """The worst moment of one repository; None when nothing is at risk."""
    horizons = repository["impact"]["horizons"]
    moments = [(horizons[name], label) for name, label in HORIZONS.items() if name in horizons]
    worst = max(moments, key=lambda pair: pair[0]["objects_at_risk"] or 0, default=None)
    if worst is None or not worst[0]["objects_at_risk"]:
        return None
    h, label = worst
    at_risk = {"objects": h["objects_at_risk"], "size_bytes": h["bytes_at_risk"]}
    return [key_of(repository), label, *amounts(at_risk, Money.of(repository, mixed=with_money))]


def _at_risk(page: Page, rows: Sequence[Sequence[str]], cost: Money) -> None:
    text = (
        "the server would delete these although the documented rule keeps them:"
        " its walk of the history can stop early"
    )
    page.hanging(Cell("!", "bold red"), page.join(Cell("objects at risk: ", "bold"), text))
    headers = ("", "when", "objects", "bytes", *cost.header())
    page.table(headers, rows, figures=(2, 3, 4), solid=(1,), indent=3)


def _tags(page: Page, repository: Json, limit: int | None) -> None:
    title = tags_title(repository)
    page.hanging(Cell("!", "bold red"), page.join(Cell(f"{key_of(repository)}: ", "bold"), title))
    tag_table(repository, lost=" lost").print_on(page, limit, solid=(1,), indent=3)
    page.rest(len(repository["impact"]["tags"]), limit, "more tags in the plan file", indent=3)


def render_adopted(page: Page, document: Json) -> None:
    """Repositories that a glob newly matches: no entry names them."""
    adopted = [r for r in document["repositories"] if r["adopted"]]
    if not adopted:
        return
    page.heading("Adopted repositories", "a glob matches them for the first time; no entry names them")
    for (entry, source), group in _grouped(adopted, lambda r: (r["entry"], r["source"])).items():
        where = f" at {source}" if source else ""
        page.hanging(
            Cell("+", "bold yellow"),
            page.join(Cell(entry, "bold"), Cell(where, "dim"), ": " + names([key_of(r) for r in group])),
        )


def render_failures(page: Page, repositories: Sequence[Json]) -> None:
    """Repositories that could not be planned: what, where, what to do. Equal ones together."""
    groups = failure_groups(repositories)
    if groups:
        page.heading("Failed", "not planned, and not written by an apply of this plan")
    for (message, where, hint), keys in groups.items():
        place = f"{where}: " if where and where not in keys else ""
        page.failure(Cell(names(keys), "bold"), f"{place}{message}", hint=hint)


def render_unmanaged(page: Page, document: Json) -> None:
    """Repositories on the servers that no entry names: never touched, and worth knowing."""
    unmanaged = document["unmanaged"]
    if unmanaged:
        page.heading("Not managed", f"{count_of(len(unmanaged), 'repository')} that no entry names")
        page.line(names(unmanaged, _UNMANAGED_SHOWN), indent=2)

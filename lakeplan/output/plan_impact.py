"""The second part of a plan: what the change does, now and later, and what argues against it. Its tables are
values, so that terminals, Markdown and report pages print the same cells in their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from lakeplan.output.tables import Amount, Change, Name, Share, Table, Value, costs, volume_cells
from lakeplan.output.text import UNKNOWN, Cell, Json, Money, Page, count, names, priced, size, volume
from lakeplan.values.plan import STAGED_DATA
from lakeplan.values.units import count_of


def key_of(repository: Json) -> str:
    return f"{repository['server']}/{repository['name']}"


def writing(document: Json) -> list[Json]:
    """Repositories that the plan would write to, in the order of the document."""
    return [r for r in document["repositories"] if writes(r) and r["failure"] is None]


def writes(repository: Json) -> bool:
    """Whether the plan would write any setting of the repository."""
    settings = (repository["branch_lifecycle"], repository["object_lifecycle"])
    rules = repository["action"] != "none" or pins_change(repository)
    return rules or any(s and s["action"] != "none" for s in settings)


def pins_change(repository: Json) -> bool:
    """Whether an apply would create, change or delete a pin."""
    pins = repository.get("pins")
    return bool(pins and not pins["blocked"] and any(pin["state"] != "kept" for pin in pins["pins"]))


HORIZONS = {"now": "now", "plus_7_days": "in 7 days", "plus_30_days": "in 30 days"}

COST = "cost"
MOMENT = (
    "when",
    *("commits\nkept", "commits\nexpire", "objects\nexpire", "of objects\nkept", "bytes\nexpire"),
    *(COST, "objects\nat risk"),
)
"""The columns of figures at a moment. ``COST`` is no column without a price."""
KEPT = ("objects\nkept", "bytes\nkept")
"""The columns that a wide terminal adds."""


def moment_table(repository: Json, columns: Sequence[str] = MOMENT) -> Table:
    """The impact of the plan at each moment."""
    horizons, cost = repository["impact"]["horizons"], Money.of(repository)
    rows = [_moment(label, horizons[at], cost) for at, label in HORIZONS.items() if at in horizons]
    return _picked(columns, rows, cost)


def _moment(label: str, h: Json, cost: Money) -> Mapping[str, Sequence[Value]]:
    return {
        "when": [Cell(label, "dim")],
        "commits\nkept": [Change(count(h["commits_kept_before"]), count(h["commits_kept_after"]))],
        "commits\nexpire": [Amount(h["commits_expire"])],
        "kept again": [Amount(h["commits_released"])],
        "objects\nexpire": [Amount(h["objects_expire"])],
        "of objects\nkept": [Share(h["objects_expire"], h["objects_kept"])],
        "bytes\nexpire": [Amount(h["bytes_expire"], size)],
        COST: costs(cost, h["bytes_expire"]),
        "objects\nat risk": [Amount(h["objects_at_risk"], at_risk=True)],
        "objects\nkept": [_still_kept(h["objects_kept"], h["objects_expire"], count)],
        "bytes\nkept": [_still_kept(h["bytes_kept"], h["bytes_expire"], size)],
    }


def _still_kept(kept: int | None, expire: int | None, form: Callable[[int], str]) -> Value:
    if kept is None or expire is None:
        return Cell("not read", "dim")
    return Change(form(kept), form(kept - expire))


IMPACT = (
    *("repository", "commits\nexpire", "objects\nexpire", "of objects\nkept", "bytes\nexpire", COST),
    *("objects in\n30 days", "objects\nat risk"),
)
"""Columns of many repositories."""
WIDE_IMPACT = (*IMPACT[:-1], "bytes in\n30 days", "commits\nkept", IMPACT[-1])


def impact_table(repositories: Iterable[Json], columns: Sequence[str], *, with_money: bool) -> Table:
    """The impact of the plan in each repository."""
    rows = [_in_one_row(one, Money.of(one, mixed=with_money)) for one in repositories]
    return _picked(columns, rows, Money(mixed=with_money))


def _in_one_row(repository: Json, cost: Money) -> Mapping[str, Sequence[Value]]:
    impact = repository["impact"]
    now, week, month = (impact["horizons"].get(at) or {} for at in HORIZONS)
    unknown = "not requested" if impact["status"] == "not_asked" else UNKNOWN

    def figure(of: Json, key: str, form: Callable[[int], str] = count, *, at_risk: bool = False) -> Amount:
        return Amount(of.get(key), form, at_risk, unknown)

    kept = Change(count(now["commits_kept_before"]), count(now["commits_kept_after"])) if now else None
    return {
        "repository": [Name(key_of(repository), "bold")],
        "commits\nexpire": [figure(now, "commits_expire")],
        "objects\nexpire": [figure(now, "objects_expire")],
        "of objects\nkept": [Share(now.get("objects_expire"), now.get("objects_kept"))],
        "bytes\nexpire": [figure(now, "bytes_expire", size)],
        COST: costs(cost, now.get("bytes_expire")),
        "objects in\n7 days": [figure(week, "objects_expire")],
        "objects in\n30 days": [figure(month, "objects_expire")],
        "bytes in\n30 days": [figure(month, "bytes_expire", size)],
        "commits\nkept": [kept or Amount(None)],
        "objects\nat risk": [figure(now, "objects_at_risk", at_risk=True)],
    }


def _picked(columns: Sequence[str], rows: Iterable[Mapping[str, Sequence[Value]]], cost: Money) -> Table:
    """Return the columns with these names, in this order."""
    headers = [header for name in columns for header in (cost.header() if name == COST else (name,))]
    return Table(headers, [[cell for name in columns for cell in row[name]] for row in rows], is_loud=True)


def tag_table(repository: Json, title: str = "tag", lost: str = "") -> Table:
    """Tags that lose data. ``lost`` is appended to the headers of the figures."""
    cost = Money.of(repository)
    rows = [
        [Name(tag["tag"]), Name(tag["commit_id"][:12]), *volume_cells(tag, cost, at_risk=True)]
        for tag in repository["impact"]["tags"]
    ]
    return Table((title, "commit", f"objects{lost}", f"bytes{lost}", *cost.header()), rows, names=2)


def tags_title(repository: Json) -> str:
    return f"{count_of(len(repository['impact']['tags']), 'tag')} would lose data (now or within 30 days)"


def prefix_table(prefixes: Iterable[Json], cost: Money) -> Table:
    """Return the folders of the data that expires now, the largest first."""
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
    """Print the commits that are kept and the data that expires in each repository, at three moments."""
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
        what = ": object lifecycle rules are not simulated, so their expirations are unknown in "
        page.line(Cell(UNKNOWN, "bold red"), what, names(by_rule, _QUIET_SHOWN), ".")


def expires_by_rule(repository: Json) -> bool:
    """Return whether object rules are added or changed. Their expirations are not simulated."""
    rules = repository["object_lifecycle"]
    return bool(rules) and any(change["action"] != "clear" for change in rules["changes"])


def nothing_expires(impact: Json) -> bool:
    """Whether it is known that nothing expires at any of the moments."""
    moments = impact["horizons"].values()
    known = impact["status"] in ("simulated", "unaffected") and bool(moments)
    return known and all(h["commits_expire"] == 0 and h["objects_expire"] == 0 for h in moments)


def impact_details(page: Page, repository: Json, *, prefixes: int | None) -> None:
    """Print the figures of one repository by moment, then by prefix."""
    impact, cost = repository["impact"], Money.of(repository)
    if impact["status"] == "unknown":
        page.line(Cell(UNKNOWN, "bold red"), f": {impact['reason'] or NO_REASON}", indent=2)
    elif impact["status"] == "not_asked":
        page.line("not requested", indent=2)
    elif impact["reason"]:
        page.line(impact["reason"], indent=2)
    wide = page.width >= _WIDE
    moment_table(repository, (*MOMENT, *KEPT) if wide else MOMENT).print_on(page, solid=(0,))
    released = max((h["commits_released"] for h in impact["horizons"].values()), default=0)
    if released:
        text = f"{count_of(released, 'commit')} that expired under the stored rules would be kept again"
        page.line(Cell(text, "green"), indent=2)
    _prefixes(page, impact["prefixes"], prefixes, cost)


def _prefixes(page: Page, prefixes: Sequence[Json], limit: int | None, cost: Money) -> None:
    """Print the largest folders of the data that expires now, without folders that only contain another
    folder."""
    held = {(p["prefix"], p["objects"], p["size_bytes"]) for p in prefixes}
    table = prefix_table((p for p in prefixes if p["prefix"] and not _same_child(p, held)), cost)
    table.print_on(page, limit)
    page.rest(len(table.rows), limit, "in the plan file")


def _same_child(prefix: Json, held: Iterable[tuple[str, int, int]]) -> bool:
    return any(
        name != prefix["prefix"]
        and name.startswith(prefix["prefix"])
        and (objects, size_bytes) == (prefix["objects"], prefix["size_bytes"])
        for name, objects, size_bytes in held
    )


def _summary_table(page: Page, repositories: Sequence[Json]) -> None:
    """Print many repositories, one per line: unknown impacts first, then by bytes that expire."""
    unknown: dict[str, list[str]] = {}
    for repository in sorted(repositories, key=largest_first):
        impact = repository["impact"]
        if impact["status"] == "unknown":
            unknown.setdefault(impact["reason"], []).append(key_of(repository))
    listed = [r for r in sorted(repositories, key=largest_first) if r["impact"]["horizons"]]
    columns = WIDE_IMPACT if page.width >= _WIDE else IMPACT
    impact_table(listed, columns, with_money=priced(repositories)).print_on(page, indent=0)
    for reason, keys in unknown.items():
        where = f"{count_of(len(keys), 'repository')}: {names(keys)}"
        page.line(Cell(UNKNOWN, "bold red"), f": {reason or NO_REASON} ({where})")


def largest_first(repository: Json) -> tuple[bool, int, str]:
    """Sort unknown impacts first, then by bytes that expire."""
    size_bytes = (repository["impact"]["horizons"].get("now") or {}).get("bytes_expire")
    return (size_bytes is not None, -(size_bytes or 0), key_of(repository))


def render_backlog(page: Page, document: Json) -> None:
    """Print what has already expired under the stored rules, regardless of this plan."""
    having = [r for r in document["repositories"] if (r["impact"]["backlog"] or {}).get("commits")]
    with_money = priced(having)
    backlogs = [(key_of(r), r["impact"]["backlog"], Money.of(r, mixed=with_money)) for r in having]
    if not backlogs:
        return
    page.heading("Backlog", "already expired under the stored rules, regardless of this plan")
    read = any(b["objects"] is not None for _, b, _ in backlogs)
    backlogs.sort(key=lambda item: (-(item[1]["size_bytes"] or 0), -item[1]["commits"], item[0]))
    rows = [
        [Name(key), Amount(b["commits"]), *(_backlog_cells(b, cost) if read else ())]
        for key, b, cost in backlogs
    ]
    headers = ("repository", "commits", *(("objects", "bytes", *backlogs[0][2].header()) if read else ()))
    Table(headers, rows).print_on(page, _BACKLOG_ROWS)
    page.rest(len(backlogs), _BACKLOG_ROWS, noun="repository")
    if not read:
        page.dim("the objects of the backlog were not read; add --backlog to read them")


def backlog_of(page: Page, repository: Json) -> None:
    """Print the backlog of one repository on a line, if the plan counted it."""
    backlog = repository["impact"]["backlog"]
    if backlog is None:
        return
    text = count_of(backlog["commits"], "commit")
    if backlog["objects"] is None:
        text += " (objects not read)"
    else:
        known = {**backlog, "size_bytes": backlog["size_bytes"] or 0}
        text += f", {volume(known, Money.of(repository))}"
    page.line(f"backlog under the stored rules: {text}", indent=2)


def _backlog_cells(backlog: Json, cost: Money) -> list[Value]:
    if backlog["objects"] is None:
        return [*[Amount(None, unknown="not read")] * 2, *[Cell("")] * cost.shown]
    return volume_cells(backlog, cost)


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
    """Print gates that did not pass, those that refuse first. Equal results of several repositories are
    combined."""
    order = list(_STYLES)
    shown = [g for g in gates if all_of_them or g["outcome"] != "passed"]
    if not shown:
        return
    page.heading("Gates")
    groups = gate_groups(shown)
    for (outcome, gate, message, opens), scopes in sorted(groups.items(), key=lambda i: order.index(i[0][0])):
        lines = [page.join(Cell(gate, "bold"), f"  {names(sorted(set(scopes)))}"), page.join(message)]
        if outcome == "refused" and opens:
            lines.append(page.join(Cell("override with ", "dim"), opens))
        elif opens:
            lines.append(page.join(Cell("by " if outcome == "allowed" else "", "dim"), opens))
        page.hanging(_STYLES[outcome], *lines, lead_width=len("overridden"))


def gate_groups(gates: Iterable[Json]) -> dict[tuple[str, str, str, str], list[str]]:
    """Return the scopes of each gate, by outcome, gate, message and what overrides it."""
    groups = _grouped(gates, lambda g: (g["outcome"], g["gate"], g["message"], g["opens_with"]))
    return {key: [scope_of(g["scope"]) for g in group] for key, group in groups.items()}


def scope_of(scope: str) -> str:
    """The repository that a gate applies to, or the whole plan."""
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


def worst_later(objects: Mapping[str, int]) -> str:
    """Return the moment after now at which most objects expire, or "" if these are not more than now. There
    may be more in 7 days than in 30, when the stored rules no longer keep them either."""
    worst = max(HORIZONS, key=lambda name: (objects.get(name, 0), name == "plus_30_days"))
    return worst if objects.get(worst, 0) > objects.get("now", 0) else ""


def left_out(repository: Json) -> list[str]:
    """Return what the impact does not include, except for what is true of every plan and stated beside it."""
    return [text for text in repository["impact"]["blind_to"] if text != STAGED_DATA]


def warnings_of(repository: Json) -> list[str]:
    return [*repository["warnings"], *(f"not included: {text}" for text in left_out(repository))]


def render_warnings(
    page: Page,
    repositories: Sequence[Json],
    others: Sequence[str] = (),
    *,
    tags_shown: int | None = _TAGS_SHOWN,
) -> None:
    """Print objects at risk, tags that lose data, then other warnings with their repositories."""
    with_money = priced(repositories)
    at_risk = [row for r in repositories if (row := _risk_row(r, with_money=with_money))]
    tags = [r for r in repositories if r["impact"]["tags"]]
    texts: dict[str, list[str]] = {text: [] for text in others}
    for repository in repositories:
        for text in warnings_of(repository):
            texts.setdefault(text, []).append(key_of(repository))
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


def _risk_row(repository: Json, *, with_money: bool) -> list[Value]:
    """Return the worst moment of one repository, or nothing if nothing is at risk."""
    horizons = repository["impact"]["horizons"]
    moments = [(horizons[name], label) for name, label in HORIZONS.items() if name in horizons]
    worst = max(moments, key=lambda pair: pair[0]["objects_at_risk"] or 0, default=None)
    if worst is None or not worst[0]["objects_at_risk"]:
        return []
    h, label = worst
    at_risk = {"objects": h["objects_at_risk"], "size_bytes": h["bytes_at_risk"]}
    cost = Money.of(repository, mixed=with_money)
    return [Name(key_of(repository)), Cell(label), *volume_cells(at_risk, cost)]


def _at_risk(page: Page, rows: Sequence[Sequence[Value]], cost: Money) -> None:
    text = (
        "the server would delete these although the documented rule keeps them,"
        " because its walk of the history can stop early"
    )
    page.hanging(Cell("!", "bold red"), page.join(Cell("objects at risk: ", "bold"), text))
    headers = ("", "when", "objects", "bytes", *cost.header())
    Table(headers, rows, names=2).print_on(page, solid=(1,), indent=3)


def _tags(page: Page, repository: Json, limit: int | None) -> None:
    title = tags_title(repository)
    page.hanging(Cell("!", "bold red"), page.join(Cell(f"{key_of(repository)}: ", "bold"), title))
    tag_table(repository, lost=" lost").print_on(page, limit, solid=(1,), indent=3)
    page.rest(len(repository["impact"]["tags"]), limit, "in the plan file", noun="tag", indent=3)


def render_adopted(page: Page, document: Json) -> None:
    """Print repositories that a glob newly matches and that have no exact entry."""
    adopted = [r for r in document["repositories"] if r["adopted"]]
    if not adopted:
        return
    page.heading("Adopted repositories", "a glob matches them for the first time; they have no exact entry")
    for (entry, source), group in _grouped(adopted, lambda r: (r["entry"], r["source"])).items():
        where = f" at {source}" if source else ""
        page.hanging(
            Cell("+", "bold yellow"),
            page.join(Cell(entry, "bold"), Cell(where, "dim"), ": " + names([key_of(r) for r in group])),
        )


def render_failures(page: Page, repositories: Sequence[Json]) -> None:
    """Print repositories that could not be planned, and what to do. Repositories with equal errors are
    grouped."""
    groups = failure_groups(repositories)
    if groups:
        page.heading("Failed", "not in this plan, so an apply does not change them")
    for (message, where, hint), keys in groups.items():
        place = f"{where}: " if where and where not in keys else ""
        page.failure(Cell(names(keys), "bold"), f"{place}{message}", hint=hint)


def render_unmanaged(page: Page, document: Json) -> None:
    """Print repositories on the servers that no entry names. lakeplan never touches them."""
    unmanaged = document["unmanaged"]
    if unmanaged:
        page.heading("Not managed", f"{count_of(len(unmanaged), 'repository')} without an entry")
        page.line(names(unmanaged, _UNMANAGED_SHOWN), indent=2)

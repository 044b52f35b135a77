"""Sections of a report page: summary, gates, impact by repository, and notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakeplan.output import plan_impact
from lakeplan.output.drawing import Markup, el, join
from lakeplan.output.plan import summary_text
from lakeplan.output.plan_changes import (
    REVIEW_FIRST,
    change_rows,
    key_of,
    rules_table,
    weakened_settings,
    weakened_table,
    weakened_title,
    writing,
)
from lakeplan.output.plan_settings import TITLES, changing, pins_table, setting_table, settings_of
from lakeplan.output.report_shell import Section, table, table_of
from lakeplan.output.tables import Name, Share, Table, volume_cells
from lakeplan.output.text import UNKNOWN, Json, Money, count, priced, size, sums, volume
from lakeplan.values.units import count_of

OUTCOMES = ("refused", "overridden", "allowed", "warned", "passed")
_ROWS = 200


def summary_section(document: Json) -> Section:
    plan = document["plan"]
    blocked = plan["summary"]["refused_gates"]
    state = (
        el("p", el("strong", "BLOCKED"), f" by {count_of(blocked, 'gate')}: see Gates.", cls="alert")
        if blocked
        else None
    )
    body = [el("p", summary_text(plan), cls="lead"), state, _cards(plan), _weakened(plan)]
    return Section("summary", "Summary", join(body))


def _cards(plan: Json) -> Markup | None:
    """Return the four main figures, each with the number of repositories in which it is unknown."""
    summary, writes = plan["summary"], writing(plan)
    if not writes:
        return None
    unread = sum(1 for r in writes if not r["impact"]["horizons"])
    without, later = summary["impact_unknown"], "objects_expire_plus_30_days"
    cards = [
        (
            "Expires now",
            size(summary["bytes_expire"]),
            count_of(summary["objects_expire"], "object") + sums(summary["cost_expire"], "per_month"),
            without,
        ),
        (
            "In 30 days, assuming no new commits",
            size(summary["bytes_expire_plus_30_days"]),
            count_of(summary[later], "object") + sums(summary["cost_expire"], "per_month_plus_30_days"),
            without,
        ),
        ("At risk", count(summary["objects_at_risk"]), "objects that the documented rule keeps", without),
        ("Expiring commits", count(summary["commits_expire"]), "kept by the stored rules", unread),
    ]
    return el("dl", [_card(*card, of=len(writes)) for card in cards], cls="cards")


def _card(name: str, figure: str, words: str, without: int, *, of: int) -> Markup:
    if without == of:
        body = [el("strong", UNKNOWN, cls="unknown"), el("span", "in every repository")]
    else:
        more = (
            el("span", f"and unknown in {count_of(without, 'repository')}", cls="unknown")
            if without
            else None
        )
        body = [el("strong", figure), el("span", words), *([more] if more else [])]
    return el("div", el("dt", name), el("dd", *body), cls="card")


def _weakened(plan: Json) -> Markup | None:
    made = table_of(
        "Weakened safety settings", weakened_table(weakened_settings(plan), _ROWS), hidden_caption=False
    )
    if made is None:
        return None
    return join([el("h3", weakened_title(plan)), el("p", REVIEW_FIRST), made])


def gates_section(document: Json) -> Section | None:
    """Return every gate that did not pass, refused ones first, and the number of those that passed."""
    gates = plan_impact.gates_of(document["plan"])
    shown = sorted((g for g in gates if g["outcome"] != "passed"), key=lambda g: OUTCOMES.index(g["outcome"]))
    if not gates:
        return None
    rows = [
        [
            g["gate"],
            plan_impact.scope_of(g["scope"]),
            el("span", g["outcome"].upper(), cls=f"outcome {g['outcome']}"),
            g["message"],
            g["opens_with"],
        ]
        for g in shown[:_ROWS]
    ]
    passed = len(gates) - len(shown)
    parts: list[Markup] = []
    if rows:
        parts.append(
            table("Gates", ("gate", "applies to", "outcome", "why", "override"), rows, hidden_caption=True)
        )
    parts += more(len(shown))
    parts.append(el("p", f"{count_of(passed, 'gate')} passed.", cls="dim"))
    return Section("gates", "Gates", join(parts))


def more(total: int, shown: int = _ROWS) -> list[Markup]:
    """Return a line that says how many rows were omitted, or nothing if all rows are shown."""
    if total <= shown:
        return []
    return [el("p", f"The plan file has {count_of(total - shown, 'more row')}.", cls="dim")]


def notes_section(document: Json) -> Section:
    """Return failures, warnings, and what this page does not show and why."""
    plan = document["plan"]
    failed = [
        [key_of(r), r["failure"]["message"], r["failure"]["hint"]]
        for r in plan["repositories"]
        if r["failure"] is not None
    ]
    parts: list[Markup] = []
    if failed:
        parts.append(el("h3", "Not planned"))
        parts.append(table("Repositories that failed", ("repository", "why", "what to do"), failed[:_ROWS]))
        parts += more(len(failed))
    warnings = [
        *plan["warnings"],
        *(f"{key_of(r)}: {w}" for r in plan["repositories"] for w in plan_impact.warnings_of(r)),
    ]
    if plan["unmanaged"]:
        keys = ", ".join(plan["unmanaged"][:20])
        warnings.append(
            f"not managed, because no entry in the tree matches them: {len(plan['unmanaged']):,} ({keys})"
        )
    parts += _list("Warnings", warnings)
    parts += _list("What this page does not show", document["missing"])
    if not parts:
        parts.append(el("p", "There are no warnings, and nothing was omitted."))
    return Section("notes", "Notes", join(parts))


def _list(title: str, items: Iterable[str]) -> list[Markup]:
    entries = list(items)
    if not entries:
        return []
    return [el("h3", title), el("ul", [el("li", item) for item in entries[:_ROWS]]), *more(len(entries))]


_DETAILED = 50
_IMPACT_ROWS = 1000
_PREFIX_ROWS = 60
_OPEN = 3
_COLUMNS = (*plan_impact.IMPACT[:-2], "objects in\n7 days", *plan_impact.IMPACT[-2:])


def impact_section(document: Json) -> Section:
    repositories = sorted(document["repositories"], key=plan_impact.largest_first)
    if not repositories:
        return Section("impact", "Impact", el("p", "No repository changes."))
    parts = [
        el("p", f"{plan_impact.AT_MOST[0].upper()}{plan_impact.AT_MOST[1:]}.", cls="dim"),
        _summary(repositories),
    ]
    for n, repository in enumerate(repositories[:_DETAILED]):
        parts.append(_details(repository, is_open=n < _OPEN))
    if len(repositories) > _DETAILED:
        rest = count_of(len(repositories) - _DETAILED, "repository")
        parts.append(el("p", f"The details of {rest} are in the plan file.", cls="dim"))
    return Section("impact", "Impact by repository", join(parts))


def _summary(repositories: Sequence[Json]) -> Markup:
    figures = plan_impact.impact_table(repositories, _COLUMNS, with_money=priced(repositories))
    title = "Data that expires because of this plan, by repository"
    made = table_of(title, figures, _IMPACT_ROWS, sortable=True, hidden_caption=False)
    return join([made, *more(len(repositories), _IMPACT_ROWS)])


def _details(repository: Json, *, is_open: bool) -> Markup:
    impact = repository["impact"]
    words = []
    if impact["status"] == "unknown":
        words.append(
            el("p", el("strong", UNKNOWN), f": {impact['reason'] or plan_impact.NO_REASON}", cls="alert")
        )
    elif impact["status"] == "not_asked":
        words.append(
            el("p", "The impact was not computed, because nothing would be written to this repository.")
        )
    elif impact["reason"]:
        words.append(el("p", impact["reason"]))
    owner = f", owned by {repository['owner']}" if repository["owner"] else ""
    source = f"; {repository['source']}" if repository["source"] else ""
    body = [
        el("p", f"Entry {repository['entry']}{owner}{source}.", cls="dim"),
        *words,
        _rules(repository),
        *_settings(repository),
        _pins(repository),
        _moments(repository),
        _prefixes(repository),
        _tags(repository),
        _backlog(impact["backlog"], Money.of(repository)),
    ]
    title = el("h3", key_of(repository))
    return el("details", el("summary", title), *body, open=is_open, cls="repository")


def _rules(repository: Json) -> Markup | None:
    changed = rules_table(change_rows(repository)).without_marks()
    caption = f"Days of retention, {key_of(repository)}"
    return table_of(caption, changed, _IMPACT_ROWS, hidden_caption=False)


def _settings(repository: Json) -> list[Markup | None]:
    made = []
    for kind, setting in settings_of(repository):
        changed = setting_table(setting["changes"]).without_marks()
        caption = f"{TITLES[kind].capitalize()}, {key_of(repository)}"
        made.append(table_of(caption, changed, _IMPACT_ROWS, hidden_caption=False))
    return made


def _pins(repository: Json) -> Markup | None:
    changed = pins_table(changing(repository)).without_marks()
    return table_of(f"Pins, {key_of(repository)}", changed, _IMPACT_ROWS, hidden_caption=False)


def _moments(repository: Json) -> Markup | None:
    columns = (*plan_impact.MOMENT[:3], "kept again", *plan_impact.MOMENT[3:])
    return table_of(
        f"Now, in 7 days and in 30 days, {key_of(repository)}",
        plan_impact.moment_table(repository, columns),
        hidden_caption=False,
    )


def _prefixes(repository: Json) -> Markup | None:
    """Return the folders of the data that expires now, each with its share of the total."""
    prefixes, cost = repository["impact"]["prefixes"], Money.of(repository)
    whole = max((p["size_bytes"] for p in prefixes), default=0)
    largest = sorted(prefixes, key=lambda p: (-p["size_bytes"], p["prefix"]))[:_PREFIX_ROWS]
    rows = [
        [Name(p["prefix"] or "(all paths)"), *volume_cells(p, cost), Share(p["size_bytes"], whole)]
        for p in sorted(largest, key=lambda p: str(p["prefix"]))
    ]
    figures = Table(("prefix", "objects", "bytes", *cost.header(), "share"), rows)
    made = table_of(
        f"Data that expires now, by folder, {key_of(repository)}",
        figures,
        sortable=True,
        hidden_caption=False,
    )
    note = el(
        "p",
        "The figures of a folder include everything below it. An object with several paths is counted at each"
        " path.",
    )
    return None if made is None else join([made, note, *more(len(prefixes), len(rows))])


def _tags(repository: Json) -> Markup:
    tags = plan_impact.tag_table(repository)
    made = table_of("Tags that lose data", tags, _IMPACT_ROWS, hidden_caption=False)
    return join([made, *more(len(tags.rows), _IMPACT_ROWS)])


def _backlog(backlog: Json | None, cost: Money) -> Markup | None:
    if backlog is None or not backlog["commits"]:
        return None
    words = f"Already expired under the stored rules: {count_of(backlog['commits'], 'commit')}"
    if backlog["objects"] is not None:
        words += f" with {volume(backlog, cost)}"
    return el("p", f"{words}, regardless of this plan.", cls="dim")

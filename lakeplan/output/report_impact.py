"""The top of a report page: what the plan comes to, what blocks it, and what it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakeplan.output.drawing import Markup, el, join
from lakeplan.output.plan import summary_text
from lakeplan.output.plan_changes import STRICTER, change_rows, key_of, loosened, loosening_title, writing
from lakeplan.output.plan_impact import (
    AT_MOST,
    HORIZONS,
    NO_REASON,
    gates_of,
    largest_first,
    moment_rows,
    picked,
    scope_of,
    tag_table,
)
from lakeplan.output.plan_settings import TITLES, settings_of
from lakeplan.output.report_shell import Cell, Section, amount, cells, table, table_of
from lakeplan.output.tables import costs, volume_cells
from lakeplan.output.text import UNKNOWN, Json, Money, count, count_of, percent, priced, size, sums, volume

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
    body = [el("p", summary_text(plan), cls="lead"), state, _cards(plan), _loosened(plan)]
    return Section("summary", "Summary", join(body))


def _cards(plan: Json) -> Markup | None:
    """The four figures. One that is not known of every repository says so, and never looks like nothing."""
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


def _loosened(plan: Json) -> Markup | None:
    found = loosened(plan)
    if not found:
        return None
    rows = [[f.path, ", ".join(f.scopes) or "the tree", f.before, f.after, f.where] for f in found]
    return join(
        [
            el("h3", loosening_title(plan)),
            el("p", f"Review these first: {STRICTER}."),
            table("Weakened safety settings", ("value", "of", "at the base", "here", "where"), rows),
        ]
    )


def gates_section(document: Json) -> Section | None:
    """Every gate that did not pass, refused ones first; those that passed are counted."""
    gates = gates_of(document["plan"])
    shown = sorted((g for g in gates if g["outcome"] != "passed"), key=lambda g: OUTCOMES.index(g["outcome"]))
    if not gates:
        return None
    rows = [
        [
            g["gate"],
            scope_of(g["scope"]),
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
    """That rows were left out, and where they are."""
    if total <= shown:
        return []
    return [el("p", f"{count(total - shown)} more are in the plan file.", cls="dim")]


def notes_section(document: Json) -> Section:
    """Failures, warnings, and what this page does not hold and why."""
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
        *(f"{key_of(r)}: {w}" for r in plan["repositories"] for w in r["warnings"]),
    ]
    if plan["unmanaged"]:
        keys = ", ".join(plan["unmanaged"][:20])
        warnings.append(f"named by no entry, and not touched: {len(plan['unmanaged']):,} ({keys})")
    parts += _list("Warnings", warnings)
    parts += _list("What this page does not show", document["missing"])
    if not parts:
        parts.append(el("p", "No warnings, and nothing was left out."))
    return Section("notes", "Notes", join(parts))


def _list(title: str, items: Iterable[str]) -> list[Markup]:
    found = list(items)
    if not found:
        return []
    return [el("h3", title), el("ul", [el("li", item) for item in found[:_ROWS]]), *more(len(found))]


_DETAILED = 50
_IMPACT_ROWS = 1000
_PREFIX_ROWS = 60
_OPEN = 3
_NOT_ASKED: Cell = ("not asked", {"cls": "none", "data_sort": -2})


def impact_section(document: Json) -> Section:
    repositories = sorted(document["repositories"], key=largest_first)
    if not repositories:
        return Section("impact", "Impact", el("p", "No repository changes."))
    parts = [el("p", f"{AT_MOST[0].upper()}{AT_MOST[1:]}.", cls="dim"), _summary(repositories)]
    for n, repository in enumerate(repositories[:_DETAILED]):
        parts.append(_details(repository, is_open=n < _OPEN))
    if len(repositories) > _DETAILED:
        rest = count_of(len(repositories) - _DETAILED, "repository")
        parts.append(el("p", f"The details of {rest} are in the plan file.", cls="dim"))
    return Section("impact", "Impact by repository", join(parts))


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
    for repository in repositories[:_IMPACT_ROWS]:
        horizons = repository["impact"]["horizons"]
        if repository["impact"]["status"] == "not_asked":
            rows.append([key_of(repository), *([_NOT_ASKED] * (len(headers) - 1))])
            continue
        now, week, month = (horizons.get(name) or {} for name in HORIZONS)
        rows.append(
            [
                key_of(repository),
                amount(now.get("bytes_expire"), size),
                *cells(costs(Money.of(repository, mixed=with_money), now.get("bytes_expire"))),
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
    return join([made, *more(len(repositories), _IMPACT_ROWS)])


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
        words.append(el("p", "Its impact was not requested: nothing would be written here."))
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
        _tags(repository),
        _backlog(impact["backlog"], Money.of(repository)),
    ]
    title = el("h3", key_of(repository))
    return el("details", el("summary", title), *body, open=is_open, cls="repository")


def _rules(repository: Json) -> Markup | None:
    if repository["action"] == "none":
        return None
    rows = [[r.value, r.before, r.after, r.effect] for r in change_rows(repository)]
    caption = f"Days of retention, {key_of(repository)}"
    return table(caption, ("value", "now", "proposed", "effect"), rows[:_IMPACT_ROWS])


def _settings(repository: Json) -> list[Markup]:
    found = []
    for kind, setting in settings_of(repository):
        rows = [
            [c["item"], c["action"], _values(c["before"]), _values(c["after"])] for c in setting["changes"]
        ]
        if not rows:
            continue
        caption = f"{TITLES[kind].capitalize()}, {key_of(repository)}"
        found.append(table(caption, ("item", "what", "now", "proposed"), rows[:_IMPACT_ROWS]))
    return found


def _values(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _moments(repository: Json) -> Markup | None:
    columns = ("moment", "commits kept", "commits expire", "kept again", "objects expire", "bytes expire")
    rows = [cells(picked(row, (*columns, "cost", "at risk"))) for row in moment_rows(repository)]
    if not rows:
        return None
    headers = (*columns, *Money.of(repository).header(" "), "at risk")
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
                *cells(volume_cells(p, cost)),
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


def _tags(repository: Json) -> Markup:
    tags = tag_table(repository)
    made = table_of("Tags that lose data", tags, _IMPACT_ROWS, hidden_caption=False)
    return join([made, *more(len(tags.rows), _IMPACT_ROWS)])


def _backlog(backlog: Json | None, cost: Money) -> Markup | None:
    if backlog is None or not backlog["commits"]:
        return None
    words = f"Already expired under the stored rules: {count_of(backlog['commits'], 'commit')}"
    if backlog["objects"] is not None:
        words += f" with {volume(backlog, cost)}"
    return el("p", f"{words}, whatever this plan does.", cls="dim")

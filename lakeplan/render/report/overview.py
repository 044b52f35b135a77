"""The top of the page: what the plan comes to, what blocks it, what was loosened, failures and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakeplan.render.amounts import UNKNOWN, count, counted, size
from lakeplan.render.money import sums
from lakeplan.render.plan import summary_text
from lakeplan.render.plan_changes import key_of, writing
from lakeplan.render.plan_loosening import STRICTER, loosened, loosening_title
from lakeplan.render.plan_notes import gates_of
from lakeplan.render.report.html import Markup, el, join, table
from lakeplan.render.report.shell import Section

Json = Mapping[str, Any]

OUTCOMES = ("refused", "overridden", "allowed", "warned", "passed")
_ROWS = 200
_WHOLE_PLAN = "the whole plan"


def summary_section(document: Json) -> Section:
    plan = document["plan"]
    blocked = plan["summary"]["refused_gates"]
    state = (
        el("p", el("strong", "BLOCKED"), f" by {counted(blocked, 'gate')}: see Gates.", cls="alert")
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
            counted(summary["objects_expire"], "object") + sums(summary["cost_expire"], "per_month"),
            without,
        ),
        (
            "In 30 days, if nobody writes",
            size(summary["bytes_expire_plus_30_days"]),
            counted(summary[later], "object") + sums(summary["cost_expire"], "per_month_plus_30_days"),
            without,
        ),
        ("At risk", count(summary["objects_at_risk"]), "objects that the documented rule keeps", without),
        ("Commits let go", count(summary["commits_expire"]), "kept by the stored rules", unread),
    ]
    return el("dl", [_card(*card, of=len(writes)) for card in cards], cls="cards")


def _card(name: str, figure: str, words: str, without: int, *, of: int) -> Markup:
    if without == of:
        body = [el("strong", UNKNOWN, cls="unknown"), el("span", "in every repository")]
    else:
        more = (
            el("span", f"and unknown in {counted(without, 'repository')}", cls="unknown") if without else None
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
            table("What was loosened", ("value", "of", "at the base", "here", "where"), rows),
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
            _WHOLE_PLAN if g["scope"] == "plan" else g["scope"],
            el("span", g["outcome"].upper(), cls=f"outcome {g['outcome']}"),
            g["message"],
            g["opens_with"],
        ]
        for g in shown[:_ROWS]
    ]
    passed = len(gates) - len(shown)
    parts: list[Markup] = []
    if rows:
        parts.append(table("Gates", ("gate", "of", "outcome", "why", "opened by"), rows, hidden_caption=True))
    parts += more(len(shown))
    parts.append(el("p", f"{counted(passed, 'gate')} passed.", cls="dim"))
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

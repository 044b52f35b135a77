"""A report page: one HTML file without requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakeplan.output.plan_changes import key_of
from lakeplan.output.report_graph import branches_section, graph_section, timeline_section
from lakeplan.output.report_impact import gates_section, impact_section, notes_section, summary_section
from lakeplan.output.report_shell import (
    TOP,
    Frame,
    Markup,
    Section,
    area_path,
    axes,
    behind,
    day_ticks,
    el,
    figure,
    frame,
    join,
    page,
    picture,
    step_path,
    table,
    upright,
)
from lakeplan.output.simulate import goes_at, title_of
from lakeplan.output.text import Money, amounts, count, days, moment, size, volume

if TYPE_CHECKING:
    from lakeplan.simulation.documents import CurveDocument, CurveRow, ServerDaysPoint

Json = Mapping[str, Any]

_CURVES = 12
_OTHER_RULES = (
    "It was made with other rules than this plan's, stored or proposed: its days now are not the plan's."
)


def curves_section(document: Json) -> Section | None:
    if not document["curves"]:
        return None
    plans = {key_of(r): r for r in document["plan"]["repositories"]}
    return Section(
        "curves",
        "Retention curves",
        join([_one(placed, plans.get(placed["key"])) for placed in document["curves"]]),
    )


def _one(placed: Json, repository: Json | None) -> Markup:
    curve: CurveDocument = placed["curve"]
    at_most = "at most, from metadata alone; " if curve["at_most"] else ""
    held = f"As of {moment(curve['as_of'])}; {at_most}{volume(curve['committed'])}, depend on commits."
    notes = [el("p", held, cls="dim")]
    if placed["rules"] is None:
        notes.append(el("p", _OTHER_RULES, cls="alert"))
    drawn = [_curve(one, repository) for one in curve["curves"][:_CURVES]]
    left = len(curve["curves"]) - _CURVES
    if left > 0:
        notes.append(el("p", f"{left:,} more curves are in the curve's own file.", cls="dim"))
    warnings = el("ul", [el("li", w) for w in curve["warnings"]]) if curve["warnings"] else None
    return join([el("h3", placed["key"] or curve["repository"]), *notes, warnings, *drawn])


def _proposed(repository: Json | None, branch: str | None) -> tuple[int | None, int | None]:
    """Days of the stored and of the proposed rules, for the default or a branch."""
    found: list[int | None] = []
    for rules in (repository["before"], repository["after"]) if repository else (None, None):
        if rules is None:
            found.append(None)
            continue
        own = {b["branch_id"]: b["retention_days"] for b in rules["branches"]}
        found.append(own.get(branch, rules["default_retention_days"]))
    return found[0], found[1]


def _curve(curve: CurveRow, repository: Json | None) -> Markup:
    stored, proposed = _proposed(repository, curve["branch_id"])
    marked = [d for d in (stored, proposed, curve["days_now"]) if d is not None]
    worse = [p for p in curve["server"] if p["at_risk"]["objects"]]
    span = max([2, -(-max(curve["points"][-1]["days"], *marked, 1) * 11 // 10), *(p["days"] for p in worse)])
    steps = [(p["days"], p["size_bytes"]) for p in curve["points"]]
    f = frame(span, [*(p["size_bytes"] for p in (*curve["points"], *curve["server"]))])
    parts = axes(f, size, day_ticks(span), "bytes that go, by days of retention")
    parts.append(el("path", cls="area", d=area_path(f, steps)))
    parts.append(el("path", cls="step", d=step_path(f, steps)))
    if repository is None:
        parts += _mark(f, curve, curve["days_now"], "now", "the curve's rules")
    elif stored == proposed:
        parts += _mark(f, curve, proposed, "now", "stored and proposed")
    else:
        parts += _mark(f, curve, stored, "now", "stored")
        parts += _mark(f, curve, proposed, "then", "proposed")
    parts += [_worse(f, point) for point in worse]
    name = title_of(curve)
    said = [f"{days(at)}: {size(goes_at(curve, at)['size_bytes'])} go." for at in dict.fromkeys(marked)]
    caption = f"{name}: filled, what the documented rule lets go."
    if worse:
        caption += " Marks: days at which the server, asked, takes more."
    return join(
        [
            el("h4", name),
            figure(picture(name, " ".join(said), parts), caption),
            behind(f"{name}: the figures", _figures(curve, name, Money.of(repository or {}))),
        ]
    )


def _mark(f: Frame, curve: CurveRow, at: int | None, cls: str, what: str) -> list[Markup]:
    if at is None or not 0 <= at <= f.span:
        return []
    goes = goes_at(curve, at)
    marked = upright(f, at, cls, f"{what}: {days(at)}, {size(goes['size_bytes'])}")
    if cls == "then":  # under the other one, which may stand close by
        marked[1] = Markup(marked[1].replace(f'y="{TOP + 12}"', f'y="{TOP + 30}"'))
    return marked


def _worse(f: Frame, point: ServerDaysPoint) -> Markup:
    said = f"{days(point['days'])}: the server takes {size(point['size_bytes'])}, of it at risk " + size(
        point["at_risk"]["size_bytes"]
    )
    at = f"translate({f.x(point['days'])} {f.y(point['size_bytes'])})"
    return el("path", el("title", said), cls="worse", d="M-6 0l6-6 6 6-6 6z", transform=at)


def _figures(curve: CurveRow, name: str, cost: Money) -> Markup:
    asked = {p["days"]: p for p in curve["server"]}
    steps = curve["points"]
    shown = sorted({*asked, *(p["days"] for p in steps[:: max(1, len(steps) // 60)]), steps[-1]["days"]})
    rows = []
    for at in shown:
        server = asked.get(at)
        risk = "not asked" if server is None else f"{count(server['at_risk']['objects'])} more"
        rows.append([days(at), *amounts(goes_at(curve, at), cost), risk])
    headers = ("days", "objects go", "bytes go", *cost.header(" "), "the server takes")
    return table(name, headers, rows, figures=range(1, 3 + cost.shown), hidden_caption=True)


def render_report(document: Json) -> str:
    """The page as text of an HTML file."""
    graph, data = graph_section(document)
    sections = [
        summary_section(document),
        gates_section(document),
        impact_section(document),
        timeline_section(document),
        curves_section(document),
        graph,
        branches_section(document),
        notes_section(document),
    ]
    return page(document, [s for s in sections if s is not None], data)

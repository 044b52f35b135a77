"""Simulations and curves as pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from lakeplan.output.page import Cell, Page, names
from lakeplan.output.text import Money, amounts, count, counted, days, duration, moment, percent, size

if TYPE_CHECKING:
    from lakeplan.simulation.documents import (
        BranchRow,
        CurveDocument,
        CurveRow,
        DayRow,
        DaysPoint,
        Figure,
        HorizonRow,
        PrefixRow,
        RuleSetRow,
        ServerDaysPoint,
        SimulateDocument,
    )
    from lakeplan.values.rules import RulesBody
    from lakeplan.values.simulation import AmountRow

ROWS_SHOWN = 10
RULES_SHOWN = 5

_KEPT: tuple[tuple[Figure, str], ...] = (
    ("kept_by_commits", "a kept commit holds it"),
    ("kept_uncommitted", "staged, not committed"),
    ("kept_young", "younger than the minimum age"),
    ("kept_elsewhere", "not where a collector looks"),
)


def render_simulate(document: SimulateDocument, console: Console) -> None:
    """Prints the summary of a simulation: what was asked, what goes and why, where, and warnings."""
    page = Page(console)
    page.line(Cell(document["namespace"], "bold"), f"  as of {moment(document['as_of'])}")
    page.line(_read(document), indent=2)
    for rule_set in document["rule_sets"]:
        _rule_set(page, document, rule_set)
    _warnings(page, document)


def _warnings(page: Page, document: SimulateDocument | CurveDocument) -> None:
    if document["warnings"]:
        page.heading("Warnings")
        page.warnings(document["warnings"], indent=2)


def _read(document: SimulateDocument) -> str:
    refs, read = document["refs"], document["read"]
    text = ", ".join(
        (
            counted(refs["commits"], "commit"),
            counted(refs["branches"], "branch"),
            counted(refs["tags"], "tag"),
        )
    )
    if read is None:
        return text
    text += f"; {count(read['ranges'])} ranges with {count(read['entries'])} entries read"
    return text + (f"; minimum age {duration(document['min_age_seconds'])}" if document["listing"] else "")


def _rule_set(page: Page, document: SimulateDocument, rule_set: RuleSetRow) -> None:
    title = "Rules" if rule_set["name"] == "rules" else "Rules to compare"
    page.heading(title, _rules(rule_set["rules"]))
    commits = rule_set["commits"]
    gone = commits["total"] - commits["active"]
    risk = f"; {count(commits['at_risk'])} at risk" if commits["at_risk"] else ""
    text = f"{count(commits['active'])} of {count(commits['total'])} commits stay, {count(gone)} go"
    page.line(text, Cell(risk, "bold red"), indent=2)
    if rule_set["objects"] is None:
        return
    _objects(page, document, rule_set["objects"])
    _prefixes(page, rule_set["prefixes"] or ())
    _branches(page, rule_set["branches"] or ())


def _rules(rules: RulesBody) -> str:
    own = [f"{b['branch_id']} {days(b['retention_days'])}" for b in rules["branches"]]
    return names([f"default {days(rules['default_retention_days'])}", *own], RULES_SHOWN)


def _objects(page: Page, document: SimulateDocument, objects: Mapping[Figure, AmountRow]) -> None:
    at_most = "at most " if document["at_most"] else ""

    def row(label: str, key: Figure, style: str = "") -> list[Cell]:
        return [Cell(text, style) for text in (label, *amounts(objects[key]))]

    rows = [
        row(f"{at_most}deleted", "goes", "bold"),
        row("  expired", "expired"),
        row("  never committed", "never_committed"),
    ]
    if objects["at_risk"]["objects"]:
        rows.append(row("  at risk: the documented rule keeps it", "at_risk", "bold red"))
    rows.append(row("kept", "kept", "bold"))
    rows += [row(f"  {text}", key) for key, text in _KEPT if objects[key]["objects"]]
    if objects["missing"]["objects"]:
        rows.append(row("held by a kept commit and not stored", "missing", "yellow"))
    page.table(("", "objects", "bytes"), rows, figures=(1, 2))


def _prefixes(page: Page, prefixes: Sequence[PrefixRow]) -> None:
    below = [p for p in prefixes if p["depth"]]
    if below:
        page.blank()
        rows = [(p["prefix"], *amounts(p)) for p in below[:ROWS_SHOWN]]
        page.table(("largest prefixes to be deleted", "objects", "bytes"), rows, figures=(1, 2))


def _branches(page: Page, branches: Sequence[BranchRow]) -> None:
    if branches:
        page.blank()
        rows = [
            (b["branch_id"], count(b["commits"]), *amounts(b), size(b["exclusive_bytes"]))
            for b in branches[:ROWS_SHOWN]
        ]
        headers = ("branches that hold most", "commits", "objects", "bytes", "alone")
        page.table(headers, rows, figures=(1, 2, 3, 4))


CURVE_ROWS_SHOWN = 14
BAR_WIDTH = 20
BAR_FROM_WIDTH = 100
"""Narrower terminals get no bars: figures come first."""


def render_curve(document: CurveDocument, console: Console) -> None:
    """Prints what goes at how many days, rule by rule, then what goes when, then warnings."""
    page = Page(console)
    page.line(Cell(document["repository"], "bold"), f"  as of {moment(document['as_of'])}")
    read, refs = document["read"], document["refs"]
    page.line(
        f"{count(refs['commits'])} commits, {count(refs['branches'])} branches; "
        f"{count(read['ranges'])} ranges with {count(read['entries'])} entries read",
        indent=2,
    )
    at_most = "at most " if document["at_most"] else ""
    held = document["committed"]
    page.line(f"{at_most}{_volume(held)}, depend on commits", indent=2)
    garbage = document["never_committed"]
    if garbage["objects"]:
        page.line(f"{_volume(garbage)}, were never committed and go at any days", indent=2)
    cost = Money.of(document)
    _curves(page, document["curves"], held["size_bytes"], cost)
    if document["horizon"] is not None:
        _horizon(page, document["horizon"], cost)
    _warnings(page, document)


def _volume(part: AmountRow) -> str:
    return f"{count(part['objects'])} objects, {size(part['size_bytes'])}"


def title_of(curve: CurveRow) -> str:
    """The rule that varies."""
    return "Default retention" if curve["branch_id"] is None else f"Branch {curve['branch_id']}"


def goes_at(curve: CurveRow, at: int) -> DaysPoint:
    """What the documented rule lets go at ``at`` days: the last step at or before them."""
    steps = [point for point in curve["points"] if point["days"] <= max(at, 0)]
    return steps[-1]


def _curves(page: Page, curves: Sequence[CurveRow], whole: int, cost: Money) -> None:
    """One table: the rows of every rule, below each other; its days of now with an arrow."""
    page.heading("Retention", f"{page.arrow} the days now")
    bars = page.width >= BAR_FROM_WIDTH
    rows: list[tuple[str | Cell, ...]] = []
    for curve in curves:
        asked = {point["days"]: point for point in curve["server"]}
        title: str | Cell = Cell(title_of(curve), "bold")
        for at in _rows(curve, asked):
            rows.append((title, *_row(page, curve, at, asked, whole, cost, bars=bars)))
            title = ""
    headers = ("rule", "days", "objects go", "bytes go", *cost.header(), "", "", "the server takes more")
    share = 4 + cost.shown
    page.table(headers, rows, figures=range(1, share + 1), solid=(share + 1,))


def _rows(curve: CurveRow, asked: Mapping[int, ServerDaysPoint]) -> list[int]:
    """Every day of change when they are few; else the days asked, which are rows in any case."""
    steps = [point["days"] for point in curve["points"]]
    last = steps[-1]
    shown = {*asked, last, *(steps if len(steps) <= CURVE_ROWS_SHOWN else ())}
    beyond = [at for at in sorted(shown) if at > last]
    # past the last step nothing changes: of the usual days there, one is enough
    differing = {at for at in beyond if asked[at]["at_risk"]["objects"]}
    return sorted(shown - set(beyond[1:]) | differing | ({max(0, curve["days_now"])} & set(asked)))


def _row(
    page: Page,
    curve: CurveRow,
    at: int,
    asked: Mapping[int, ServerDaysPoint],
    whole: int,
    cost: Money,
    *,
    bars: bool,
) -> tuple[str | Cell, ...]:
    goes = goes_at(curve, at)
    style = "bold" if at == curve["days_now"] else ""
    risk = asked[at]["at_risk"] if at in asked else None
    share = percent(goes["size_bytes"], whole) if whole else ""
    cells = (f"{page.arrow} {at:,}" if style else f"{at:,}", *amounts(goes, cost), share)
    return (
        *(Cell(text, style) for text in cells),
        Cell(_bar(page, goes["size_bytes"], whole) if bars else "", "cyan"),
        Cell(f"+{_volume(risk)}" if risk and risk["objects"] else "", "bold red"),
    )


def _bar(page: Page, part: int, whole: int) -> str:
    if part <= 0 or whole <= 0:
        return ""
    block = "#" if page.console.options.ascii_only else "█"
    return block * max(1, round(BAR_WIDTH * part / whole))


def _horizon(page: Page, horizon: HorizonRow, cost: Money) -> None:
    total, gone = horizon["total"], horizon["gone_now"]
    page.heading(f"The next {days(horizon['days'])}, assuming no new commits")
    by = moment(horizon["until"])
    page.line(f"{_volume(gone)}, already expired; {_volume(total)}, by {by}", indent=2)
    losses = horizon["days_with_losses"]
    if losses:
        rows = [
            (until, count(objects), size(size_bytes), *cost.cells(size_bytes), count(so_far))
            for until, objects, size_bytes, so_far in _grouped(losses)
        ]
        headers = ("until", "objects go", "bytes go", *cost.header(), "objects so far")
        page.table(headers, rows, figures=range(1, len(headers)))


def _grouped(losses: Sequence[DayRow]) -> list[tuple[str, int, int, int]]:
    """Day by day where that is few rows, else several days in one."""
    span = 1
    while len({-(-loss["day"] // span) for loss in losses}) > CURVE_ROWS_SHOWN:
        span = 7 if span == 1 else span * 2
    rows: dict[int, tuple[str, int, int, int]] = {}
    so_far = 0
    for loss in losses:
        so_far += loss["objects"]
        group = -(-loss["day"] // span)
        _, objects, size_bytes, _ = rows.get(group, ("", 0, 0, 0))
        # the last day of a group that has losses: its end is a date that stands in the document
        rows[group] = (
            moment(loss["until"]),
            objects + loss["objects"],
            size_bytes + loss["size_bytes"],
            so_far,
        )
    return list(rows.values())

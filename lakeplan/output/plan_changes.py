"""What a plan changes: values, weakened settings, policies, object rules, pins and branches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeplan.branches.verdicts import EVEREST
from lakeplan.output.branches import (
    deletion_table,
    kept_table,
    losses_of,
    reason_of,
    render_follows,
    render_stale,
)
from lakeplan.output.plan_impact import key_of, pins_change, writing
from lakeplan.output.tables import After, Name, Table, Value, volume_cells
from lakeplan.output.text import UNKNOWN, Cell, Json, Money, Page, code, count, days, moment, names
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.values.documents import BranchEntry


MARKS = {"add": Cell("+", "bold green"), "change": Cell("~", "bold yellow"), "clear": Cell("-", "bold red")}
ITEM_MARKS = {"add": Cell("+", "green"), "change": Cell("~", "yellow"), "clear": Cell("-", "red")}
NOT_SET = "not set"
DEFAULT = "default"
_WHAT = {
    "add": "first rules for this repository: garbage collection starts",
    "clear": "clear: all rules are removed, so nothing is collected",
}
_BRANCH = "branches/"
_MANY_SINGLE, _MANY_ROWS, _NAMES_SHOWN = 8, 12, 5


@dataclass(frozen=True)
class ChangeRow:
    """One value, or several branches that change in the same way."""

    mark: str
    value: str
    before: str
    after: str
    effect: str


@dataclass(frozen=True)
class Group:
    """Changes that several repositories have in common."""

    action: str
    adopted: bool
    rows: tuple[ChangeRow, ...]


def render_changes(page: Page, document: Json) -> None:
    """Print every change of GC rules. Repositories with identical changes share a block. Many repositories
    with different changes share a table."""
    groups: dict[Group, list[str]] = {}
    if writing(document):
        page.heading("Changes")
    for repository in (r for r in writing(document) if r["action"] != "none"):
        group = Group(repository["action"], repository["adopted"], tuple(fold(change_rows(repository))))
        groups.setdefault(group, []).append(key_of(repository))
    single = {group: keys[0] for group, keys in groups.items() if len(keys) == 1}
    in_one_table = len(single) > _MANY_SINGLE
    for group, keys in groups.items():
        if not (in_one_table and group in single):
            what = _WHAT.get(group.action, "")
            what = what.replace("this repository", "these repositories") if len(keys) > 1 else what
            render_alike(page, group.action, keys, adopted=group.adopted, what=what)
            rules_table(group.rows).print_on(page, solid=(0, 2, 3, 4), indent=3)
    if in_one_table:
        _one_table(page, single)


def render_alike(
    page: Page, action: str, keys: Sequence[str], *, adopted: bool, what: str, setting: str = ""
) -> None:
    """Print the head of a block: the repositories with identical changes, and what the change means."""
    page.blank()
    title = keys[0] if len(keys) == 1 else f"{count_of(len(keys), 'repository')} with identical changes"
    kind, mark = f"  {setting}" if setting else "", "  adopted" if adopted else ""
    lines = [page.join(Cell(title, "bold"), kind, Cell(mark, "yellow"))]
    if len(keys) > 1:
        lines.append(page.join(names(keys)))
    if what:
        lines.append(page.join(Cell(what, "dim")))
    page.hanging(MARKS[action], *lines)


def _one_table(page: Page, groups: Mapping[Group, str]) -> None:
    page.blank()
    rows: list[list[Value]] = []
    for group, key in groups.items():
        title = key + ("  adopted" if group.adopted else "")
        leads: Iterator[list[Value]] = iter([[MARKS[group.action], Name(title)]])
        rows += [[*next(leads, [Cell(""), Cell("")]), *_cells(row)[1:]] for row in group.rows]
    Table(("", "", *_HEADERS[1:]), rows, names=6).print_on(page, solid=(0, 3, 4, 5), indent=0)


_HEADERS = ("", "value", "now", "proposed", "effect")


def rules_table(rows: Iterable[ChangeRow]) -> Table:
    """The values of GC rules that change."""
    return Table(_HEADERS, [_cells(row) for row in rows], names=len(_HEADERS))


def _cells(row: ChangeRow) -> list[Value]:
    mark = {"+": "green", "~": "yellow", "-": "red"}[row.mark]
    return [
        Cell(row.mark, mark),
        Name(row.value),
        Cell(row.before, "dim" if row.before.startswith(NOT_SET) else ""),
        After(Cell(row.after, "dim" if row.after.startswith(NOT_SET) else "bold")),
        Cell(row.effect, {"shorter": "yellow", "longer": "green"}.get(row.effect, "dim")),
    ]


def change_rows(repository: Json) -> list[ChangeRow]:
    """A row for each value that differs, in the document's order."""
    before, after = repository["before"], repository["after"]
    return [_row(change, before, after) for change in repository["changes"]]


def _row(change: Json, before: Json | None, after: Json | None) -> ChangeRow:
    path: str = change["path"]
    old, new = change["before"], change["after"]
    is_branch = path.startswith(_BRANCH)
    return ChangeRow(
        mark="+" if old is None else "-" if new is None else "~",
        value=f"branch {path[len(_BRANCH) :]}" if is_branch else DEFAULT,
        before=_days(old, before),
        after=_days(new, after),
        effect=_effect(old, before, new, after),
    )


def _days(value: int | None, rules: Json | None) -> str:
    """Return the days of a value. A branch without a rule shows the default that applies to it."""
    if value is not None:
        return days(value)
    return NOT_SET if rules is None else f"{NOT_SET} ({days(rules['default_retention_days'])})"


def _effect(old: int | None, before: Json | None, new: int | None, after: Json | None) -> str:
    """Return whether retention gets shorter or longer. The default applies to a branch without a rule."""
    if before is None or after is None:
        return ""
    was = before["default_retention_days"] if old is None else old
    becomes = after["default_retention_days"] if new is None else new
    if was == becomes:
        return "same days"
    return "shorter" if becomes < was else "longer"


def fold(rows: Sequence[ChangeRow]) -> Iterable[ChangeRow]:
    """Yield the rows. If there are many, branches that change in the same way share a row."""
    if len(rows) <= _MANY_ROWS:
        return rows
    alike: dict[tuple[str, str, str, str, bool], list[str]] = {}
    for row in rows:
        is_branch = row.value.startswith("branch ")
        alike.setdefault((row.mark, row.before, row.after, row.effect, is_branch), []).append(row.value)
    return [
        ChangeRow(mark, _several(values), before, after, effect)
        for (mark, before, after, effect, _), values in alike.items()
    ]


def _several(values: Sequence[str]) -> str:
    if len(values) == 1:
        return values[0]
    shown = [value.removeprefix("branch ") for value in values]
    return f"{count_of(len(values), 'branch')}: {names(shown, _NAMES_SHOWN)}"


REVIEW_FIRST = "Review these settings first. Gates apply the stricter limit of the two trees to this change."
_SCOPES_SHOWN = 10


@dataclass(frozen=True)
class WeakenedRow:
    """A setting that is weaker than in the base tree, and its repositories. No repositories means the whole
    tree."""

    path: str
    before: str
    after: str
    where: str
    scopes: tuple[str, ...]


def weakened_settings(document: Json) -> list[WeakenedRow]:
    """Return the weakened settings in the document's order. Equal ones of several repositories are
    combined."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for item in document["loosenings"]:
        key = (item["path"], item["before"], item["after"], item["where"])
        groups.setdefault(key, []).extend([] if item["scope"] == "tree" else [item["scope"]])
    return [WeakenedRow(*key, tuple(scopes)) for key, scopes in groups.items()]


def weakened_title(document: Json) -> str:
    count = len(document["loosenings"])
    base = f" (base {document['base'][:12]})" if document["base"] else ""
    return f"This change weakens {count_of(count, 'safety setting')}{base}"


def weakened_table(items: Iterable[WeakenedRow], limit: int) -> Table:
    """The settings that are weaker, each with at most ``limit`` of its repositories."""
    rows: list[list[Value]] = [
        [
            Name(item.path),
            Cell(names(item.scopes, limit) or "the tree"),
            Cell(item.before),
            After(Cell(item.after, "bold")),
            Name(item.where),
        ]
        for item in items
    ]
    return Table(("setting", "scope", "base tree", "this tree", "where"), rows, names=5)


def render_weakened(page: Page, document: Json) -> None:
    if not (loosenings := weakened_settings(document)):
        return
    page.heading(weakened_title(document))
    page.line(Cell(REVIEW_FIRST, "dim"))
    for item in loosenings:
        about = f"  {names(item.scopes, _SCOPES_SHOWN)}" if item.scopes else ""
        lines = [
            page.join(Cell(item.path, "bold"), about),
            page.join(item.before, f" {page.arrow} ", Cell(item.after, "bold yellow")),
        ]
        if item.where:
            lines.append(page.join(Cell(f"at {item.where}", "dim")))
        page.hanging(Cell("!", "bold red"), *lines)


Row = list[str | Cell]

TITLES = {"branch_lifecycle": "branch lifecycle policies", "object_lifecycle": "object lifecycle rules"}
_CHANGED = {
    "add": "set for the first time",
    "change": "",
    "clear": "clear: all of them are removed from the server",
}
BY_THE_JOB = "deleted by the server's own job, assuming no new writes"
IDLE = "idle*"
_LEGEND = {
    "already": "the stored policies would delete it by then too",
    "kept": "only the stored policies would delete it",
}
_ORDER = "order"
_NO_EFFECT = "no effect on which branches are deleted"
_FATES_SHOWN = 20
_MANY = 8


def settings_of(repository: Json) -> list[tuple[str, Json]]:
    """Return (kind, setting) for the settings that the plan would write."""
    settings = ((kind, repository[kind]) for kind in TITLES)
    return [(kind, setting) for kind, setting in settings if setting and setting["action"] != "none"]


def render_setting_changes(page: Page, repositories: Sequence[Json]) -> None:
    """Print every policy and object rule that changes. Repositories with identical changes share a block."""
    groups: dict[tuple[str, str], list[tuple[Json, Json]]] = {}
    for repository in repositories:
        for kind, setting in settings_of(repository):
            alike = json.dumps([setting["action"], setting["changes"], repository["adopted"]])
            groups.setdefault((kind, alike), []).append((repository, setting))
    for (kind, _), members in groups.items():
        keys = [key_of(repository) for repository, _ in members]
        repository, setting = members[0]
        action, adopted = setting["action"], repository["adopted"]
        render_alike(page, action, keys, adopted=adopted, what=_CHANGED[action], setting=TITLES[kind])
        setting_table(setting["changes"]).print_on(page, solid=(0, 2), indent=3, is_grouped=True)


def setting_table(changes: Iterable[Json]) -> Table:
    """A row for each value of a policy or an object rule that changes."""
    headers = ("", "item", "value", "now", "proposed")
    return Table(headers, [row for change in changes for row in _setting_rows(change)], names=5)


def _setting_rows(change: Json) -> Iterator[list[Value]]:
    lead: list[Value] = [ITEM_MARKS[change["action"]], Name(change["item"])]
    before, after = change["before"], change["after"]
    for key in dict.fromkeys([*before, *after]):
        value = Cell("" if key == change["item"] else key)
        yield [*lead, value, _value(before.get(key)), After(_value(after.get(key), "bold"))]
    if _ORDER in before and _ORDER in after:  # no policy has a value with this name
        yield [*lead, Cell(""), Cell(""), Cell(_NO_EFFECT, "green")]


def _value(text: str | None, style: str = "") -> Cell | Name:
    return Name(text, style) if text else Cell(NOT_SET, "dim")


def render_branches(page: Page, document: Json) -> None:
    """Print which branches the server's job deletes under the proposed policies, and when."""
    repositories = [
        r
        for r in document["repositories"]
        if r["failure"] is None and any(kind == "branch_lifecycle" for kind, _ in settings_of(r))
    ]
    _object_notes(page, document)
    if not repositories:
        return
    page.heading("Branches", BY_THE_JOB)
    if len(repositories) > _MANY:
        rows: list[Row] = [[key_of(r), *counts(r["branch_lifecycle"])] for r in repositories]
        page.table(("", "deleted now", "in 7 days", "in 30 days"), rows, figures=(1, 2, 3))
        return
    quiet = []
    for repository in repositories:
        if not (repository["branch_lifecycle"]["fates"] or repository["branch_lifecycle"]["notes"]):
            quiet.append(key_of(repository))
            continue
        page.blank()
        branches_of(page, repository, limit=_FATES_SHOWN)
    if quiet:
        page.blank()
        page.line("The change deletes no branches in ", names(quiet), ".")


def branches_of(page: Page, repository: Json, *, limit: int | None) -> None:
    """Print the branches of one repository, with counts and notes."""
    policies = repository["branch_lifecycle"]
    _counts_line(page, repository, "newly deleted", policies)
    fates = policies["fates"]
    if fates:
        rows = [_fate(fate) for fate in fates[:limit]]
        page.table(("branch", "created", "last write", "policy", "deleted at", ""), rows, solid=(1, 2, 4, 5))
    page.rest(len(fates), limit, "in the plan file", noun="branch")
    losses_of(page, fates[:limit])
    for word, text in _LEGEND.items():
        if any(word in _remarks(fate) for fate in fates[:limit]):
            page.hanging(Cell(word, "dim"), page.join(Cell(text, "dim")), indent=2)
    notes(page, policies["notes"])


def _counts_line(page: Page, repository: Json, word: str, of: Json, since: str = "") -> None:
    now, week, month = counts(of)
    moments = (f"  {word}: ", now, " now, ", week, " in 7 days, ", month, " in 30 days")
    page.line(Cell(key_of(repository), "bold"), *moments, Cell(since, "dim"))


def notes(page: Page, texts: Sequence[str]) -> None:
    """Print notes, one per line. The caveat about idle branches begins with the symbol that marks idle
    branches."""
    for text in texts:
        lead = Cell(IDLE, "bold yellow") if text == EVEREST else Cell("!", "dim")
        page.hanging(lead, page.join(text), indent=2)


def _object_notes(page: Page, document: Json) -> None:
    for repository in document["repositories"]:
        rules = repository["object_lifecycle"]
        if repository["failure"] is None and rules and rules["notes"]:
            page.heading("Object lifecycle", key_of(repository))
            notes(page, rules["notes"])


def _remarks(fate: Json) -> list[str]:
    if fate["goes_at"] is None:
        return ["kept"]
    stored = fate["before_at"] is not None and fate["before_at"] <= fate["goes_at"]
    return [*(["already"] if stored else []), *([IDLE] if fate["idle"] else [])]


def _fate(fate: Json) -> Row:
    """The row of a branch. Idle branches are marked, because writes through an Everest mount count only after
    a sync."""
    goes = fate["goes_at"]
    return [
        fate["branch_id"],
        _day(fate["created"]),
        UNKNOWN if fate["last_write"] is None else _day(fate["last_write"]),
        fate["policy"],
        Cell("" if goes is None else moment(goes), "bold"),
        Cell(" ".join(_remarks(fate)), "green" if goes is None else "dim"),
    ]


def _day(time: str) -> str:
    return moment(time)[:10]


BY_RUN = "deleted by `lakeplan branches run`, not by apply"
_SHOWN = 20

_STALE = 5


def with_branches(repositories: Sequence[Json]) -> list[Json]:
    """Repositories whose branches lakeplan itself deletes."""
    return [r for r in repositories if r["lifecycle"] is not None and r["failure"] is None]


def deletions_of(repository: Json) -> list[BranchEntry]:
    return [b for b in repository["lifecycle"]["branches"] if b["verdict"] == "delete"]


def deleted_later(repository: Json) -> int:
    """Return how many branches are kept now, but are deleted within 30 days if nobody writes to them."""
    month: int = repository["lifecycle"]["deletions"].get("plus_30_days", 0)
    return max(0, month - len(deletions_of(repository)))


def kept_branches(repository: Json) -> list[BranchEntry]:
    """Return the branches that are kept, beginning with those that are deleted soonest."""
    kept = [b for b in repository["lifecycle"]["branches"] if b["verdict"] != "delete"]
    return sorted(kept, key=lambda b: (b["due"] is None, b["due"] or "", b["branch_id"]))


def render_run_branches(page: Page, document: Json) -> None:
    """Print the branches of each repository. If there are many repositories, print those where branches are
    deleted, then a table of the others."""
    repositories = with_branches(document["repositories"])
    if not repositories:
        return
    page.heading("Branches", BY_RUN)
    lists_all = len(repositories) <= _MANY
    shown = repositories if lists_all else [r for r in repositories if deletions_of(r)][:_MANY]
    room = _SHOWN
    for repository in shown:
        page.blank()
        kept = len(kept_branches(repository))
        lists_kept = lists_all and kept <= room
        room -= kept if lists_kept else 0
        run_branches_of(page, repository, limit=_SHOWN, lists_kept=lists_kept)
    rest = [r for r in repositories if r not in shown]
    if rest:
        page.blank()
        rows: list[Row] = [[key_of(r), *counts(r["lifecycle"]), count(len(kept_branches(r)))] for r in rest]
        page.table(("", "deleted now", "in 7 days", "in 30 days", "kept now"), rows, figures=(1, 2, 3, 4))
    if any(len(deletions_of(r)) > _SHOWN for r in shown):
        page.dim("The plan file and `lakeplan branches plan` list every branch.")


def run_branches_of(page: Page, repository: Json, *, limit: int | None, lists_kept: bool) -> None:
    """Print the branches of one repository that are deleted and kept, and what expires because of that.
    Without ``lists_kept``, branches that are kept are only counted by reason."""
    branches, cost = repository["lifecycle"], Money.of(repository)
    if branches["unknown"]:
        title = page.join(
            Cell(key_of(repository), "bold"), "  the branches to delete could not be determined"
        )
        page.hanging(Cell("!", "bold yellow"), title, page.join(branches["unknown"]))
        return
    since = f", observed since {moment(branches['observed_since'])}" if branches["observed_since"] else ""
    _counts_line(page, repository, "deleted", branches, since)
    going, rest = deletions_of(repository), kept_branches(repository)
    deletion_table(page, going[:limit], branches["as_of"], cost)
    page.rest(len(going), limit, "to be deleted")
    if lists_kept:
        kept_table(page, rest, branches["as_of"])
    elif rest:
        page.line(f"{count_of(len(rest), 'branch')} kept: {why_kept(rest)}", indent=2)
    render_follows(page, branches, cost)
    render_stale(page, branches["branches"], cost, limit=_STALE if limit is not None else None)
    notes(page, branches["notes"])


def counts(branches: Json) -> list[Cell]:
    shown = (branches["deletions"].get(name, 0) for name in ("now", "plus_7_days", "plus_30_days"))
    return [Cell(count(value), "bold yellow" if value else "dim") for value in shown]


def why_kept(branches: Sequence[BranchEntry]) -> str:
    """Return the number of kept branches by reason, the largest first: ``not crossed yet (300), no policy
    matches (12)``."""
    reasons = Counter(reason_of(branch) for branch in branches)
    return ", ".join(f"{reason} ({count(number)})" for reason, number in reasons.most_common())


PINS = "hidden branches that protect commits from every collector"
_MARKS = {"missing": "add", "stale": "change", "retired": "clear"}


def changing(repository: Json) -> list[Json]:
    """Pins that an apply would create, change or delete."""
    if not pins_change(repository):
        return []
    return [pin for pin in repository["pins"]["pins"] if pin["state"] != "kept"]


def render_pins(page: Page, document: Json) -> None:
    """Print the pins of every repository where pins change."""
    repositories = [r for r in document["repositories"] if r["failure"] is None and changing(r)]
    if repositories:
        page.heading("Pins", PINS)
    for repository in repositories:
        page.blank()
        pins_of(page, repository, limit=_SHOWN)


def pins_of(page: Page, repository: Json, *, limit: int | None) -> None:
    """Print the pins of one repository that change."""
    pins = changing(repository)[:limit]
    page.line(Cell(key_of(repository), "bold"), f": {pin_counts(repository)}")
    table = pins_table(pins)
    if table.fits(page, indent=3):
        table.print_on(page, indent=3)
    else:
        for row in table.rows:
            _pin_block(page, row)
    page.rest(len(changing(repository)), limit, "in the plan file", indent=3)


def pins_table(pins: Iterable[Json]) -> Table:
    """Return a table of pins: their rules, their purpose, and what only they protect."""
    rows: list[list[Value]] = []
    for pin in pins:
        days_now = pin["retention_days"]
        reasons = "no longer required" if pin["state"] == "retired" else ", ".join(pin["reasons"])
        mark, rule = ITEM_MARKS[_MARKS[pin["state"]]], "default" if days_now is None else days(days_now)
        about = (mark, Name(pin["branch_id"]), Cell(pin["state"]), Cell(rule), Cell(reasons))
        rows.append([*about, *volume_cells(pin)])
    headers = ("", "pin", "state", "rule", "for", "objects it\nalone protects", "bytes")
    return Table(headers, rows, names=5)


def _pin_block(page: Page, row: Sequence[Value]) -> None:
    """Print a pin where no table fits: its full name, then why it exists, then what it protects."""
    mark, name, state, rule, reasons, objects, amount = (value.text for value in row)
    page.hanging(
        Cell(mark),
        f"{name}: {state}, rule {rule}",
        reasons if state == "retired" else f"for {reasons}",
        f"protected only by this pin: {objects} {'object' if objects == '1' else 'objects'}, {amount}",
        indent=3,
    )


def pin_counts(repository: Json) -> str:
    """``2 missing, 5 kept``."""
    states = [pin["state"] for pin in repository["pins"]["pins"]]
    parts = [f"{count(states.count(s))} {s}" for s in ("missing", "stale", "retired", "kept") if s in states]
    return ", ".join(parts)


def markdown_pins(repository: Json) -> str:
    """A heading and a table of the pins that change, or nothing if none does."""
    pins = changing(repository)
    if not pins:
        return ""
    left = len(pins) - _SHOWN
    more = f"\nand {count_of(left, 'pin')} more in the plan file\n" if left > 0 else ""
    title = f"\n#### {code(key_of(repository))}: pins, {pin_counts(repository)}\n\n"
    return title + pins_table(pins[:_SHOWN]).without_marks().markdown() + more

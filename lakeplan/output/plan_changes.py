"""The first part of a plan: the values that change, and the settings that are weakened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakeplan.output.tables import After, Name, Table, Value
from lakeplan.output.text import Cell, Json, Page, days, names
from lakeplan.values.units import count_of

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


REVIEW_FIRST = "Review these settings first. Gates judge this change by the stricter limits of the two trees."
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

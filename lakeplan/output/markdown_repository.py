"""One repository of a plan as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lakeplan.output.lifecycle import losses, only_here, stale_first, then_goes
from lakeplan.output.page import code, folded, names, prose, table
from lakeplan.output.plan_changes import change_rows, fold, key_of, writes
from lakeplan.output.plan_impact import AT_MOST, NO_REASON
from lakeplan.output.plan_pins import markdown_pins
from lakeplan.output.plan_settings import BY_RUN, TITLES, going_of, settings_of, staying_of, why_they_stay
from lakeplan.output.tables import (
    MOMENT,
    Amount,
    Change,
    Cost,
    Label,
    Name,
    Share,
    Value,
    moment_rows,
    picked,
    prefix_rows,
    tag_rows,
)
from lakeplan.output.text import UNKNOWN, Money, amounts, count, counted, moment, size

if TYPE_CHECKING:
    from lakeplan.values.documents import BranchEntry

Json = Mapping[str, Any]

_SHOWN = 20
_STALE = 5


def run_branches(repository: Json) -> str:
    """The heading of a repository, and a table of the branches that go; empty when none does."""
    found = repository["lifecycle"]
    if found is None or repository["failure"] is not None:
        return ""
    title = f"\n#### {code(key_of(repository))}: branches, {prose(BY_RUN)}\n\n"
    if found["unknown"]:
        return f"{title}The branches to delete could not be determined: {prose(found['unknown'])}\n\n"
    going = going_of(repository)
    if not going:
        return ""
    headers = ("to delete", "created", "last write", "policy", "crossed", "has", "safe until", "then expire")
    more = f"\nand {count(len(going) - _SHOWN)} more, in the plan file\n" if len(going) > _SHOWN else ""
    counts = found["deletions"]
    line = (
        f"{counted(len(going), 'branch')} now, {count(counts.get('plus_7_days', 0))} within 7 days,"
        f" {count(counts.get('plus_30_days', 0))} within 30 days, assuming no new writes.\n\n"
    )
    return (
        title + line + table(headers, [_row(b, Money.of(repository)) for b in going[:_SHOWN]]) + more + "\n"
    )


def _row(branch: BranchEntry, cost: Money) -> list[str]:
    return [
        code(branch["branch_id"]),
        moment(branch["created"] or ""),
        moment(branch["last_write"] or ""),
        code(branch["policy"] or ""),
        moment(branch["since"] or ""),
        prose(", ".join(losses(branch))),
        moment(branch["safe_until"] or ""),
        prose(then_goes(branch["follows"], cost)),
    ]


def staying_branches(repository: Json) -> str:
    """What stays, by reason, and the totals of what follows; folded."""
    found, cost = repository["lifecycle"], Money.of(repository)
    if found is None or found["unknown"] or not going_of(repository):
        return ""
    rest = staying_of(repository)
    body = f"{counted(len(rest), 'branch')} kept: {prose(why_they_stay(rest))}.\n\n" if rest else ""
    columns = ("objects", "bytes", *cost.header(" "))
    if found["totals"]:
        rows = [
            [moment(t["as_of"]), count(t["commits"]), *amounts(t, cost)] for t in found["totals"].values()
        ]
        body += table(("by", "commits expire", *columns), rows, figures=(1, 2, 3, 4)) + "\n"
    stale = stale_first(found["branches"])[:_STALE]
    if stale:
        headers = ("stale: each alone holds", "last commit", "commits", *columns)
        rows = [[code(b["branch_id"]), *only_here(b["only_here"], cost)] for b in stale]
        body += table(headers, rows, figures=(2, 3, 4, 5)) + "\n"
    body += "".join(f"- {prose(note)}\n" for note in found["notes"])
    return folded("what is kept, and what then expires", body)


def with_losses(fate: Any) -> str:
    """A branch that a server's job deletes, and what is lost with it."""
    lost = losses(fate)
    return str(fate["branch_id"]) + (f" ({', '.join(lost)})" if lost else "")


_WORDS = {"add": "rules for the first time", "change": "rules change", "clear": "all rules are removed"}
_SETTING_WORDS = {"add": "for the first time", "change": "changed", "clear": "all removed"}
_PREFIXES = 5
_TAGS = 10
_BRANCHES = 10


def loudest_first(repository: Json) -> tuple[int, int, str]:
    """Refused gates, then unknown impacts, then by bytes that expire."""
    refused = any(g["outcome"] == "refused" for g in repository["gates"])
    now = repository["impact"]["horizons"].get("now") or {}
    size_bytes = now.get("bytes_expire")
    rank = 0 if refused else 1 if repository["impact"]["status"] == "unknown" else 2
    return (rank, -(size_bytes or 0), key_of(repository))


def changes_of(repository: Json) -> str:
    """The heading of a repository, and a table of the values of every setting that is written; then the
    branches that ``branches run`` deletes."""
    parts = []
    if not writes(repository):
        return run_branches(repository)
    if repository["action"] != "none":
        rows = [
            [row.mark, code(row.value), row.before, f"**{row.after}**", row.effect]
            for row in fold(change_rows(repository))
        ]
        title = _title(repository, _WORDS[repository["action"]])
        parts.append(title + table(("", "value", "now", "proposed", ""), rows))
    for kind, setting in settings_of(repository):
        title = _title(repository, f"{TITLES[kind]}, {_SETTING_WORDS[setting['action']]}")
        rows = [row for change in setting["changes"] for row in _setting_rows(change)]
        notes = "".join(f"- {prose(note)}\n" for note in [*_deletions(setting), *setting["notes"]])
        parts.append(
            title + table(("", "item", "value", "now", "proposed"), rows) + (f"\n{notes}" if notes else "")
        )
    parts.append(markdown_pins(repository))
    return "".join(parts) + f"\n{headline(repository)}\n\n" + run_branches(repository)


def _deletions(setting: Json) -> list[str]:
    """How many branches the change newly lets go, and the first of them by name."""
    counts = setting.get("deletions") or {}
    if not any(counts.values()):
        return []
    going = [with_losses(f) for f in setting["fates"] if f["goes_at"] and not f["before_at"]]
    now, month = counts.get("now", 0), counts.get("plus_30_days", 0)
    text = f"branches that newly go: {count(now)} now, {count(month)} within 30 days"
    return [text + (f": {names(going, _BRANCHES)}" if going else "")]


def _title(repository: Json, words: str) -> str:
    adopted = ", adopted by a glob" if repository["adopted"] else ""
    return f"\n#### {code(key_of(repository))}: {words}{adopted}\n\n"


def _setting_rows(change: Json) -> list[list[str]]:
    """One row a value of a policy or an object rule."""
    mark = {"add": "+", "change": "~", "clear": "-"}[change["action"]]
    keys = list(dict.fromkeys([*change["before"], *change["after"]]))
    rows = []
    for key in keys or [""]:
        before, after = (change[side].get(key) for side in ("before", "after"))
        shown = [code(before) if before else "not set", f"**{code(after)}**" if after else "not set"]
        rows.append([mark, code(change["item"]), prose(key), *shown])
    return rows


def headline(repository: Json) -> str:
    """What the change does, in one line."""
    impact = repository["impact"]
    if impact["status"] == "unknown":
        return f"Impact: **UNKNOWN**: {prose(impact['reason'] or NO_REASON)}"
    now, month = (impact["horizons"].get(name) for name in ("now", "plus_30_days"))
    if now is None:
        return f"Impact: not requested. {prose(impact['reason'])}".rstrip()
    cost = Money.of(repository)
    text = f"Impact: {_objects(now, cost)}"
    if month is not None and (month["objects_expire"] or 0) > (now["objects_expire"] or 0):
        text += f" ({_objects(month, cost)} in 30 days)"
    risk = now["objects_at_risk"]
    return text + (f", **{counted(risk, 'object')} at risk**" if risk else "") + "."


def _objects(h: Json, cost: Money) -> str:
    if h["objects_expire"] is None:
        return f"**UNKNOWN** objects of {counted(h['commits_expire'], 'commit')}"
    words = prose(cost.words(h["bytes_expire"]))
    return f"{counted(h['objects_expire'], 'object')}, {_size(h['bytes_expire'])}{words}"


def details_of(repository: Json) -> str:
    """Figures at the three moments, tags, folders, gates that passed; folded."""
    if not writes(repository):
        return staying_branches(repository)
    parts = [_figures(repository), _tags(repository), _prefixes(repository)]
    passed = [g for g in repository["gates"] if g["outcome"] == "passed"]
    if passed:
        rows = "".join(f"- {code(g['gate'])} passed: {prose(g['message'])}\n" for g in passed)
        parts.append(f"{rows}\n")
    if repository["unexpanded"]:
        parts.append(f"Not expanded: {names(list(repository['unexpanded']), _BRANCHES, code)}\n\n")
    facts = [f"Entry {code(repository['entry'])}"]
    if repository["source"]:
        facts.append(f"at {code(repository['source'])}")
    if repository["owner"]:
        facts.append(f"owner {code(repository['owner'])}")
    parts.append(", ".join(facts) + "\n")
    return folded("what that does", "".join(parts)) + staying_branches(repository)


def _cells(row: Iterable[Value]) -> list[str]:
    return [_cell(value) for value in row]


def _cell(value: Value) -> str:
    match value:
        case Name(text):
            return code(text)
        case Change(before, after):
            return f"{before} → {after}"
        case Cost(text):
            return prose(text)
        case Amount() | Share():
            return f"**{UNKNOWN}**" if value.text == UNKNOWN else value.text
        case Label(text):
            return text


def _figures(repository: Json) -> str:
    rows = [_cells(picked(row, (*MOMENT, "cost", "at risk"))) for row in moment_rows(repository)]
    if not rows:
        return ""
    headers = ("", *MOMENT[1:], *Money.of(repository).header(" "), "at risk")
    return table(headers, rows, figures=range(1, len(headers))) + f"\n{AT_MOST}.\n\n"


def _tags(repository: Json) -> str:
    rows, cost = tag_rows(repository), Money.of(repository)
    if not rows:
        return ""
    more = f"\nand {len(rows) - _TAGS:,} more\n" if len(rows) > _TAGS else ""
    title = f"{counted(len(rows), 'tag')} would lose data (now or within 30 days)"
    headers = (title, "commit", "objects", "bytes", *cost.header(" "))
    return table(headers, map(_cells, rows[:_TAGS]), figures=(2, 3, 4)) + more + "\n"


def _prefixes(repository: Json) -> str:
    cost = Money.of(repository)
    rows = prefix_rows((p for p in repository["impact"]["prefixes"] if p["prefix"]), cost)
    if not rows:
        return ""
    headers = ("largest prefixes (now)", "objects", "bytes", *cost.header(" "))
    return table(headers, map(_cells, rows[:_PREFIXES]), figures=(1, 2, 3)) + "\n"


def _size(value: int | None) -> str:
    return f"**{UNKNOWN}**" if value is None else size(value)

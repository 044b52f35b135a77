"""Branches in a Markdown plan: those that ``lifecycle run`` deletes, and what each of them has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.render.amounts import UNKNOWN, count, counted, moment, size
from lakeplan.render.lifecycle import losses, only_here, stale_first, then_goes
from lakeplan.render.markdown import code, folded, prose, table
from lakeplan.render.money import Money
from lakeplan.render.plan_branches import BY_RUN, going_of, staying_of, why_they_stay
from lakeplan.render.plan_changes import key_of

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
        return f"{title}Which branches go could not be told: {prose(found['unknown'])}\n\n"
    going = going_of(repository)
    if not going:
        return ""
    headers = ("goes", "created", "last write", "policy", "crossed", "has", "safe until", "then go")
    more = f"\nand {count(len(going) - _SHOWN)} more, in the plan file\n" if len(going) > _SHOWN else ""
    counts = found["deletions"]
    line = (
        f"{counted(len(going), 'branch')} now, {count(counts.get('plus_7_days', 0))} within 7 days,"
        f" {count(counts.get('plus_30_days', 0))} within 30 days if nobody writes.\n\n"
    )
    return (
        title + line + table(headers, [_row(b, Money.of(repository)) for b in going[:_SHOWN]]) + more + "\n"
    )


def staying_branches(repository: Json) -> str:
    """What stays, by reason, and the totals of what follows; folded."""
    found, cost = repository["lifecycle"], Money.of(repository)
    if found is None or found["unknown"] or not going_of(repository):
        return ""
    rest = staying_of(repository)
    body = f"{counted(len(rest), 'branch')} stay: {prose(why_they_stay(rest))}.\n\n" if rest else ""
    if found["totals"]:
        rows = [
            [
                moment(t["as_of"]),
                count(t["commits"]),
                _known(t["objects"], count),
                _known(t["size_bytes"], size),
                *cost.cells(t["size_bytes"]),
            ]
            for t in found["totals"].values()
        ]
        headers = ("by", "commits follow", "objects", "bytes", *cost.header(" "))
        body += table(headers, rows, figures=(1, 2, 3, 4)) + "\n"
    stale = stale_first(found["branches"])[:_STALE]
    if stale:
        headers = ("stale: each alone holds", "last commit", "commits", "objects", "bytes", *cost.header(" "))
        rows = [[code(b["branch_id"]), *only_here(b["only_here"], cost)] for b in stale]
        body += table(headers, rows, figures=(2, 3, 4, 5)) + "\n"
    body += "".join(f"- {prose(note)}\n" for note in found["notes"])
    return folded("what stays, and what follows", body)


def _row(branch: Json, cost: Money) -> list[str]:
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


def _known(value: int | None, shown: Any) -> str:
    return UNKNOWN if value is None else str(shown(value))


def with_losses(fate: Json) -> str:
    """A branch that a server's job deletes, and what is lost with it."""
    lost = losses(fate)
    return str(fate["branch_id"]) + (f" ({', '.join(lost)})" if lost else "")

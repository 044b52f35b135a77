"""What a mark contains: by prefix, age and last commit, and what keeps the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakeplan.output.page import Cell, Page
from lakeplan.output.text import Money, amounts, count, moment, size, volume

if TYPE_CHECKING:
    from lakeplan.sweep.documents import AgeRow, ContentsRow, ForecastRow, KeeperName

PREFIXES_SHOWN = 20
COMMITS_SHOWN = 10
KEEPERS_SHOWN = 20
Rows = Sequence[Sequence[str | Cell]]


def render_contents(page: Page, contents: ContentsRow, cost: Money) -> None:
    """The tables that say what would be deleted, and what keeps the rest."""
    _prefixes(page, contents, cost)
    ages = contents["ages"]
    if ages:
        rows = [(age_words(row), *amounts(row, cost)) for row in ages]
        _table(page, ("age", "objects", "size", *cost.header()), rows)
    commits = contents["last_commits"]
    if commits:
        rows = [
            (row["commit_id"][:12], moment(row["created"]) if row["created"] else "", *amounts(row, cost))
            for row in commits[:COMMITS_SHOWN]
        ]
        _table(page, ("last commit", "created", "objects", "size", *cost.header()), rows, names=2)
        page.rest(len(commits) + contents["more_last_commits"], COMMITS_SHOWN, "last commits")
    keepers = contents["kept_by"]
    if keepers:
        rows = [
            (keeper_words(row), row["class"].replace("_", " "), *amounts(row))
            for row in keepers[:KEEPERS_SHOWN]
        ]
        _table(page, ("kept by", "class", "objects", "size"), rows, names=2)
        page.rest(len(keepers) + contents["more_kept_by"], KEEPERS_SHOWN)
    if forecast := contents["forecast"]:
        page.blank()
        words = forecast_words(forecast)
        if forecast["differs"] == "more":
            page.labelled("MORE THAN FORECAST:", "bold red", words)
        else:
            page.labelled("forecast:", "bold", words)
    if contents["kept_by"] is None or ages is None:
        page.dim("Ages, and what keeps objects, are not known: an earlier release made the mark.")


def _prefixes(page: Page, contents: ContentsRow, cost: Money) -> None:
    prefixes = contents["prefixes"]
    if not prefixes:
        return
    rows = [
        (
            prefix_words(row["prefix"]),
            *amounts(row["goes"], cost),
            count(row["kept"]["objects"]),
            size(row["kept"]["size_bytes"]),
        )
        for row in prefixes[:PREFIXES_SHOWN]
    ]
    headers = ("prefix", "objects", "size", *cost.header(), "kept\nobjects", "kept\nsize")
    _table(page, headers, rows)
    page.rest(len(prefixes) + contents["more_prefixes"], PREFIXES_SHOWN, "prefixes")


def _table(page: Page, headers: Sequence[str], rows: Rows, *, names: int = 1) -> None:
    page.blank()
    page.table(headers, rows, figures=range(names, len(headers)), solid=(1,) if names > 1 else ())


def forecast_words(row: ForecastRow) -> str:
    """What the plan said, and what the mark has."""
    least, most = row["least"], row["most"]
    if most is None:
        said = f"at least {volume(least)}" if least is not None else "nothing of this moment"
    elif least is None or least == most:
        said = f"at most {volume(most)}"
    else:
        said = f"{count(least['objects'])} to {volume(most)}"
    fewer = ", fewer than forecast" if row["differs"] == "fewer" else ""
    return (
        f"plan {row['plan_digest'][:12]} of {moment(row['as_of'])} said {said} would newly expire by then;"
        f" the mark has {volume(row['found'])}{fewer}"
    )


def prefix_words(prefix: str | None) -> str:
    if prefix is None:
        return "(in no commit)"
    return prefix or "(top level)"


def age_words(row: AgeRow) -> str:
    """``7 to 30 days``, ``365 days or more``."""
    if row["to_days"] is None:
        return f"{row['from_days']} days or more"
    return f"{row['from_days']} to {row['to_days']} days"


def keeper_words(row: KeeperName) -> str:
    """``tag v1.0``, ``hold on prefix audit/``."""
    if row["kind"] != "hold":
        return f"{row['kind']} {row['name']}"
    return f"hold on {row['name']}" + (f" {row['prefix']}" if row["prefix"] is not None else "")

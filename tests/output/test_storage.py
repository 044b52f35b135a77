"""Storage reports as text, CSV and metrics. Names are untrusted, and unknown is never 0."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from rich.console import Console

from lakeplan.output.metrics import storage_metrics
from lakeplan.output.storage import CSV_COLUMNS, render_storage, storage_csv

NOTHING = {"objects": 0, "size_bytes": 0}
SOME = {"objects": 3, "size_bytes": 3_000_000_000}


def document(**more: Any) -> Any:
    row = {
        "repository": "prod/lake",
        "storage_namespace": "s3://bucket/lake",
        "as_of": "2026-03-31T12:00:00+00:00",
        "listed": False,
        "not_listed": "denied",
        "dangling_seen": True,
        "stored": None,
        "held": SOME,
        "shared": NOTHING,
        "exclusive": SOME,
        "tags_only": NOTHING,
        "reclaimable": NOTHING,
        "periods": [{"days": 7, "reclaimable": SOME}],
        "uncommitted": None,
        "young": None,
        "unreferenced": None,
        "noncurrent": None,
        "branches": [{"name": "main", "held": SOME, "exclusive": SOME}],
        "tags": [],
        "compared": None,
        **more,
    }
    failed = {"prod/other": {"message": "denied", "where": "", "hint": "ask"}}
    return {
        "format": "lakeplan.storage/v1",
        "at": "",
        "servers": {},
        "repositories": [row],
        "failed": failed,
        "unfinished": ["prod/third"],
    }


def text(**more: Any) -> str:
    out = io.StringIO()
    render_storage(document(**more), Console(file=out, width=100, force_terminal=False))
    return out.getvalue()


def lines(**more: Any) -> list[dict[str, str]]:
    found = list(csv.DictReader(io.StringIO(storage_csv(document(**more)))))
    assert tuple(found[0]) == CSV_COLUMNS
    return found


def it_never_shows_what_is_unknown_as_nothing() -> None:
    shown = {line.split("  ")[1].strip(): line.split()[-2:] for line in text().splitlines() if "  " in line}
    for name in ("stored", "uncommitted", "too young to be deleted", "unreferenced", "older versions"):
        assert shown[name] == ["unknown", "unknown"]
    unknown = [line for line in lines() if line["figure"] == "stored"]
    assert [(one["objects"], one["size_bytes"]) for one in unknown] == [("", "")]
    made = storage_metrics(document())
    assert 'part="stored"' not in made
    assert 'lakeplan_storage_bytes{server="prod",repository="lake",owner="",part="held"} 3000000000' in made
    assert 'part="reclaimable_7_days"} 3' in made


def it_says_what_was_not_read() -> None:
    assert "Storage: 1 repository, 2 not read." in text()
    assert "storage was not listed (denied)" in text()
    assert [line["kind"] for line in lines()][-2:] == ["not read", "not read"]
    failure = 'lakeplan_storage_failure{server="prod",repository="other",owner=""} 1'
    assert failure in storage_metrics(document())


def it_defuses_names() -> None:
    branch = {"name": "=cmd()\x1b[31m", "held": SOME, "exclusive": SOME}
    hostile = {"branches": [branch]}
    both = {"branches": ["a\x1b[2J", "b\n::error::x"], "both": SOME, "only_first": SOME, "only_second": SOME}
    shown = text(compared=both, **hostile)
    assert "\x1b" not in shown
    assert not any(line.startswith("::") for line in shown.splitlines())
    (name, *_) = {line["name"] for line in lines(**hostile) if line["kind"] == "branch"}
    assert name.startswith("'=cmd()")
    assert "\x1b" not in name


def it_shows_a_loss_and_a_growth() -> None:
    change = {"objects": -2, "size_bytes": -1_500}
    growth = {"since": "2026-03-30T12:00:00+00:00", "stored": None, "held": change}
    shown = text(growth=growth)
    assert "-2 objects, -1.5 kB" in shown
    assert "unknown: one of the two reports does not contain this figure" in shown


OWNERS = [
    {
        "owner": owner,
        "repositories": 1,
        "stored": None,
        "held": SOME,
        "reclaimable": NOTHING,
        "unreferenced": None,
        "noncurrent": None,
    }
    for owner in ("=data", None)
]
CLASSES = [{**SOME, "storage_class": "GLACIER"}, {**NOTHING, "storage_class": ""}]


def it_has_classes_and_owners_in_every_format() -> None:
    found = {**document(listed=True, classes=CLASSES, owner="=data"), "owners": OWNERS}
    out = io.StringIO()
    render_storage(found, Console(file=out, width=100, force_terminal=False))
    shown = " ".join(out.getvalue().split())
    assert "storage class objects size GLACIER 3 3.0 GB not named 0 0 B" in shown
    assert "=data 1 unknown 3.0 GB" in shown
    assert "no owner 1 unknown" in shown
    rows = list(csv.DictReader(io.StringIO(storage_csv(found))))
    (glacier,) = [row for row in rows if row["name"] == "GLACIER"]
    assert (glacier["kind"], glacier["figure"], glacier["size_bytes"]) == (
        "storage class",
        "stored",
        "3000000000",
    )
    owned = [row for row in rows if row["kind"] == "owner" and row["figure"] == "held"]
    assert [row["name"] for row in owned] == ["'=data", ""]
    metrics = storage_metrics(found)
    assert 'owner="=data",class="GLACIER"} 3000000000' in metrics


def it_says_that_a_store_has_no_classes() -> None:
    assert "no storage classes" in text(listed=True, classes=None)
    assert "no storage classes" not in text(listed=False, classes=None)


@pytest.mark.parametrize(("objects", "shown"), [(1, "+1 object,"), (-1, "-1 object,"), (-2, "-2 objects,")])
def it_shows_a_change_of_one_object(objects: int, shown: str) -> None:
    change = {"objects": objects, "size_bytes": 5}
    growth = {"since": "2026-03-30T12:00:00+00:00", "stored": None, "held": change}
    assert shown in text(growth=growth)

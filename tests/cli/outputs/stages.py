"""What has been done at a site before a command is run. Each stage begins where another ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.cli.outputs.site import NOON, Site

LAKE = Path(__file__).parent / "lake.yaml"
MARK = "20260331T120000"
"""What the id of the one mark of the stage ``marked`` begins with."""


@dataclass(frozen=True)
class Stage:
    make: Callable[[Site], None]
    after: str | None = None
    spark: bool = False


def done(site: Site, line: str, code: int = 0) -> None:
    told = site.lakeplan(line)
    assert told.code == code, f"{line}: exit {told.code}\n{told.out}{told.err}"


def seed(site: Site) -> None:
    done(site, f"sandbox seed {LAKE} --endpoint {site.endpoint_url} -q")
    site.grow_old()


def apply(site: Site) -> None:
    done(site, "plan --no-simulate --allow unknown-impact --allow adoption --out plan.json -q")
    done(site, "apply plan.json -q")


def observe(site: Site) -> None:
    """lakeplan saw the branches forty days ago, and they were quiet since."""
    site.now = NOON - timedelta(days=40)
    done(site, "lifecycle run -q")


def mark(site: Site) -> None:
    done(site, "sweep mark --target 'lake-*' -q")


def sweep(site: Site) -> None:
    name = mark_id(site)
    done(site, f"sweep approve {name} --reason 'ticket 42' -q")
    done(site, f"sweep run {name} -q")
    site.grow_old()


def mark_id(site: Site) -> str:
    (found,) = {p.stem for p in (site.tree / ".lakeplan").rglob(f"{MARK}-*") if len(p.stem) == 24}
    return found


STAGES = {
    "empty": Stage(lambda _: None),
    "seeded": Stage(seed),
    "applied": Stage(apply, after="seeded"),
    "observed": Stage(observe, after="seeded"),
    "marked": Stage(mark, after="applied", spark=True),
    "swept": Stage(sweep, after="marked", spark=True),
}

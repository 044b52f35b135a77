"""The steps at a site before a command is run. Each stage begins where another ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.cli.outputs.site import NOON, Site

LAKE = Path(__file__).parent / "lake.yaml"
MARK = "20260331T120000"
"""What the id of the one mark of the stage ``marked`` begins with."""
APPLIED_WITH = ("unknown-impact", "adoption")


@dataclass(frozen=True)
class Stage:
    make: Callable[[Site], None]
    after: str | None = None


def done(site: Site, line: str, code: int = 0) -> None:
    told = site.lakeplan(line)
    assert told.code == code, f"{line}: exit {told.code}\n{told.out}{told.err}"


def override(site: Site, *gates: str) -> Path:
    """A file of the tree that overrides these gates everywhere."""
    items = [f"{{repository: '*', gate: {g}, reason: of a test, expires: 2099-12-31}}" for g in gates]
    file = site.tree / "repositories/overrides.yaml"
    file.write_text(f"apiVersion: lakeplan/v1\nrepositories: {{}}\noverrides: [{', '.join(items)}]\n")
    return file


def seed(site: Site) -> None:
    done(site, f"sandbox seed {LAKE} --endpoint {site.endpoint_url} -q")
    site.grow_old()


def apply(site: Site) -> None:
    file = override(site, *APPLIED_WITH)
    done(site, "plan --no-simulate --out plan.json -q")
    done(site, "apply plan.json --no-simulate -q")
    file.unlink()


def observe(site: Site) -> None:
    """Makes lakeplan observe branches that have been quiet for forty days."""
    site.now = NOON - timedelta(days=40)
    assert site.handle is not None
    store = site.handle._sandbox.service.store
    with store.transaction():  # no repository was seen before it was created
        store.run("UPDATE repositories SET created = ?", int(site.now.timestamp()) - 86400)
    done(site, "branches run -q")


def mark(site: Site) -> None:
    override(site, *APPLIED_WITH)  # a sweep requires the tree that was applied
    done(site, "sweep mark --target 'lake-*' -q")


def sweep(site: Site) -> None:
    """Marked here as well: in a copy of a marked folder, every file is another one than the mark saw."""
    mark(site)
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
    "marked": Stage(mark, after="applied"),
    "swept": Stage(sweep, after="applied"),
}

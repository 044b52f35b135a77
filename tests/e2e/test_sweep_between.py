"""Changes between the approval of a mark and its sweep, to an object that the mark would delete."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.test_sweep_attacks import NOW, address_of, approved, can_be_read, make_site, stage

__all__ = ["make_site"]


def linked(site: Any) -> None:
    """Its address is staged under another path."""
    body = {"physical_address": f"local://lake/{address_of(site, site.old, 'a.bin')}"}
    url = "/repositories/lake/branches/main/objects"
    more = {"checksum": "x", "size_bytes": 1}
    site.world.api.call("PUT", url, params={"path": "linked"}, json=body | more)


def imported(site: Any) -> None:
    """A repository that was not there before has it."""
    address = address_of(site, site.old, "a.bin")
    site.world.api.repository("late")
    stage(site, "late", "import", f"local://lake/{address}")


def branched(site: Any) -> None:
    site.world.api.branch("lake", "again", site.old)


def tagged(site: Any) -> None:
    site.world.api.tag("lake", "keep-1", site.old)


def held(site: Any) -> None:
    root = site.world.tree / "lakeplan.yaml"
    text = root.read_text()
    assert "sweep:" in text
    root.write_text(text.replace("sweep:", f"holds: [{{commit: {site.old}, reason: x}}], sweep:", 1))


def lengthened(site: Any) -> None:
    site.world.api.set_rules("lake", 3650)


def cleared(site: Any) -> None:
    site.world.api.call("DELETE", "/repositories/lake/settings/gc_rules")


def lengthened_in_the_tree(site: Any) -> None:
    root = site.world.tree / "lakeplan.yaml"
    text = root.read_text()
    root.write_text(re.sub(r"default_retention_days: \d+", "default_retention_days: 3650", text))


def merged(site: Any) -> None:
    api = site.world.api
    api.branch("lake", "again", site.old)
    body = {"message": "x", "date": int(time.time())}
    api.upload("lake", "again", "b.bin", b"new")
    api.call("POST", "/repositories/lake/branches/again/commits", json=body)
    api.call("DELETE", "/repositories/lake/branches/again", params={"force": "true"})


@pytest.mark.parametrize(
    "happens",
    [linked, imported, branched, tagged, held, lengthened, cleared, lengthened_in_the_tree, merged],
)
def it_keeps_what_is_needed_again(make_site: Any, happens: Callable[[Any], None]) -> None:
    site = make_site(NOW)
    root = site.world.tree / "lakeplan.yaml"
    root.write_text(root.read_text().replace("safety: {", "safety: {protected_tags: ['keep-*'], ", 1))
    mark_id = approved(site)
    assert can_be_read(site, site.old, "a.bin")
    happens(site)
    done = site.world.lakeplan(("sweep", "run"), mark_id, "--format", "json")
    assert can_be_read(site, site.old, "a.bin"), done.out + done.err


def it_deletes_it_when_nothing_happens(make_site: Any) -> None:
    site = make_site(NOW)
    assert site.world.lakeplan(("sweep", "run"), approved(site)).code == 0
    assert not can_be_read(site, site.old, "a.bin")

"""The attacks of issue 13 on a sweep, each as a user or bad luck would make it, by the command line alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from lakeplan.formats.namespace import sweep_prefix
from tests.e2e.test_sweep import Site
from tests.sandboxes import start_sandbox

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import World

NOW = "{settle: 0s, margin: 0s}"


@pytest.fixture
def make_site(tmp_path: Path, make_world: Callable[..., World]) -> Iterator[Callable[[str], Site]]:
    with start_sandbox(tmp_path / "sandbox") as handle:
        yield lambda settings: Site(make_world(handle), tmp_path / "sandbox", settings)


def approved(site: Site) -> str:
    mark_id = str(site.mark()["mark_id"])
    assert site.world.lakeplan(("sweep", "approve"), mark_id, "--reason", "x").code == 0
    return mark_id


def address_of(site: Site, ref: str, path: str) -> str:
    """Below the repository's namespace."""
    url = f"/repositories/lake/refs/{ref}/objects/stat"
    found: dict[str, str] = site.world.api.call("GET", url, params={"path": path})
    return found["physical_address"].partition("/lake/")[2]


def can_be_read(site: Site, ref: str, path: str) -> bool:
    api = site.world.api
    url = f"{api.root}/repositories/lake/refs/{ref}/objects"
    return api.session.get(url, params={"path": path}, timeout=30).status_code == 200


def stage(site: Site, repository: str, path: str, address: str) -> None:
    """Puts a physical address under a path of another repository, and commits it."""
    url = f"/repositories/{repository}/branches/main"
    body = {"physical_address": address, "checksum": "x", "size_bytes": 1}
    site.world.api.call("PUT", f"{url}/objects", params={"path": path}, json=body)
    site.world.api.call("POST", f"{url}/commits", json={"message": "import"})


def it_reports_what_an_interrupted_sweep_moved_from_a_branch_made_since(make_site: Any) -> None:
    """A3: the second run found everything "saved", with exit code 0, while a live HEAD had lost its data."""
    site = make_site("{settle: 0s, margin: 0s, mode: quarantine}")
    mark_id = approved(site)
    # The objects are moved; what became of them cannot be written down, as when the process is killed there.
    results = site.folder / sweep_prefix(mark_id) / "results"
    results.parent.mkdir(parents=True)
    results.touch()
    assert site.world.lakeplan(("sweep", "run"), mark_id).code != 0
    assert not can_be_read(site, site.old, "a.bin")
    results.unlink()
    site.world.api.branch("lake", "again", site.old)
    done = site.world.lakeplan(("sweep", "run"), mark_id, "--format", "json")
    assert (done.code, done.json["came_back"]) == (3, 1), done.err
    restored = site.world.lakeplan(("sweep", "restore"), mark_id, "--format", "json")
    assert (restored.code, restored.json["failed"]) == (0, 0), restored.err
    assert can_be_read(site, "again", "a.bin")


def it_keeps_the_data_of_a_hold_whose_branch_was_deleted(make_site: Any) -> None:
    """A5: the hold matched nothing any more, and the data was swept."""
    site = make_site(NOW)
    root = site.world.tree / "lakeplan.yaml"
    hold = "holds: [{branch: held, reason: audit}], sweep:"
    root.write_text(root.read_text().replace("sweep:", hold))
    site.world.api.branch("lake", "held", site.old)
    site.mark()
    site.world.api.call("DELETE", "/repositories/lake/branches/held", params={"force": "true"})
    before = site.data()
    mark = site.world.lakeplan(("sweep", "mark"), "--format", "json")
    for one in mark.json["marks"] if mark.code == 0 else ():
        if site.world.lakeplan(("sweep", "approve"), one["mark_id"], "--reason", "x").code == 0:
            site.world.lakeplan(("sweep", "run"), one["mark_id"])
    assert before - site.data() <= {address_of(site, site.older_head, "a.bin")}
    assert can_be_read(site, site.old, "a.bin")


def it_deletes_nothing_by_a_clock_a_day_ahead(make_site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A6: 24 hours of ``settle`` were over at once."""
    site = make_site("{settle: 24h, margin: 0s}")
    before, mark_id = site.data(), approved(site)

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(hours=25)

    monkeypatch.setattr("lakeplan.cli.process.datetime", Ahead)
    refused = site.world.lakeplan(("sweep", "run"), mark_id)
    assert refused.code != 0
    assert "clock" in refused.err
    assert site.data() == before


def it_deletes_by_itself_only_what_the_plan_had_shown(make_site: Any) -> None:
    """A7: as many others were deleted."""
    site = make_site("{settle: 0s, margin: 0s, automatic: true}")
    plan = site.world.plan_file("backlog.json", "--simulate", "all", "--backlog")
    api = site.world.api
    api.branch("lake", "rescue", site.old)
    api.branch("lake", "side")
    api.commit("lake", "side", 25, z=10)
    api.commit("lake", "side", 20, z=11)
    site.age()
    before = site.data()
    result = site.world.lakeplan("apply", str(plan), "--sweep", "--auto-approve")
    assert "awaiting approval" in result.out, result.out + result.err
    assert site.data() == before


@pytest.mark.parametrize("outside", [True, False])
def it_sweeps_no_namespace_in_which_another_repository_keeps_data(make_site: Any, outside: bool) -> None:
    """A10: a link hid that one namespace is inside the other."""
    site = make_site("{settle: 0s, margin: 0s, never_committed: collect}")
    inner = site.folder / "data" / "inner"
    inner.mkdir()
    (site.folder.parent / "other").symlink_to(inner)
    site.world.api.repository("other")
    if outside:  # the tree lists it
        root = site.world.tree / "lakeplan.yaml"
        root.write_text(root.read_text().replace("repositories: {", "repositories: {other: {}, "))
    site.world.api.commit("other", "main", 1, needed=5)
    site.age()
    for file in inner.rglob("*"):
        os.utime(file, (time.time() - 5 * 86400,) * 2)
    mark = site.world.lakeplan(("sweep", "mark"), "--target", "lake", "--format", "json")
    for one in mark.json["marks"] if mark.code == 0 else ():
        site.world.lakeplan(("sweep", "approve"), one["mark_id"], "--reason", "x")
        site.world.lakeplan(("sweep", "run"), one["mark_id"])
    api = site.world.api
    url = f"{api.root}/repositories/other/refs/main/objects"
    assert api.session.get(url, params={"path": "needed.bin"}, timeout=30).status_code == 200


@pytest.mark.parametrize("spelling", ["{}?x=1", "{}#x", "/{}", "/%64{1}"])
def it_keeps_what_another_repository_names_in_another_spelling(make_site: Any, spelling: str) -> None:
    """A16: the server resolves it to the same object."""
    site = make_site(NOW)
    address = address_of(site, site.old, "a.bin")
    site.world.api.repository("other")
    stage(site, "other", "import", "local://lake/" + spelling.format(address, address[1:]))
    site.sweep(site.mark()["mark_id"])
    assert can_be_read(site, site.old, "a.bin")


def it_keeps_an_object_that_was_written_again_under_its_key(make_site: Any) -> None:
    """A17: nobody looked at it again between the mark and the deletion."""
    site = make_site(NOW)
    address = address_of(site, site.old, "a.bin")
    mark_id = approved(site)
    (site.folder / address).write_bytes(b"written again")
    done = site.world.lakeplan(("sweep", "run"), mark_id, "--format", "json")
    assert done.code in (0, 3), done.err
    assert (site.folder / address).read_bytes() == b"written again"

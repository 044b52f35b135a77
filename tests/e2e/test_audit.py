"""An audit as a person types it: no tree, lakectl's credentials, and nothing left behind but its outputs."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeplan.cli.commands.fleet import Storage, open_store
from lakeplan.cli.main import run
from lakeplan.fleet import audit as fleet
from lakeplan.sandbox.service import Options
from lakeplan.tree.tree import load_tree
from lakeplan.values.desired import GcDesired, Policy, SettingKind
from lakeplan.values.repository import Repository
from tests.sandboxes import SandboxHandle, start_sandbox

if TYPE_CHECKING:
    from tests.e2e.conftest import World

Audit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def audit(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Audit:
    """Two repositories with rules, one without, and the command, which gives code, output and errors."""
    for name in ("one", "two", "three"):
        world.api.repository(name)
        world.api.commit(name, "main", 40, a=10)
        world.api.commit(name, "main", 30, a=11)
        world.api.commit(name, "main", 1, a=12)
    world.api.set_rules("one", 7)
    world.api.set_rules("two", -3, main=9, gone=4)
    for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"LAKEPLAN_PROD_{name}")
    monkeypatch.setenv("HOME", str(world.folder))
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", world.handle.endpoint_url)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", world.handle.access_key_id)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", world.handle.secret_access_key)

    def typed(*words: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["audit", *map(str, words)])
        out, err = capsys.readouterr()
        return int(code), out, err

    return typed


def rows(out: str) -> dict[str, Any]:
    return {row["repository"]: row for row in json.loads(out)["repositories"]}


def it_needs_no_tree_and_writes_nothing_else(
    audit: Audit, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty, temporary = tmp_path / "empty", tmp_path / "temporary"
    empty.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = {file for file in world.folder.rglob("*") if "sandbox.db" not in file.name}
    code, out, _ = audit("--format", "json")
    assert code == 0
    found = rows(out)
    assert {name: row["next_run"]["expired"]["objects"] for name, row in found.items()} == {
        "prod/one": 1,
        "prod/two": 1,
        "prod/three": 0,
    }
    assert all(row["estimated"] for row in found.values())
    assert list(empty.iterdir()) == list(temporary.iterdir()) == []
    assert {file for file in world.folder.rglob("*") if "sandbox.db" not in file.name} == before
    assert world.handle.secret_access_key not in out


def it_takes_names_and_lists_storage_that_it_is_shown(audit: Audit, tmp_path: Path) -> None:
    code, out, _ = audit("t*", "--storage-path", tmp_path / "sandbox", "--format", "json")
    assert code == 0
    assert {name: row["estimated"] for name, row in rows(out).items()} == {
        "prod/two": False,
        "prod/three": False,
    }


def it_writes_a_tree_that_keeps_no_less(audit: Audit, tmp_path: Path, world: World) -> None:
    folder = tmp_path / "retention"
    assert audit("--write", folder, "-q")[0] == 0
    tree = load_tree(folder, {})
    resolved = {one.name: one.gc for one in tree.resolve("prod", ["one", "two", "three"])}
    assert resolved.keys() == {"one", "two"}
    two = resolved["two"]
    assert isinstance(two, GcDesired)
    assert two.default_retention_days == 36_500
    assert run(["validate", "-C", str(folder), "-q"]) == 0
    code, _, err = audit("--write", folder)
    assert (code, "already has a tree" in err) == (1, True)


def it_writes_policies_too(
    tmp_path: Path, make_world: Callable[[SandboxHandle], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules and policies, or policies alone; the tree that they make asks for no change."""
    short = {"id": "a", "name_patterns": ["tmp-*", "ci-*"], "max_age": 86_400}
    long = {"id": "b", "name_patterns": ["tmp-*"], "max_inactivity_time": 864_000}
    with start_sandbox(tmp_path / "sandbox", options=Options(flavor="enterprise")) as handle:
        world = make_world(handle)
        for name, policies in (("one", [short]), ("two", [short, long])):
            world.api.repository(name)
            url = f"/repositories/{name}/settings/branch_lifecycle/policies"
            world.api.call("PUT", url, json={"policies": policies})
        world.api.set_rules("one", 7)
        folder = tmp_path / "retention"
        server = f"prod={handle.endpoint_url}"
        assert run(["audit", "--endpoint", server, "--write", str(folder), "-q"]) == 0
        tree = load_tree(folder, {})
        resolved = {one.name: one for one in tree.resolve("prod", ["one", "two"])}
        wanted = {
            name: [
                (one.patterns, one.max_age_seconds, one.max_idle_seconds)
                for one in desired.wanted_items(SettingKind.BRANCH_LIFECYCLE) or ()
                if isinstance(one, Policy)
            ]
            for name, desired in resolved.items()
        }
        assert wanted == {
            "one": [(("tmp-*", "ci-*"), 86_400, None)],
            "two": [(("ci-*",), 86_400, None), (("tmp-*",), None, 864_000)],
        }
        assert [isinstance(one.gc, GcDesired) for one in resolved.values()] == [True, False]


def it_goes_on_from_a_report_and_writes_a_page(audit: Audit, tmp_path: Path) -> None:
    report, page = tmp_path / "audit.json", tmp_path / "audit.html"
    assert audit("one", "--format", "json", "--out", report, "-q")[0] == 0
    code, out, _ = audit("--resume", report, "--html", page, "--format", "json")
    assert code == 0
    found = rows(out)
    assert len(found) == 3
    assert found["prod/one"] == rows(report.read_text())["prod/one"]
    assert "lakeplan audit" in page.read_text()
    report.write_text("{}")
    assert audit("--resume", report)[0] == 64


def it_refuses_a_report_of_another_server_of_the_same_name(audit: Audit, tmp_path: Path) -> None:
    report, folder = tmp_path / "audit.json", tmp_path / "retention"
    assert audit("--format", "json", "--out", report, "-q")[0] == 0
    document = json.loads(report.read_text())
    document["servers"]["prod"] = "https://other.example.com"
    report.write_text(json.dumps(document))
    code, _, err = audit("--resume", report, "--write", folder)
    assert (code, "https://other.example.com" in err) == (64, True)
    assert not folder.exists()


@pytest.mark.parametrize("options", [(), ("--redact-paths",)], ids=str)
def it_reads_a_repository_that_was_created_again(
    audit: Audit, tmp_path: Path, options: tuple[str, ...]
) -> None:
    report = tmp_path / "audit.json"
    assert audit("--format", "json", "--out", report, "-q", *options)[0] == 0
    document = json.loads(report.read_text())
    for row in document["repositories"]:
        row["as_of"] = "2020-01-01T00:00:00Z"
        if row["repository"] == "prod/one":
            row["storage_namespace"] = "local://an-older-one"
    report.write_text(json.dumps(document))
    code, out, _ = audit("--resume", report, "--format", "json")
    assert code == 0
    again = {name for name, row in rows(out).items() if row["as_of"] != "2020-01-01T00:00:00Z"}
    assert again == {"prod/one"}


def it_stops_in_order_and_reports_what_it_has(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fleet.audit_servers

    def stopped(servers: Any, ports: Any, settings: Any, **more: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(servers, ports, settings, **more)

    monkeypatch.setattr("lakeplan.cli.commands.fleet.audit_servers", stopped)
    code, out, _ = audit("--format", "json")
    assert code == 3
    assert json.loads(out)["unfinished"] == ["prod/one", "prod/three", "prod/two"]


@pytest.mark.parametrize("form", ["file://{}", "{}"])
def it_reads_no_folder_of_this_machine_that_a_server_names(tmp_path: Path, form: str) -> None:
    (tmp_path / "data").mkdir()
    repository = Repository("one", form.format(tmp_path), "main")
    assert "does not open folders that a server" in str(open_store(repository, Storage()))


def it_writes_its_page_to_standard_output_for_a_dash(audit: Audit, tmp_path: Path, monkeypatch) -> None:
    """So does storage, which shares ``Outputs.beside``."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    code, out, err = audit("--html", "-", "--format", "json", "--out", "found.json")
    assert code == 0, err
    assert out.lower().startswith("<!doctype html>")
    assert out.endswith("</html>\n")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["found.json"]
    code, out, err = audit("--html", "-", "--format", "json")
    assert (code, out) == (64, "")

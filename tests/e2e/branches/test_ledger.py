"""A lost, renamed, moved or older record of branches, as it happens to a tree: nothing young is deleted."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.stores.folder import FolderState

DAY = 86400


@pytest.fixture
def old(lake, monkeypatch):
    """A repository whose commits are 100 days old, known for a while; age is what the HEAD's date says."""
    lake.policies("{id: old, patterns: [feature-*], max_age: 14d}", "{assume_created: head_commit}")
    lake.api.commit("analytics", "main", 100, data=10)
    for _ in range(2):
        assert lake.branches("run").code == 0
    return lake


def rename_server(lake, monkeypatch) -> None:
    for file in lake.tree.rglob("*.yaml"):
        file.write_text(file.read_text().replace("{prod:", "{main-server:"))
    for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        value = {
            "ENDPOINT_URL": lake.handle.endpoint_url,
            "ACCESS_KEY_ID": lake.handle.access_key_id,
            "SECRET_ACCESS_KEY": lake.handle.secret_access_key,
        }[name]
        monkeypatch.setenv(f"LAKEPLAN_MAIN_SERVER_{name}", value)


def lose_the_record(lake, monkeypatch) -> None:
    lake.ledger.unlink()


def lose_the_state(lake, monkeypatch) -> None:
    shutil.rmtree(lake.tree / ".lakeplan")


def move_the_state(lake, monkeypatch) -> None:
    url = (lake.folder / "elsewhere").as_uri()
    root = (lake.tree / "lakeplan.yaml").read_text()
    lake.write("lakeplan.yaml", f"{root}state: {{url: '{url}'}}\n")
    monkeypatch.setenv("LAKEPLAN_STATE_URL", url)


@pytest.mark.parametrize("change", [lose_the_record, lose_the_state, move_the_state, rename_server])
def it_keeps_a_branch_that_is_seconds_old(old, monkeypatch, change):
    old.api.branch("analytics", "feature-1")
    change(old, monkeypatch)
    for warned in (True, False):
        result = old.branches("run")
        assert result.code == 0, result.err
        (repository,) = result.json["repositories"]
        assert any("cannot be trusted" in w for w in repository["warnings"]) is warned
        assert old.live() == {"main", "feature-1"}


def it_keeps_a_branch_made_again_since_an_older_record_that_is_put_back(old):
    old.api.branch("analytics", "feature-1")
    old.branches("run")
    old.grow_older(13)
    copy = old.ledger.read_text()
    old.api.call("DELETE", "/repositories/analytics/branches/feature-1")
    old.branches("run")
    old.api.branch("analytics", "feature-1")
    old.branches("run")
    old.ledger.write_text(copy)
    old.grow_older(2)
    result = old.branches("run")
    assert old.live() == {"main", "feature-1"}
    assert "outdated copy" in result.json["repositories"][0]["warnings"][0]


def it_tells_a_person(old):
    lose_the_record(old, None)
    assert "cannot be trusted" in " ".join(old.lakeplan("branches", "run").out.split())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document["branches"]["feature-1"].update(first=-1),
        lambda document: document["branches"]["feature-1"].update(first="2026-01-01"),
        lambda document: document["branches"]["feature-1"].update(first=document["repository_created"] - DAY),
        lambda document: document.update(at=document["at"] + DAY),
    ],
    ids=["negative", "text", "before the repository", "future"],
)
def it_fails_one_repository_on_values_that_no_run_wrote(old, spoil):
    old.api.branch("analytics", "feature-1")
    old.branches("run")
    document = json.loads(old.ledger.read_text())
    spoil(document)
    old.ledger.write_text(json.dumps(document))
    old.api.repository("second")
    text = (old.tree / "repositories" / "analytics.yaml").read_text()
    old.write("repositories/second.yaml", text.replace("  analytics:", "  second:"))
    result = old.branches("run")
    assert result.code == 3
    first, second = result.json["repositories"]
    assert "branches/prod/analytics.json" in first["failure"]["where"]
    assert "elete it" in first["failure"]["hint"]
    assert second["failure"] is None
    assert old.live() == {"main", "feature-1"}


def it_keeps_an_exempted_branch_of_a_renamed_server(old, monkeypatch):
    old.api.branch("analytics", "feature-1")
    old.branches("run")
    exempted = old.branches("exempt", "analytics", "feature-1", "--until", "2099-01-01", "--reason", "late")
    assert exempted.code == 0
    rename_server(old, monkeypatch)
    assert old.branches("run").code == 0
    monkeypatch.setattr(type(old), "ledger", old.tree / ".lakeplan/branches/main-server/analytics.json")
    old.grow_older(15)
    result = old.branches("run")
    assert old.live() == {"main", "feature-1"}, result.out


def it_keeps_a_branch_that_somebody_exempts_in_an_older_checkout(lake, monkeypatch):
    former = {file: file.read_text() for file in lake.tree.rglob("*.yaml")}
    lake.observed("feature-1", "feature-2", days=0)
    rename_server(lake, monkeypatch)
    present = {file: file.read_text() for file in former}
    monkeypatch.setattr(type(lake), "ledger", lake.tree / ".lakeplan/branches/main-server/analytics.json")
    assert lake.branches("run").code == 0
    for texts in (former, present):
        for file, text in texts.items():
            file.write_text(text)
        if texts is former:
            for name in ("feature-1", "feature-2"):
                assert lake.branches("exempt", "analytics", name, "--until", "2099-01-01").code == 0
    assert lake.branches("run").code == 0
    assert lake.branches("exempt", "analytics", "feature-2", "--remove").code == 0
    lake.grow_older(15)
    lake.branches("run")
    assert lake.live() == {"main", "feature-1"}


def it_names_a_damaged_exemption_record_that_may_be_of_a_former_name(old, monkeypatch):
    old.api.branch("analytics", "feature-1")
    old.branches("exempt", "analytics", "feature-1", "--until", "2099-01-01")
    rename_server(old, monkeypatch)
    record = old.tree / ".lakeplan/exemptions/prod/analytics.json"
    record.write_text("{}")
    shown = " ".join(old.lakeplan("branches", "run").out.split())
    assert "failed: exemptions/prod/analytics.json: the record of exempted branches is damaged" in shown
    assert "prod may be a former name of the server main-server. Restore the record from a backup" in shown


def it_lists_exemptions_once_for_all_repositories(lake, monkeypatch):
    text = (lake.tree / "repositories" / "analytics.yaml").read_text()
    for name in ("second", "third"):
        lake.api.repository(name)
        lake.write(f"repositories/{name}.yaml", text.replace("  analytics:", f"  {name}:"))
    listed: list[str] = []
    listing = FolderState.list_keys
    monkeypatch.setattr(
        FolderState, "list_keys", lambda self, prefix="": listed.append(prefix) or listing(self, prefix)
    )
    for command in ("plan", "run"):
        monkeypatch.setattr(f"lakeplan.branches.{command}.WORKERS", 1)
        assert lake.branches(command).code in (0, 2)
        assert listed.count("exemptions/") == 1
        listed.clear()


def it_tells_undo_of_a_renamed_server_where_the_records_are(lake, monkeypatch):
    lake.observed("feature-1")
    lake.branches("run")
    assert lake.live() == {"main"}
    rename_server(lake, monkeypatch)
    refused = lake.branches("undo")
    assert refused.code == 64
    shown = " ".join(refused.err.split())
    assert "repositories that are not in the tree: prod/analytics." in shown
    assert "restore the former name of a renamed server" in shown


def it_tells_undo_of_records_of_repositories_that_left_the_tree(lake):
    lake.observed("feature-1")
    entry = lake.tree / "repositories" / "analytics.yaml"
    text = entry.read_text()
    lake.api.repository("second")
    lake.api.branch("second", "feature-1")
    lake.write("repositories/second.yaml", text.replace("  analytics:", "  second:"))
    lake.branches("run")
    assert lake.live() == {"main"}
    entry.unlink()
    refused = lake.branches("undo")
    assert refused.code == 64
    assert "To restore their branches, add them to the tree" in " ".join(refused.err.split())
    entry.write_text(text)
    assert lake.branches("undo").code == 0
    assert lake.live() == {"main", "feature-1"}


def it_keeps_a_branch_that_was_exempted_before_the_first_run(lake, monkeypatch):
    lake.policies("{id: old, patterns: [feature-*], max_age: 14d}", "{assume_created: head_commit}")
    lake.api.branch("analytics", "feature-1", lake.api.commit("analytics", "main", 100, data=10))
    assert lake.branches("exempt", "analytics", "feature-1", "--until", "2099-01-01").code == 0
    rename_server(lake, monkeypatch)
    for _ in range(2):
        assert lake.branches("run").code == 0
    assert lake.live() == {"main", "feature-1"}


def it_keeps_the_newest_exemption_when_a_server_gets_its_former_name_again(old, monkeypatch):
    files = {file: file.read_text() for file in old.tree.rglob("*.yaml")}
    old.api.branch("analytics", "feature-1")
    old.branches("run")
    soon = (datetime.now(timezone.utc) + timedelta(hours=25)).isoformat(timespec="seconds")
    old.branches("exempt", "analytics", "feature-1", "--until", soon)
    rename_server(old, monkeypatch)
    old.branches("run")
    assert old.branches("exempt", "analytics", "feature-1", "--until", "2099-01-01").code == 0
    for file, text in files.items():
        file.write_text(text)
    old.branches("run")
    record = json.loads((old.tree / ".lakeplan/exemptions/prod/analytics.json").read_text())
    assert record["branches"]["feature-1"]["end"].startswith("2099")

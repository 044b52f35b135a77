"""An audit of a server: figures against an independent count, and what it may not do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests

from lakeplan.errors import LakeplanError, StorageError
from lakeplan.fleet.audit import AuditPorts, AuditSettings, audit_servers, sound_rules, stored_policies
from lakeplan.fleet.judging import AuditDocument
from lakeplan.formats.collector import UnifiedRun
from lakeplan.lakefs.client import LakeFSBranchReader, LakeFSServer
from lakeplan.lakefs.credentials import Credentials, Secret
from lakeplan.lakefs.transport import RetryPolicy
from lakeplan.lakefs.writers import LakeFSPreparer
from lakeplan.simulation.checking import StepSurveyor
from lakeplan.simulation.runners import LOCAL, Runners
from lakeplan.stores.open import NamespaceReader, open_namespace, open_sweep_store
from lakeplan.tree.schemas import load_schema
from lakeplan.values.desired import Policy, ServerConfig, Stored
from lakeplan.values.progress import Silent
from lakeplan.values.repository import Repository
from lakeplan.values.rules import MAX_DAYS, GcRules
from lakeplan.values.sweep import Versions
from tests.commits_csv import read_commits_csv
from tests.storage_servers import s3_client
from tests.sweeping.lake import Lake, LakeRepository

NOTHING = {"objects": 0, "size_bytes": 0}


def ports(lake: Lake, *, listed: bool = True, **more: Any) -> AuditPorts:
    credentials = Credentials(Secret(lake.handle.access_key_id), Secret(lake.handle.secret_access_key))
    config = ServerConfig("prod", lake.handle.endpoint_url)
    reader: LakeFSServer = LakeFSServer.connect(config, credentials, retries=RetryPolicy(tries=1))
    pinger: LakeFSBranchReader = LakeFSBranchReader.connect(config, credentials, retries=RetryPolicy(tries=1))

    def store(_: str, repository: Repository) -> NamespaceReader | str:
        folder = lake.folder / repository.storage_namespace.removeprefix("local://")
        return open_namespace(str(folder)) if listed else "no credentials"

    made: dict[str, Any] = {
        "reader": lambda server: reader,
        "branches": lambda server: pinger,
        "store": store,
        "surveyor": StepSurveyor(Runners(LOCAL).open),
        "progress": Silent(),
        "grace_seconds": lambda server: LakeFSPreparer.connect(config, credentials).grace_period_seconds(),
    }
    return AuditPorts(**made | more)


def audit(
    lake: Lake,
    *,
    listed: bool = True,
    known: Mapping[str, Any] | None = None,
    takes: Callable[[str, str], bool] = lambda server, name: True,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> tuple[AuditDocument, dict[str, Any]]:
    chosen = AuditSettings(lake.clock(), timezone.utc, **{"seed": "seed", **(settings or {})})
    found = audit_servers(
        {"prod": "x"},
        ports(lake, listed=listed, **more),
        chosen,
        takes=takes,
        known=known or {},
        now=lake.clock,
    )
    document = json.loads(json.dumps(found))
    jsonschema.Draft202012Validator(load_schema("audit")).validate(document)
    return found, document


def audited(lake: Lake, **more: Any) -> dict[str, Any]:
    found, document = audit(lake, **more)
    assert found["failed"] == {}
    (row,) = document["repositories"]
    made: dict[str, Any] = row
    return made


def address_of(repo: LakeRepository, ref: str, path: str = "a.bin") -> Path:
    answer = repo.call("GET", f"/refs/{ref}/objects/stat", params={"path": path}).json()
    return repo.folder / repo.relative(answer["physical_address"])


def kept_by_server(repo: LakeRepository) -> set[str]:
    """The commits that the server itself returns to a collector."""
    answer = repo.call("POST", "/gc/prepare_commits").json()
    key = answer["gc_commits_location"].partition(f"{repo.name}/")[2]
    return set(read_commits_csv((repo.folder / key).read_bytes()))


@pytest.mark.parametrize("listed", [True, False])
def it_says_what_the_next_collection_would_delete(lake: Lake, repo: LakeRepository, listed: bool) -> None:
    row = audited(lake, listed=listed)
    assert row["next_run"] == {
        "expired": {"objects": 2, "size_bytes": 11},
        "at_risk": NOTHING,
        "tagged": NOTHING,
        "min_age_seconds": 86_400,
        "too_young": NOTHING if listed else None,
    }
    assert row["freeable"] == {"objects": 2, "size_bytes": 11}
    assert row["objects"] == {"objects": 4, "size_bytes": 22}
    assert (row["estimated"], row["not_listed"]) == (not listed, "" if listed else "no credentials")
    assert row["commits"]["kept_by_server"] == row["commits"]["kept_by_rule"] == len(kept_by_server(repo))


def it_says_what_other_periods_would_delete(lake: Lake, repo: LakeRepository) -> None:
    periods = {one["days"]: one["expired"]["objects"] for one in audited(lake)["periods"]}
    assert periods == {1: 3, 7: 2, 14: 2, 30: 1, 60: 0, 90: 0, 180: 0, 365: 0}


def it_counts_what_tags_would_lose(lake: Lake, repo: LakeRepository) -> None:
    repo.tag("v1", "main~3")
    row = audited(lake)
    assert row["next_run"]["tagged"] == {"objects": 1, "size_bytes": 5}
    assert ("data-loss", "lakeplan plan --target prod/repo1") in [
        (one["severity"], one["command"]) for one in row["advice"]
    ]


def it_counts_what_is_gone_although_the_rule_keeps_it(lake: Lake, repo: LakeRepository) -> None:
    assert audited(lake)["destroyed"]["amount"] == NOTHING
    address_of(repo, "main~1").unlink()
    address_of(repo, "main~3").unlink()  # expired: nobody misses it
    row = audited(lake)
    assert row["destroyed"]["amount"] == {"objects": 1, "size_bytes": 5}
    assert row["destroyed"]["low_percent"] == 50.0
    assert row["advice"][0]["command"] == "lakeplan check --target prod/repo1"


def it_finds_what_is_gone_by_a_sample(lake: Lake, repo: LakeRepository) -> None:
    address_of(repo, "main~1").unlink()
    row = audited(lake, listed=False, settings={"sample": 50})
    found = row["destroyed"]
    assert (found["how"], found["asked"], found["gone"], found["examples"]) == ("sample", 2, 1, ["a.bin"])
    assert found["low_percent"] < 50 < found["high_percent"]
    assert row["advice"][0]["severity"] == "data-loss"


@pytest.mark.parametrize("listed", [True, False])
def it_says_that_data_of_tags_is_gone(lake: Lake, repo: LakeRepository, listed: bool) -> None:
    """``main~3`` expired and its object is gone: without the tag nobody misses it."""
    address_of(repo, "main~3").unlink()
    assert audited(lake, listed=listed)["destroyed_tagged"] is None
    repo.tag("v1", "main~3")
    repo.tag("latest", "main")
    row = audited(lake, listed=listed, settings={"sample": 50})
    found = row["destroyed_tagged"]
    kept = row["destroyed"]
    if listed:
        assert (found["how"], found["amount"]) == ("listing", {"objects": 1, "size_bytes": 5})
        assert (found["low_percent"], kept["amount"]) == (100.0, NOTHING)
    else:
        assert (found["how"], found["asked"], found["gone"]) == ("sample", 1, 1)
        assert (kept["asked"], kept["gone"]) == (2, 0)
    problems = [one["problem"] for one in row["advice"] if one["severity"] == "data-loss"]
    assert (
        problems[0]
        == "objects that tags reference no longer exist, because tags do not protect data on a server"
    )


def it_misses_no_data_of_a_tag_that_is_there(lake: Lake, repo: LakeRepository) -> None:
    repo.tag("v1", "main~3")
    row = audited(lake)
    assert row["destroyed_tagged"]["amount"] == NOTHING
    assert not any("are gone" in one["problem"] for one in row["advice"])


@pytest.mark.parametrize(("grace", "later"), [(None, 0), (3_600, 0), (86_400 * 50, 2)])
def it_leaves_young_objects_for_a_later_collection(
    lake: Lake, repo: LakeRepository, grace: int | None, later: int
) -> None:
    """Two objects expired. They are as old as their commits, 42 and 32 days."""
    row = audited(lake, grace_seconds=lambda server: grace)
    assert row["next_run"]["min_age_seconds"] == max(86_400, grace or 0)
    assert row["next_run"]["too_young"]["objects"] == later
    assert row["next_run"]["expired"]["objects"] == 2 - later


def it_waits_a_day_where_a_server_does_not_say_how_long(lake: Lake, repo: LakeRepository) -> None:
    def refused(server: str) -> int | None:
        raise LakeplanError("denied")

    assert audited(lake, grace_seconds=refused)["next_run"]["min_age_seconds"] == 86_400


def it_keeps_policies_for_a_tree_and_ends_their_clashes(lake: Lake, repo: LakeRepository) -> None:
    """Of two policies with one pattern the longer keeps it: fewer branches are deleted, never more."""
    made = ports(lake)
    reader: Any = made.reader("prod")
    short, long = Policy("a", ("tmp-*", "ci-*"), 3_600), Policy("b", ("tmp-*",), None, 7_200)
    reader.get_policies = lambda name: Stored((short, long))
    row = audited(lake, reader=lambda server: reader)
    assert [one["name_patterns"] for one in row["policies"]] == [["tmp-*", "ci-*"], ["tmp-*"]]
    assert "2 branch policies for the pattern 'tmp-*' set different ages" in row["nonsense"]
    assert stored_policies(row) == (Policy("a", ("ci-*",), 3_600), long)  # type: ignore[arg-type]


def it_says_why_it_has_no_sample(lake: Lake, repo: LakeRepository) -> None:
    row = audited(lake, listed=False, settings={"sample": 0})
    assert (row["destroyed"], row["not_sampled"]) == (None, "--sample is 0")


def it_falls_back_when_storage_cannot_be_listed(lake: Lake, repo: LakeRepository) -> None:
    class Broken:
        url = "s3://bucket/none"

        def __getattr__(self, name: str) -> Any:
            raise StorageError("the connection was refused")

    row = audited(lake, store=lambda *_: Broken())
    assert (row["estimated"], row["not_listed"]) == (True, "the connection was refused")
    assert row["next_run"]["expired"]["objects"] == 2


def it_counts_what_was_never_committed(lake: Lake, repo: LakeRepository) -> None:
    repo.upload("staged.bin", b"staged")
    lake.clock.advance(days=2)
    row = audited(lake)
    assert row["uncommitted"] == {"asked": 1, "branches": 1, "changes": 1, "more": False}
    assert row["leftovers"] == {"never_committed": {"objects": 1, "size_bytes": 6}, "staged": None}
    repo.call("POST", "/gc/prepare_uncommited", json={})
    row = audited(lake)
    assert row["leftovers"] == {"never_committed": NOTHING, "staged": {"objects": 1, "size_bytes": 6}}


def it_names_stored_nonsense_and_mends_it(lake: Lake, repo: LakeRepository) -> None:
    repo.set_rules(0, main=-3, gone=4)
    row = audited(lake)
    assert [text.partition(":")[0] for text in row["nonsense"]] == [
        "-3 retention days on branch 'main'",
        "0 retention days by default",
        "there is a rule for branch 'gone', which does not exist",
    ]
    assert sound_rules(row) == GcRules(MAX_DAYS, {"main": MAX_DAYS})  # type: ignore[arg-type]


def it_names_stale_branches(lake: Lake, repo: LakeRepository) -> None:
    repo.branch("old", "main~2")
    row = audited(lake, settings={"stale_days": 30})
    assert row["stale_branches"] == [{"branch": "old", "days": 32}]
    assert (row["stale_count"], audited(lake, settings={"stale_days": 33})["stale_count"]) == (1, 0)


def it_says_that_nothing_expires_without_rules(lake: Lake, repo: LakeRepository) -> None:
    repo.call("DELETE", "/settings/gc_rules")
    row = audited(lake)
    assert row["rules"] is None
    assert row["next_run"]["expired"] == NOTHING
    assert "no GC rules" in row["advice"][0]["problem"]
    assert sound_rules(row) is None  # type: ignore[arg-type]


def it_names_runs_of_collectors_and_their_failures(lake: Lake, repo: LakeRepository) -> None:
    run = UnifiedRun("run1")
    now = lake.clock()
    data = run.summary(started=now, cutoff=now, first_slice="", deleted=3, now=now)
    file = repo.folder / run.summary_key
    file.parent.mkdir(parents=True)
    file.write_bytes(data.replace(b'"success": true', b'"success": false'))
    row = audited(lake)
    assert [(one["run_id"], one["success"]) for one in row["collector_runs"]] == [("run1", False)]
    assert "a collector failed" in [one["problem"] for one in row["advice"]]


def it_sees_deleted_branches_only_with_a_dump(lake: Lake, repo: LakeRepository) -> None:
    repo.branch("extra")
    repo.commit(1, "extra", b=b"dangling")
    repo.drop_branch("extra")
    assert audited(lake)["commits"]["total"] == 5
    row = audited(lake, settings={"dump_refs": True})
    assert (row["commits"]["total"], row["commits"]["dangling_seen"]) == (6, True)
    assert row["commits"]["kept_by_server"] == len(kept_by_server(repo))


@pytest.mark.parametrize("listed", [True, False])
def it_changes_nothing(lake: Lake, repo: LakeRepository, listed: bool) -> None:
    repo.tag("v1", "main~3")

    def files() -> dict[str, bytes]:
        every = (f for f in lake.folder.rglob("*") if f.is_file() and ".db" not in f.name)
        return {str(f): f.read_bytes() for f in every}

    before = files()
    audited(lake, listed=listed)
    assert files() == before


def it_asks_for_each_commit_once(lake: Lake, repo: LakeRepository) -> None:
    """Many branches share their history: a log is read until nothing in it is new."""
    for number in range(5):
        repo.branch(f"x{number}")
    asked: list[str] = []
    made = ports(lake)
    reader: Any = made.reader("prod")
    log = reader.log_commits
    reader.log_commits = lambda name, ref: (asked.append(ref), log(name, ref))[1]
    audit_servers(
        {"prod": "x"},
        made,
        AuditSettings(lake.clock(), timezone.utc),
        takes=lambda server, name: True,
        known={},
        now=lake.clock,
    )
    assert len(asked) == 1


def it_leaves_out_what_needs_too_many_requests(lake: Lake, repo: LakeRepository) -> None:
    found, _ = audit(lake, listed=False, settings={"max_requests": 3})
    assert "exceed the limit of 3 requests" in found["failed"]["prod/repo1"]["message"]
    assert audited(lake, settings={"max_requests": 3})["estimated"] is False


def it_fails_by_repository_and_goes_on(lake: Lake, repo: LakeRepository) -> None:
    lake.repository("repo2").set_rules(7)
    made = ports(lake)
    reader: Any = made.reader("prod")
    rules = reader.get_gc_rules

    def broken(name: str) -> Any:
        if name == "repo1":
            raise LakeplanError("denied")
        return rules(name)

    reader.get_gc_rules = broken
    found, document = audit(lake, reader=lambda server: reader)
    assert [row["repository"] for row in document["repositories"]] == ["prod/repo2"]
    assert found["failed"]["prod/repo1"]["message"] == "denied"


def it_stops_when_told_and_goes_on_from_a_report(lake: Lake, repo: LakeRepository) -> None:
    lake.repository("repo2")
    _, first = audit(lake, takes=lambda server, name: name == "repo1")
    known = {row["repository"]: row for row in first["repositories"]}
    lake.clock.advance(days=1)
    found, document = audit(lake, known=known, stop=lambda: True)
    assert found["unfinished"] == ["prod/repo2"]
    assert document["repositories"] == first["repositories"]
    found, document = audit(lake, known=known)
    assert found["unfinished"] == []
    times = [row["as_of"] for row in document["repositories"]]
    assert times[0] == first["repositories"][0]["as_of"] != times[1]


def it_does_not_take_young_objects_for_garbage(lake: Lake, repo: LakeRepository) -> None:
    address = repo.upload("young.bin", b"young")
    repo.touch(address, age_hours=1)
    row = audited(lake)
    assert row["leftovers"]["never_committed"] == NOTHING
    lake.clock.advance(days=2)
    assert audited(lake)["leftovers"]["never_committed"]["objects"] == 1


def it_gives_the_same_figures_in_s3_and_what_the_bucket_keeps_besides(
    lake: Lake, repo: LakeRepository, s3_bucket: str
) -> None:
    address_of(repo, "main~1").unlink()
    at_home = audited(lake)
    client = s3_client()
    client.put_bucket_versioning(Bucket=s3_bucket, VersioningConfiguration={"Status": "Enabled"})
    for file in repo.folder.rglob("*"):
        if file.is_file():
            key = f"repo1/{file.relative_to(repo.folder).as_posix()}"
            client.put_object(Bucket=s3_bucket, Key=key, Body=file.read_bytes())
    gone = address_of(repo, "main~2").relative_to(repo.folder).as_posix()
    # uploads of a test are young: two days from now they are not
    lake.clock.at = datetime.now(timezone.utc) + timedelta(days=2)
    repo.set_rules(int(7 + (lake.clock.at - datetime(2024, 3, 4, 12, tzinfo=timezone.utc)).days))
    row = audited(lake, store=lambda *_: open_namespace(f"s3://{s3_bucket}/repo1"))
    same = ("objects", "destroyed", "next_run", "freeable", "estimated")
    assert {key: row[key] for key in same} == {key: at_home[key] for key in same}
    assert row["remnants"]["noncurrent"] == NOTHING
    client.delete_object(Bucket=s3_bucket, Key=f"repo1/{gone}")
    row = audited(lake, store=lambda *_: open_namespace(f"s3://{s3_bucket}/repo1"))
    assert row["remnants"]["noncurrent"] == {"objects": 1, "size_bytes": len(b"second")}
    assert row["remnants"]["delete_markers"] == 1
    assert row["next_run"]["expired"]["objects"] == at_home["next_run"]["expired"]["objects"] - 1
    assert any("noncurrent versions" in one["problem"] for one in row["advice"])


def it_gives_the_same_figures_in_google_cloud_storage_and_its_older_versions(
    lake: Lake, repo: LakeRepository, gcs_bucket: str, gcs_endpoint: str
) -> None:
    lake.clock.at = datetime.now(timezone.utc) + timedelta(days=2)
    repo.set_rules(int(7 + (lake.clock.at - datetime(2024, 3, 4, 12, tzinfo=timezone.utc)).days))
    at_home = audited(lake)
    body = {"name": f"{gcs_bucket}-v", "versioning": {"enabled": True}}
    requests.post(f"{gcs_endpoint}/storage/v1/b", json=body, timeout=10).raise_for_status()
    store = open_sweep_store(f"gs://{gcs_bucket}-v/repo1")
    for file in repo.folder.rglob("*"):
        if file.is_file():
            store.put(file.relative_to(repo.folder).as_posix(), file.read_bytes())
    row = audited(lake, store=lambda *_: store)
    same = ("objects", "destroyed", "next_run", "freeable", "estimated")
    assert {key: row[key] for key in same} == {key: at_home[key] for key in same}
    assert row["remnants"]["noncurrent"] == NOTHING
    gone = address_of(repo, "main~2").relative_to(repo.folder).as_posix()
    store.delete([gone], versions=Versions.MARKER)
    row = audited(lake, store=lambda *_: store)
    assert row["remnants"] == {
        "noncurrent": {"objects": 1, "size_bytes": len(b"second")},
        "delete_markers": 0,
        "unfinished_uploads": None,
        "oldest_upload": "",
        "complete": True,
    }

"""Doctor: what is missing, named one by one, with what to do."""

from __future__ import annotations

import jsonschema
import pytest

from lakeplan.config.schemas import load_schema
from lakeplan.errors import SimulationFailed


@pytest.fixture
def ready(world):
    for name in ("analytics", "events"):
        world.api.repository(name)
        world.api.commit(name, "main", 1, a=10)
        world.rules(name, 21)
    return world


def checks(world, *more, code=0):
    result = world.lakeplan("doctor", "--no-spark", "--format", "json", *more)
    assert result.code == code, result.out + result.err
    jsonschema.Draft202012Validator(load_schema("doctor")).validate(result.json)
    found = {c["check"]: c for c in result.json["checks"]}
    assert all(c["hint"] for c in found.values() if c["result"] != "ok")
    return found


def it_finds_nothing_wrong_where_nothing_is(ready):
    found = checks(ready, "--for", "apply")
    assert {c["result"] for c in found.values()} == {"ok"}
    assert {
        "valid", "credentials", "binding", "reachable", "edition", "clock", "fs:ListRepositories",
        "fs:ReadRepository", "retention:GetGarbageCollectionRules", "retention:SetGarbageCollectionRules",
        "fs:ListBranches", "fs:ListTags", "fs:ReadCommit", "fs:ListObjects", "fs:ListCommits",
        "stored rules", "readable", "writable", "conditional writes", "deletable",
    } == set(found)  # fmt: skip


def it_changes_nothing_but_a_dump_and_leaves_no_record(ready):
    ready.handle.faults.forget()
    checks(ready, "--for", "apply")
    assert {r.method for r in ready.handle.faults.requests if not r.path.endswith("/refs/dump")} == {"GET"}
    assert not list((ready.tree / ".lakeplan").rglob("*.json"))
    ready.handle.faults.forget()
    found = checks(ready, "--read-only")
    assert {r.method for r in ready.handle.faults.requests} == {"GET"}
    assert found["fs:ListCommits"]["result"] == "warn"
    assert "writable" not in found


@pytest.mark.parametrize(
    ("route", "permission"),
    [
        (r"GET /api/v1/repositories$", "fs:ListRepositories"),
        (r"GET /api/v1/repositories/events$", "fs:ReadRepository"),
        (r"GET .*/events/settings/gc_rules", "retention:GetGarbageCollectionRules"),
        (r"GET .*/events/gc/rules/set_allowed", "retention:SetGarbageCollectionRules"),
        (r"GET .*/events/branches$", "fs:ListBranches"),
        (r"GET .*/events/tags$", "fs:ListTags"),
        (r"GET .*/commits/", "fs:ReadCommit"),
        (r"GET .*/metadata/", "fs:ListObjects"),
        (r"PUT .*/refs/dump", "fs:ListCommits"),
    ],
)
def it_names_the_one_permission_that_is_missing(ready, route, permission):
    ready.handle.faults.deny(route)
    found = checks(ready, "--for", "apply", code=1)
    assert [name for name, c in found.items() if c["result"] == "fail"] == [permission]
    assert permission in found[permission]["hint"]
    if "events" in route:
        assert "(on events)" in found[permission]["message"]


def it_names_what_a_server_stores_but_should_not_have(ready):
    ready.api.set_rules("analytics", -3, gone=0, main=99999)
    found = checks(ready)["stored rules"]
    assert found["result"] == "warn"
    for text in (
        "-3 days for the default",
        "0 days for branch 'gone'",
        "99,999 days",
        "'gone', which does not",
    ):
        assert text in found["message"]


def it_looks_at_the_stored_rules_of_repositories_without_an_entry_too(ready):
    ready.api.repository("nobodys")
    ready.api.set_rules("nobodys", -1)
    assert "nobodys: -1 days" in checks(ready)["stored rules"]["message"]
    ready.handle.faults.deny("GET .*/nobodys/settings")
    assert checks(ready)["stored rules"]["result"] == "ok"


def it_names_repositories_that_are_not_there(ready):
    ready.rules("typo", 3)
    assert "typo" in checks(ready, code=1)["repositories"]["message"]


def it_goes_on_without_a_server(ready):
    ready.handle.stop()
    found = checks(ready, code=1)
    assert found["reachable"]["result"] == "fail"
    assert found["readable"]["result"] == "ok"


def it_tells_missing_credentials_from_foreign_ones(ready, monkeypatch):
    monkeypatch.setenv("LAKEPLAN_PROD_SECRET_ACCESS_KEY", "wrong")
    result = ready.lakeplan("doctor", "--no-spark")
    assert result.code == 1
    assert "does not accept the credentials" in " ".join(result.out.split())
    assert "wrong" not in result.out
    monkeypatch.delenv("LAKEPLAN_PROD_SECRET_ACCESS_KEY")
    assert checks(ready, code=1)["credentials"]["result"] == "fail"


def it_knows_that_a_runner_forgets(ready, monkeypatch):
    monkeypatch.setenv("CI", "true")
    assert checks(ready)["it stays"]["result"] == "warn"


def it_knows_an_edition_that_the_tree_expects_and_the_server_is_not(ready):
    text = (ready.tree / "lakeplan.yaml").read_text()
    engine = text.replace("}}\n", ", branch_lifecycle: {engine: server}}}\n", 1)
    ready.write("lakeplan.yaml", engine)
    assert checks(ready, code=1)["edition"]["result"] == "fail"


def it_says_what_is_wrong_with_a_tree(ready):
    ready.write("repositories/a.yaml", "apiVersion: lakeplan/v1\nrepositories: {scratch: {gcc: clear}}\n")
    found = checks(ready, code=1)
    assert "gcc" in found["valid"]["message"]
    assert list(found) == ["valid"]


@pytest.mark.spark
def it_starts_spark(ready):
    result = ready.lakeplan("doctor", "--target", "nothing")
    assert result.code == 0, result.out
    assert "a Python worker answers" in " ".join(result.out.split())


def it_says_how_to_get_java(ready, monkeypatch):
    def no_java(_):
        raise SimulationFailed("Java is missing: no java on the PATH", hint="Spark needs Java 17 or later")

    monkeypatch.setattr("lakeplan.simulation.check.check_spark", no_java)
    result = ready.lakeplan("doctor")
    assert result.code == 1
    assert "Java is missing" in result.out
    assert "do: Spark needs Java 17 or later" in result.out


@pytest.mark.parametrize(
    "wrong",
    [["--for", "sweep"], ["--server", "nowhere"], ["--format", "junit"], ["--spark-conf", "x"], ["x"]],
)
def it_explains_wrong_use(ready, wrong):
    result = ready.lakeplan("doctor", "--no-spark", *wrong)
    assert result.code == 64
    assert "Traceback" not in result.err

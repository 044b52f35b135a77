"""Doctor: what is missing, named one by one, with what to do."""

from __future__ import annotations

import jsonschema
import pytest

from lakeplan.errors import SimulationFailed
from lakeplan.tree.schemas import load_schema


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


@pytest.mark.parametrize("purpose", ["apply", "branches", "sweep"])
def it_writes_no_record_to_the_state_with_read_only(ready, purpose):
    """--read-only wrote and deleted the test record, in a state that the caller may only read."""
    code = 0 if purpose == "apply" else 1  # the tree has neither an engine nor storages
    found = checks(ready, "--for", purpose, "--read-only", code=code)
    assert not (ready.tree / ".lakeplan").exists()
    assert found["writable"]["result"] == "warn"
    assert "not tested with --read-only" in found["writable"]["message"]
    assert not {"conditional writes", "deletable"} & set(found)


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
        "-3 retention days by default",
        "0 retention days on branch 'gone'",
        "99,999 retention days on branch 'main'",
        "'gone', which does not",
    ):
        assert text in found["message"]


def it_looks_at_the_stored_rules_of_repositories_without_an_entry_too(ready):
    ready.api.repository("nobodys")
    ready.api.set_rules("nobodys", -1)
    assert "nobodys: -1 retention days by default" in checks(ready)["stored rules"]["message"]
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
    assert checks(ready)["is kept"]["result"] == "warn"


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
    assert "a Python worker responds" in " ".join(result.out.split())


def it_says_how_to_get_java(ready, monkeypatch):
    def no_java(_):
        raise SimulationFailed("Java is missing: no java on the PATH", hint="Spark needs Java 17 or later")

    monkeypatch.setattr("lakeplan.simulation.spark.check_spark", no_java)
    result = ready.lakeplan("doctor", "--master", "local[1]")
    assert result.code == 1
    assert "Java is missing" in result.out
    assert "hint: Spark needs Java 17 or later" in result.out
    result = ready.lakeplan("doctor")
    assert result.code == 0
    said = " ".join(result.out.split())
    assert "warn Java and Spark start Java is missing" in said
    assert "Only Spark needs Java: `--runner spark`, `--master`, and simulations of more than 20" in said


@pytest.mark.parametrize(
    "wrong",
    [["--for", "everything"], ["--server", "nowhere"], ["--format", "junit"], ["--spark-conf", "x"], ["x"]],
)
def it_explains_wrong_use(ready, wrong):
    result = ready.lakeplan("doctor", "--no-spark", *wrong)
    assert result.code == 64
    assert "Traceback" not in result.err


class DescribeForLifecycle:
    @pytest.fixture
    def policies(self, ready):
        ready.write(
            "lakeplan.yaml",
            "apiVersion: lakeplan/v1\n"
            f"servers: {{prod: {{endpoint_url: {ready.handle.endpoint_url}, "
            "branch_lifecycle: {engine: lakeplan}}}\n"
            "profiles: {tidy: {branch_lifecycle: {policies: [{patterns: ['wip-*'], max_age: 7d}]}}}\n"
            "repositories: {'*': {use: [tidy]}}\n",
        )
        return ready

    def it_tries_what_can_be_tried_and_deletes_nothing(self, policies):
        policies.handle.faults.forget()
        found = checks(policies, "--for", "branches")
        sent = [r for r in policies.handle.faults.requests if not r.path.endswith("/refs/dump")]
        assert {r.method for r in sent} == {"GET"}
        assert found["lifecycle engine"]["result"] == "ok"
        assert found["writable"]["result"] == "ok"
        assert [name for name, c in found.items() if c["result"] != "ok"] == ["fs:DeleteBranch"]

    @pytest.mark.parametrize(
        ("route", "permission"),
        [
            (r"GET .*/events/branches/main$", "fs:ReadBranch"),
            (r"GET .*/events/branches/main/diff", "fs:ListObjects"),
            (r"GET .*/events/pulls", "pr:ListPullRequests"),
        ],
    )
    def it_names_the_one_permission_that_is_missing(self, policies, route, permission):
        policies.handle.faults.deny(route)
        found = checks(policies, "--for", "branches", code=1)
        failed = [c for c in found.values() if c["result"] == "fail"]
        assert len(failed) == 1
        assert permission in failed[0]["check"]
        assert f"Grant {permission}" in failed[0]["hint"]
        assert "(on events)" in failed[0]["message"]

    @pytest.mark.parametrize("purpose", ["plan", "apply"])
    def it_also_names_them_where_a_plan_judges_branches(self, policies, purpose):
        policies.handle.faults.deny(r"GET .*/events/pulls")
        policies.handle.faults.deny(r"GET .*/events/settings/branch_protection")
        found = checks(policies, "--for", purpose, code=1)
        assert [name for name, c in found.items() if c["result"] == "fail"] == [
            "open pull requests (pr:ListPullRequests)",
            "branch protection rules (branches:GetBranchProtectionRules)",
        ]

    def it_does_not_let_a_state_vanish(self, policies, monkeypatch):
        monkeypatch.setenv("CI", "true")
        assert checks(policies, "--for", "branches", code=1)["is kept"]["result"] == "fail"

    def it_knows_that_nobody_deletes(self, ready):
        found = checks(ready, "--for", "branches", code=1)
        assert found["lifecycle engine"]["result"] == "fail"
        assert found["policies"]["result"] == "warn"


class DescribeForSweep:
    @pytest.fixture
    def folder(self, ready, tmp_path):
        """The folder of the namespaces, which the tree names."""
        self.tree(ready, tmp_path / "sandbox")
        return tmp_path / "sandbox"

    def tree(self, world, path, settings="{mode: delete}"):
        world.write(
            "lakeplan.yaml",
            "apiVersion: lakeplan/v1\n"
            f"servers: {{prod: {{endpoint_url: {world.handle.endpoint_url}, "
            f'storages: {{"": {{type: local, path: {path}}}}}}}}}\n'
            f"repositories: {{'*': {{gc: {{default_retention_days: 21}}, sweep: {settings}}}}}\n",
        )

    def files(self, folder):
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("data/**/*") if p.is_file()}

    def it_tries_the_storage_and_leaves_it_as_it_was(self, ready, folder):
        before = self.files(folder)
        found = checks(ready, "--for", "sweep")
        assert {c["result"] for c in found.values()} == {"ok"}, found
        assert {
            "namespace of its own", "storage settings", "list objects", "versions", "soft delete",
            "owner.json",
            "write objects", "read objects", "store's clock", "copy objects", "delete objects",
            "other repositories", "sweep.min_age", "retention:PrepareGarbageCollectionUncommitted",
        } <= set(found)  # fmt: skip
        assert self.files(folder) == before
        assert not [p for p in folder.rglob("_lakeplan/**/*") if p.is_file()]

    def it_writes_nothing_when_told_so(self, ready, folder):
        ready.handle.faults.forget()
        found = checks(ready, "--for", "sweep", "--read-only")
        assert {r.method for r in ready.handle.faults.requests} == {"GET"}
        assert not list(folder.rglob("_lakeplan"))
        for name in ("write objects", "retention:PrepareGarbageCollectionUncommitted"):
            assert found[name]["result"] == "warn"

    def it_names_the_permission_to_prepare(self, ready, folder):
        ready.handle.faults.deny(r"POST .*/gc/prepare_uncommited")
        found = checks(ready, "--for", "sweep", code=1)
        name = "retention:PrepareGarbageCollectionUncommitted"
        assert [n for n, c in found.items() if c["result"] == "fail"] == [name]
        assert f"Grant {name}" in found[name]["hint"]

    def it_wants_a_minimum_age_that_the_server_can_live_with(self, ready, folder):
        self.tree(ready, folder, "{min_age: 1h}")
        found = checks(ready, "--for", "sweep")["sweep.min_age"]
        assert found["result"] == "warn"
        assert "86,400" in found["message"]

    def it_knows_whose_a_namespace_is(self, ready, folder):
        owner = folder / "events" / "_lakeplan" / "owner.json"
        owner.parent.mkdir()
        owner.write_text('{"server": "https://other.example.com", "repository": "events"}')
        found = checks(ready, "--for", "sweep", code=1)["owner.json"]
        assert found["result"] == "fail"
        assert "other.example.com" in found["message"]
        assert "(on events)" in found["message"]
        owner.write_text("[]")
        assert "not a valid record" in checks(ready, "--for", "sweep", code=1)["owner.json"]["message"]

    def it_sees_a_repository_that_lies_in_another(self, ready, folder):
        body = {"name": "inner", "storage_namespace": "local://events/inner", "default_branch": "main"}
        ready.api.call("POST", "/repositories", json=body)
        found = checks(ready, "--for", "sweep", code=1)["namespace of its own"]
        assert "inside" in found["message"] or "contains" in found["message"]

    def it_needs_to_read_the_repositories_that_are_not_swept_too(self, ready, folder):
        ready.handle.faults.deny(r"GET .*/events/branches$")
        found = checks(ready, "--for", "sweep", "--target", "analytics", code=1)["other repositories"]
        assert found["result"] == "fail"
        assert "events" in found["message"]

    def it_notices_that_the_server_may_hide_some_of_them(self, ready, folder):
        ready.handle.faults.deny(r"GET .*/repositories/[0-9a-f]{32}$")
        found = checks(ready, "--for", "sweep", code=1)["other repositories"]
        assert found["result"] == "fail"
        assert "cannot read repositories hidden from these credentials" in found["message"]

    def it_says_where_the_tree_must_say_more(self, ready):
        found = checks(ready, "--for", "sweep", code=1)["storage settings"]
        assert found["result"] == "fail"
        assert "type: local" in found["hint"]


def it_asks_a_dead_server_once_and_says_what_it_skips(ready):
    """Each request to a server that does not answer takes a whole time-out."""
    ready.handle.faults.deny(r"GET .*/config/version", status=503)
    ready.handle.faults.forget()
    found = checks(ready, code=1)
    assert "skipped" in found["reachable"]["message"]
    assert "fs:ListRepositories" not in found
    assert [r.path for r in ready.handle.faults.requests] == ["/api/v1/config/version"]

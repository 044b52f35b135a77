"""The writes of an apply, one repository after the other."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from lakeplan.app.report import exit_code_of, report_document
from lakeplan.app.write import ApplyPorts, ApplyReport, Outcome, Run, write
from lakeplan.core.diff import action_of
from lakeplan.errors import ServerUnreachable, StorageError
from lakeplan.model.plan import Failure, Plan, RepositoryPlan
from lakeplan.model.rules import GcRules
from lakeplan.ports.progress import Silent

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
RUN = Run("run-1", {"user": "me"}, lambda: NOW, lambda _: False)


def repository(name: str, before: GcRules | None, after: GcRules | None, **more) -> RepositoryPlan:
    return RepositoryPlan(
        "prod", name, name, "http://127.0.0.1", "hash", action_of(before, after), before, after, **more
    )


def a_plan(*repositories: RepositoryPlan) -> Plan:
    return Plan(NOW, "0", "tree", None, repositories)


def applied(
    server, state, *repositories: RepositoryPlan, live: Plan | None = None, force=False
) -> ApplyReport:
    plan = a_plan(*repositories)
    ports = ApplyPorts(lambda _: server, state, Silent())
    return write(plan, plan.writes, live or plan, RUN, ports, plan_digest="digest", force=force)


def ends(report: ApplyReport) -> dict[str, str]:
    return {r.repository: r.outcome.value for r in report.results}


A = repository("a", GcRules(30), GcRules(7, {"main": 9}))
B = repository("b", GcRules(5), None)
C = repository("c", None, GcRules(3))


def it_sets_clears_and_adds(server, state):
    report = applied(server, state, A, B, C)
    assert ends(report) == {"prod/a": "applied", "prod/b": "applied", "prod/c": "applied"}
    assert server.rules == {"a": GcRules(7, {"main": 9}), "b": None, "c": GcRules(3)}
    assert exit_code_of(report) == 0
    assert state.list_keys("leases/") == []
    assert len(state.list_keys("applied/")) == 3


def it_checks_just_before_and_reads_back_just_after(server, state):
    applied(server, state, A)
    assert server.log == ["get a", "set a", "get a"]


@pytest.mark.parametrize("force", [False, True])
def it_does_not_write_what_was_not_judged_because_it_was_there_already(server, state, force):
    # when planned again the server had the reviewed rules, so no gate was asked; now it has the old ones
    live = a_plan(repository("a", A.after, A.after))
    report = applied(server, state, A, live=live, force=force)
    assert ends(report) == {"prod/a": "failed"}
    assert server.rules["a"] == GcRules(30)


def it_leaves_rules_that_changed_since_the_plan(server, state):
    server.rules["a"] = GcRules(29)
    report = applied(server, state, A)
    assert ends(report) == {"prod/a": "failed"}
    assert server.rules["a"] == GcRules(29)
    assert exit_code_of(report) == 5


def it_writes_over_them_when_forced(server, state):
    server.rules["a"] = GcRules(29)
    assert ends(applied(server, state, A, force=True)) == {"prod/a": "applied"}


def it_finishes_the_work_of_an_interrupted_run(server, state):
    server.rules["a"] = A.after
    report = applied(server, state, A, C)
    assert ends(report) == {"prod/a": "already", "prod/c": "applied"}
    assert len(state.list_keys("applied/")) == 2


def it_goes_on_after_a_failure_and_says_which(server, state):
    server.fails["a"] = ServerUnreachable("no answer", where="prod/a")
    report = applied(server, state, A, C)
    assert ends(report) == {"prod/a": "failed", "prod/c": "applied"}
    assert exit_code_of(report) == 3
    history = json.loads(state.read("history/run-1.json").data)
    assert history["repositories"]["prod/a"]["status"] == "failed"
    assert history["repositories"]["prod/c"]["after"] == {"default_retention_days": 3, "branches": []}


def it_names_the_permission_that_is_missing(server, state):
    server.denied.add("a")
    (result,) = applied(server, state, A).results
    assert "retention:SetGarbageCollectionRules" in result.hint
    assert server.rules["a"] == GcRules(30)


def it_fails_what_could_not_be_planned_again(server, state):
    live = a_plan(repository("a", None, None, failure=Failure("repository not found", exit_code=1)))
    report = applied(server, state, A, live=live)
    assert ends(report) == {"prod/a": "failed"}
    assert server.log == []
    assert exit_code_of(report) == 1


def it_never_reports_what_it_did_not_read_back(server, state):
    server.stores["a"] = GcRules(1)  # a server that stores something else
    (result,) = applied(server, state, A).results
    assert result.outcome is Outcome.FAILED
    assert "read back" in result.message


@pytest.mark.parametrize("count", [1, 2])
def it_counts_ends_in_the_report(server, state, count):
    report = applied(server, state, *[A, C][:count])
    document = report_document(report)
    assert document["summary"] == {"applied": count, "already": 0, "failed": 0}
    assert document["results"][0]["repository"] == "prod/a"


def it_shows_what_it_saw_before_a_forced_write(server, state):
    server.rules["a"] = GcRules(29)
    (result,) = applied(server, state, A, force=True).results
    assert result.before_etag == GcRules(29).etag
    history = json.loads(state.read("history/run-1.json").data)
    assert history["repositories"]["prod/a"]["before"]["default_retention_days"] == 29


def it_writes_nothing_that_it_cannot_record(server, state):
    original = state.write

    def full(key, data, *, if_version):
        if key.startswith("history/") and b"pending" in data:
            raise StorageError("disk full", where="state")
        return original(key, data, if_version=if_version)

    state.write = full
    (result,) = applied(server, state, A).results
    assert result.outcome is Outcome.FAILED
    assert server.rules["a"] == GcRules(30)


def it_keeps_the_report_when_the_end_cannot_be_recorded(server, state):
    original = state.write

    def full(key, data, *, if_version):
        if b"finished_at" in data:
            raise StorageError("disk full", where="state")
        return original(key, data, if_version=if_version)

    state.write = full
    report = applied(server, state, A)
    assert ends(report) == {"prod/a": "applied"}
    assert "disk full" in report_document(report)["note"]


def it_says_when_a_write_was_done_and_not_recorded(server, state):
    original = state.write

    def full(key, data, *, if_version):
        if key.startswith("applied/"):
            raise StorageError("disk full", where="state")
        return original(key, data, if_version=if_version)

    state.write = full
    (result,) = applied(server, state, A).results
    assert result.outcome is Outcome.FAILED
    assert "were written" in result.message
    assert server.rules["a"] == A.after

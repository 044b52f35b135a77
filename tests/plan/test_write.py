"""The writes of an apply, one repository after the other."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from lakeplan.errors import PermissionDenied, ServerUnreachable, StorageError, UnexpectedAnswer
from lakeplan.plan import writing
from lakeplan.plan.apply import exit_code_of, report_document
from lakeplan.plan.attempts import Job, RulesAttempt
from lakeplan.plan.gather import ENFORCED_BY_LAKEPLAN
from lakeplan.plan.writing import write
from lakeplan.review.differences import action_of
from lakeplan.review.history import find_run
from lakeplan.review.run import ApplyPorts, ApplyReport, Outcome, Run, open_journal
from lakeplan.state.store import (
    known_repositories,
    read_applied,
    read_forecast,
    record_applied,
    record_forecast,
)
from lakeplan.state.sweeps import read_sweeps
from lakeplan.values.plan import (
    Failure,
    GateOutcome,
    GateResult,
    HorizonImpact,
    Impact,
    ImpactStatus,
    Plan,
    RepositoryPlan,
)
from lakeplan.values.progress import Silent
from lakeplan.values.rules import GcRules
from lakeplan.values.simulation import Amount
from tests.sweeping.stores import Killed

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
SLEPT: list[float] = []
RUN = Run("run-1", {"user": "me"}, lambda: NOW, lambda _: False, sleep=SLEPT.append)


def repository(name: str, before: GcRules | None, after: GcRules | None, **more) -> RepositoryPlan:
    return RepositoryPlan(
        "prod", name, name, "http://127.0.0.1", "hash", action_of(before, after), before, after, **more
    )


def a_plan(*repositories: RepositoryPlan) -> Plan:
    return Plan(NOW, "0", "tree", None, repositories)


def applied(
    server, state, *repositories: RepositoryPlan, live: Plan | None = None, force=False, run: Run = RUN
) -> ApplyReport:
    plan = a_plan(*repositories)
    ports = ApplyPorts(lambda _: server, state, Silent())
    return write(plan, plan.writes, live or plan, run, ports, plan_digest="digest", force=force)


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


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"repository": "prod/other"}', b'{"attempts": 7}'])
def it_writes_nothing_where_the_record_of_the_last_apply_is_damaged_and_goes_on(server, state, data):
    state.write("applied/prod/a.json", data, if_version=None)
    report = applied(server, state, A, B)
    assert ends(report) == {"prod/a": "failed", "prod/b": "applied"}
    assert server.rules["a"] == GcRules(30), "the record is read before the first write"
    (failed,) = report.failed
    assert "record of the last apply" in failed.message
    assert "applied/prod/a.json" in failed.message
    assert "move it elsewhere" in failed.hint
    assert exit_code_of(report) == 3
    assert state.read("applied/prod/a.json").data == data


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("applied/prod/c.json", "record of the last apply"),
        ("leases/prod/c.json", "the lease of this repository"),
        ("sweep/ends/prod/c.json", "sweeps"),
    ],
)
def it_finds_damaged_state_of_the_last_repository_before_the_first_write_to_any(
    server, state, monkeypatch, key, said
):
    state.write(key, b'{"at": 7}', if_version=None)
    known = []
    set_rules = server.set_gc_rules

    def set_gc_rules(repository, rules):
        record = json.loads(state.read("history/run-1.json").data)["repositories"]
        known.append(record.get("prod/c"))
        set_rules(repository, rules)

    monkeypatch.setattr(server, "set_gc_rules", set_gc_rules)
    plan = a_plan(A, B, C)
    ports = ApplyPorts(lambda _: server, state, Silent(), also_needs=(read_sweeps,))
    report = write(plan, plan.writes, plan, RUN, ports, plan_digest="digest", force=False)
    assert ends(report) == {"prod/a": "applied", "prod/b": "applied", "prod/c": "failed"}
    assert exit_code_of(report) == 3
    assert server.rules["c"] is None
    (before_the_first,) = known
    assert before_the_first["status"] == "failed"
    assert said in before_the_first["message"]


def it_checks_just_before_and_reads_back_just_after(server, state):
    applied(server, state, A)
    assert server.log == ["get a", "set a", "get a"]


@pytest.mark.parametrize("hours", [25, -25])
def it_writes_nothing_while_its_clock_differs_from_the_server_s(server, state, hours):
    """A lowering that is recorded 25 hours early would end sweep.settle before it began."""
    server.time += timedelta(hours=hours)
    report = applied(server, state, A, force=True)
    assert ends(report) == {"prod/a": "failed"}
    assert "clock" in report.results[0].message
    assert (server.log, state.list_keys("applied/"), state.list_keys("leases/")) == ([], [], [])


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


def it_writes_nothing_after_another_run_although_the_server_shows_what_was_there_before(server, state):
    """Servers return the value from before a write for some seconds."""
    later = NOW + timedelta(seconds=30)
    record_applied(state, "prod/a", GcRules(365), config_hash="other", run_id="run-0", at=later)
    run = replace(RUN, now=lambda: later + timedelta(seconds=1))
    server.time = later
    report = applied(server, state, A, run=run)
    assert ends(report) == {"prod/a": "failed"}
    assert exit_code_of(report) == 5
    assert "set a" not in server.log


JUDGED = a_plan(repository("a", GcRules(29), A.after))
"""A plan made again, after somebody else changed the rules."""


def it_writes_over_them_when_forced(server, state):
    server.rules["a"] = GcRules(29)
    assert ends(applied(server, state, A, live=JUDGED, force=True)) == {"prod/a": "applied"}


@pytest.mark.parametrize("rules", [GcRules(3650), None])
def it_writes_over_no_rules_by_which_no_gate_was_judged(server, state, rules):
    server.rules["a"] = rules
    report = applied(server, state, A, live=JUDGED, force=True)
    assert ends(report) == {"prod/a": "failed"}
    assert exit_code_of(report) == 5
    assert server.rules["a"] == rules


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("seconds", "outcome"), [(15, "applied"), (16, "failed"), (-1, "failed")])
def it_reads_again_what_it_checked_a_while_ago(server, state, monkeypatch, force, seconds, outcome):
    """A colleague raises the rules while the state's store takes its time."""
    at, original = [NOW], state.write

    def slow(key, data, *, if_version):
        if key.startswith("applied/") and at == [NOW]:
            at[0] += timedelta(seconds=seconds)
            server.time = at[0]
            server.rules["a"] = GcRules(3650)
        return original(key, data, if_version=if_version)

    monkeypatch.setattr(state, "write", slow)
    run = replace(RUN, now=lambda: at[0])
    ports = ApplyPorts(lambda _: server, state, Silent())
    report = write(a_plan(A), [A], a_plan(A), run, ports, plan_digest="digest", force=force)
    assert ends(report) == {"prod/a": outcome}
    assert server.rules["a"] == (A.after if outcome == "applied" else GcRules(3650))


def it_finishes_the_work_of_an_interrupted_run(server, state):
    server.rules["a"] = A.after
    report = applied(server, state, A, C)
    assert ends(report) == {"prod/a": "already", "prod/c": "applied"}
    assert len(state.list_keys("applied/")) == 2


def a_forecast(planned: RepositoryPlan) -> RepositoryPlan:
    now = HorizonImpact(NOW, 1, 0, 1, 0, 0, objects_expire=4, bytes_expire=40)
    return replace(planned, impact=Impact(ImpactStatus.SIMULATED, horizons={"now": now}))


def forecasts(state) -> dict[str, bool]:
    """Of each repository whether its forecast is that of the apply on record."""
    return {
        key: (found := read_forecast(state, key)) is not None
        and (found.run_id, found.plan_digest) == (read_applied(state, key)[0]["run_id"], "digest")
        and found.expire == ((NOW, Amount(4, 40)),)
        for key in sorted(known_repositories(state))
    }


@pytest.mark.parametrize("number", range(1, 17))
def it_records_the_forecast_of_a_run_that_was_killed_once_it_runs_again(server, state, monkeypatch, number):
    for key in ("prod/a", "prod/c"):
        record_forecast(state, key, run_id="older", plan_digest="older", expire={NOW: Amount(9, 90)})
    killed_at, write_record = state.writes + number, state.write

    def kill(key, data, *, if_version):
        if state.writes + 1 == killed_at:
            raise Killed
        return write_record(key, data, if_version=if_version)

    monkeypatch.setattr(state, "write", kill)
    with suppress(Killed):
        applied(server, state, a_forecast(A), a_forecast(C))
    monkeypatch.undo()
    for key in state.list_keys("leases/"):
        state.delete(key, if_version=state.read(key).version)
    again = replace(RUN, run_id="run-2")
    report = applied(server, state, a_forecast(A), a_forecast(C), run=again)
    assert report.note == ""
    assert forecasts(state) == {"prod/a": True, "prod/c": True}


def it_records_the_forecast_of_a_repository_before_it_writes_the_next(server, state, monkeypatch):
    set_rules = server.set_gc_rules

    def kill(repository, rules):
        if repository == "c":
            raise Killed
        set_rules(repository, rules)

    monkeypatch.setattr(server, "set_gc_rules", kill)
    with pytest.raises(Killed):
        applied(server, state, a_forecast(A), a_forecast(C))
    assert forecasts(state)["prod/a"]


@pytest.mark.parametrize(("before", "recorded"), [(GcRules(30), True), (GcRules(7), False)])
def it_records_a_forecast_only_with_rules_that_the_plan_changes(server, state, before, recorded):
    planned = a_forecast(repository("a", before, GcRules(7)))
    history = open_journal(state, RUN, "apply")
    RulesAttempt(Job(planned, None, RUN, state, history, False, "digest")).record()
    assert forecasts(state) == {"prod/a": recorded}


def it_reports_a_forecast_that_could_not_be_recorded(server, state, monkeypatch):
    write_record = state.write

    def full(key, data, *, if_version):
        if key.startswith("forecasts/"):
            raise StorageError("the disk is full", where=key)
        return write_record(key, data, if_version=if_version)

    monkeypatch.setattr(state, "write", full)
    report = applied(server, state, a_forecast(A), C)
    assert ends(report) == {"prod/a": "applied", "prod/c": "applied"}
    assert report.note == "prod/a: the plan's forecast was not recorded: the disk is full"


def it_goes_on_after_a_failure_and_says_which(server, state):
    server.fails["a"] = PermissionDenied("not allowed", where="prod/a")
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
    recorded = json.loads(state.read("history/run-1.json").data)
    assert recorded["repositories"] == {"prod/a": {"status": "failed", "message": "repository not found"}}
    (step,) = find_run(state, "run-1").steps
    assert (step.status, step.message, step.replaced_any) == ("failed", "repository not found", False)


def it_never_reports_what_it_did_not_read_back(server, state):
    server.stores["a"] = GcRules(1)  # a server that stores something else
    (result,) = applied(server, state, A).results
    assert result.outcome is Outcome.FAILED
    assert "differ from those that lakeplan sent" in result.message


@pytest.mark.parametrize("count", [1, 2])
def it_counts_ends_in_the_report(server, state, count):
    report = applied(server, state, *[A, C][:count])
    document = report_document(report)
    assert document["summary"] == {"applied": count, "already": 0, "failed": 0, "uncertain": 0}
    assert document["results"][0]["repository"] == "prod/a"


def it_shows_what_it_saw_before_a_forced_write(server, state):
    server.rules["a"] = GcRules(29)
    (result,) = applied(server, state, A, live=JUDGED, force=True).results
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


def it_writes_nothing_whose_author_it_cannot_remember(server, state):
    original = state.write

    def full(key, data, *, if_version):
        if key.startswith("applied/"):
            raise StorageError("disk full", where="state")
        return original(key, data, if_version=if_version)

    state.write = full
    assert ends(applied(server, state, A)) == {"prod/a": "failed"}
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
        if key.startswith("applied/") and b'"etag"' in data:
            raise StorageError("disk full", where="state")
        return original(key, data, if_version=if_version)

    state.write = full
    report = applied(server, state, A)
    (result,) = report.results
    assert result.outcome is Outcome.APPLIED
    assert "were written" in result.message
    assert exit_code_of(report) == 3
    assert server.rules["a"] == A.after


class DescribeALostAnswer:
    """The server acted or did not, and its answer does not say which."""

    @pytest.fixture(params=["no answer", "500", "503"])
    def lost(self, request):
        if request.param == "no answer":
            return ServerUnreachable("no answer")
        return UnexpectedAnswer("overloaded", status=int(request.param))

    @staticmethod
    def sends(server, *acts):
        """The n-th write does what ``acts[n]`` does, and those after the last what a server does."""
        left, original = list(acts), server.set_gc_rules

        def act(name, rules):
            if left:
                server.log.append(f"set {name}")
                left.pop(0)(name, rules)
            else:
                original(name, rules)

        server.set_gc_rules = act

    def it_is_applied_when_the_server_acted(self, server, state, lost):
        def act(name, rules):
            server.rules[name] = rules
            raise lost

        self.sends(server, act)
        report = applied(server, state, A)
        assert ends(report) == {"prod/a": "applied"}
        assert exit_code_of(report) == 0
        assert server.log.count("set a") == 1

    def it_is_written_again_when_the_server_did_not_act(self, server, state, lost):
        def fail(name, rules):
            raise lost

        self.sends(server, fail)
        assert ends(applied(server, state, A)) == {"prod/a": "applied"}
        assert server.log.count("set a") == 2

    def it_is_not_written_again_before_caches_are_over(self, server, state, lost):
        def fail(name, rules):
            SLEPT.append(-1)
            raise lost

        SLEPT.clear()
        self.sends(server, fail)
        applied(server, state, A)
        assert sum(SLEPT[SLEPT.index(-1) + 1 :]) > 7.5

    @pytest.mark.parametrize("acted", [False, True])
    @pytest.mark.parametrize("force", [False, True])
    def it_leaves_what_a_colleague_wrote_meanwhile(self, server, state, lost, acted, force):
        raised = GcRules(90)

        def act(name, rules):
            if acted:
                server.rules[name] = rules
            server.rules[name] = raised
            raise lost

        self.sends(server, act)
        report = applied(server, state, A, force=force)
        assert server.rules["a"] == raised
        assert server.log.count("set a") == 1
        assert ends(report) == {"prod/a": "failed"}
        assert exit_code_of(report) == 5
        history = json.loads(state.read("history/run-1.json").data)
        assert history["repositories"]["prod/a"]["found"] == {"body": raised.to_body()}
        assert "7 to 90" in report.results[0].message

    def it_leaves_what_a_colleague_wrote_that_only_a_late_read_shows(self, server, state, lost):
        raised, stale = GcRules(90), [server.rules["a"]] * 3

        def act(name, rules):
            server.rules[name] = raised
            server.get_gc_rules = lambda repository: stale.pop() if stale else server.rules[repository]
            raise lost

        self.sends(server, act)
        report = applied(server, state, A)
        assert server.rules["a"] == raised
        assert ends(report) == {"prod/a": "failed"}

    def it_is_uncertain_when_nothing_answers_any_more(self, server, state, lost):
        def die(name, rules):
            def unreachable(_):
                raise ServerUnreachable("no answer")

            server.get_gc_rules = unreachable
            raise lost

        self.sends(server, die)
        report = applied(server, state, A)
        (result,) = report.results
        assert result.outcome is Outcome.UNCERTAIN
        assert "may have been written" in result.message
        assert "lakeplan plan" in result.hint
        assert exit_code_of(report) == 3
        assert (
            json.loads(state.read("history/run-1.json").data)["repositories"]["prod/a"]["status"]
            == "uncertain"
        )
        assert report_document(report)["summary"]["uncertain"] == 1

    def it_ends_as_the_server_answers_each_time(self, server, state, lost):
        server.fails["a"] = lost
        report = applied(server, state, A)
        # A write without any answer may still take effect; one that was refused each time did not.
        expected = "uncertain" if isinstance(lost, ServerUnreachable) else "failed"
        assert ends(report) == {"prod/a": expected}
        assert server.log.count("set a") == 3
        assert server.rules["a"] == GcRules(30)

    def it_is_not_written_again_once_another_run_has_the_lease(self, server, state, lost):
        def take_over(name, rules):
            key = "leases/prod/a.json"
            state.write(key, state.read(key).data, if_version=state.read(key).version)
            raise lost

        self.sends(server, take_over)
        (result,) = applied(server, state, A).results
        assert "took it over" in result.message
        assert server.log.count("set a") == 1
        expected = "uncertain" if isinstance(lost, ServerUnreachable) else "failed"
        assert result.outcome.value == expected

    def it_is_uncertain_when_a_second_try_is_refused(self, server, state):
        def refuse(name, rules):
            raise PermissionDenied("not allowed")

        def hang(name, rules):
            raise ServerUnreachable("no answer")

        self.sends(server, hang, refuse)
        assert ends(applied(server, state, A)) == {"prod/a": "uncertain"}


class DescribeReadingBack:
    def it_takes_one_stale_read_for_no_evidence(self, server, state):
        stale, original = [GcRules(30)] * 2, server.get_gc_rules

        def get(name):
            written = server.rules[name] == A.after
            return stale.pop() if written and stale else original(name)

        server.get_gc_rules = get
        assert ends(applied(server, state, A)) == {"prod/a": "applied"}

    def it_takes_one_failed_read_for_no_evidence(self, server, state):
        errors, original = [ServerUnreachable("no answer")], server.get_gc_rules

        def get(name):
            if server.rules[name] == A.after and errors:
                raise errors.pop()
            return original(name)

        server.get_gc_rules = get
        assert ends(applied(server, state, A)) == {"prod/a": "applied"}

    def it_is_uncertain_when_an_accepted_write_is_never_read(self, server, state):
        server.stores["a"] = GcRules(30)
        report = applied(server, state, A)
        assert ends(report) == {"prod/a": "uncertain"}
        assert exit_code_of(report) == 3
        assert server.log.count("set a") == 1


class DescribeWhatWasAttempted:
    """An end that no run could record is nobody else's doing."""

    def it_is_remembered_before_the_write_and_forgotten_after_it(self, server, state):
        server.fails["a"] = ServerUnreachable("no answer")
        applied(server, state, A)
        (attempt,) = json.loads(state.read("applied/prod/a.json").data)["attempts"]["gc"]
        assert attempt["body"] == A.after.to_body()
        del server.fails["a"]
        later = Run("run-2", {}, lambda: NOW, lambda _: False, sleep=SLEPT.append)
        ports = ApplyPorts(lambda _: server, state, Silent())
        write(a_plan(A), [A], a_plan(A), later, ports, plan_digest="digest", force=False)
        record = json.loads(state.read("applied/prod/a.json").data)
        assert "attempts" not in record
        assert record["body"] == A.after.to_body()


class DescribeWhatIsReported:
    def it_is_what_was_not_written_and_why(self, server, state, monkeypatch):
        server.rules["d"] = GcRules(2)
        claimed: list[object] = []

        def claim_all(repositories, *more):
            claimed.append(([r.key for r in repositories], *more))
            return "no claim"

        monkeypatch.setattr(writing, "claim_all", claim_all)
        same = repository("d", GcRules(2), GcRules(2), warnings=(ENFORCED_BY_LAKEPLAN,))
        gone = repository("e", GcRules(2), GcRules(2))
        newer = replace(A, unexpanded={"main": 9, "new": 30, "dev": 8})
        extra = repository("x", GcRules(9), GcRules(8))
        plan, live = a_plan(A, same, gone), a_plan(newer, same, extra, replace(B, unexpanded={}))
        live = replace(
            live,
            allowed=("prod/a=tag-loss",),
            gates=(GateResult("unmanaged", "plan", GateOutcome.PASSED, "fine"),),
            repositories=(
                replace(
                    newer,
                    gates=(
                        GateResult(
                            "tag-loss", "prod/a", GateOutcome.OVERRIDDEN, "a tag", opens_with="--allow"
                        ),
                    ),
                ),
                *live.repositories[1:],
            ),
        )
        shown: list[object] = []

        class Shown(Silent):
            def task(self, text, total):
                shown.append((text, total))
                return nullcontext(lambda: shown.append("step"))

        ports = ApplyPorts(lambda _: server, state, Shown())
        report = write(plan, plan.writes, live, RUN, ports, plan_digest="digest", force=True)
        assert (report.run_id, ends(report)) == ("run-1", {"prod/a": "applied"})
        assert report.not_written == ("prod/b", "prod/x")
        assert report.unexpanded == {"prod/a": ("dev", "new")}
        assert (report.elsewhere, report.note) == (("prod/d",), "no claim")
        assert claimed == [(["prod/d"], "", ports.connect, RUN)]
        assert shown == [("applying", 1), "step"]
        record = json.loads(state.read("history/run-1.json").data)
        assert (record["plan_digest"], record["force"], record["plan_as_of"]) == (
            "digest",
            True,
            NOW.isoformat(),
        )
        assert record["allowed"] == ["prod/a=tag-loss"]
        assert record["overridden"] == ["prod/a: gate tag-loss: a tag (--allow)"]

    def it_is_every_newer_branch_without_a_rule(self, server, state):
        live = a_plan(replace(B, unexpanded={"main": 9}), replace(A, unexpanded={"main": 9}))
        assert applied(server, state, A, B, live=live).unexpanded == {"prod/b": ("main",)}


class DescribePins:
    """They are written with the rules, or alone if only they change."""

    @pytest.mark.parametrize("planned", [True, False])
    @pytest.mark.parametrize("again", [True, False])
    def it_is_one_attempt_with_the_rules(self, monkeypatch, planned, again):
        monkeypatch.setattr(writing, "PinnedRulesAttempt", lambda job, pins: (job, pins))
        changes, none = SimpleNamespace(writes=True), SimpleNamespace(writes=False)
        same = repository("d", GcRules(2), GcRules(2), pins=changes if planned else none)
        live = replace(same, pins=changes if again else None)
        ports = ApplyPorts(None, None, Silent(), pins={"prod/a": "pins of a", "prod/d": "pins of d"})
        job = SimpleNamespace(repository=same, live=live)
        expected = [(job, "pins of d")] if planned or again else []
        assert writing._attempts(job, ports) == expected
        job = SimpleNamespace(repository=A, live=None)
        assert writing._attempts(job, ports) == [(job, "pins of a")]

"""Writing policies and object rules: faults between the requests, order, history, state."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from lakeplan.errors import PreconditionFailed, ServerUnreachable
from lakeplan.plan.apply import exit_code_of
from lakeplan.plan.writing import write
from lakeplan.review.differences import action_of, action_of_setting, diff_setting
from lakeplan.review.run import ApplyPorts, ApplyReport, Run
from lakeplan.values.branches import LiveBranch
from lakeplan.values.desired import ObjectRule, Policy, SettingKind, Stored
from lakeplan.values.plan import ObjectRulesPlan, Plan, PoliciesPlan, RepositoryPlan
from lakeplan.values.progress import Silent
from lakeplan.values.rules import GcRules

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY = 86400
STORED = (Policy("pol-1", ("f-*",), 7 * DAY),)
WANTED = (Policy(None, ("f-*",), 5 * DAY),)
RAW = (ObjectRule("raw", ("main",), "raw/", 90),)
BRANCHES, RULES = SettingKind.BRANCH_LIFECYCLE, SettingKind.OBJECT_LIFECYCLE


class Enterprise:
    """A server's settings and branches in memory, with what was asked of it."""

    def __init__(self, rules: GcRules | None, policies: Any) -> None:
        self.rules = rules
        self.items: dict[SettingKind, Any] = {BRANCHES: policies, RULES: None}
        self.log: list[str] = []
        self.may = True
        self.before_set: list[Any] = []
        self.alters = False

    def metadata(self, repository: str) -> dict[str, str]:
        """No tree claims a repository here."""
        return {}

    @property
    def reader(self) -> Enterprise:
        return self

    writer = settings_writer = branches = reader

    def etag(self, kind: SettingKind) -> str:
        items = self.items[kind]
        return f'"{hash(items)}"' if items else ""

    def server_time(self, _: str) -> datetime:
        return NOW

    def get_gc_rules(self, _: str) -> GcRules | None:
        return self.rules

    def can_set_gc_rules(self, _: str) -> bool:
        return True

    def set_gc_rules(self, _: str, rules: GcRules) -> None:
        self.log.append("rules")
        self.rules = rules

    def get_policies(self, _: str) -> Stored[Policy]:
        return Stored(self.items[BRANCHES], self.etag(BRANCHES))

    def get_object_rules(self, _: str) -> Stored[ObjectRule]:
        return Stored(self.items[RULES], self.etag(RULES))

    def can_set(self, _: str, kind: SettingKind) -> bool:
        return self.may

    def set_items(self, _: str, kind: SettingKind, items: Any, *, if_match: str) -> None:
        for act in self.before_set:
            act()
        if if_match and if_match != self.etag(kind):
            raise PreconditionFailed("changed meanwhile")
        self.log.append(f"{kind.value} if-match" if if_match else kind.value)
        self.items[kind] = tuple(replace(i, id=i.id or "pol-new") for i in items)
        if self.alters:
            self.items[kind] = self.items[kind][:-1] or None

    def delete_items(self, _: str, kind: SettingKind) -> None:
        self.log.append(f"delete {kind.value}")
        self.items[kind] = None

    def list_live(self, _: str) -> list[LiveBranch]:
        self.log.append("heads")
        return [LiveBranch("f-1", "c1"), LiveBranch("f-2", "c2", True), LiveBranch("main", "c0")]


@pytest.fixture
def server() -> Enterprise:
    return Enterprise(GcRules(30), STORED)


def policies(server: Enterprise, after: Any) -> PoliciesPlan:
    before = server.items[BRANCHES]
    return PoliciesPlan(
        action_of_setting(before, after),
        server.etag(BRANCHES),
        diff_setting(before, after),
        (),
        before,
        after,
    )


def repository(server: Enterprise, after: GcRules | None, **settings: Any) -> RepositoryPlan:
    action = action_of(server.rules, after)
    ends = (server.rules, after)
    return RepositoryPlan("prod", "a", "a", "http://127.0.0.1", "hash", action, *ends, **settings)


def applied(
    server: Enterprise,
    state: Any,
    plan: RepositoryPlan,
    *,
    live: RepositoryPlan | None = None,
    force: bool = False,
) -> ApplyReport:
    """``live``: the plan made again; as it was without one."""
    whole, again = (Plan(NOW, "0", "tree", None, (p,)) for p in (plan, live or plan))
    run = Run("run-1", {"user": "me"}, lambda: NOW, lambda _: False, sleep=lambda _: None)
    ports = ApplyPorts(lambda _: server, state, Silent())  # type: ignore[arg-type, return-value]
    return write(whole, whole.writes, again, run, ports, plan_digest="d", force=force)


def ends(report: ApplyReport) -> list[tuple[str, str]]:
    return [(r.setting, r.outcome.value) for r in report.results]


def read(state: Any, key: str) -> Any:
    return json.loads(state.read(key).data)


def it_records_heads_writes_with_if_match_and_reads_back(server, state):
    report = applied(
        server, state, repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
    )
    assert ends(report) == [("branch_lifecycle", "applied")]
    assert server.log == ["heads", "branch_lifecycle if-match"]
    assert server.items[BRANCHES] == (replace(WANTED[0], id="pol-1"),)
    record = read(state, "deletions/prod/a/run-1.json")
    heads = {name: (row["head"], row["hidden"], row["fate"]) for name, row in record["branches"].items()}
    assert heads == {"f-1": ("c1", False, "seen"), "f-2": ("c2", True, "seen")}


def it_remembers_what_the_server_has_now(server, state):
    applied(server, state, repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED)))
    settings = read(state, "applied/prod/a.json")["settings"]
    assert settings["branch_lifecycle"]["body"] == [
        {"id": "pol-1", "name_patterns": ["f-*"], "max_age": 5 * DAY}
    ]
    assert settings["branch_lifecycle"]["server_etag"] == server.etag(BRANCHES)
    history = read(state, "history/run-1.json")["repositories"]["prod/a"]["branch_lifecycle"]
    assert history["status"] == "applied"
    assert history["before"] == [{"id": "pol-1", "name_patterns": ["f-*"], "max_age": 7 * DAY}]


def it_writes_rules_then_policies_then_object_rules(server, state):
    objects = ObjectRulesPlan(action_of_setting(None, RAW), "", diff_setting(None, RAW), (), None, RAW)
    plan = repository(server, GcRules(7), branch_lifecycle=policies(server, WANTED), object_lifecycle=objects)
    report = applied(server, state, plan)
    assert ends(report) == [(k, "applied") for k in ("gc", "branch_lifecycle", "object_lifecycle")]
    assert server.log == ["rules", "heads", "branch_lifecycle if-match", "object_lifecycle"]
    record = read(state, "applied/prod/a.json")
    assert record["body"]["default_retention_days"] == 7
    assert set(record["settings"]) == {"branch_lifecycle", "object_lifecycle"}


def it_stops_a_repository_at_its_first_failure(server, state):
    server.may = False
    objects = ObjectRulesPlan(action_of_setting(None, RAW), "", diff_setting(None, RAW), (), None, RAW)
    plan = repository(server, GcRules(7), branch_lifecycle=policies(server, WANTED), object_lifecycle=objects)
    report = applied(server, state, plan)
    assert ends(report) == [("gc", "applied"), ("branch_lifecycle", "failed"), ("object_lifecycle", "failed")]
    assert "not tried" in report.results[2].message
    assert exit_code_of(report) == 3
    assert server.items == {BRANCHES: STORED, RULES: None}
    assert state.list_keys("leases/") == []


def it_says_what_changed_since_the_plan(server, state):
    plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
    server.items[BRANCHES] = (*STORED, Policy("new", ("x",), DAY))
    report = applied(server, state, plan)
    assert "'new' added" in report.results[0].message
    assert exit_code_of(report) == 5
    assert server.log == []


def it_says_what_changed_when_only_if_match_told(server, state):
    plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))

    def somebody() -> None:
        server.items[BRANCHES] = (replace(STORED[0], max_age_seconds=DAY),)

    server.before_set.append(somebody)
    report = applied(server, state, plan)
    assert "max_age 7d to 1d" in report.results[0].message
    assert exit_code_of(report) == 5


def it_ends_with_5_when_the_etag_is_another_and_the_content_the_same(server, state):
    setting = replace(policies(server, WANTED), server_etag='"other"')
    report = applied(server, state, repository(server, GcRules(30), branch_lifecycle=setting))
    assert "its ETag differs" in report.results[0].message
    assert exit_code_of(report) == 5


@pytest.mark.parametrize("force", [False, True])
def it_never_reports_what_it_did_not_read_back(server, state, force):
    server.alters = True
    plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
    report = applied(server, state, plan, force=force)
    assert "differ from those that lakeplan sent" in report.results[0].message
    assert exit_code_of(report) == 5


def it_sends_no_precondition_when_forced(server, state):
    plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
    server.items[BRANCHES] = (replace(STORED[0], max_age_seconds=DAY),)
    live = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
    assert ends(applied(server, state, plan, live=live, force=True)) == [("branch_lifecycle", "applied")]
    assert server.log == ["heads", "branch_lifecycle"]


def it_writes_over_nothing_by_which_no_gate_was_judged(server, state):
    plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
    server.items[BRANCHES] = ()
    report = applied(server, state, plan, live=plan, force=True)
    assert exit_code_of(report) == 5
    assert server.log == []


@pytest.mark.parametrize("force", [False, True])
def it_does_not_write_what_was_not_judged_because_it_was_there_already(server, state, force):
    plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
    there = replace(plan, branch_lifecycle=replace(plan.branch_lifecycle, before=WANTED))
    report = applied(server, state, plan, live=there, force=force)
    assert exit_code_of(report) == 5
    assert server.items[BRANCHES] == STORED


def it_finishes_the_work_of_an_interrupted_run(server, state):
    plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
    server.items[BRANCHES] = (replace(WANTED[0], id="pol-9"),)
    assert ends(applied(server, state, plan)) == [("branch_lifecycle", "already")]
    assert "branch_lifecycle" in read(state, "applied/prod/a.json")["settings"]


def it_clears_without_recording_heads(server, state):
    plan = repository(server, GcRules(30), branch_lifecycle=policies(server, None))
    assert ends(applied(server, state, plan)) == [("branch_lifecycle", "applied")]
    assert server.log == ["delete branch_lifecycle"]


def it_pushes_nothing_when_the_heads_cannot_be_recorded(server, state, monkeypatch):
    plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))

    def unreachable(_: str) -> list[LiveBranch]:
        raise ServerUnreachable("no answer")

    monkeypatch.setattr(server, "list_live", unreachable)
    assert ends(applied(server, state, plan)) == [("branch_lifecycle", "failed")]
    assert server.items[BRANCHES] == STORED


class DescribeALostAnswer:
    @pytest.fixture
    def lose(self, server, monkeypatch):
        """The next write's answer is lost after ``act``; whether the server acted first is up to the test."""
        original, log = server.set_items, []

        def lose(act, *, acted):
            def set_items(name, kind, items, *, if_match):
                log.append(if_match)
                if len(log) > 1 or acted:
                    original(name, kind, items, if_match=if_match)
                if len(log) == 1:
                    act()
                    raise ServerUnreachable("no answer")

            monkeypatch.setattr(server, "set_items", set_items)
            return log

        return lose

    @pytest.mark.parametrize(("acted", "sent"), [(True, 1), (False, 2)])
    def it_is_sent_again_only_when_it_did_not_take_effect(self, server, state, lose, acted, sent):
        plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
        log = lose(lambda: None, acted=acted)
        assert ends(applied(server, state, plan)) == [("branch_lifecycle", "applied")]
        assert len(log) == sent
        assert all(log)

    @pytest.mark.parametrize("acted", [True, False])
    @pytest.mark.parametrize("force", [True, False])
    def it_leaves_what_a_colleague_wrote_meanwhile(self, server, state, lose, acted, force):
        mine = (replace(STORED[0], max_age_seconds=90 * DAY),)
        plan = repository(server, GcRules(30), branch_lifecycle=policies(server, WANTED))
        log = lose(lambda: server.items.update({BRANCHES: mine}), acted=acted)
        report = applied(server, state, plan, force=force)
        assert server.items[BRANCHES] == mine
        assert len(log) == 1
        assert exit_code_of(report) == 5
        step = read(state, "history/run-1.json")["repositories"]["prod/a"]["branch_lifecycle"]
        assert step["found"] == {"body": [{"id": "pol-1", "name_patterns": ["f-*"], "max_age": 90 * DAY}]}

    def it_does_not_delete_again_what_a_colleague_set_meanwhile(self, server, state, monkeypatch):
        mine = (replace(STORED[0], max_age_seconds=90 * DAY),)
        plan = repository(server, GcRules(30), branch_lifecycle=policies(server, None))

        def lose(_, kind):
            server.log.append("delete")
            server.items[kind] = mine
            raise ServerUnreachable("no answer")

        monkeypatch.setattr(server, "delete_items", lose)
        assert exit_code_of(applied(server, state, plan)) == 5
        assert server.items[BRANCHES] == mine
        assert server.log == ["delete"]

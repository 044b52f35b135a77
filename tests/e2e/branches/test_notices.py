"""``notice_period`` and ``branches exempt`` from the command line, with a webhook on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from jsonschema import Draft202012Validator

from lakeplan.tree.schemas import load_schema
from tests.webhooks import SECRET, Receiver, receiver

DAY = 86400


@pytest.fixture
def hook(lake, monkeypatch) -> Iterator[Receiver]:
    """One branch that is due, and three days of notice on the channel ``ops``."""
    root = (lake.tree / "lakeplan.yaml").read_text()
    lake.write("lakeplan.yaml", f"{root}notify: {{channels: {{ops: {{kind: json}}}}}}\n")
    lake.observed("feature-1")
    lake.policies("{id: quiet, patterns: [feature-*], max_idle_age: 3d}", "{notice_period: 3d}")
    with receiver() as made:
        monkeypatch.setenv("LAKEPLAN_NOTIFY_OPS_URL", made.url)
        yield made


def days_pass(lake, days: float) -> None:
    """Since the notices were given."""
    lake.grow_older(days)
    path = lake.tree / ".lakeplan" / "notices" / "prod" / "analytics.json"
    document = json.loads(path.read_text())
    for row in document["branches"].values():
        for key in ("accepted_at", "deleted_from"):
            row[key] = (datetime.fromisoformat(row[key]) - timedelta(days=days)).isoformat()
    path.write_text(json.dumps(document))


def it_tells_then_waits_then_deletes(lake, hook):
    first = lake.branches("run")
    assert first.code == 0, first.err
    assert lake.live() == {"main", "feature-1"}
    (repository,) = first.json["repositories"]
    assert [n["branch_id"] for n in repository["noticed"]] == ["feature-1"]
    (request,) = hook.received
    Draft202012Validator(load_schema("notification")).validate(request.json)
    (item,) = request.json["items"]
    assert item["facts"]["branch"] == "feature-1"
    assert item["facts"]["deleted_from"] == repository["noticed"][0]["deleted_from"]
    assert request.headers["Idempotency-Key"] == request.json["id"]
    assert "Authorization" not in request.headers
    assert lake.verdicts()["feature-1"] == ("keep", "notice_given")
    days_pass(lake, 2)
    lake.branches("run")
    assert lake.live() == {"main", "feature-1"}
    days_pass(lake, 1.1)
    assert lake.verdicts()["feature-1"] == ("delete", "policy")
    lake.branches("run")
    assert lake.live() == {"main"}
    assert len(hook.received) == 1


def it_keeps_its_word_when_the_period_leaves_the_tree(lake, hook):
    lake.branches("run")
    lake.policies("{id: quiet, patterns: [feature-*], max_idle_age: 3d}")
    assert lake.verdicts()["feature-1"] == ("keep", "notice_given")
    lake.branches("run")
    assert lake.live() == {"main", "feature-1"}
    days_pass(lake, 3.1)
    lake.branches("run")
    assert lake.live() == {"main"}


def it_tells_the_channel_of_today_when_another_one_was_told(lake, hook, monkeypatch):
    """A notice that went to the wrong people does not count once the tree names the right ones."""
    lake.branches("run")
    root = (lake.tree / "lakeplan.yaml").read_text()
    lake.write("lakeplan.yaml", root.replace("{ops: {kind: json}}", "{team: {kind: json}}"))
    with receiver() as other:
        monkeypatch.setenv("LAKEPLAN_NOTIFY_TEAM_URL", other.url)
        days_pass(lake, 3.1)
        assert lake.verdicts()["feature-1"] == ("keep", "notice_due")
        lake.branches("run")
        assert lake.live() == {"main", "feature-1"}
        assert len(other.received) == 1
        days_pass(lake, 3.1)
        lake.branches("run")
        assert lake.live() == {"main"}


def it_exempts_by_the_command_of_the_notice(lake, hook):
    lake.branches("run")
    words = hook.received[0].json["items"][0]["command"].split()
    assert words[:5] == ["lakeplan", "branches", "exempt", "prod/analytics", "feature-1"]
    result = lake.branches(*words[2:], "--reason", "release is late")
    assert result.code == 0, result.err
    assert result.json["reason"] == "release is late"
    days_pass(lake, 4)
    lake.branches("run")
    assert lake.live() == {"main", "feature-1"}
    assert lake.verdicts()["feature-1"] == ("keep", "exempted")
    shown = lake.lakeplan("branches", "plan", "--no-simulate").out
    assert "release is late" in shown
    removed = lake.lakeplan("branches", "exempt", "analytics", "feature-1", "--remove")
    assert removed.code == 0
    assert "Exemption removed: prod/analytics feature-1" in removed.out
    lake.branches("run")
    assert lake.live() == {"main", "feature-1"}, "the notice from before the exemption is void"
    assert len(hook.received) == 2


def it_records_notices_and_exemptions_in_the_history(lake, hook):
    lake.branches("run")
    lake.branches("exempt", "analytics", "feature-1", "--until", "2099-01-01", "--reason", "late")
    lake.branches("exempt", "analytics", "feature-1", "--remove")
    runs = lake.lakeplan("history", "--kind", "branches", "--format", "json").json["runs"]
    steps = [(run["command"], run["repositories"][0]) for run in runs]
    assert [(command, step["counts"]) for command, step in steps] == [
        ("branches exempt", {"exemption_removed": 1}),
        ("branches exempt", {"exempted": 1}),
        ("branches run", {"notice_given": 1}),
    ]
    assert {step["branches"][0]["branch_id"] for _, step in steps} == {"feature-1"}
    assert "late" in steps[1][1]["message"]


def it_is_explained_where_the_branch_is_named(lake, hook):
    lake.branches("run")
    lake.branches("exempt", "analytics", "feature-1", "--until", "2099-01-01", "--reason", "late")
    notes = lake.lakeplan("explain", "analytics", "feature-1", "--format", "json").json["notes"]
    assert any("exempt until 2099-01-02 00:00 UTC" in note and "late" in note for note in notes)
    assert any("was announced at" in note for note in notes)
    others = lake.lakeplan("explain", "analytics", "main", "--format", "json").json["notes"]
    assert not any("feature-1" in note for note in others)


def it_explains_without_records_that_are_damaged(lake, hook):
    (lake.tree / ".lakeplan" / "notices" / "prod").mkdir(parents=True)
    (lake.tree / ".lakeplan" / "notices" / "prod" / "analytics.json").write_text("{")
    result = lake.lakeplan("explain", "analytics", "feature-1", "--format", "json")
    assert result.code == 0
    assert any("could not be read" in note for note in result.json["notes"])


def it_is_told_by_doctor_which_channel_has_no_url(lake, hook, monkeypatch):
    def found() -> dict[str, str]:
        document = lake.lakeplan("doctor", "--no-spark", "--format", "json").json
        return {c["check"]: c["result"] for c in document["checks"] if c["area"] == "notify"}

    assert found() == {"channel ops": "ok"}
    monkeypatch.delenv("LAKEPLAN_NOTIFY_OPS_URL")
    assert found() == {"channel ops": "warn"}
    assert hook.received == []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([(500, {}, b"no")], "status 500"),
        ([(404, {}, b"no_service")], "status 404"),
        ([(302, {"Location": "http://127.0.0.1:1/elsewhere"}, b"")], "redirects (status 302)"),
        ([None], "the request failed"),
    ],
)
def it_postpones_and_says_so(lake, hook, answers, said, monkeypatch):
    monkeypatch.setattr("lakeplan.review.notify.PAUSE_SECONDS", 0.01)
    hook.answers = answers
    result = lake.branches("run")
    assert result.code == 0, result.err
    (repository,) = result.json["repositories"]
    assert said in repository["warnings"][0]
    assert "postponed" in repository["warnings"][0]
    assert lake.live() == {"main", "feature-1"}
    people = lake.lakeplan("branches", "run", "--log-level", "debug")
    assert "postponed" in " ".join(people.out.split())
    for text in (result.out, result.err, people.out, people.err):
        assert SECRET not in text
        assert "secret-signature" not in text
    assert not list((lake.tree / ".lakeplan").rglob("notices/**/*.json"))
    stored = [p.read_text() for p in (lake.tree / ".lakeplan").rglob("*.json")]
    assert not any(SECRET in text for text in stored)


def it_postpones_without_the_variable(lake, hook, monkeypatch):
    monkeypatch.delenv("LAKEPLAN_NOTIFY_OPS_URL")
    (repository,) = lake.branches("run").json["repositories"]
    assert "LAKEPLAN_NOTIFY_OPS_URL is not set" in repository["warnings"][0]
    assert hook.received == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["feature-1"], "exempt needs either --until or --remove"),
        (["feature-1", "--until", "2099-01-01", "--remove"], "exempt needs either --until or --remove"),
        (["feature-1", "--until", "2020-01-01"], "--until 2020-01-01 is in the past"),
        (["feature-1", "--until", "soon"], "'soon' is not a valid time"),
        (["feature-9", "--until", "2099-01-01"], "prod/analytics has no branch 'feature-9'"),
        (["feature-1", "--remove"], "has no exemption"),
    ],
)
def it_refuses_what_cannot_be_meant(lake, hook, words, said):
    result = lake.lakeplan("branches", "exempt", "analytics", *words)
    assert result.code == 64
    assert said in result.err


def it_does_not_exempt_where_the_server_deletes(lake, hook):
    root = (lake.tree / "lakeplan.yaml").read_text()
    lake.write("lakeplan.yaml", root.replace("engine: lakeplan", "engine: server"))
    result = lake.lakeplan("branches", "exempt", "analytics", "feature-1", "--until", "2099-01-01")
    assert result.code == 64
    assert "no selected server has branch_lifecycle.engine: lakeplan" in result.err

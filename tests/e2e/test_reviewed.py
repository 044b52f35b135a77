"""Changes between a review and its apply: only what was reviewed, and is still allowed, is written."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.values.documents import decode
from lakeplan.values.plan import Plan
from lakeplan.values.plan_document import digest_of, to_document
from lakeplan.values.records import utc_text


@pytest.fixture
def expiring(world):
    """Three commits on main. The oldest, alone with its object, goes with the 5 days that the tree asks for:
    returns its id."""
    world.api.repository("analytics")
    old = world.api.commit("analytics", "main", 40, a=10)
    world.api.delete("analytics", "main", "a.bin")
    world.api.commit("analytics", "main", 20, b=10)
    world.api.commit("analytics", "main", 1, c=10)
    world.api.set_rules("analytics", 365)
    world.rules("analytics", 5)
    world.override("unknown-impact")
    return old


def root(world, text: str) -> None:
    servers = f"servers: {{prod: {{endpoint_url: {world.handle.endpoint_url}}}}}"
    world.write("lakeplan.yaml", f"apiVersion: lakeplan/v1\n{servers}\n{text}\n")


def assert_refused(world, plan, *words: str) -> None:
    refused = world.lakeplan("apply", plan, "--no-simulate")
    assert refused.code == 4, refused.out + refused.err
    assert all(word in refused.err for word in words), refused.err
    assert world.api.rules("analytics") == {"*": 365}


def it_refuses_when_a_tag_was_set_on_a_commit_that_goes(world, expiring):
    plan = world.plan_file("plan.json", "--no-simulate")
    world.api.tag("analytics", "v1", expiring)
    assert_refused(world, plan, "v1")


def it_refuses_a_new_tag_also_where_the_objects_were_read(world, expiring):
    root(world, "safety: {max_expired_objects_percent: 100}")
    plan = world.plan_file()
    world.api.tag("analytics", "v1", expiring)
    assert_refused(world, plan, "v1")


def it_refuses_when_the_override_was_taken_back(world, expiring):
    world.api.tag("analytics", "v1", expiring)
    root(world, "overrides: [{repository: analytics, gate: tag-loss, reason: old, expires: 2099-12-31}]")
    plan = world.plan_file("plan.json", "--no-simulate")
    root(world, "")
    assert_refused(world, plan, "tag-loss")


def it_refuses_when_a_warning_became_a_refusal(world, expiring):
    world.api.tag("analytics", "v1", expiring)
    root(world, "safety: {on_tag_loss: warn}")
    plan = world.plan_file("plan.json", "--no-simulate")
    root(world, "")
    assert_refused(world, plan, "tag-loss")


class DescribeRepositoriesThatNoEntryNames:
    """Attack on ``unmanaged: fail``: it is judged by what the servers have when the plan is applied."""

    @pytest.fixture
    def newcomer(self, world, expiring):
        """A plan that was made before somebody made a repository."""
        root(world, "unmanaged: fail")
        plan = world.plan_file("plan.json", "--no-simulate")
        world.api.repository("newcomer")
        return plan

    def it_refuses_one_that_was_made_since(self, world, newcomer):
        assert_refused(world, newcomer, "unmanaged", "1 repository on the servers has no entry in the tree")

    def it_refuses_whatever_the_plan_file_says_of_its_selection(self, world, newcomer):
        def narrow(document):
            document["targets"], document["unmanaged"] = ["analytics"], []

        edited(newcomer, narrow)
        assert_refused(world, newcomer, "unmanaged")

    def it_leaves_them_out_of_an_apply_of_a_selection(self, world, newcomer):
        result = world.lakeplan("apply", newcomer, "--no-simulate", "--target", "analytics")
        assert result.code == 0, result.err
        assert world.api.rules("analytics") == {"*": 5}

    def it_only_warns_where_the_tree_warns(self, world, newcomer):
        root(world, "unmanaged: warn")
        world.override("unknown-impact")
        plan = world.plan_file("plan.json", "--no-simulate")
        assert world.lakeplan("apply", plan, "--no-simulate").code == 0


def edited(path, change) -> None:
    """The plan file as somebody leaves it who edits it and knows how totals and digest are made."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(to_document(decode(document, Plan))))


def open_every_gate(document) -> None:
    document["allowed"] = ["unknown-impact", "expired-objects", "tag-loss"]
    for gate in [*document["gates"], *(g for r in document["repositories"] for g in r["gates"])]:
        gate["outcome"] = "allowed"


def it_does_not_count_gates_that_the_plan_file_calls_allowed(world, expiring):
    world.override()
    plan = world.plan_file("plan.json", "--no-simulate")
    edited(plan, open_every_gate)
    assert_refused(world, plan, "unknown-impact")


class DescribeTwoRepositories:
    @pytest.fixture
    def plan(self, world):
        """Rules of two repositories would be removed."""
        for name in ("one", "two"):
            world.api.repository(name)
            world.api.set_rules(name, 30)
        self.clear(world)
        return world.plan_file()

    def clear(self, world, more=""):
        world.write(
            "repositories/all.yaml",
            f"apiVersion: lakeplan/v1\nrepositories:\n  one: {{gc: clear}}\n  two: {{gc: clear}}\n{more}",
        )

    @pytest.fixture
    def terminal(self, monkeypatch):
        monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())

    def it_needs_each_named_where_allow_would_override_both(self, world, plan, terminal):
        refused = world.lakeplan("apply", plan, "--allow", "clear")
        assert refused.code == 4, refused.err
        text = " ".join(refused.err.split())
        assert "--allow prod/one=clear" in text
        assert "--allow prod/two=clear" in text
        assert world.api.rules("one") == world.api.rules("two") == {"*": 30}
        one = world.lakeplan("apply", plan, "--allow", "one=clear")
        assert one.code == 4, "the other one still refuses"
        assert "prod/two" in one.err
        assert "prod/one: gate" not in one.err
        applied = world.lakeplan("apply", plan, "--allow", "prod/one=clear", "--allow", "two=clear")
        assert applied.code == 0, applied.err
        assert world.api.rules("one") is None

    def it_is_enough_to_name_the_gate_where_one_is_affected(self, world, plan, terminal):
        applied = world.lakeplan("apply", plan, "--target", "one", "--allow", "clear")
        assert applied.code == 0, applied.err
        assert world.api.rules("two") == {"*": 30}

    def it_refuses_a_flag_for_a_repository_that_is_not_in_the_run(self, world, plan, terminal):
        refused = world.lakeplan("apply", plan, "--allow", "prod/onee=clear", "--allow", "two=clear")
        assert refused.code == 64, refused.err
        assert "--allow prod/one=clear" in " ".join(refused.err.split())
        elsewhere = world.lakeplan("apply", plan, "--target", "one", "--allow", "two=clear")
        assert elsewhere.code == 64, "two is not in this run"
        assert world.lakeplan("plan", "--allow", "onee=clear").code == 64
        assert world.api.rules("one") == world.api.rules("two") == {"*": 30}

    def it_shows_the_flags_in_a_preview(self, world, plan):
        shown = world.lakeplan("plan", "--allow", "clear")
        assert shown.code == 4
        assert "--allow prod/one=clear" in " ".join(shown.out.split())
        assert world.lakeplan("plan", "--allow", "one=clear", "--allow", "two=clear").code == 0
        assert world.lakeplan("plan", "--allow", "one=cler").code == 64

    def it_records_what_was_allowed_and_an_apply_does_not_count_it(self, world, plan, terminal):
        flags = ("--allow", "one=clear", "--allow", "prod/two=clear")
        opened = world.plan_file("opened.json", *flags)
        assert json.loads(opened.read_text())["allowed"] == ["one=clear", "prod/two=clear"]
        refused = world.lakeplan("apply", opened)
        assert refused.code == 4, "what a plan file allows never counts"
        assert {"prod/one", "prod/two"} <= set(refused.err.replace(":", " ").split())
        again = world.lakeplan("apply", opened, "--allow", "one=clear")
        assert again.code == 4, "nor beside another flag"
        assert world.api.rules("one") == world.api.rules("two") == {"*": 30}
        applied = world.lakeplan("apply", opened, *flags)
        assert applied.code == 0, applied.err
        recorded, *_ = world.lakeplan("history", "--format", "json").json["runs"]
        assert recorded["allowed"] == ["one=clear", "prod/two=clear"]

    def it_does_not_open_the_gate_of_one_for_another_by_an_edited_plan_file(self, world, plan, terminal):
        def swap(document) -> None:
            document["allowed"] = ["prod/two=clear", "clear"]
            for repository in document["repositories"]:
                for gate in repository["gates"]:
                    gate.update(scope="prod/one", outcome="allowed", opens_with="--allow prod/one=clear")

        edited(plan, swap)
        refused = world.lakeplan("apply", plan, "--allow", "prod/one=clear")
        assert refused.code == 4, refused.err
        assert "--allow prod/two=clear" in " ".join(refused.err.split())
        assert world.api.rules("one") == world.api.rules("two") == {"*": 30}

    def it_does_not_take_a_repository_of_the_plan_file_for_adopted(self, world):
        world.api.repository("team-a")
        world.write(
            "repositories/team.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  team-*: {gc: {default_retention_days: 9}}\n",
        )
        plan = world.plan_file()
        edited(plan, open_every_gate)
        refused = world.lakeplan("apply", plan)
        assert refused.code == 4, refused.err
        assert "adoption" in refused.err
        assert world.api.rules("team-a") is None


def it_judges_gates_by_what_it_reads_and_not_by_the_figures_of_the_plan_file(world, expiring):
    """Figures are edited to nothing while the digest of the commits stays the true one."""
    root(world, "safety: {max_expired_objects_percent: 10}")
    plan = world.plan_file()

    def nothing_expires(document) -> None:
        open_every_gate(document)
        for figures in document["repositories"][0]["impact"]["horizons"].values():
            figures.update(objects_expire=0, bytes_expire=0)

    edited(plan, nothing_expires)
    refused = world.lakeplan("apply", plan)
    assert refused.code == 4, refused.out + refused.err
    assert "expired-objects" in refused.err
    assert world.api.rules("analytics") == {"*": 365}


def it_refuses_a_plan_made_for_a_moment_to_come(world, expiring):
    plan = world.plan_file("plan.json", "--no-simulate", "--as-of", "2099-01-01T00:00:00Z")
    assert_refused(world, plan, "for a time in the future")


def it_does_not_call_a_misspelt_selection_a_plan_without_work(world, expiring):
    plan = world.plan_file("plan.json", "--no-simulate")
    refused = world.lakeplan("apply", plan, "--no-simulate", "--target", "analytisc")
    assert refused.code == 64
    assert world.lakeplan("apply", plan, "--no-simulate", "--target", "analyt*").code == 0


def it_refuses_a_refresh_by_which_the_server_would_lose_more(world):
    """The early stop (retention.md): more days for ``keep-1`` end the walk of ``feature`` at their parent."""
    name, first = world.early_stop()
    world.api.set_rules(name, 365)
    world.write(
        "repositories/walk.yaml",
        f"apiVersion: lakeplan/v1\nrepositories:\n  {name}:\n    gc:\n      default_retention_days: 3\n"
        "      branches:\n        - {branch_id: feature, retention_days: 7}\n"
        "        - {pattern: 'keep-*', retention_days: 100}\n",
    )
    world.override("unknown-impact")
    plan = world.plan_file("plan.json", "--no-simulate")
    world.api.branch(name, "keep-1", first)
    refused = world.lakeplan("apply", plan, "--no-simulate", "--refresh-patterns")
    assert refused.code == 4, refused.out + refused.err
    assert "1 commit would expire, but the reviewed plan shows 0" in refused.err
    assert world.api.rules(name) == {"*": 365}
    assert world.lakeplan("apply", plan, "--no-simulate").code == 0
    assert world.api.rules(name) == {"*": 3, "feature": 7}


class DescribeGlobs:
    @pytest.fixture
    def planned(self, world):
        for name in ("team-a", "team-b"):
            world.api.repository(name)
        world.write(
            "repositories/team.yaml",
            "apiVersion: lakeplan/v1\nrepositories:\n  team-*:\n    gc: {default_retention_days: 9}\n",
        )
        world.override("adoption")
        return world.plan_file()

    def it_fails_the_repository_that_is_gone_and_writes_the_rest(self, world, planned):
        world.api.call("DELETE", "/repositories/team-a")
        applied = world.lakeplan("apply", planned, "--format", "json")
        assert applied.code == 3, applied.out + applied.err
        ends = {r["repository"]: r["outcome"] for r in json.loads(applied.out)["results"]}
        assert ends == {"prod/team-a": "failed", "prod/team-b": "applied"}
        assert world.api.rules("team-b") == {"*": 9}

    def it_says_that_the_server_does_not_answer_and_not_that_the_tree_changed(self, world, planned):
        world.handle.faults.deny("GET .*/repositories")
        refused = world.lakeplan("apply", planned)
        assert refused.code == 1
        assert "does not list it" not in refused.out + refused.err
        assert "prod/team-a" in refused.out + refused.err


class DescribePlansThatWereApplied:
    """A job that is run again applies its plan again, from the commit that it checked out then."""

    @pytest.fixture
    def applied(self, world):
        """A plan that was reviewed and applied: 30 days became 14."""
        for name in ("analytics", "events"):
            world.api.repository(name)
            world.api.commit(name, "main", 50, a=10)
            world.api.commit(name, "main", 1, b=10)
            world.api.set_rules(name, 30)
            world.rules(name, 14)
        plan = world.plan_file()
        assert world.lakeplan("apply", plan).code == 0
        return plan

    @pytest.mark.parametrize("options", [(), ("--replan",), ("--force",)], ids=str)
    def it_refuses_one_that_would_undo_what_another_apply_wrote_since(self, world, applied, options):
        world.rules("analytics", 30)  # a revert, reviewed and applied
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("analytics", 14)
        result = world.lakeplan("apply", applied, *options)
        assert result.code == 5, result.out + result.err
        assert "prod/analytics: run" in result.err
        assert world.api.rules("analytics") == {"*": 30}

    @pytest.mark.parametrize("damaged", [0, 1], ids=["its first run", "the revert"])
    def it_refuses_it_where_a_record_of_the_history_is_damaged(self, world, applied, damaged):
        world.rules("analytics", 30)
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("analytics", 14)
        record = sorted((world.tree / ".lakeplan" / "history").iterdir())[damaged]
        record.write_bytes(record.read_bytes()[:50])
        refused = world.lakeplan("apply", applied)
        assert (refused.code, f"prod/analytics: the state's record history/{record.name}" in refused.err) == (
            5,
            True,
        ), refused.err
        assert world.api.rules("analytics") == {"*": 30}

    def it_refuses_it_where_somebody_reverted_it_by_hand_before_the_tree(self, world, applied):
        """The apply of the revert had nothing to write, and recorded what it found."""
        world.api.set_rules("analytics", 30)
        world.rules("analytics", 30)
        world.rules("events", 20)
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("analytics", 14)
        world.rules("events", 14)
        world.api.set_rules("events", 14)
        assert world.lakeplan("apply", applied).code == 5
        assert world.api.rules("analytics") == {"*": 30}

    @pytest.mark.parametrize("fault", ["GET .*/repositories", "PUT .*/gc_rules"])
    def it_refuses_one_that_could_not_be_applied_before_a_revert(self, world, applied, fault):
        """The revert agrees with what an apply before the plan wrote, so that only the time is new."""
        world.rules("analytics", 5)
        plan = world.plan_file("later.json")
        world.handle.faults.deny(fault)
        assert world.lakeplan("apply", plan).code
        world.handle.faults.clear()
        world.rules("analytics", 14)  # reviewed, and applied with nothing to write
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("analytics", 5)
        world.handle.faults.deny(fault)
        assert world.lakeplan("apply", plan).code
        world.handle.faults.clear()
        refused = world.lakeplan("apply", plan, "--replan")
        assert (refused.code, "matches another version of the tree" in refused.err) == (5, True), refused.err
        assert world.api.rules("analytics") == {"*": 14}

    def it_refuses_one_that_was_stale_before_a_revert(self, world, applied):
        world.rules("analytics", 5)
        plan = world.plan_file("later.json")
        world.api.set_rules("analytics", 13)
        assert world.lakeplan("apply", plan).code == 5
        world.api.set_rules("analytics", 14)
        world.rules("analytics", 14)
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("analytics", 5)
        refused = world.lakeplan("apply", plan)
        assert (refused.code, "matches another version of the tree" in refused.err) == (5, True), refused.err
        assert world.api.rules("analytics") == {"*": 14}

    def it_refuses_a_revert_that_was_planned_before_its_change_was_applied(self, world, applied):
        """It has nothing to write, but would look as if it had taken effect."""
        world.rules("analytics", 5)
        change = world.plan_file("change.json")
        world.rules("analytics", 14)
        revert = world.plan_file("revert.json")
        world.rules("analytics", 5)
        assert world.lakeplan("apply", change).code == 0
        world.rules("analytics", 14)
        refused = world.lakeplan("apply", revert, "--replan")
        assert (refused.code, "prod/analytics: the plan writes nothing" in refused.err) == (5, True), (
            refused.err
        )
        assert world.lakeplan("apply", world.plan_file("again.json")).code == 0
        assert world.api.rules("analytics") == {"*": 14}
        world.api.set_rules("events", 13)  # by hand, which is what drift reports
        assert world.lakeplan("apply", revert, "--replan").code == 0

    def it_records_a_killed_run_for_its_targets_only(self, world, applied, monkeypatch):
        for name in ("analytics", "events"):
            world.rules(name, 5)
        plan = world.plan_file("later.json")

        def killed(*_):
            raise GeneratorExit

        monkeypatch.setattr("lakeplan.plan.apply.make_plan", killed)
        with pytest.raises(GeneratorExit):
            world.lakeplan("apply", plan, "--target", "events")
        recorded, *_ = world.lakeplan("history", "--format", "json").json["runs"]
        assert [step["repository"] for step in recorded["repositories"]] == ["prod/events"]

    def it_refuses_one_whose_first_run_was_killed_while_it_planned(self, world, applied, monkeypatch):
        world.rules("analytics", 5)
        plan = world.plan_file("later.json")

        def killed(*_):
            raise GeneratorExit

        with monkeypatch.context() as patch:
            patch.setattr("lakeplan.plan.apply.make_plan", killed)
            with pytest.raises(GeneratorExit):
                world.lakeplan("apply", plan)
        world.rules("analytics", 14)
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("analytics", 5)
        refused = world.lakeplan("apply", plan)
        assert (refused.code, "matches another version of the tree" in refused.err) == (5, True), refused.err
        assert world.api.rules("analytics") == {"*": 14}

    def it_applies_one_that_could_not_be_applied_beside_another_apply(self, world, applied):
        world.rules("analytics", 5)
        plan = world.plan_file("later.json")
        world.rules("analytics", 14)
        world.rules("events", 20)  # merged before the plan, so it was applied without it
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("analytics", 5)
        world.handle.faults.deny("PUT .*/gc_rules")
        assert world.lakeplan("apply", plan).code
        world.handle.faults.clear()
        assert world.lakeplan("apply", plan).code == 0
        assert world.api.rules("analytics") == {"*": 5}

    def it_refuses_it_where_the_clock_of_who_planned_was_fast(self, world, applied):
        document = json.loads(applied.read_text())
        before = document["digest"]
        document["as_of"] = utc_text(datetime.now(timezone.utc) + timedelta(minutes=30))
        document["digest"] = digest_of(document)
        for record in (world.tree / ".lakeplan").rglob("*.json"):
            record.write_text(record.read_text().replace(before, document["digest"]))
        applied.write_text(json.dumps(document))
        world.rules("analytics", 30)
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("analytics", 14)
        assert world.lakeplan("apply", applied).code == 5
        assert world.api.rules("analytics") == {"*": 30}

    def it_asks_for_a_new_plan_where_the_plan_is_too_old(self, world, applied):
        world.api.set_rules("analytics", 30)
        plan = world.plan_file("later.json")
        document = json.loads(plan.read_text())
        document["as_of"] = utc_text(datetime.now(timezone.utc) - timedelta(days=8))
        document["digest"] = digest_of(document)
        plan.write_text(json.dumps(document))
        result = world.lakeplan("apply", plan)
        assert (result.code, "max_plan_age is 7d" in result.err) == (4, True), result.err
        assert "hint: Run `lakeplan plan` again and have it reviewed." in result.err
        assert "To override a gate" not in result.err, "an override does not help"
        assert world.api.rules("analytics") == {"*": 30}

    def it_applies_it_again_where_no_other_apply_wrote(self, world, applied):
        """As to repair what somebody changed on the server."""
        world.rules("events", 20)
        assert world.lakeplan("apply", "--auto-approve").code == 0
        world.rules("events", 14)
        world.api.set_rules("events", 14)
        world.api.set_rules("analytics", 30)
        result = world.lakeplan("apply", applied)
        assert result.code == 0, result.out + result.err
        assert world.api.rules("analytics") == {"*": 14}


@pytest.mark.parametrize(
    ("merged", "is_of_another", "code"),
    [("2026-03-31T13:00:00Z", False, 5), ("", False, 0), ("2026-03-31T13:00:00Z", True, 0)],
    ids=["merged before", "unknown", "another tree"],
)
def it_refuses_a_job_that_first_runs_after_the_job_of_a_revert_that_was_merged_later(
    world, merged, is_of_another, code, monkeypatch
):
    """The first job waited for a person or a runner, so no run of its plan is recorded."""
    world.api.repository("analytics")
    world.api.set_rules("analytics", 30)
    world.rules("analytics", 30)
    assert world.lakeplan("apply", "--auto-approve").code == 0
    world.rules("analytics", 14)
    plan = world.plan_file()
    world.rules("analytics", 30)  # a revert, which has nothing to write, as the server still has 30 days
    reverted = world.plan_file("revert.json")
    monkeypatch.setenv("LAKEPLAN_MERGED_AT", "2026-03-31T14:00:00+00:00")
    assert world.lakeplan("apply", reverted).code == 0
    for record in (world.tree / ".lakeplan/history").iterdir() if is_of_another else ():
        record.write_text(record.read_text().replace('"tree_name": ""', '"tree_name": "another"'))
    world.rules("analytics", 14)
    monkeypatch.setenv("LAKEPLAN_MERGED_AT", merged)
    result = world.lakeplan("apply", plan)
    assert result.code == code, result.out + result.err
    assert world.api.rules("analytics") == {"*": 30 if code else 14}


@pytest.mark.parametrize(
    ("merged", "code"),
    [("2026-03-31T13:00:00Z", 0), ("", 5), ("2026-03-31T15:00:00Z", 5)],
    ids=["merged before", "unknown", "merged later"],
)
def it_applies_a_late_job_that_concerns_other_repositories_than_the_job_of_a_later_merge(
    world, merged, code, monkeypatch
):
    for name in ("analytics", "events"):
        world.api.repository(name)
        world.api.set_rules(name, 30)
        world.rules(name, 30)
    assert world.lakeplan("apply", "--auto-approve").code == 0
    world.rules("analytics", 40)
    plan = world.plan_file()
    world.rules("analytics", 30)
    world.rules("events", 40)
    later = world.plan_file("later.json")
    world.rules("analytics", 40)
    monkeypatch.setenv("LAKEPLAN_MERGED_AT", "2026-03-31T14:00:00+00:00")
    assert world.lakeplan("apply", later).code == 0
    world.rules("events", 30)
    monkeypatch.setenv("LAKEPLAN_MERGED_AT", merged)
    result = world.lakeplan("apply", plan)
    assert result.code == code, result.out + result.err
    assert world.api.rules("analytics") == {"*": 30 if code else 40}

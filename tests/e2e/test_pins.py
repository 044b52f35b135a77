"""Pins end to end: planned, made in their order, kept apart from the tree's own rules, and taken away."""

from __future__ import annotations

import json

import pytest

from lakeplan.errors import PermissionDenied
from lakeplan.lakefs.writers import LakeFSBranchWriter
from lakeplan.plan import pin_sync
from lakeplan.plan.pin_attempts import PinnedRulesAttempt
from lakeplan.sandbox import state
from tests.e2e.test_sweep import Site
from tests.sandboxes import start_sandbox

REPOSITORY = "analytics"
PATH = f"/repositories/{REPOSITORY}"


def pin_of(commit: str) -> str:
    return f"lakeplan-pin-{commit[:12]}"


def hidden(world) -> dict[str, str]:
    """Hidden branches with their HEADs."""
    listed = [
        {
            b["id"]: b["commit_id"]
            for b in world.api.call("GET", f"{PATH}/branches", params={"show_hidden": on})["results"]
        }
        for on in ("true", "false")
    ]
    return {name: head for name, head in listed[0].items() if name not in listed[1]}


def tree(world, pins: str, default: int = 7, gc: str = "") -> None:
    world.write(
        f"repositories/{REPOSITORY}.yaml",
        f"apiVersion: lakeplan/v1\nrepositories:\n  {REPOSITORY}:\n"
        f"    gc: {{default_retention_days: {default}{gc}}}\n" + (f"    pins: {pins}\n" if pins else ""),
    )


@pytest.fixture
def commits(world):
    """A line of four commits on main, each alone with one object; v1 at the second. Rules of 7 days."""
    world.api.repository(REPOSITORY)
    ids = []
    for number, age in enumerate((400, 300, 200, 0)):
        ids.append(world.api.commit(REPOSITORY, "main", age, **{f"f{number}": 10 + number}))
        world.api.delete(REPOSITORY, "main", f"f{number}.bin")
    world.api.commit(REPOSITORY, "main", 0, last=5)
    world.api.tag(REPOSITORY, "v1", ids[1])
    world.api.set_rules(REPOSITORY, 7)
    return ids


def planned(world, *more: str):
    result = world.lakeplan("plan", "--format", "json", *more)
    assert result.code in (0, 2), result.err
    (repository,) = result.json["repositories"]
    return repository


def applied(world, *more: str):
    result = world.lakeplan("apply", "--auto-approve", "--format", "json", *more)
    assert result.code == 0, result.err + result.out
    return result.json


def it_shows_a_missing_pin_and_what_only_it_protects(world, commits):
    tree(world, '{tags: ["v*"]}')
    (row,) = planned(world)["pins"]["pins"]
    assert row == {
        "commit_id": commits[1],
        "branch_id": pin_of(commits[1]),
        "state": "missing",
        "retention_days": 0,
        "reasons": ["tag v1"],
        "objects": 1,
        "size_bytes": 11,
        "stored_days": None,
    }


def it_makes_the_pin_and_its_rule_and_then_there_is_nothing_to_do(world, commits):
    tree(world, '{tags: ["v*"]}')
    report = applied(world)
    assert [(r["setting"], r["outcome"]) for r in report["results"]] == [("pins", "applied")]
    assert hidden(world) == {pin_of(commits[1]): commits[1]}
    assert world.api.rules(REPOSITORY) == {"*": 7, pin_of(commits[1]): 0}
    repository = planned(world)
    assert [row["state"] for row in repository["pins"]["pins"]] == ["kept"]
    assert repository["before"]["branches"] == []
    assert world.lakeplan("plan", "--detailed-exitcode").code == 0


def it_takes_pins_away_when_the_tree_asks_for_them_no_more(world, commits):
    tree(world, '{tags: ["v*"]}')
    applied(world)
    tree(world, "")
    repository = planned(world)
    assert [row["state"] for row in repository["pins"]["pins"]] == ["retired"]
    assert repository["impact"]["horizons"]["now"]["objects_expire"] == 1
    world.override("tag-loss", "expired-objects")
    applied(world)
    assert hidden(world) == {}
    assert world.api.rules(REPOSITORY) == {"*": 7}
    assert "pins" not in planned(world)


@pytest.mark.parametrize("damaged", [False, True])
def it_fails_where_only_pins_were_planned_and_the_repository_cannot_be_read(world, commits, damaged):
    tree(world, '{tags: ["v*"]}')
    plan = world.plan_file()
    if damaged:
        world.write(f".lakeplan/applied/prod/{REPOSITORY}.json", "[]")
    world.handle.faults.deny("GET .*/settings/gc_rules")
    ended = world.lakeplan("apply", plan, "--format", "json")
    assert ended.code == 1, ended.out + ended.err
    (result,) = ended.json["results"]
    assert (result["setting"], result["outcome"]) == ("pins", "failed")
    assert ("applied/prod" if damaged else "retention:GetGarbageCollectionRules") in str(result)
    assert not hidden(world)


def it_lists_pins_for_people(world, commits):
    tree(world, '{tags: ["v*"]}')
    shown = world.lakeplan("plan").out
    print(shown)
    markdown = world.lakeplan("plan", "--format", "markdown").out
    print(markdown)
    assert "1 missing" in shown
    assert "tag v1" in shown
    assert "1 missing" in markdown


class DescribeWhatIsNotTheTrees:
    """Own pins and their rules are no branches and no rules of the tree's."""

    @pytest.fixture
    def pinned(self, world, commits):
        tree(world, '{tags: ["v*"]}')
        applied(world)
        return pin_of(commits[1])

    def it_expands_no_pattern_over_pins(self, world, pinned):
        tree(world, '{tags: ["v*"]}', gc=', branches: [{pattern: "*", retention_days: 30}]')
        repository = planned(world)
        assert repository["after"]["branches"] == [{"branch_id": "main", "retention_days": 30}]
        assert set(repository["branches"]) == {"main"}
        assert repository["unexpanded"] == {}
        applied(world)
        assert world.api.rules(REPOSITORY) == {"*": 7, "main": 30, pinned: 0}

    def it_finds_no_drift_and_exports_and_imports_none(self, world, pinned, tmp_path):
        assert world.lakeplan("drift").code == 0
        assert "lakeplan-pin" not in world.lakeplan("export", REPOSITORY).out
        world.tree = tmp_path / "new"
        made = world.lakeplan("import", "--endpoint", f"prod={world.handle.endpoint_url}")
        assert made.code == 0, made.err
        texts = [p.read_text() for p in world.tree.rglob("*.yaml")]
        assert texts
        assert not any("lakeplan-pin" in text for text in texts)

    def it_keeps_the_rule_of_a_pin_when_a_rollback_writes(self, world, pinned, tmp_path):
        world.api.set_rules(REPOSITORY, 7, **{pinned: 0})
        tree(world, '{tags: ["v*"]}', default=9)
        run_id = applied(world)["run_id"]
        assert world.api.rules(REPOSITORY) == {"*": 9, pinned: 0}
        file = tmp_path / "back.json"
        more = ("--edit-tree", "--format", "json", "--out", file, "-q")
        assert world.lakeplan(("history", "rollback"), run_id, *more).code == 0
        assert world.lakeplan("apply", file).code == 0
        assert world.api.rules(REPOSITORY) == {"*": 7, pinned: 0}

    def it_reports_a_rule_that_somebody_dropped_and_writes_it_again(self, world, pinned):
        world.api.set_rules(REPOSITORY, 7)
        drift = world.lakeplan("drift", "--fail-on", "any", "--format", "json")
        assert drift.code == 2, drift.err
        (found,) = drift.json["repositories"]
        assert found["classes"] == ["pins-missing"]
        assert found["values"] == [
            {"class": "pins-missing", "path": f"branches/{pinned}", "applied": 0, "stored": None, "wanted": 0}
        ]
        assert [row["state"] for row in planned(world)["pins"]["pins"]] == ["stale"]
        applied(world)
        assert world.api.rules(REPOSITORY) == {"*": 7, pinned: 0}
        assert world.lakeplan("drift").code == 0

    def it_reports_a_pin_that_somebody_deleted_and_makes_it_again(self, world, pinned, commits):
        world.api.call("DELETE", f"{PATH}/branches/{pinned}")
        (found,) = world.lakeplan("drift", "--format", "json").json["repositories"]
        assert found["classes"] == ["pins-missing"]
        assert f"the pin {pinned} was deleted or moved" in found["note"]
        applied(world)
        assert hidden(world) == {pinned: commits[1]}

    def it_never_deletes_a_pin_that_was_moved(self, world, pinned):
        moved = world.api.commit(REPOSITORY, pinned, 0, more=3)
        tree(world, "")
        repository = planned(world)
        assert any("moved to another commit" in text for text in repository["pins"]["foreign"])
        world.override("tag-loss", "expired-objects")
        world.lakeplan("apply", "--auto-approve")
        assert hidden(world) == {pinned: moved}

    def it_never_deletes_one_that_it_has_no_record_of(self, world, pinned, commits):
        (record,) = (world.tree / ".lakeplan" / "pins").rglob("*.json")
        record.unlink()
        tree(world, "")
        repository = planned(world)
        assert any("no record of it" in text for text in repository["pins"]["foreign"])
        assert world.lakeplan("apply", "--auto-approve").code == 0
        assert hidden(world) == {pinned: commits[1]}
        assert world.api.rules(REPOSITORY) == {"*": 7, pinned: 0}


def it_changes_no_pin_while_another_branch_has_a_rule_of_no_days(world, commits):
    world.api.branch(REPOSITORY, "dev")
    world.api.set_rules(REPOSITORY, 7, dev=0)
    tree(world, '{tags: ["v*"]}')
    repository = planned(world)
    assert "0 days or less for dev" in repository["pins"]["blocked"]
    assert repository["pins"]["pins"] == []
    applied(world)  # takes the rule out
    assert hidden(world) == {}
    applied(world)
    assert set(hidden(world)) == {pin_of(commits[1])}


def it_refuses_more_pins_than_the_tree_allows(world, commits):
    tree(world, '{tags: ["v*"], max: 0}')
    result = world.lakeplan("plan")
    assert result.code == 4
    assert "1 pin in total; the limit is 0" in result.out
    assert world.lakeplan("apply", "--auto-approve").code == 4
    assert hidden(world) == {}


def it_keeps_the_newest_commits_and_one_a_month(world, commits):
    gc = ", branches: [{branch_id: main, retention_days: 7, min_commits: 3, keep: {monthly: 3}}]"
    tree(world, "", gc=gc)
    rows = {row["commit_id"]: row["reasons"] for row in planned(world)["pins"]["pins"]}
    assert rows == {
        commits[3]: ["last 3 commits of main"],
        commits[2]: ["last 3 commits of main", "months (3) of main"],
        commits[1]: ["months (3) of main"],
    }


def it_wants_rules_that_the_tree_manages(world):
    world.write(
        "repositories/a.yaml", "apiVersion: lakeplan/v1\nrepositories:\n  abc:\n    pins: {at_risk: true}\n"
    )
    result = world.lakeplan("validate")
    assert result.code == 1
    assert "pins require GC rules that the tree manages" in result.err + result.out


def it_leaves_pins_that_nobody_saw_go_in_the_review(world, commits):
    tree(world, '{tags: ["v*"]}')
    applied(world)
    world.api.tag(REPOSITORY, "v0", commits[0])
    plan = world.plan_file()
    world.api.call("DELETE", f"{PATH}/tags/v1")
    result = world.lakeplan("apply", plan)
    assert result.code == 0, result.err
    assert set(hidden(world)) == {pin_of(commits[0]), pin_of(commits[1])}


class DescribeSync:
    def synced(self, world, *more: str, code: int = 0):
        result = world.lakeplan(("pins", "sync"), "--format", "json", *more)
        assert result.code == code, result.err + result.out
        return {(r["repository"], r["setting"], r["outcome"]): r["message"] for r in result.json["results"]}

    @pytest.fixture
    def pinned(self, world, commits):
        tree(world, '{tags: ["v*"]}')
        applied(world)
        return pin_of(commits[1])

    def it_makes_new_pins_and_deletes_those_whose_tag_is_gone(self, world, pinned, commits):
        world.override("tag-loss", "expired-objects")
        world.api.tag(REPOSITORY, "v0", commits[0])
        world.api.call("DELETE", f"{PATH}/tags/v1")
        assert list(self.synced(world)) == [("prod/analytics", "pins", "applied")]
        assert hidden(world) == {pin_of(commits[0]): commits[0]}
        assert world.api.rules(REPOSITORY) == {"*": 7, pin_of(commits[0]): 0}
        assert self.synced(world) == {}

    def it_writes_no_rule_of_the_tree(self, world, pinned, commits):
        tree(world, '{tags: ["v*"]}', default=3)
        world.api.set_rules(REPOSITORY, 7)
        self.synced(world)
        assert world.api.rules(REPOSITORY) == {"*": 7, pinned: 0}

    def it_deletes_nothing_because_of_a_change_of_the_tree_that_nobody_applied(self, world, pinned, commits):
        tree(world, "{at_risk: true}")
        self.synced(world)
        assert hidden(world) == {pinned: commits[1]}

    def it_deletes_nothing_for_a_tree_from_before_an_apply_that_wrote_nothing(self, world, pinned, commits):
        world.override("tag-loss", "expired-objects")
        tree(world, '{tags: ["v*", "w*"]}')
        world.lakeplan("apply", "--auto-approve")
        world.api.tag(REPOSITORY, "w1", commits[0])
        self.synced(world)
        tree(world, '{tags: ["v*"]}')  # a machine with an older checkout
        self.synced(world)
        assert set(hidden(world)) == {pinned, pin_of(commits[0])}

    def it_is_refused_by_gates(self, world, pinned, commits):
        world.write(
            "lakeplan.yaml",
            f"apiVersion: lakeplan/v1\nservers: {{prod: {{endpoint_url: {world.handle.endpoint_url}}}}}\n"
            "safety: {max_expired_objects_percent: 0}\n",
        )
        world.api.call("DELETE", f"{PATH}/tags/v1")
        (message,) = self.synced(world, code=4).values()
        assert "expired-objects" in message
        assert hidden(world) == {pinned: commits[1]}

    def it_deletes_no_pin_that_gates_have_not_judged(self, world, pinned, commits, monkeypatch):
        make_plan = pin_sync.make_plan

        def made(*arguments):
            plan = make_plan(*arguments)
            world.api.call("DELETE", f"{PATH}/tags/v1")
            return plan

        monkeypatch.setattr(pin_sync, "make_plan", made)
        world.api.tag(REPOSITORY, "v0", commits[0])
        assert list(self.synced(world).values()) == ["1 pin created"]
        assert set(hidden(world)) == {pinned, pin_of(commits[0])}

    def it_deletes_no_pin_that_a_newer_tree_needs(self, world, pinned, commits, monkeypatch):
        world.override("tag-loss", "expired-objects")
        world.api.tag(REPOSITORY, "w1", commits[1])
        world.api.call("DELETE", f"{PATH}/tags/v1")
        retire = PinnedRulesAttempt._retire

        def apply_meanwhile(*arguments):
            tree(world, '{tags: ["v*", "w*"]}')
            assert world.lakeplan("apply", "--auto-approve").code == 0
            retire(*arguments)

        monkeypatch.setattr(PinnedRulesAttempt, "_retire", apply_meanwhile)
        (message,) = self.synced(world, code=5).values()
        assert "has applied a newer version of the tree" in message
        assert hidden(world) == {pinned: commits[1]}

    def it_is_refused_by_limits_of_the_whole_plan_where_pins_are_deleted(self, world, commits):
        """Each repository stays below the limit, both together exceed it."""
        key = "other"
        world.api.repository(key)
        old = world.api.commit(key, "main", 400, first=11)
        world.api.delete(key, "main", "first.bin")
        world.api.commit(key, "main", 0, last=5)
        world.api.tag(key, "v1", old)
        world.api.set_rules(key, 7)
        entry = "    gc: {default_retention_days: 7}\n    pins: {tags: ['v*']}\n"
        world.write(
            "repositories/both.yaml",
            f"apiVersion: lakeplan/v1\nrepositories:\n  {REPOSITORY}:\n{entry}  {key}:\n{entry}",
        )
        applied(world)
        before = hidden(world)
        world.write(
            "lakeplan.yaml",
            f"apiVersion: lakeplan/v1\nservers: {{prod: {{endpoint_url: {world.handle.endpoint_url}}}}}\n"
            "safety: {max_expired_objects_percent: 100, max_expired_bytes: 15, on_tag_loss: warn}\n",
        )
        for name in (REPOSITORY, key):
            world.api.call("DELETE", f"/repositories/{name}/tags/v1")
        world.api.tag(REPOSITORY, "v0", commits[0])
        ends = self.synced(world, code=4)
        assert {repository for repository, _, _ in ends} == {"prod/analytics", "prod/other"}
        assert all("plan: gate expired-bytes: 22 bytes would expire" in message for message in ends.values())
        assert hidden(world) == before
        world.override("expired-bytes")
        assert len(self.synced(world)) == 2
        assert set(hidden(world)) == {pin_of(commits[0])}

    def it_adopts_pins_after_the_state_was_lost(self, world, pinned, commits):
        for record in (world.tree / ".lakeplan").rglob("*.json"):
            record.unlink()
        assert "0 days or less" in planned(world)["pins"]["blocked"]
        self.synced(world, "--adopt")
        repository = planned(world)
        assert repository["pins"]["blocked"] == ""
        assert [row["state"] for row in repository["pins"]["pins"]] == ["kept"]


class DescribeTheDoctor:
    def check(self, world):
        checks = world.lakeplan("doctor", "--no-spark", "--for", "apply", "--format", "json").json["checks"]
        return [(c["result"], c["message"]) for c in checks if "hidden branches" in c["check"]]

    def it_says_what_is_known_of_hidden_branches(self, world, commits):
        tree(world, "")
        assert self.check(world) == []
        tree(world, '{tags: ["v*"]}')
        assert self.check(world) == [("warn", "not tested: doctor creates no branches")]
        applied(world)
        assert self.check(world) == [("ok", "the server has 1 pin, all hidden")]
        world.api.commit(REPOSITORY, pin_of(commits[1]), 0, more=3)
        ((status, message),) = self.check(world)
        assert status == "warn"
        assert "is visible or was moved" in message


@pytest.mark.parametrize(
    ("entries_first", "deleted", "code"), [(True, True, 3), (False, True, 1), (False, False, 3)]
)
def it_makes_no_pin_where_the_server_makes_visible_branches(
    world, commits, monkeypatch, entries_first, deleted, code
):
    """It ends as partly done if it has written rules of pins before, or cannot delete the branch again."""
    real = state.Records.add_branch

    def visible(self, id, commit_id, *, hidden=False):
        real(self, id, commit_id)

    def refuse(*args):
        raise PermissionDenied("denied by the test")

    if entries_first:
        world.api.tag(REPOSITORY, "v0", commits[0])
    else:
        # Only a pin of a commit that nothing follows needs no rule.
        world.api.call("DELETE", f"{PATH}/tags/v1")
        world.api.branch(REPOSITORY, "dev", commits[0])
        world.api.tag(REPOSITORY, "v2", world.api.commit(REPOSITORY, "dev", 8, loose=1))
        world.api.call("DELETE", f"{PATH}/branches/dev")
    monkeypatch.setattr(state.Records, "add_branch", visible)
    if not deleted:
        monkeypatch.setattr(LakeFSBranchWriter, "delete_branch", refuse)
    tree(world, '{tags: ["v*"]}')
    result = world.lakeplan("apply", "--auto-approve")
    assert result.code == code
    message = "does not support hidden branches" if deleted else "denied by the test"
    assert message in result.out + result.err
    branches = world.api.call("GET", f"{PATH}/branches", params={"show_hidden": "true"})["results"]
    assert (len(branches) == 1) is deleted


def it_names_pins_when_it_explains(world, commits):
    tree(world, '{tags: ["v*"]}')
    applied(world)
    told = world.lakeplan("explain", REPOSITORY, commits[1])
    assert told.code == 0, told.err
    assert pin_of(commits[1]) in told.out


class DescribeSweeps:
    @pytest.fixture
    def site(self, make_world, tmp_path):
        """The oldest commit of a repository that may be swept is tagged and pinned."""
        with start_sandbox(tmp_path / "sandbox") as handle:
            site = Site(make_world(handle), tmp_path / "sandbox", "{settle: 0s, margin: 0s}")
            site.world.api.tag("lake", "release", site.old)
            file = site.world.tree / "lakeplan.yaml"
            file.write_text(file.read_text().replace("{gc:", '{pins: {tags: ["release"]}, gc:'))
            applied(site.world)
            yield site

    def it_keeps_what_a_pin_protects(self, site):
        before = site.data()
        mark = site.mark()
        assert mark["goes"] == {"objects": 1, "size_bytes": 11}  # of the commit after it
        site.sweep(mark["mark_id"])
        assert len(before - site.data()) == 1

    def it_deletes_nothing_while_a_pin_lacks_its_rule(self, site):
        mark = site.mark()
        site.world.lakeplan(("sweep", "approve"), mark["mark_id"], "--reason", "a test")
        site.world.api.set_rules("lake", 7)
        before = site.data()
        result = site.world.lakeplan(("sweep", "run"), mark["mark_id"])
        assert result.code == 4
        assert "does not have the rule that it needs" in result.err
        assert site.data() == before
        assert site.world.lakeplan(("pins", "sync")).code == 0
        assert site.world.lakeplan(("sweep", "run"), mark["mark_id"]).code == 0

    def it_deletes_nothing_while_a_pin_is_gone(self, site):
        mark = site.mark()
        site.world.lakeplan(("sweep", "approve"), mark["mark_id"], "--reason", "a test")
        site.world.api.call("DELETE", f"/repositories/lake/branches/{pin_of(site.old)}")
        before = site.data()
        result = site.world.lakeplan(("sweep", "run"), mark["mark_id"])
        assert result.code == 4
        assert "was deleted or moved" in result.err
        assert site.data() == before


def it_removes_pins_with_the_rules_when_the_tree_clears_them(world, commits):
    tree(world, '{tags: ["v*"]}')
    applied(world)
    world.write(
        f"repositories/{REPOSITORY}.yaml",
        f"apiVersion: lakeplan/v1\nrepositories:\n  {REPOSITORY}:\n    gc: clear\n",
    )
    world.override("clear")
    assert [row["state"] for row in planned(world)["pins"]["pins"]] == ["retired"]
    applied(world)
    assert hidden(world) == {}
    assert world.api.rules(REPOSITORY) is None
    assert "pins" not in planned(world)


def it_takes_its_own_entries_out_of_rules_that_the_tree_manages_no_more(world, commits):
    tree(world, '{tags: ["v*"]}')
    applied(world)
    world.write(
        f"repositories/{REPOSITORY}.yaml",
        f"apiVersion: lakeplan/v1\nrepositories:\n  {REPOSITORY}:\n    owner: data\n",
    )
    world.override("tag-loss", "expired-objects")
    applied(world)
    assert hidden(world) == {}
    assert world.api.rules(REPOSITORY) == {"*": 7}


def it_is_in_the_history(world, commits):
    tree(world, '{tags: ["v*"]}')
    run_id = applied(world)["run_id"]
    shown = world.lakeplan(("history", "show"), run_id, "--format", "json")
    assert shown.code == 0, shown.err
    assert world.lakeplan(("history", "list")).code == 0
    assert world.lakeplan(("pins", "sync"), "--format", "json").json["results"] == []


class DescribeReportPages:
    """They judge as the plan did, with pins before and after."""

    def draw(self, world):
        plan = world.plan_file()
        page = world.folder / "page.html"
        assert world.lakeplan("report", plan, "--html", page).code == 0
        text = page.read_text(encoding="utf-8")
        start = text.index('id="graph-0">') + len('id="graph-0">')
        return json.loads(text[start : text.index("</script>", start)])

    def kept(self, graph, side: str) -> set[str]:
        return {
            id for id, on in zip(graph["rows"]["id"], graph["rows"][side]["server"], strict=True) if on == "1"
        }

    def it_keeps_the_commit_of_a_pin_that_is_to_be_made(self, world, commits):
        world.override("unknown-impact", "adoption")
        tree(world, '{tags: ["v*"]}', default=6)
        graph = self.draw(world)
        assert graph["same_as_plan"] is True
        assert commits[1] not in self.kept(graph, "stored")
        assert commits[1] in self.kept(graph, "proposed")
        (pin,) = [row for row in graph["branches"] if row[0] == pin_of(commits[1])]
        assert pin[2:] == [7, 0, 0, 1], "before: the default days; then a rule of 0 days of its own"

    def it_lets_go_of_the_commit_of_a_retired_pin(self, world, commits):
        tree(world, '{tags: ["v*"]}')
        applied(world)
        tree(world, "", default=6)
        graph = self.draw(world)
        assert graph["same_as_plan"] is True
        assert commits[1] in self.kept(graph, "stored")
        assert commits[1] not in self.kept(graph, "proposed")

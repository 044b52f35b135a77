"""``plan --base``: a pull request that loosens its own limits, from git to the apply."""

from __future__ import annotations

import json
import os
import time
import xml.etree.ElementTree as ET

import pytest

LOOSE = "safety: {max_expired_objects_percent: 100, on_tag_loss: warn}"
STRICT = "safety: {max_expired_objects_percent: 10, impact_tolerance_percent: 5}"


def tree(world, *lines: str) -> None:
    endpoint = world.handle.endpoint_url
    head = f"apiVersion: lakeplan/v1\nservers: {{prod: {{endpoint_url: {endpoint}}}}}\n"
    world.write("lakeplan.yaml", head + "".join(f"{line}\n" for line in lines))


def history(world) -> None:
    world.api.repository("analytics")
    for number, age in enumerate((60, 50, 40, 20, 1)):
        world.api.commit("analytics", "main", age, data=100 + number)
    world.api.set_rules("analytics", 365)


@pytest.fixture
def reviewed(world):
    """A tree on ``main`` with a strict limit, and the work tree of a branch."""
    tree(world, STRICT)
    world.rules("analytics", 365)
    world.git("init")
    world.git("add", "-A")
    world.git("commit", "-m", "base")
    return world


def it_is_judged_by_the_stricter_limits_and_shows_every_loosening_first(reviewed):
    world = reviewed
    history(world)
    tree(world, LOOSE)
    world.rules("analytics", 5)
    unseen = world.lakeplan("plan")
    assert unseen.code == 0, unseen.err  # without a base the change opens its own gate
    result = world.lakeplan("plan", "--base", "main")
    assert result.code == 4, result.err
    assert result.out.index("weakens 3 safety settings") < result.out.index("Changes")
    assert "BLOCKED" in result.out
    document = world.lakeplan("plan", "--base", "HEAD", "--format", "json").json
    assert {(i["path"], i["before"], i["after"]) for i in document["loosenings"]} == {
        ("safety.max_expired_objects_percent", "10.0 %", "100.0 %"),
        ("safety.impact_tolerance_percent", "5.0 %", "10.0 %"),
        ("safety.on_tag_loss", "fail", "warn"),
    }
    places = {i["path"]: i["where"] for i in document["loosenings"]}
    assert places["safety.on_tag_loss"] == "lakeplan.yaml:3:44"
    assert document["impact_tolerance_percent"] == 5
    refused = {g["gate"] for r in document["repositories"] for g in r["gates"] if g["outcome"] == "refused"}
    assert refused == {"expired-objects"}


def it_lists_days_that_somebody_has_already_shortened_on_the_server(reviewed):
    """As in a pull request of ``drift --write``, which changes nothing on the server."""
    world = reviewed
    history(world)
    world.api.set_rules("analytics", 5)
    world.rules("analytics", 5)
    result = world.lakeplan("plan", "--base", "main")
    assert (result.code, "no changes" in result.out) == (0, True), result.err
    assert "weakens 1 safety setting" in result.out
    assert "365 days → 5 days" in result.out


def it_lists_a_new_override_and_lets_it_open_its_gate(reviewed):
    world = reviewed
    history(world)
    until = "expires: 2099-12-31"
    ack = f'{{repository: "*", gate: expired-objects, max: 90, reason: moved to @archive, {until}}}'
    exact = ack.replace('"*"', "analytics")
    tree(world, STRICT, f"overrides: [{ack}, {exact}]")
    world.rules("analytics", 5)
    comment, page = world.folder / "comment.md", world.folder / "plan.json"
    out = ("--format", "markdown", "--out", comment, "--format", "json", "--out", page)
    result = world.lakeplan("plan", "--base", "main", *out, "--format", "github")
    assert result.code == 0, result.err
    text = comment.read_text()
    assert text.startswith("<!-- lakeplan:plan:. -->\n")
    assert text.index("overrides: expired-objects") < text.index("Gates overridden in this plan")
    assert "@archive" not in text
    assert "::warning file=lakeplan.yaml,line=4,col=13,title=lakeplan%3A weakened::" in result.out
    assert len(json.loads(page.read_text())["loosenings"]) == 2
    applied = world.lakeplan("apply", page)
    assert applied.code == 0, applied.err
    assert world.api.rules("analytics") == {"*": 5}


def it_holds_the_apply_to_the_tolerance_of_the_base(reviewed):
    world = reviewed
    world.api.repository("analytics")
    for number, age in enumerate((60, 50, 40, 30.2, 1)):
        world.api.commit("analytics", "main", age, data=100 + number)
    world.api.set_rules("analytics", 365)
    tree(world, "safety: {max_expired_objects_percent: 10, impact_tolerance_percent: 100}")
    world.rules("analytics", 30)
    # Half a day ago two objects went; the commit of 30.2 days has passed its limit since, and a third goes.
    then = str(int(time.time() - 43_200))
    world.override("expired-objects")
    how = ("--as-of", then)
    strict, loose = (
        world.plan_file("strict.json", "--base", "main", *how),
        world.plan_file("loose.json", *how),
    )
    refused = world.lakeplan("apply", strict)
    assert refused.code == 4, refused.err
    assert world.api.rules("analytics") == {"*": 365}
    assert world.lakeplan("apply", loose).code == 0
    assert world.api.rules("analytics") == {"*": 30}


def it_refuses_days_outside_the_bounds_of_the_base(reviewed):
    world = reviewed
    tree(world, STRICT, "bounds: {min_retention_days: 3}")
    world.git("commit", "-am", "bounds")
    tree(world, STRICT, "bounds: {min_retention_days: 1}")
    world.rules("analytics", 1)
    result = world.lakeplan("plan", "--base", "HEAD", "--no-simulate")
    assert result.code == 1
    assert "repositories/analytics.yaml:5:31" in result.err
    assert "1 is outside the bounds in HEAD (3 to 36500 days)" in result.err
    assert "separate pull request" in result.err


def it_holds_a_first_tree_to_the_defaults(world):
    world.git("init")
    (world.tree / "README").write_text("x")
    world.git("add", "README")
    world.git("commit", "-m", "before")
    world.api.repository("analytics")
    world.rules("analytics", 21)
    tree(world, "safety: {max_expired_bytes: 6TB}", "state: {url: file://.state}")
    refused = world.lakeplan("plan", "--base", "HEAD")
    assert refused.code == 1
    assert "HEAD has no lakeplan.yaml to compare with" in refused.err
    document = world.lakeplan("plan", "--base", "HEAD", "--new-tree", "--format", "json").json
    assert [i["path"] for i in document["loosenings"]] == ["safety.max_expired_bytes"]
    assert "compared with the default settings" in document["warnings"][0]


def it_says_nothing_is_looser_when_limits_only_get_stricter(reviewed):
    world = reviewed
    tree(world, "safety: {max_expired_objects_percent: 5, impact_tolerance_percent: 1}", "unmanaged: fail")
    world.api.repository("analytics")
    world.api.set_rules("analytics", 365)
    result = world.lakeplan("plan", "--base", "HEAD", "--detailed-exitcode")
    assert result.code == 0, result.err
    assert "loosens" not in result.out


def it_lists_holds_and_sweeps_of_repositories(reviewed):
    world = reviewed
    world.api.repository("analytics")
    entry = "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    gc: {default_retention_days: 365}\n"
    held = "    holds: [{prefix: audit/, until: 2027-01-01, reason: legal}]\n    sweep: {min_age: 48h}\n"
    world.write("repositories/analytics.yaml", entry + held)
    world.git("commit", "-am", "held")
    world.write("repositories/analytics.yaml", entry + "    sweep: {automatic: true}\n")
    document = world.lakeplan("plan", "--base", "HEAD", "--format", "json").json
    assert [(i["scope"], i["path"]) for i in document["loosenings"]] == [
        ("prod/analytics", "holds[prefix audit/]"),
        ("prod/analytics", "sweep.automatic"),
        ("prod/analytics", "sweep.min_age"),
    ]


def it_lists_a_sweep_that_a_new_entry_makes_looser_than_the_defaults(reviewed):
    world = reviewed
    for name in ("analytics", "new"):
        world.api.repository(name)
    entry = "apiVersion: lakeplan/v1\nrepositories:\n  new:\n    sweep: {automatic: true, min_age: 48h}\n"
    world.write("repositories/new.yaml", entry)
    document = world.lakeplan("plan", "--base", "HEAD", "--format", "json").json
    assert [(i["scope"], i["path"]) for i in document["loosenings"]] == [("prod/new", "sweep.automatic")]
    assert document["sweep_guards"]["prod/new"]["settings"]["automatic"] is False


def it_sweeps_no_looser_than_the_base_held(world, tmp_path):
    """The pull request lets go of a hold and of a protected tag, and lets sweeps run by themselves."""
    world.api.repository("lake")
    for name, age in (("audit", 60), ("tagged", 40), ("plain", 30), ("latest", 20)):
        world.api.commit("lake", "main", age, **{name: 10})
        if name == "tagged":
            world.api.tag("lake", "v1", "main")
        world.api.delete("lake", "main", f"{name}.bin")
    world.api.commit("lake", "main", 1, last=10)
    world.api.set_rules("lake", 7)
    folder = tmp_path / "sandbox"
    for file in (folder / "lake" / "data").rglob("*"):
        if file.is_file():
            os.utime(file, (time.time() - 5 * 86400,) * 2)

    def write(safety: str, entry: str) -> None:
        local = f"{{type: local, path: {folder}}}"
        server = f'{{endpoint_url: {world.handle.endpoint_url}, storages: {{"": {local}}}}}'
        world.write(
            "lakeplan.yaml",
            f"apiVersion: lakeplan/v1\nservers: {{prod: {server}}}\nsafety: {safety}\n"
            f"repositories: {{lake: {{gc: {{default_retention_days: 7}}, {entry}}}}}\n",
        )

    quick = "settle: 0s, margin: 0s"
    write(
        "{max_expired_objects_percent: 100, protected_tags: [v1]}",
        f"sweep: {{{quick}}}, holds: [{{prefix: audit, reason: legal}}]",
    )
    world.git("init")
    world.git("add", "-A")
    world.git("commit", "-m", "base")
    write("{max_expired_objects_percent: 100, protected_tags: []}", f"sweep: {{{quick}, automatic: true}}")
    show = ("--backlog", "--simulate", "all")
    plan = world.plan_file("held.json", "--base", "HEAD", *show)
    guard = json.loads(plan.read_text())["sweep_guards"]["prod/lake"]
    assert (guard["settings"]["automatic"], [h["name"] for h in guard["holds"]]) == (False, ["audit"])
    before = set((folder / "lake" / "data").rglob("*"))
    applied = world.lakeplan("apply", plan, "--sweep")
    assert applied.code == 0, applied.err
    assert "awaiting approval" in applied.out
    assert set((folder / "lake" / "data").rglob("*")) == before
    (held,) = [json.loads(p.read_text()) for p in (folder / "lake").rglob("mark.json")]
    assert held["held_prefixes"] == ["audit"]
    assert held["goes"]["objects"] == 1
    assert held["classes"]["protected"]["objects"] == 2
    # After the merge the tree is its own base.
    loose = world.plan_file("loose.json", *show)
    assert world.lakeplan("apply", loose, "--sweep").code == 0
    # the protected tag was let go; what the hold keeps stays for a day after it left the tree
    assert len(before - set((folder / "lake" / "data").rglob("*"))) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--base", "nowhere"], 1, "this git repository has no commit 'nowhere'"),
        (["--base"], 64, "requires an argument"),
        (["--new-tree"], 64, "--new-tree requires --base"),
        (["--base", "HEAD", "--new-tree"], 64, "HEAD already has a tree"),
        (["--base", "HEAD", "--format", "html"], 64, "unknown format 'html'"),
        (
            ["--format", "markdown", "--format", "github"],
            64,
            "more than one format would be written to standard output",
        ),
        (["--base", "HEAD", "--format", "markdown", "--out", "/nowhere/x.md"], 1, "cannot write"),
    ],
)
def it_explains_wrong_use(reviewed, arguments, code, words):
    reviewed.api.repository("analytics")
    reviewed.api.set_rules("analytics", 365)
    result = reviewed.lakeplan("plan", *arguments)
    assert result.code == code
    assert words in " ".join(result.err.split())
    assert "Traceback" not in result.err


def it_compares_no_tree_behind_a_symbolic_link(reviewed):
    world = reviewed
    world.api.repository("analytics")
    inner, link = world.tree / "permissive", world.tree / "deploy"
    inner.mkdir()
    (inner / "lakeplan.yaml").write_text((world.tree / "lakeplan.yaml").read_text())
    link.symlink_to("permissive")
    world.git("add", "-A")
    world.git("commit", "-m", "a link")
    world.tree = link
    for more in ((), ("--new-tree",)):
        result = world.lakeplan("plan", "--base", "HEAD^", *more)
        assert result.code == 1
        assert "deploy is a symbolic link in a git work tree" in result.err


def it_says_when_the_base_does_not_validate(reviewed):
    world = reviewed
    world.write("lakeplan.yaml", "apiVersion: lakeplan/v1\nsafty: 1\n")
    world.git("commit", "-am", "broken")
    tree(world, STRICT)
    result = world.lakeplan("plan", "--base", "HEAD")
    assert result.code == 1
    assert "the tree at HEAD has problems" in result.err
    assert "safty" in result.err


def it_gives_several_formats_at_once_and_again_from_the_file(reviewed):
    world = reviewed
    world.api.repository("analytics")
    files = {f: world.folder / f"out.{f}" for f in ("markdown", "json", "junit", "github")}
    pairs = [a for f, path in files.items() for a in ("--format", f, "--out", path)]
    result = world.lakeplan("plan", *pairs)
    assert result.code == 0, result.err
    assert "1 to add" in result.out
    assert ET.parse(files["junit"]).getroot().get("failures") == "0"
    for name in ("markdown", "junit", "github"):
        again = world.lakeplan("show", files["json"], "--format", name)
        assert (again.code, again.out) == (0, files[name].read_text()), again.err


def it_annotates_standing_policies_and_holds_only_where_the_change_is(world):
    """A pull request for one repository says nothing at the lines of the others; the plan still does."""
    for name in ("analytics", "events"):
        world.api.repository(name)
        world.api.set_rules(name, 30)
    endpoint = world.handle.endpoint_url
    server = f"{{endpoint_url: {endpoint}, branch_lifecycle: {{engine: lakeplan}}}}"
    world.write("lakeplan.yaml", f"apiVersion: lakeplan/v1\nservers: {{prod: {server}}}\n")
    entry = (
        "apiVersion: lakeplan/v1\nrepositories:\n  {}:\n    gc: {{default_retention_days: 30}}\n"
        "    branch_lifecycle: {{policies: [{{id: quiet, patterns: [feature-*], max_age: 7d}}]}}\n"
        "    holds: [{{tag: no-such-tag, reason: legal}}]\n"
    )
    for name in ("analytics", "events"):
        world.write(f"repositories/{name}.yaml", entry.format(name))
    world.git("init")
    world.git("add", "-A")
    world.git("commit", "-m", "base")

    def annotated(*more: str) -> set[str]:
        told = world.lakeplan("plan", "--format", "github", *more).out.splitlines()
        files = (
            line.partition("file=")[2].partition(",")[0] for line in told if line.startswith("::warning")
        )
        return {file for file in files if file}

    both = {"repositories/analytics.yaml", "repositories/events.yaml"}
    assert annotated() == both
    assert annotated("--base", "HEAD") == set()
    text = (world.tree / "repositories/events.yaml").read_text()
    world.write("repositories/events.yaml", text.replace("no-such-tag", "v9").replace("days: 30", "days: 31"))
    assert annotated("--base", "HEAD") == {"repositories/events.yaml"}
    document = world.lakeplan("plan", "--base", "HEAD", "--format", "json").json
    assert all(any("no-such-tag" in w or "v9" in w for w in r["warnings"]) for r in document["repositories"])


def it_lists_shorter_patterns_unless_it_shows_what_changes(world):
    """The days of ``release-1`` are its own, so that a shorter pattern changes only branches to come."""
    world.api.repository("analytics")
    world.api.commit("analytics", "main", 1, a=10)
    for branch in ("release-1", "rc-1"):
        world.api.branch("analytics", branch, "main")
    world.api.set_rules("analytics", 21)

    def rules(days: int) -> None:
        own = "{branch_id: release-1, retention_days: 30}"
        both = (f"{{pattern: '{p}', retention_days: {days}}}" for p in ("release-*", "rc-*"))
        branches = f"branches: [{own}, {', '.join(both)}]"
        tree(world, f"repositories: {{analytics: {{gc: {{default_retention_days: 21, {branches}}}}}}}")

    rules(90)
    world.git("init")
    world.git("add", "-A")
    world.git("commit", "-m", "base")
    assert world.lakeplan("apply", world.plan_file()).code == 0
    rules(60)
    document = world.lakeplan("plan", "--base", "HEAD", "--format", "json").json
    assert [i["path"] for i in document["loosenings"]] == ["gc.branches[release-*]"]
    (repository,) = document["repositories"]
    assert [c["path"] for c in repository["changes"]] == ["branches/rc-1"]

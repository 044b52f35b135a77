"""Checks of a tree's own, from the pull request to the apply, and what a pull request may try with them."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest

REFUSE = 'import json; print(json.dumps({"annotations": [{"level": "refuse", "message": "no"}]}))\n'
PASS = "import sys; sys.stdin.read()\n"
TELL = """import json, os, sys
plan = json.load(sys.stdin)
open(os.path.join(%r), "w").write(json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "path": sys.path,
    "files": sorted(os.listdir()), "repositories": [r["name"] for r in plan["repositories"]]}))
"""


def tree(world, *lines: str) -> None:
    endpoint = world.handle.endpoint_url
    head = f"apiVersion: lakeplan/v1\nservers: {{prod: {{endpoint_url: {endpoint}}}}}\n"
    world.write(
        "lakeplan.yaml", head + "safety: {on_tag_loss: warn}\n" + "".join(f"{line}\n" for line in lines)
    )


def check(run: str, *more: str, name: str = "own") -> str:
    return f"checks: [{{name: {name}, run: [{run}]{''.join(f', {m}' for m in more)}}}]"


def commit(world) -> None:
    if not (world.tree / ".git").exists():
        world.git("init")
    world.git("add", "-A", "-f")
    world.git("commit", "-m", "a commit", "--allow-empty")


def plan(world, *more: str):
    return world.lakeplan("plan", *more, "--format", "json")


def gates(result) -> dict[str, str]:
    """Message → outcome of the checks."""
    return {g["message"]: g["outcome"] for g in result.json["gates"] if g["gate"] == "check"}


@pytest.fixture
def site(world):
    """A tree at a commit, whose one check runs ``checks/own.py`` with Python."""
    world.api.repository("analytics")
    world.api.commit("analytics", "main", 1, a=10)
    world.rules("analytics", 21)
    tree(world, check("python3, checks/own.py"))
    return world


def told(site) -> Path:
    """The check writes what it sees to a file."""
    file = site.folder / "told.json"
    site.write("checks/own.py", TELL % str(file))
    return file


class DescribeACheck:
    def it_refuses_and_the_plan_cannot_be_applied(self, site):
        site.write("checks/own.py", REFUSE)
        commit(site)
        result = plan(site, "--base", "HEAD")
        assert result.code == 4
        assert gates(result) == {"own: no": "refused"}
        file = site.folder / "plan.json"
        site.lakeplan("plan", "--base", "HEAD", "--format", "json", "--out", file, "-q")
        done = site.lakeplan("apply", file)
        assert done.code == 4
        assert "check: own: no" in done.err
        assert site.api.rules("analytics") is None

    def it_passes_and_the_plan_can_be_applied(self, site):
        site.write("checks/own.py", PASS)
        commit(site)
        file = site.folder / "plan.json"
        result = site.lakeplan("plan", "--base", "HEAD", "--format", "json", "--out", file, "-q")
        assert result.code == 0, result.err
        assert site.lakeplan("apply", file).code == 0
        assert site.api.rules("analytics") == {"*": 21}

    @pytest.mark.parametrize("path", ["checks/own.py", "policy"])
    @pytest.mark.parametrize("after", ["changed", "absent"])
    def it_is_listed_where_the_change_changes_its_file(self, site, path, after):
        tree(site, check("python3, checks/own.py, policy, -, ., /etc/hosts"))
        site.write("checks/own.py", PASS)
        site.write("policy/days.rego", "deny")
        commit(site)
        site.write("checks/unnamed.py", PASS)
        assert plan(site, "--base", "HEAD").json["loosenings"] == []
        file = site.tree / ("policy/days.rego" if path == "policy" else path)
        if after == "changed":
            file.write_text("# it lets everything through\n")
        else:
            file.unlink()
        found = plan(site, "--base", "HEAD").json["loosenings"]
        is_there = (site.tree / path).exists()
        assert [(i["path"], i["after"]) for i in found] == [
            (f"checks: {path}", "changed" if is_there else "absent")
        ]

    def it_is_listed_where_the_change_changes_what_its_file_links_to(self, site):
        site.write("shared/own.py", PASS)
        (site.tree / "checks").mkdir()
        (site.tree / "checks/own.py").symlink_to("../shared/own.py")
        (site.tree / "checks/os.py").symlink_to(os.__file__)
        tree(site, check("python3, checks/own.py, checks"))
        commit(site)
        assert plan(site, "--base", "HEAD").json["loosenings"] == []
        site.write("shared/own.py", "# it lets everything through\n")
        tree(
            site,
            check("python3, checks/own.py, checks"),
            "overrides: [{repository: '*', gate: check, reason: of a test, expires: 2099-12-31}]",
        )
        found = [i["path"] for i in plan(site, "--base", "HEAD").json["loosenings"]]
        assert found == ["checks: checks/own.py", "checks: checks", "overrides: check of *"]

    def it_is_overridden_by_the_tree_and_the_reviewer_sees_it(self, site):
        site.write("checks/own.py", REFUSE)
        commit(site)
        line = "overrides: [{repository: '*', gate: check, reason: of a test, expires: 2099-12-31}]"
        tree(site, check("python3, checks/own.py"), line)
        result = plan(site, "--base", "HEAD")
        assert result.code == 0
        assert gates(result) == {"own: no": "overridden"}
        assert [c["path"] for c in result.json["loosenings"]] == ["overrides: check of *"]

    def it_warns_about_one_repository(self, site):
        item = {"level": "warn", "message": "a\nb ![x](http://x) `c`", "repository": "prod/analytics"}
        site.write(
            "checks/own.py", f"import json; print({json.dumps(json.dumps({'annotations': [item]}))})\n"
        )
        commit(site)
        result = plan(site, "--base", "HEAD")
        assert result.code == 0
        assert "check own: prod/analytics: a b ![x](http://x) `c`" in result.json["warnings"]
        comment = site.lakeplan("plan", "--base", "HEAD", "--format", "markdown").out
        assert "![x](" not in comment

    def it_refuses_one_repository(self, site):
        item = {"level": "refuse", "message": "too short", "repository": "prod/analytics"}
        site.write(
            "checks/own.py", f"import json; print({json.dumps(json.dumps({'annotations': [item]}))})\n"
        )
        commit(site)
        (gate,) = [g for g in plan(site, "--base", "HEAD").json["gates"] if g["gate"] == "check"]
        assert (gate["scope"], gate["outcome"], gate["message"]) == (
            "prod/analytics",
            "refused",
            "own: too short",
        )
        for form in ("markdown", "github", "junit", "rich", "openmetrics"):
            assert "check" in site.lakeplan("plan", "--base", "HEAD", "--format", form).out

    @pytest.mark.parametrize(
        ("script", "text"),
        [
            ("raise SystemExit('it is full')", "failed with exit code 1: it is full"),
            ("import os; os.kill(os.getpid(), 9)", "failed with signal 9"),
            ("print('fine')", "printed neither"),
            ("print('{}')", "printed neither"),
            ("print('[1]')", "printed neither"),
            ('print(\'{"annotations": [{"level": "ok", "message": "x"}]}\')', "printed neither"),
            ('print(\'{"annotations": ["x"]}\')', "printed neither"),
            ('print(\'[{"failures": ["x"]}]\')', "printed neither"),
            ("print('[' * 100000)", "printed neither"),
            ("print('x' * 3_000_000)", "printed more than 1024 KiB"),
            (
                "import json; print(json.dumps({'annotations': [{'level': 'warn', 'message': 'x'}] * 101}))",
                "printed more than 100 findings",
            ),
        ],
    )
    def it_refuses_when_it_fails(self, site, script, text):
        site.write("checks/own.py", script + "\n")
        commit(site)
        result = plan(site, "--base", "HEAD")
        assert result.code == 4
        assert text in str(gates(result))

    def it_is_stopped_with_all_that_it_started(self, site):
        file = site.folder / "later"
        late = f"import time; time.sleep(4); open({str(file)!r}, 'w')"
        site.write(
            "checks/own.py",
            "import subprocess, sys, time\n"
            f"subprocess.Popen([sys.executable, '-c', {late!r}])\ntime.sleep(60)\n",
        )
        tree(site, check("python3, checks/own.py", "time_limit: 1s"))
        commit(site)
        began = time.monotonic()
        assert "did not finish within 1 seconds" in str(gates(plan(site, "--base", "HEAD")))
        assert time.monotonic() - began < 20
        time.sleep(4.5)
        assert not file.exists()

    def it_does_not_wait_for_what_it_left_behind(self, site):
        site.write(
            "checks/own.py",
            "import subprocess, sys\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(50)'])\n",
        )
        commit(site)
        began = time.monotonic()
        assert gates(plan(site, "--base", "HEAD")) == {"own: passed": "passed"}
        assert time.monotonic() - began < 20

    def it_needs_not_read_a_large_plan(self, site):
        site.write("checks/own.py", "pass\n")
        commit(site)
        assert gates(plan(site, "--base", "HEAD")) == {"own: passed": "passed"}

    def it_takes_what_conftest_prints(self, site):
        out = [
            {"filename": "-", "namespace": "main", "successes": 1},
            {
                "filename": "-",
                "namespace": "main",
                "successes": 0,
                "warnings": [{"msg": "hm", "metadata": {"query": "data.main.warn"}}],
                "failures": [{"msg": "no", "metadata": {"repository": "prod/analytics"}}],
            },
        ]
        site.write("checks/own.py", f"print({json.dumps(json.dumps(out))}); raise SystemExit(1)\n")
        commit(site)
        result = plan(site, "--base", "HEAD")
        assert gates(result) == {"own: no": "refused"}
        assert "check own: hm" in result.json["warnings"]

    def it_may_be_an_executable_file_of_the_tree(self, site):
        site.write("checks/own.sh", '#!/bin/sh\necho "$0" >&2\nexit 3\n')
        (site.tree / "checks/own.sh").chmod(0o755)
        tree(site, check("./checks/own.sh"))
        commit(site)
        assert "failed with exit code 3" in str(gates(plan(site, "--base", "HEAD")))


class DescribeWhereItMayRun:
    def it_runs_without_a_base_only_when_asked_to(self, site, monkeypatch):
        file = told(site)
        result = plan(site)
        assert result.code == 0
        assert not file.exists()
        assert "check own was not run" in str(result.json["warnings"])
        plan(site, "--run-checks")
        assert json.loads(file.read_text())["cwd"] == str(site.tree)
        file.unlink()
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        plan(site)
        assert file.exists()

    def it_is_not_applied_by_a_plan_that_no_check_judged(self, site):
        site.write("checks/own.py", PASS)
        file = site.plan_file()
        refused = site.lakeplan("apply", file)
        assert refused.code == 4
        assert "own: did not run on this plan" in refused.err
        assert site.lakeplan("apply", "--auto-approve").code == 4
        assert site.api.rules("analytics") is None
        assert site.lakeplan("apply", file, "--run-checks").code == 0

    def it_judges_the_plan_that_is_applied(self, site):
        site.write("checks/own.py", PASS)
        commit(site)
        file = site.folder / "plan.json"
        site.lakeplan("plan", "--base", "HEAD", "--format", "json", "--out", file, "-q")
        site.write("checks/own.py", REFUSE)
        done = site.lakeplan("apply", file, "--run-checks")
        assert done.code == 4
        assert "own: no" in done.err


class DescribeAPullRequest:
    def it_cannot_change_the_script(self, site):
        site.write("checks/own.py", REFUSE)
        commit(site)
        ran = site.folder / "ran"
        site.write("checks/own.py", f"open({str(ran)!r}, 'w')\n")
        for more in ((), ("--run-checks",)):
            assert gates(plan(site, "--base", "HEAD", *more)) == {"own: no": "refused"}
        commit(site)
        assert gates(plan(site, "--base", "HEAD^1")) == {"own: no": "refused"}
        assert not ran.exists()

    def it_cannot_change_the_command_or_add_one(self, site):
        site.write("checks/own.py", REFUSE)
        commit(site)
        ran = site.folder / "ran"
        site.write("evil.py", f"open({str(ran)!r}, 'w')\n")
        tree(
            site,
            "checks:",
            "  - {name: own, run: [python3, evil.py]}",
            "  - {name: two, run: [python3, evil.py]}",
        )
        result = plan(site, "--base", "HEAD", "--run-checks")
        new = "two: python3 evil.py is new since HEAD, so it is not run on this change"
        assert gates(result) == {"own: no": "refused", new: "warned"}
        assert not ran.exists()
        assert "check own has changed since HEAD" in str(result.json["warnings"])

    def it_is_applied_with_the_check_that_it_adds(self, site):
        site.write("checks/own.py", PASS)
        commit(site)
        ran = site.folder / "ran"
        site.write("checks/two.py", f"open({str(ran)!r}, 'w')\n")
        adds = "  - {name: two, run: [python3, checks/two.py]}"
        tree(site, "checks:", "  - {name: own, run: [python3, checks/own.py]}", adds)
        commit(site)
        file = site.folder / "plan.json"
        assert site.lakeplan("plan", "--base", "HEAD^1", "--format", "json", "--out", file, "-q").code == 0
        done = site.lakeplan("apply", file)
        assert done.code == 0, done.err
        assert "new checks, which did not run on this plan: two" in " ".join((done.out + done.err).split())
        assert not ran.exists()
        # A later change of the check's command is not what this plan calls new.
        tree(
            site, "checks:", "  - {name: own, run: [python3, checks/own.py]}", adds.replace("two.py", "3.py")
        )
        refused = site.lakeplan("apply", file)
        assert refused.code == 4
        assert "two: did not run on this plan" in refused.err

    def it_cannot_drop_a_check_without_being_seen(self, site):
        site.write("checks/own.py", REFUSE)
        commit(site)
        tree(site)
        result = plan(site, "--base", "HEAD")
        assert gates(result) == {"own: no": "refused"}
        assert ("checks", "own: python3 checks/own.py") in [
            (c["path"], c["before"]) for c in result.json["loosenings"]
        ]

    def it_cannot_bring_its_own_tree_with_a_check(self, site):
        for file in site.tree.glob("**/*.yaml"):
            file.rename(site.folder / file.name)
        commit(site)
        ran = site.folder / "ran"
        site.rules("analytics", 21)
        site.write("checks/own.py", f"open({str(ran)!r}, 'w')\n")
        tree(site, check("python3, checks/own.py"))
        result = plan(site, "--base", "HEAD", "--new-tree")
        assert result.code == 0, result.err
        assert not ran.exists()

    def it_sees_no_credentials_and_nothing_of_the_checkout(self, site, monkeypatch):
        file = told(site)
        tree(site, check(f"{sys.executable}, checks/own.py"))
        commit(site)
        for name in ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "GITHUB_ENV", "LAKEPLAN_STATE_URL", "BASH_ENV"):
            monkeypatch.setenv(name, f"/{name}-secret")
        for name in ("PYTHONPATH", "PYTHONSTARTUP", "LD_LIBRARY_PATH", "GIT_DIR"):
            monkeypatch.setenv(name, str(site.tree))
        site.write("sitecustomize.py", f"open({str(site.folder / 'ran')!r}, 'w')\n")
        site.write("json.py", f"open({str(site.folder / 'ran')!r}, 'w')\n")
        monkeypatch.chdir(site.tree)
        result = plan(site, "--base", "HEAD")
        assert gates(result) == {"own: passed": "passed"}
        seen = json.loads(file.read_text())
        allowed = {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONNOUSERSITE"}
        assert seen["env"].keys() <= {*allowed, "PYTHONDONTWRITEBYTECODE"}
        assert seen["env"]["HOME"] != os.environ.get("HOME")
        assert "secret" not in str(seen["env"])
        assert str(site.tree) not in str(seen)
        assert "json.py" not in seen["files"]
        assert seen["repositories"] == ["analytics"]
        assert not (site.folder / "ran").exists()
        assert not Path(seen["cwd"]).exists()

    def it_cannot_bring_the_program(self, site, monkeypatch):
        site.write("checks/own.py", REFUSE)
        commit(site)
        ran = site.folder / "ran"
        for folder in ("bin", "."):
            site.write(f"{folder}/python3", f"#!/bin/sh\ntouch {ran}\n")
            (site.tree / folder / "python3").chmod(0o755)
        (site.folder / "link").symlink_to(site.tree / "bin")
        monkeypatch.chdir(site.tree)
        paths = (str(site.tree / "bin"), str(site.folder / "link"), ".", "", os.environ["PATH"])
        monkeypatch.setenv("PATH", os.pathsep.join(paths))
        assert gates(plan(site, "--base", "HEAD")) == {"own: no": "refused"}
        assert not ran.exists()

    @pytest.mark.parametrize("absolute", ["script", "program"])
    def it_is_not_run_where_the_base_names_its_checkout(self, site, absolute):
        script = site.tree / "checks/own.py"
        ran = site.folder / "ran"
        site.write("checks/own.py", f"#!{sys.executable}\nopen({str(ran)!r}, 'w')\n")
        script.chmod(0o755)
        tree(site, check(f"python3, {script}" if absolute == "script" else str(script)))
        commit(site)
        assert "is an absolute path into the checkout" in str(gates(plan(site, "--base", "HEAD")))
        assert not ran.exists()

    def it_is_not_run_through_a_link_of_the_base(self, site):
        """The base has a link to where checkouts are; the pull request fills in what it leads to."""
        ran = site.folder / "ran"
        site.write("shared/own.py", f"open({str(ran)!r}, 'w')\n")
        (site.tree / "checks").mkdir()
        (site.tree / "checks/own.py").symlink_to(site.tree / "shared/own.py")
        commit(site)
        assert "failed with exit code 2" in str(gates(plan(site, "--base", "HEAD")))
        (site.tree / "checks/own.py").unlink()
        (site.tree / "checks").rmdir()
        (site.tree / "checks").symlink_to(site.tree / "shared")
        commit(site)
        assert "failed with exit code 2" in str(gates(plan(site, "--base", "HEAD")))
        assert not ran.exists()

    def it_may_use_links_inside_the_tree(self, site):
        site.write("shared/own.py", REFUSE)
        (site.tree / "checks").symlink_to("shared")
        commit(site)
        assert gates(plan(site, "--base", "HEAD")) == {"own: no": "refused"}

    def it_is_not_run_from_above_the_tree(self, site):
        tree(site, check("python3, ../own.py"))
        commit(site)
        assert "../own.py points outside the tree" in str(gates(plan(site, "--base", "HEAD")))

    def it_does_not_get_filters_and_hooks_of_git_to_run(self, site):
        ran = site.folder / "ran"
        site.write("checks/own.py", REFUSE)
        site.write(".gitattributes", "* filter=evil diff=evil text eol=crlf ident export-ignore\n")
        site.write("info", f"#!/bin/sh\ntouch {ran}\ncat\n")
        (site.tree / "info").chmod(0o755)
        commit(site)
        for key in ("filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "core.fsmonitor"):
            site.git("config", key, f"touch {ran}; cat")
        hooks = site.tree / ".git/hooks"
        for hook in ("post-checkout", "post-index-change", "reference-transaction"):
            (hooks / hook).write_text(f"#!/bin/sh\ntouch {ran}\n")
            (hooks / hook).chmod(0o755)
        assert gates(plan(site, "--base", "HEAD")) == {"own: no": "refused"}
        assert not ran.exists()

    def it_judges_by_the_base_in_a_folder_of_the_repository(self, site):
        """The tree is not at the top: only its folder is there, with the modes of its files."""
        file = told(site)
        (site.tree / "checks/own.py").rename(site.folder / "own.py")
        for entry in list(site.tree.iterdir()):
            entry.rename(site.folder / entry.name) if entry.name != "repo" else None
        below = site.tree / "retention"
        below.mkdir()
        for name in ("lakeplan.yaml", "repositories"):
            (site.folder / name).rename(below / name)
        (below / "checks").mkdir(exist_ok=True)
        (site.folder / "own.py").rename(below / "checks/own.py")
        (below / "checks/own.py").chmod(0o755)
        site.write("secret.txt", "x")
        commit(site)
        top, site.tree = site.tree, below
        try:
            assert gates(plan(site, "--base", "HEAD")) == {"own: passed": "passed"}
        finally:
            site.tree = top
        assert json.loads(file.read_text())["files"] == ["checks", "lakeplan.yaml", "repositories"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("checks: [{name: a, run: [x]}, {name: a, run: [y]}]", "two checks have the name 'a'"),
        ("checks: [{name: a}]", "run is missing"),
        ("checks: [{name: a, run: []}]", "run"),
        ("checks: [{name: A b, run: [x]}]", "a name such as naming"),
        ("checks: [{name: a, run: x}]", "a program and its arguments"),
        ("checks: [{name: a, run: [x], on: apply}]", "plan"),
        ("checks: [{name: a, run: [x], time_limit: 1h}]", "between 1s and 10m"),
    ],
)
def it_says_what_is_wrong_with_checks(world, lines, text):
    tree(world, lines)
    result = world.lakeplan("validate")
    assert result.code == 1
    assert text in result.err + result.out


def it_writes_executable_files_of_a_base_as_such(site):
    file = site.folder / "modes.json"
    modes = "{f: os.stat(f).st_mode & 0o777 for f in ('checks/own.py', 'checks/x.sh')}"
    site.write("checks/own.py", f"import json, os\njson.dump({modes}, open({str(file)!r}, 'w'))\n")
    site.write("checks/x.sh", "#!/bin/sh\n")
    (site.tree / "checks/x.sh").chmod(0o755)
    commit(site)
    plan(site, "--base", "HEAD")
    found = json.loads(file.read_text())
    assert not found["checks/own.py"] & stat.S_IXUSR
    assert found["checks/x.sh"] & stat.S_IXUSR

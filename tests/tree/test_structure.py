from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("root", "line"),
    [
        (
            "default: {server: prod}\n",
            "lakeplan.yaml:3:1: default: unknown key 'default': did you mean defaults?",
        ),
        (
            "zzzzzzzz: 1\n",
            "lakeplan.yaml:3:1: zzzzzzzz: unknown key 'zzzzzzzz': known keys are apiVersion, servers",
        ),
        (
            "unmanaged: wran\n",
            "lakeplan.yaml:3:12: unmanaged: expected one of ignore, warn, fail, but this is the text",
        ),
        (
            "include: x\n",
            "lakeplan.yaml:3:10: include: expected a list of paths or globs, but this is the text 'x'",
        ),
        ("state: {}\n", "lakeplan.yaml:3:8: state: the key url is missing"),
        (
            "state: {url: ftp://x}\n",
            "lakeplan.yaml:3:14: state.url: expected an s3://, gs://, file:// or Azure blob URL",
        ),
        ("safety: {}\n", "lakeplan.yaml:3:9: safety: this value is empty"),
        (
            "safety: {max_expired_objects_percent: 101}\n",
            "lakeplan.yaml:3:39: safety.max_expired_objects_percent:",
        ),
        (
            "safety: {max_expired_bytes: 5 XB}\n",
            "lakeplan.yaml:3:29: safety.max_expired_bytes: expected bytes",
        ),
        (
            "safety: {max_plan_age: 0d}\n",
            "lakeplan.yaml:3:24: safety.max_plan_age: a duration must be more than zero",
        ),
        (
            "safety: {protected_tags: ['a/b']}\n",
            "lakeplan.yaml:3:27: safety.protected_tags[0]: the pattern 'a/b'",
        ),
        ("safety: {max_plan_age: 7}\n", "lakeplan.yaml:3:24: safety.max_plan_age: expected a duration"),
        (
            "bounds: {min_retention_days: 9, max_retention_days: 8}\n",
            "lakeplan.yaml:3:1: bounds: min_retention",
        ),
        ("profiles: {a: {use: [b]}}\n", "lakeplan.yaml:3:22: profiles.a.use[0]: there is no profile 'b'"),
        (
            "profiles: {a: {use: [a]}}\n",
            "lakeplan.yaml:3:22: profiles.a.use: these profiles use each other in a cycle: a → a",
        ),
        ("profiles: {a: {gc: clear}}\n", "lakeplan.yaml:3:20: profiles.a.gc: `gc: clear` is allowed only in"),
        (
            "state: {url: 's3://${X}/y'}\n",
            "lakeplan.yaml:3:14: state.url: variables are supported only in the",
        ),
    ],
)
def it_reports_a_problem_of_the_root_file(problem: Callable[..., str], root: str, line: str) -> None:
    assert problem(root).startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "apiVersion: lakeplan/v2\nservers: {p: {endpoint_url: 'https://x'}}\n",
            "lakeplan.yaml:1:13: apiVersion: expec",
        ),
        (
            "servers: {p: {endpoint_url: 'https://x'}}\n",
            "lakeplan.yaml:1:1: (top): the key apiVersion is missing; add `apiVersion: lakeplan/v1`",
        ),
        ("apiVersion: lakeplan/v1\n", "lakeplan.yaml:1:1: (top): the key servers is missing"),
        ("- a\n", "lakeplan.yaml:1:1: (top): expected a map with apiVersion and servers, but this is a list"),
        (
            "hello\n",
            "lakeplan.yaml:1:1: (top): expected a map with apiVersion and servers, but this is the text"
            " 'hello'",
        ),
    ],
)
def it_reports_a_root_file_that_is_none(problem: Callable[..., str], text: str, line: str) -> None:
    assert problem(files={"lakeplan.yaml": text}).startswith(line)


GC = "gc: {default_retention_days: 9, branches: [%s]}"
EMPTY_GC = "this value is empty; to remove the gc settings from the server, write `gc: clear` (in an entry"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ("gc:", f"5: gc: {EMPTY_GC}"),
        ("gc: ~", f"9: gc: {EMPTY_GC}"),
        ("gc: null", f"9: gc: {EMPTY_GC}"),
        ("gc: {}", f"9: gc: {EMPTY_GC}"),
        ("gc: ''", "9: gc: expected rules, {file: rules.json}, or the word clear, but this is"),
        ("gc: cleared", "9: gc: expected rules"),
        ("gc: []", "9: gc: expected rules, {file: rules.json}, or the word clear, but this is a list"),
        (
            "branch_lifecycle:",
            "5: branch_lifecycle: this value is empty; to remove the branch_lifecycle settings",
        ),
        ("branch_lifecycle: {policies: []}", "34: branch_lifecycle.policies: this value is empty"),
        ("object_lifecycle: {rules: ~}", "31: object_lifecycle.rules: this value is empty"),
        ("sweep: ~", "12: sweep: this value is empty; write settings of the sweep"),
        ("gc: {default_retention_days: 0}", "34: gc.default_retention_days: expected a whole"),
        ("gc: {default_retention_days: 36501}", "34: gc.default_retention_days: expected a whole"),
        ("gc: {default_retention_days: 21.0}", "34: gc.default_retention_days: expected a whole"),
        ("gc: {default_retention_days: true}", "34: gc.default_retention_days: expected a whole"),
        ("gc: {default_retention_days: 21d}", "34: gc.default_retention_days: expected a whole"),
        ("gc: {branches: []}", "5: gc: gc has no default_retention_days"),
        (GC % "{branch_id: a}", "48: gc.branches[0]: the key retention_days is missing"),
        (GC % "{retention_days: 4}", "48: gc.branches[0]: a rule needs either"),
        (GC % "{branch_id: a, pattern: b, retention_days: 4}", "48: gc.branches[0]: a rule needs"),
        (
            GC % "{branch_id: 7, retention_days: 4}",
            '60: gc.branches[0].branch_id: expected a name, but this is the number 7; put it in quotes, "7"',
        ),
        (GC % "{branch_id: true, retention_days: 4}", "60: gc.branches[0].branch_id: expected a name"),
        (
            GC % "{branch_id: off, retention_days: 4}",
            "60: gc.branches[0].branch_id: some YAML parsers interpret off as true or",
        ),
        (GC % "{branch_id: a-*, retention_days: 4}", "60: gc.branches[0].branch_id: 'a-*' is a glob, not"),
        (GC % "{branch_id: a b, retention_days: 4}", "60: gc.branches[0].branch_id: 'a b' is not a valid"),
        (GC % "{pattern: a/*, retention_days: 4}", "58: gc.branches[0].pattern: the pattern 'a/*' ca"),
        (GC % "{pattern: '[!-_a-zA-Z0-9]', retention_days: 4}", "58: gc.branches[0].pattern: the patt"),
        (GC % "{branch_id: a, remove: false}", "71: gc.branches[0].remove: expected true"),
        (GC % "{branch_id: a, retention_days: 4, day: 4}", "82: gc.branches[0].day: unknown key 'd"),
        (
            "branch_lifecycle: {require_merged: no}",
            "40: branch_lifecycle.require_merged: 'no' is text",
        ),
        (
            "branch_lifecycle: {assume_created: 2026-02-30}",
            "40: branch_lifecycle.assume_created: expected",
        ),
        ("holds: [{prefix: a, branch: b, reason: r}]", "13: holds[0]: a hold needs exactly one of"),
        ("holds: [{prefix: a}]", "13: holds[0]: the key reason is missing"),
        ("holds: [{tag: a, reason: r, until: 1.1.2027}]", "40: holds[0].until: expected a date"),
        *(
            (f"holds: [{{prefix: {prefix}, reason: r}}]", f"22: holds[0].prefix: {text}")
            for prefix, text in (
                ("/legal/", "an object path must not begin with a slash or dots; write 'legal/'"),
                ("./legal/", "an object path must not begin with a slash or dots; write 'legal/'"),
                ("//", "an object path must not begin with a slash or dots; write a prefix such as 'legal/'"),
                (
                    "legal/*",
                    "a prefix cannot contain wildcards: it covers every path that begins with it; write"
                    " 'legal/'",
                ),
                (
                    "'*'",
                    "a prefix cannot contain wildcards: it covers every path that begins with it; write a"
                    " prefix",
                ),
                (
                    "lakefs://repo/main/legal/",
                    "a prefix is the beginning of a path, not a URL; write 'legal/'",
                ),
                (
                    "s3://bucket",
                    "a prefix is the beginning of a path, not a URL; write a prefix such as 'legal/'",
                ),
                ("legal\\old", "paths use slashes, not backslashes; write 'legal/old'"),
                ("' legal/'", "a prefix must not begin or end with whitespace; write 'legal/'"),
            )
        ),
        ("holds: [{tag: a b, reason: r}]", "19: holds[0].tag: the pattern 'a b' cannot match anything"),
        ("sweep: {max_bytes: 50 XB}", "24: sweep.max_bytes: expected bytes"),
        ("sweep: {min_age: 24}", "22: sweep.min_age: expected a duration"),
        ("sweep: {engine: other}", "21: sweep.engine: expected one of builtin, lakefs-spark-client"),
        ("branch_lifecycle: {policies: [{id: a b, patterns: [x], max_age: 1d}]}", "40: branch_lifecy"),
        ("branch_lifecycle: {policies: [{id: a, patterns: [x]}]}", "40: branch_lifecycle.policies[a]: a"),
        ("branch_lifecycle: {policies: [{patterns: [x], max_age: 0s}]}", "60: branch_lifecycle.polic"),
        ("object_lifecycle: {rules: [{id: A}]}", "37: object_lifecycle.rules[0].id: expected an id"),
        (
            "object_lifecycle: {rules: [{id: a, branches: [x], prefix: p, expire_after_days: 3}]}",
            "63: object_lifecycle.rules[0].prefix: ",
        ),
        ("use: standard", "10: use: expected a list of names, but this is the text 'standard'"),
    ],
)
def it_reports_a_problem_of_an_entry(problem: Callable[..., str], settings: str, line: str) -> None:
    place, _, rest = line.partition(": ")
    wanted = f"repositories/a.yaml:4:{place}: repositories.data-a.{rest}"
    assert problem("", f"  data-a:\n    {settings}\n").startswith(wanted)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            "sweep: {engine: lakefs-spark-client, mode: quarantine}",
            "5:48: repositories.data-a.sweep.mode: sweep.engine lakefs-spark-client does not support mode"
            " quarantine: it only deletes",
        ),
        (
            "sweep: {versions: all, engine: lakefs-spark-client}",
            "5:23: repositories.data-a.sweep.versions: sweep.engine lakefs-spark-client does not support"
            " versions all: it deletes current versions only",
        ),
        (
            "sweep: {rate: 5, engine: lakefs-spark-client}",
            "5:19: repositories.data-a.sweep.rate: sweep.engine lakefs-spark-client does not support rate 5:"
            " its speed cannot be limited",
        ),
        (
            "sweep: {engine: lakefs-spark-client}",
            "5:21: repositories.data-a.sweep.engine: sweep.engine lakefs-spark-client does not support holds"
            " and would delete data under a hold; use the engine builtin",
        ),
        ("sweep: {engine: builtin, mode: quarantine, rate: 5}", ""),
    ],
)
def it_reports_what_lakefs_own_collector_cannot_do_wherever_it_is_inherited_from(
    tree: Any, settings: str, line: str
) -> None:
    holds = "profiles: {kept: {holds: [{prefix: audit/, reason: r}]}}\n"
    found = tree.problems(holds, f"  data-a:\n    use: [kept]\n    {settings}\n")
    if not line:
        assert found == []
    else:
        assert f"repositories/a.yaml:{line}" in found


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("Data", "'Data' is not a valid repository name"),
        ("da", "'da' is not a valid repository name"),
        ("'da_*'", "the pattern 'da_*' cannot match anything: a repository name cannot contain '_'"),
        ("'da[ta'", "cannot match anything: the [ has no closing ]"),
        ("'[^a]*'", "write [!a]"),
        ("'-*'", "cannot match anything"),
        ("nowhere/data", "there is no server 'nowhere'"),
        ("yes", "put it in quotes"),
    ],
)
def it_reports_a_key_that_names_no_repository(problem: Callable[..., str], key: str, says: str) -> None:
    text = problem("", f"  {key}: {{}}")
    assert text.startswith("repositories/a.yaml:3:3: repositories")
    assert says in text


def it_refuses_clear_on_a_glob(problem: Callable[..., str]) -> None:
    for block in ("gc", "branch_lifecycle", "object_lifecycle"):
        text = problem("", f'  "data-*": {{{block}: clear}}')
        assert f"repositories.data-*.{block}: `{block}: clear` is allowed only in an entry with the" in text


def it_refuses_an_entry_whose_children_were_commented_out(problem: Callable[..., str]) -> None:
    text = problem("", "  data-a:\n    # gc: {default_retention_days: 3}\n")
    assert text.startswith("repositories/a.yaml:3:3: repositories.data-a: this value is empty")


def it_takes_an_entry_that_manages_nothing_on_purpose(tree: Any) -> None:
    repository = tree.load("", "  data-a: {}").resolve("prod", [])[0]
    assert (repository.gc, repository.resolved) == (None, {})


def it_holds_every_day_to_the_bounds(tree: Any) -> None:
    root = (
        "bounds: {min_retention_days: 5, max_retention_days: 50}\n"
        "profiles: {p: {gc: {default_retention_days: 51}}}\n"
    )
    entries = (
        "  data-a: {gc: {default_retention_days: 5, branches: [{pattern: x, retention_days: 4}]}}\n"
        "  data-b: {gc: {file: gc.json}}\n"
    )
    files = {"repositories/gc.json": '{"default_retention_days": 60}'}
    assert [line.split(":")[0] + line.rpartition(":")[2] for line in tree.problems(root, entries, files)] == [
        "lakeplan.yaml 51 is outside the tree's bounds of 5 to 50 days",
        "repositories/a.yaml 4 is outside the tree's bounds of 5 to 50 days",
        "repositories/gc.json 60 is outside the tree's bounds of 5 to 50 days",
    ]


def it_reports_all_problems_at_once_in_the_order_of_their_places(tree: Any) -> None:
    entries = """
  data-a: {gc: {default_retention_days: 0}, onwer: x}
  data-b:
    use: [gone]
    gc: {branches: [{branch_id: main, retention_days: 3}, {branch_id: main, retention_days: 4}]}
  data-c: {gc: }
  data-c: {}
  "a*": {gc: {default_retention_days: 3}}
  "*a": {gc: {default_retention_days: 4}}
"""
    files = {"repositories/z.yaml": "apiVersion: lakeplan/v1\nrepositories:\n\tdata: {}\n"}
    found = tree.problems("unmanaged: no\nprofiles: {q: {use: [q]}}\n", entries, files)
    assert [":".join(line.split(":")[:2]) for line in found] == [
        "lakeplan.yaml:3",
        "lakeplan.yaml:4",
        "repositories/a.yaml:4",
        "repositories/a.yaml:4",
        "repositories/a.yaml:6",
        "repositories/a.yaml:7",
        "repositories/a.yaml:8",
        "repositories/a.yaml:9",
        "repositories/a.yaml:11",
        "repositories/z.yaml:3",
    ]


def it_says_one_thing_about_one_value(tree: Any) -> None:
    found = tree.problems("safety: {max_plan_age: 5y, impact_tolerance_percent: 010}\n")
    assert len(found) == 2

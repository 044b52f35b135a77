"""``plan --base`` lists and heeds every declared setting, wherever it is and however a change weakens it.

The cases are made from the declarations, so a new setting is tested in every place from its first day.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from lakeplan.cli.base import Base
from lakeplan.review.base import HeldTree
from lakeplan.review.strictness import SERVER, TREE, weaker_later
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.declare import Order, Setting
from lakeplan.values.desired import BOUNDS, BRANCH_SETTINGS, SAFETY
from lakeplan.values.pins import PINS
from lakeplan.values.plan import Plan, RepositoryPlan
from lakeplan.values.rules import Action
from lakeplan.values.sweep import SWEEP
from tests.review.declared import SAME, kind_of, written

Node = dict[str, Any]
HERE = "http://127.0.0.1:8000"
NOTIFY = {"channels": {"ops": {"kind": "slack"}}}
NOW = datetime(2026, 3, 31, tzinfo=timezone.utc)
OF_REPOSITORIES = (*SWEEP, *BRANCH_SETTINGS, *PINS)
OF_THE_TREE = (*SAFETY, *BOUNDS)


def named(setting: Setting) -> str:
    return setting.path


@dataclass
class Compared:
    base: Tree
    head: Tree
    plan: Plan
    held: HeldTree

    @property
    def listed(self) -> set[tuple[str, str]]:
        return {(found.scope, found.path) for found in self.plan.loosenings}


def load(folder: Path, root: Node) -> Tree:
    """The tree of these settings. ``files`` has the settings of its other files, by name."""
    files = root.pop("files", {})
    servers = root.pop("servers", {"prod": {"endpoint_url": HERE}})
    made = {"apiVersion": "lakeplan/v1", "servers": servers, "notify": NOTIFY, **root}
    for name, node in {"lakeplan.yaml": made, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(node))
    return load_tree(folder, {})


Compare = Callable[[Node, Node], Compared]


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    number = iter(range(1_000))

    def compared(before: Node, after: Node) -> Compared:
        folder = tmp_path / str(next(number))
        old, new = load(folder / "base", dict(before)), load(folder / "head", dict(after))
        base = Base("main", "c0ffee", old)
        held = base.hold(new)
        (server,) = new.servers
        rows = tuple(
            RepositoryPlan(server, d.name, d.entry, HERE, d.config_hash, Action.NONE, None, None)
            for d in held.resolve(server, ["team-a"])
        )
        return Compared(old, new, base.finish(Plan(NOW, "1", "0", None, rows), new, held), held)

    return compared


def entry(node: Node) -> Node:
    return {"repositories": {"team-a": node}}


def glob(node: Node) -> Node:
    return {"repositories": {"team-*": node}}


def profile(node: Node) -> Node:
    return {"profiles": {"p": node}, "repositories": {"team-*": {"use": ["p"]}}}


def used_profile(node: Node) -> Node:
    return {"profiles": {"q": node, "p": {"use": ["q"]}}, "repositories": {"team-a": {"use": ["p"]}}}


def included(node: Node) -> Node:
    return {"files": {"repositories/a.yaml": {"apiVersion": "lakeplan/v1", **entry(node)}}}


PLACES = (entry, glob, profile, used_profile, included)


def renamed(node: Node) -> Node:
    return {"servers": {"lake": {"endpoint_url": f"{HERE}/api/v1"}}, **node}


def ways(strict: Node, weak: Node) -> Mapping[str, tuple[Node, Node]]:
    """Changes of a tree after which a repository has the settings ``weak`` instead of ``strict``."""
    both = {"strict": strict, "weak": weak}
    return {
        **{f"in the same {place.__name__}": (place(strict), place(weak)) for place in PLACES},
        "from a glob to an entry": (glob(strict), entry(weak)),
        "from an entry to a glob": (entry(strict), glob(weak)),
        "from a profile to an entry": (profile(strict), entry(weak)),
        "from an entry to a profile": (entry(strict), profile(weak)),
        "in a glob, while the server gets another name": (glob(strict), renamed(glob(weak))),
        "by a more specific glob": (glob(strict), {"repositories": {"team-*": strict, "team-?": weak}}),
        "by another profile": (
            {"profiles": both, **entry({"use": ["strict"]})},
            {"profiles": both, **entry({"use": ["weak"]})},
        ),
        "by a file that is no longer included": (
            included(strict),
            {**included(strict), "include": [], **glob(weak)},
        ),
    }


WAYS = tuple(ways({}, {}))


def pairs(setting: Setting) -> list[tuple[Any, Any]]:
    """A value, and another one to which a change is listed."""
    some, parse = written(setting), setting.kind.parse
    return [(a, b) for a in some for b in some if setting.rule.weakens(parse(a), parse(b))]


BARE = {"gc": {"default_retention_days": 30}}


def node_of(setting: Setting, value: Any) -> Node:
    block, _, key = setting.path.partition(".")
    return {block: {key: value}, **(BARE if setting in OF_REPOSITORIES else {})}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("setting", OF_REPOSITORIES, ids=named)
def it_lists_a_weaker_setting_of_a_repository(compare: Compare, setting: Setting, way: str) -> None:
    if setting.rule.order is Order.NEUTRAL:
        pytest.skip("no value of it is weaker")
    strict, weak = pairs(setting)[0]
    adds = way == "by a more specific glob" and isinstance(strict, list)  # lists of layers are added up
    before, after = ways(node_of(setting, strict), node_of(setting, weak))[way]
    found = compare(before, after)
    (server,) = found.head.servers
    assert ((f"{server}/team-a", setting.path) in found.listed) is not adds
    if way.startswith("in the same"):
        assert compare(after, before).listed == set()
    (held,) = found.held.resolve(server, ["team-a"])
    stricter = setting.kind.parse(strict)
    if setting in SWEEP:
        assert getattr(found.plan.sweep_guards[held.key].settings, setting.field) == stricter
    if setting.path == "pins.max":
        assert held.pins.max == stricter


@pytest.mark.parametrize("setting", OF_REPOSITORIES, ids=named)
def it_lists_a_setting_of_a_repository_that_is_left_out_only_if_its_default_is_weaker(
    compare: Compare, setting: Setting
) -> None:
    parse, it = setting.kind.parse, {("prod/team-a", setting.path)}
    for value in written(setting):
        node, default = node_of(setting, value), parse(setting.default)
        is_weaker, is_weakening = (
            setting.rule.weakens(parse(value), default),
            setting.rule.weakens(default, parse(value)),
        )
        for place in (entry, profile):
            assert compare(place(node), place(BARE)).listed == (it if is_weaker else set())
        new = compare({"repositories": {}}, entry(node))
        assert new.listed == (it if is_weakening else set()), "a new entry, against the defaults"


@pytest.mark.parametrize("setting", OF_THE_TREE, ids=named)
def it_lists_and_heeds_every_weaker_setting_of_the_tree(compare: Compare, setting: Setting) -> None:
    parse, default = setting.kind.parse, setting.kind.parse(setting.default)
    for strict, weak in pairs(setting):
        found = compare(node_of(setting, strict), {**entry({}), **node_of(setting, weak)})
        assert found.listed == {("tree", setting.path)}
        if setting in SAFETY:
            both = setting.rule.combine(parse(strict), parse(weak))
            assert getattr(found.held.safety, setting.field) == both
            (held,) = found.held.resolve("prod", ["team-a"])
            assert getattr(held.safety, setting.field) == both
    for value in written(setting):
        expected = {("tree", setting.path)} if setting.rule.weakens(parse(value), default) else set()
        assert compare(node_of(setting, value), {}).listed == expected


@pytest.mark.parametrize("setting", [*OF_REPOSITORIES, *OF_THE_TREE], ids=named)
def it_lists_no_other_spelling_of_a_value(compare: Compare, setting: Setting) -> None:
    if kind_of(setting) not in SAME:
        pytest.skip("its values have one spelling")
    one, other = (node_of(setting, value) for value in SAME[kind_of(setting)])
    if setting in OF_REPOSITORIES:
        one, other = entry(one), entry(other)
    assert compare(one, other).listed == compare(other, one).listed == set()


RUN = {"name": "names", "run": ["checks/names.py"]}
SERVERS = {"endpoint_url": HERE, "branch_lifecycle": {"engine": "lakeplan"}, "time_zone": "Europe/Berlin"}
OTHERS: Mapping[str, tuple[Node, Node]] = {
    "unmanaged": ({"unmanaged": "fail"}, {"unmanaged": "warn"}),
    "checks": ({"checks": [RUN]}, {"checks": [{**RUN, "run": ["checks/other.py"]}]}),
    "manages": ({"name": "a", "manages": ["team-*"]}, {"name": "a", "manages": ["team-a"]}),
    "state.url": ({"state": {"url": "s3://ops/a"}}, {"state": {"url": "s3://ops/b"}}),
    "notify": ({}, {"notify": {"channels": {"mine": {"kind": "slack"}}}}),
    "name": ({"name": "a"}, {"name": "b"}),
    "approvers": ({"approvers": "org/data"}, {"approvers": "org/web"}),
    "servers.branch_lifecycle.engine": (
        {"servers": {"prod": SERVERS}},
        {"servers": {"prod": {**SERVERS, "branch_lifecycle": {"engine": "none"}}}},
    ),
    "servers.time_zone": (
        {"servers": {"prod": SERVERS}},
        {"servers": {"prod": {**SERVERS, "time_zone": "UTC"}}},
    ),
}
"""By setting that is no field of a block: a tree, and one that weakens it."""


def it_has_such_trees_for_every_other_setting() -> None:
    assert OTHERS.keys() == {setting.path for setting in (*TREE, *SERVER)} - {s.path for s in BOUNDS}


@pytest.mark.parametrize("path", OTHERS)
def it_lists_every_other_weaker_setting_of_the_tree(compare: Compare, path: str) -> None:
    before, after = OTHERS[path]
    shown = path.replace("servers.", "servers.prod.")
    assert compare(before, after).listed == {("tree", shown)}
    assert compare(before, before).listed == set()
    if not path.startswith(("servers", "notify")):
        kept = {key: value for key, value in before.items() if key == "name" != path}
        assert compare(before, kept).listed == {("tree", shown)}


def it_lists_overrides_after_everything_else(compare: Compare) -> None:
    notes = [
        {"repository": "team-a", "gate": gate, "reason": "moved", "expires": "2099-01-01"}
        for gate in ("tag-loss", "clear")
    ]
    held = entry({"holds": [{"tag": "v1", "reason": "legal"}]})
    found = compare({**held, "unmanaged": "fail"}, {**entry({}), "overrides": notes})
    assert [item.path for item in found.plan.loosenings] == [
        "unmanaged",
        "holds[tag v1]",
        "overrides: tag-loss of team-a",
        "overrides: clear of team-a",
    ]


HOLDS = ({"prefix": "audit/"}, {"branch": "main"}, {"tag": "v*"}, {"commit": "0123456789ab"})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hold", HOLDS, ids=str)
@pytest.mark.parametrize("after", ["dropped", "ends"])
def it_lists_and_keeps_every_hold_that_is_dropped_or_ends_sooner(
    compare: Compare, way: str, hold: Node, after: str
) -> None:
    ((kind, name),) = hold.items()
    ends = {"holds": [{**hold, "until": "2027-01-01", "reason": "legal"}]}
    strict, weak = {"holds": [{**hold, "reason": "legal"}]}, ends if after == "ends" else {}
    before, changed = ways(strict, weak)[way]
    found = compare(before, changed)
    (server,) = found.head.servers
    adds = way == "by a more specific glob" and after == "dropped"  # a glob drops no hold of another
    assert ((f"{server}/team-a", f"holds[{kind} {name}]") in found.listed) is not adds
    (held,) = found.held.resolve(server, ["team-a"])
    assert [(h.kind, h.name, h.until) for h in held.holds] == [(kind, name, None)]


def _rules(*rules: Node) -> Node:
    return entry({"gc": {"default_retention_days": 21, "branches": [*rules]}})


_MAIN = {"branch_id": "main", "retention_days": 30}
_RELEASES = {"pattern": "release-*", "retention_days": 90}


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (_rules(_RELEASES), _rules(), ("90 days", "absent")),
        (_rules(_RELEASES), _rules({**_RELEASES, "retention_days": 30}), ("90 days", "30 days")),
        (_rules({**_RELEASES, "min_commits": 3}), _rules(_RELEASES), ("90 days, min_commits 3", "90 days")),
        (_rules({**_MAIN, "min_commits": 3}), _rules({**_MAIN, "min_commits": 4}), None),
        (
            _rules({**_MAIN, "min_commits": 3, "keep": {"daily": 7}}),
            _rules({**_MAIN, "min_commits": 5, "keep": {"daily": 6}}),
            ("30 days, min_commits 3, daily 7", "30 days, min_commits 5, daily 6"),
        ),
        (_rules({**_MAIN, "min_commits": 3}), _rules(), ("30 days, min_commits 3", "absent")),
        (_rules(_MAIN), _rules(), None),
        (_rules(_RELEASES), entry({}), ("90 days", "absent")),
        (_rules(_RELEASES), _rules({**_RELEASES, "retention_days": 91}), None),
        (_rules({**_RELEASES, "retention_days": 20}), _rules(), None),
        (_rules(_RELEASES), entry({"gc": "clear"}), None),
        (entry({}), _rules(_RELEASES), None),
    ],
)
def it_lists_a_rule_that_keeps_less_of_branches_to_come(
    compare: Compare, before: Node, after: Node, shown: tuple[str, str] | None
) -> None:
    found = compare(before, after)
    rules = [i for i in found.plan.loosenings if i.path.startswith("gc.branches[")]
    assert [(i.before, i.after) for i in rules] == ([shown] if shown else [])
    (rows,) = [
        [*weaker_later(old, new, {"release-1"}, runs_policies=False)]
        for old in found.base.resolve("prod", [])
        for new in found.head.resolve("prod", [])
    ]
    # the plan shows what changes for this branch, but not the pins of its later commits
    assert bool(rows) == (shown is not None and "min_commits" in shown[0])


def _policies(*policies: Node, engine: str = "lakeplan") -> Node:
    server = {"endpoint_url": HERE, "branch_lifecycle": {"engine": engine}}
    return {"servers": {"prod": server}, **entry({"branch_lifecycle": {"policies": [*policies]}})}


_QUIET = {"id": "quiet", "patterns": ["feature-*", "wip-*"], "max_age": "30d"}
_SHOWN = "feature-*, wip-*: max_age 30d"


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        ({**_QUIET, "max_age": "1d"}, (_SHOWN, "feature-*, wip-*: max_age 1d")),
        ({**_QUIET, "patterns": ["release-*"]}, (_SHOWN, "release-*: max_age 30d")),
        (
            {"id": "quiet", "patterns": ["wip-*"], "max_idle_age": "30d"},
            (_SHOWN, "wip-*: max_idle_age 30d"),
        ),
        ({**_QUIET, "id": "new", "max_age": "29d"}, ("absent", "feature-*, wip-*: max_age 29d")),
        ({**_QUIET, "max_age": "31d"}, None),
        ({**_QUIET, "max_idle_age": "1d"}, None),
        ({**_QUIET, "patterns": ["wip-*"]}, None),
    ],
)
def it_lists_a_policy_that_deletes_more_of_branches_to_come(
    compare: Compare, after: Node, shown: tuple[str, str] | None
) -> None:
    found = compare(_policies(_QUIET), _policies(after)).plan.loosenings
    expected = [] if shown is None else [(f"branch_lifecycle.policies[{after['id']}]", *shown)]
    assert [(i.path, i.before, i.after) for i in found] == expected
    on_server = compare(_policies(_QUIET, engine="server"), _policies(after, engine="server"))
    assert on_server.listed == set()  # a plan shows every change of the server's policies

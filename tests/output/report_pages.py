"""A small repository whose report has everything once, with names that try to break out of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from lakeplan.plan.page import History, report_page_document
from lakeplan.review.differences import action_of, diff_rules
from lakeplan.values.desired import Policy
from lakeplan.values.plan import (
    BranchFate,
    Impact,
    ImpactStatus,
    Plan,
    PoliciesPlan,
    PrefixImpact,
    RepositoryPlan,
    SettingChange,
)
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from lakeplan.values.rules import Action, GcRules

AS_OF = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
DAY_US = 86_400_000_000
NASTY = "</script><img src=x onerror=\"document.title='owned'\"><!--&lt;\u202e\u3164a" + "\u0302" * 9
BEFORE = GcRules(30, {"main": 60})
AFTER = GcRules(7, {"main": 20, NASTY: 3})


def commit_id(name: str) -> str:
    return name.encode().hex().ljust(64, "0")


def commit(name: str, age_days: float, *parents: str, message: str = "") -> Commit:
    created = int(AS_OF.timestamp() * 1_000_000) - int(age_days * DAY_US)
    holds = commit_id(f"m{name}") if parents else ""
    return Commit(
        commit_id(name), created, holds, tuple(map(commit_id, parents)), message=message or f"load {name}"
    )


def history(*more: Commit, **branches: str) -> History:
    """a-b-c-d on main, a merge of x, an old branch, one with a nasty name, commits of deleted branches."""
    commits = (
        commit("a", 90),
        commit("b", 50, "a"),
        commit("c", 25, "b", message=NASTY),
        commit("x", 24, "b"),
        commit("d", 5, "c", "x"),
        commit("n", 10, "c"),
        commit("o", 40, "b"),
        commit("z", 12, "b"),
        commit("g", 80, "a"),
        *more,
    )
    heads = {"main": "d", "old": "o", NASTY: "n", **branches}
    refs = Refs(
        commits,
        tuple(Branch(name, commit_id(at)) for name, at in sorted(heads.items())),
        (Tag("v1", commit_id("b")), Tag(NASTY, commit_id("c"))),
    )
    return History(refs, "the server prod", timezone.utc)


def repository(read: History, name: str = "shop", **fields: Any) -> RepositoryPlan:
    made = RepositoryPlan(
        server="prod",
        name=name,
        entry=name,
        endpoint_url="https://lakefs.example.com",
        config_hash="5f" * 32,
        action=action_of(BEFORE, AFTER),
        before=BEFORE,
        after=AFTER,
        changes=diff_rules(BEFORE, AFTER),
        branches={b.id: b.commit_id for b in read.refs.branches},
        owner="data-platform",
        impact=Impact(ImpactStatus.UNKNOWN, reason=f"not simulated {NASTY}", prefixes=prefixes()),
        branch_lifecycle=policies(),
        warnings=(f"a warning {NASTY}",),
    )
    return replace(made, **fields)


def prefixes() -> tuple[PrefixImpact, ...]:
    return PrefixImpact("", 0, 9, 900), PrefixImpact("raw/", 1, 8, 800), PrefixImpact(f"{NASTY}/", 1, 1, 100)


def policies() -> PoliciesPlan:
    fate = BranchFate(
        "old",
        commit_id("o"),
        AS_OF - timedelta(days=41),
        None,
        "quiet",
        AS_OF + timedelta(days=4.5),
        None,
        True,
    )
    change = SettingChange("quiet", Action.ADD, {}, {"patterns": "old*"})
    after = (Policy("quiet", ("old*",), None, 40 * 86_400, ""),)
    return PoliciesPlan(
        Action.ADD, changes=(change,), after=after, fates=(fate,), deletions={"plus_7_days": 1}
    )


def plan(*repositories: RepositoryPlan) -> Plan:
    return Plan(AS_OF, "0.1.0", "7e" * 32, "01" * 20, repositories, warnings=(f"of the whole {NASTY}",))


def curve(name: str = "prod/shop", rules: GcRules = AFTER) -> dict[str, Any]:
    """A curve as ``lakeplan curve --horizon 30d --format json`` writes it."""

    def amount(objects: int) -> dict[str, int]:
        return {"objects": objects, "size_bytes": objects * 1000}

    def until(day: int) -> str:
        return (AS_OF + timedelta(days=day)).isoformat().replace("+00:00", "Z")

    return {
        "schema": "curve.v1",
        "versions": {"lakeplan": "0.1.0"},
        "repository": name,
        "as_of": until(0),
        "time_zone": "UTC",
        "listing": False,
        "at_most": True,
        "runner": {"name": "local", "reason": "100 entries do not exceed the threshold of 20,000,000"},
        "uncommitted_run": None,
        "rules": rules.to_body(),
        "etag": rules.etag,
        "refs": {"commits": 8, "dangling_commits": 1, "branches": 3},
        "read": {"metaranges": 7, "ranges": 7, "entries": 70, "size_bytes": 7000},
        "committed": amount(70),
        "never_committed": amount(0),
        "curves": [
            {
                "branch_id": None,
                "days_now": 7,
                "now": amount(40),
                "points": [{"days": d, **amount(n)} for d, n in ((0, 60), (5, 40), (25, 10), (50, 0))],
                "kept_at_any_days": amount(10),
                "kept_at_no_days": amount(0),
                "server": [
                    {"days": 7, **amount(40), "at_risk": amount(0)},
                    {"days": 30, **amount(13), "at_risk": amount(3)},
                ],
            }
        ],
        "horizon": {
            "days": 30,
            "until": until(30),
            "gone_now": amount(40),
            "later_or_never": amount(15),
            "total": amount(15),
            "days_with_losses": [{"day": d, "until": until(d), **amount(n)} for d, n in ((2, 5), (15, 10))],
        },
        "warnings": [f"a warning of the curve {NASTY}"],
    }


def full() -> dict[str, Any]:
    """The document of a plan with one repository, its history and its curve."""
    read = history()
    return report_page_document(
        plan(repository(read)),
        histories={"prod/shop": read},
        curves=[curve()],
        missing=[f"nothing, {NASTY}"],
    )


def alone() -> dict[str, Any]:
    """The same plan without anything beside it."""
    return report_page_document(plan(repository(history())), missing=["commit graphs"])

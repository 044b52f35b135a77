"""A refresh adds and raises, and never lowers: for any stored rules, tree and branches."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.plan.gather import gather, raised
from lakeplan.retention.patterns import matches
from lakeplan.values.desired import BranchRule, DesiredRepository, GcDesired, ServerConfig, Source, Stored
from lakeplan.values.repository import Branch, Repository
from lakeplan.values.rules import GcRules

AT = datetime(2026, 3, 1, tzinfo=timezone.utc)
HERE = Source("a.yaml", 1, 1)
NAMES = ["main", "dev", "release-1", "release-2", "release-x", "tmp-1", "lakeplan-pin-0"]
PATTERNS = ["*", "release-*", "release-?", "tmp-*", "[dm]*"]
days = st.integers(min_value=-3, max_value=400)
rules = st.builds(GcRules, days, st.dictionaries(st.sampled_from(NAMES), days))
wanted = st.integers(min_value=1, max_value=400)
branch_rules = st.one_of(
    st.builds(BranchRule, st.sampled_from(NAMES), st.just(False), wanted, st.just(HERE)),
    st.builds(BranchRule, st.sampled_from(PATTERNS), st.just(True), wanted, st.just(HERE)),
)
gcs = st.builds(
    GcDesired,
    wanted,
    st.lists(branch_rules, unique_by=lambda rule: rule.name).map(tuple),
    st.just(HERE),
)


class Server:
    """A reader of one repository."""

    name = "prod"

    def __init__(self, stored: GcRules | None, branches: list[str]) -> None:
        self._stored, self._branches = stored, branches

    def get_repository(self, repository: str) -> Repository:
        return Repository(repository, "mem://a", "main", 7)

    def get_gc_rules(self, repository: str) -> GcRules | None:
        return self._stored

    def list_branches(self, repository: str, prefix: str = "") -> Any:
        return iter([Branch(name, "0" * 64) for name in self._branches])

    def get_policies(self, repository: str) -> Any:
        return Stored((), "")

    get_object_rules = get_policies


def refreshed(stored: GcRules | None, gc: GcDesired, branches: list[str], *, known: bool = True) -> Any:
    desired = DesiredRepository("prod", "a", "a", gc, "0", {}, {})
    found = gather(
        desired,
        Server(stored, branches),  # type: ignore[arg-type]
        ServerConfig("prod", "http://x"),
        as_of=AT,
        known=known,
        read_refs=lambda: (SimpleNamespace(), ()),  # type: ignore[arg-type, return-value]
    )
    return found.refreshed(known=known).plan


@given(stored=rules, gc=gcs, branches=st.lists(st.sampled_from(NAMES), unique=True))
def it_never_lowers_or_removes_anything(stored: GcRules, gc: GcDesired, branches: list[str]) -> None:
    plan = refreshed(stored, gc, branches)
    after = plan.after
    assert after.default_retention_days == plan.before.default_retention_days
    assert after.branches.keys() >= plan.before.branches.keys()
    for branch in {*NAMES, *after.branches, "never-named"}:
        assert after.days_for(branch) >= plan.before.days_for(branch)
    assert not plan.shortens


@given(stored=rules, gc=gcs, branches=st.lists(st.sampled_from(NAMES), unique=True))
def it_changes_only_branches_that_a_pattern_gives_more(
    stored: GcRules, gc: GcDesired, branches: list[str]
) -> None:
    plan = refreshed(stored, gc, branches)
    exact = {rule.name for rule in gc.branches if not rule.is_pattern}
    for branch, number in plan.after.branches.items():
        if plan.before.branches.get(branch) == number:
            continue
        fitting = [r.retention_days for r in gc.branches if r.is_pattern and matches(branch, r.name)]
        assert branch in branches
        assert branch not in exact
        assert number == max(fitting)
    # And every branch has what its patterns give.
    for branch in set(branches) - exact:
        fitting = [r.retention_days for r in gc.branches if r.is_pattern and matches(branch, r.name)]
        assert plan.after.days_for(branch) >= max(fitting, default=-3)


@given(stored=rules, gc=gcs, branches=st.lists(st.sampled_from(NAMES), unique=True))
def it_has_nothing_left_to_do_after_itself(stored: GcRules, gc: GcDesired, branches: list[str]) -> None:
    first = refreshed(stored, gc, branches)
    assert not refreshed(first.after, gc, branches).writes


@given(stored=st.none() | rules, gc=gcs, branches=st.lists(st.sampled_from(NAMES), unique=True))
def it_leaves_what_no_apply_has_seen(stored: GcRules | None, gc: GcDesired, branches: list[str]) -> None:
    assert not refreshed(stored, gc, branches, known=False).writes
    assert not refreshed(None, gc, branches).writes


@given(stored=rules, more=st.dictionaries(st.sampled_from(NAMES), days))
def it_raises_and_keeps(stored: GcRules, more: dict[str, int]) -> None:
    after = raised(stored, more)
    assert all(after.days_for(b) == max(stored.days_for(b), more.get(b, -99)) for b in NAMES)

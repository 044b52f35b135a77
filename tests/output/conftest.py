"""Plans and reports as people meet them, and the page that shows one at a width."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lakeplan.review.differences import action_of, diff_rules
from lakeplan.values.plan import (
    Backlog,
    Failure,
    GateOutcome,
    GateResult,
    Horizon,
    HorizonImpact,
    Impact,
    ImpactStatus,
    Plan,
    PrefixImpact,
    RepositoryPlan,
    TagLoss,
)
from lakeplan.values.rules import GcRules
from tests.output.chromium import Page, chromium, find_chromium

AS_OF = datetime(2026, 3, 31, 12, 0, tzinfo=timezone.utc)
GOLDEN = Path(__file__).parent / "golden"
STAGED = "upper bounds: uncommitted changes were not read and can only reduce these numbers"
REGENERATE = "LAKEPLAN_REGENERATE_OUTPUT"

Show = Callable[[Callable[[Any, Console], None], Any, int], str]


@pytest.fixture
def show() -> Show:
    """``show(render, document, width)``: what is printed, without colours."""

    def shown(render: Callable[[Any, Console], None], document: Any, width: int) -> str:
        stream = io.StringIO()
        render(document, Console(file=stream, width=width, no_color=True, highlight=False))
        return stream.getvalue()

    return shown


@pytest.fixture
def golden_output() -> Callable[[str, str], None]:
    """Compares with ``golden/<name>.txt``. With LAKEPLAN_REGENERATE_OUTPUT=1 the file is written instead:
    look at the difference in git before you commit it."""

    def compare(name: str, output: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if os.environ.get(REGENERATE):
            path.write_text(output, encoding="utf-8")
        assert output == path.read_text(encoding="utf-8"), f"{path}: {REGENERATE}=1 writes it again"

    return compare


def repository(
    name: str, before: GcRules | None, after: GcRules | None, server: str = "prod", **fields: Any
) -> RepositoryPlan:
    plan = RepositoryPlan(
        server=server,
        name=name,
        entry=name,
        endpoint_url=f"https://lakefs.{server}.example.com",
        config_hash="5f" * 32,
        action=action_of(before, after),
        before=before,
        after=after,
        changes=diff_rules(before, after),
        branches={"main": "a1" * 32},
        source=f"repositories/{name}.yaml:3",
    )
    return replace(plan, **fields)


def horizons(
    commits: tuple[int, int],
    objects: Mapping[Horizon, int] | None,
    *,
    kept: int | None = 9_950_000,
    at_risk: int = 0,
    object_bytes: int = 2_574_000,
) -> dict[str, HorizonImpact]:
    """Impact at the three moments; ``objects`` None leaves the objects unknown."""
    made = {}
    for horizon in Horizon:
        expire = None if objects is None else objects[horizon]
        made[horizon.value] = HorizonImpact(
            as_of=AS_OF + timedelta(days=horizon.days),
            commits_kept_before=commits[0] - horizon.days,
            commits_kept_after=commits[1] - horizon.days,
            commits_expire=commits[0] - commits[1],
            commits_released=0,
            commits_at_risk=min(at_risk, 3),
            objects_expire=expire,
            bytes_expire=None if expire is None else expire * object_bytes,
            objects_kept=None if expire is None or kept is None else kept,
            bytes_kept=None if expire is None or kept is None else kept * object_bytes,
            objects_at_risk=None if expire is None else at_risk,
            bytes_at_risk=None if expire is None else at_risk * object_bytes,
        )
    return made


def make_plan(*repositories: RepositoryPlan, **fields: Any) -> Plan:
    made = Plan(
        as_of=AS_OF,
        lakeplan_version="0.1.0",
        tree_digest="7e" * 32,
        tree_commit="0123456789abcdef0123456789abcdef01234567",
        repositories=repositories,
    )
    return replace(made, **fields)


def unchanged(name: str) -> RepositoryPlan:
    rules = GcRules(21, {"main": 28})
    return repository(name, rules, rules)


def full_plan() -> Plan:
    """Everything a plan can say, once."""
    analytics = repository(
        "analytics",
        GcRules(28, {"main": 90, "old-release": 365, "dev": 7}),
        GcRules(21, {"main": 28, "dev": 14, "release-2026-03": 90}),
        impact=Impact(
            ImpactStatus.SIMULATED,
            horizons=horizons(
                (12_004, 3_100),
                {Horizon.NOW: 1_204_331, Horizon.WEEK: 1_304_200, Horizon.MONTH: 1_420_000},
                at_risk=1_210,
            ),
            tags=(TagLoss("v2025.12", "c0ffee" * 10 + "abcd", 41_200, 106_048_800_000),),
            prefixes=(
                PrefixImpact("", 0, 1_204_331, 3_099_947_994_000),
                PrefixImpact("raw/", 1, 1_150_000, 2_960_100_000_000),
                PrefixImpact("raw/events/", 2, 1_150_000, 2_960_100_000_000),
                PrefixImpact("tmp/", 1, 54_331, 139_847_994_000),
            ),
            backlog=Backlog(812),
            ranges_read=3_120,
            entries_read=19_400_000,
            commits_digest="9a" * 32,
            blind_to=(STAGED,),
        ),
        gates=(
            GateResult(
                "expired-objects", "prod/analytics", GateOutcome.PASSED, "12.1 percent", 12.1, 30.0, "percent"
            ),
            GateResult(
                "tag-loss",
                "prod/analytics",
                GateOutcome.REFUSED,
                "1 tag would lose data: v2025.12",
                1,
                0,
                "tags",
                "an entry under overrides in the tree, or --allow tag-loss at a terminal",
            ),
            GateResult(
                "at-risk",
                "prod/analytics",
                GateOutcome.WARNED,
                "1,210 objects would be deleted although the documented rule keeps them (now)",
                1_210,
                0,
                "objects",
            ),
        ),
        warnings=("repositories/analytics.yaml:9: rule for branch 'release-2026-03', which does not exist",),
    )
    raw = repository(
        "raw-landing-zone-eu-central",
        None,
        GcRules(30, {}),
        entry="raw-*",
        adopted=True,
        source="lakeplan.yaml:22",
        impact=Impact(
            ImpactStatus.UNKNOWN,
            reason="data/3f9a…: the block checksum is wrong",
            horizons=horizons((400, 320), None),
            backlog=Backlog(0),
        ),
        gates=(
            GateResult(
                "adoption",
                "prod/raw-landing-zone-eu-central",
                GateOutcome.OVERRIDDEN,
                "the glob 'raw-*' matches this repository for the first time",
                opens_with="overridden at lakeplan.yaml:30: moved here in March",
            ),
            GateResult(
                "unknown-impact",
                "prod/raw-landing-zone-eu-central",
                GateOutcome.REFUSED,
                "it is unknown which objects would expire: data/3f9a…: the block checksum is wrong",
                opens_with="an entry under overrides in the tree, or --allow unknown-impact at a terminal",
            ),
        ),
    )
    scratch = repository(
        "scratch",
        GcRules(7, {"main": 3}),
        None,
        impact=Impact(
            ImpactStatus.UNAFFECTED,
            reason="no commit's verdict changes",
            horizons=horizons((20, 20), dict.fromkeys(Horizon, 0), kept=None),
            backlog=Backlog(5),
        ),
        gates=(
            GateResult(
                "clear",
                "prod/scratch",
                GateOutcome.ALLOWED,
                "all GC rules would be removed; without rules, no collector runs and no storage is reclaimed",
                opens_with="--allow clear",
            ),
        ),
    )
    broken = repository(
        "ml-models",
        None,
        None,
        failure=Failure(
            "the user may not read the repository: permission retention:GetGarbageCollectionRules is missing",
            where="prod/ml-models",
            hint="ask for the policy of the README",
        ),
    )
    quiet = [unchanged(f"team-{i}") for i in range(5)]
    return make_plan(
        analytics,
        broken,
        raw,
        scratch,
        *quiet,
        unmanaged=("prod/playground", "prod/test-1"),
        allowed=("clear",),
        gates=(
            GateResult(
                "unmanaged",
                "plan",
                GateOutcome.WARNED,
                "2 repositories on the servers have no entry in the tree",
                2,
                None,
                "repositories",
            ),
        ),
    )


class Plans:
    """The builders above, for tests (``plans``)."""

    repository = staticmethod(repository)
    horizons = staticmethod(horizons)
    make = staticmethod(make_plan)
    unchanged = staticmethod(unchanged)
    full = staticmethod(full_plan)
    as_of = AS_OF


@pytest.fixture
def plans() -> Plans:
    return Plans()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of Chromium, 1280 by 900 pixels."""
    if find_chromium() is None:
        pytest.skip("no Chromium: on Debian, apt-get install chromium")
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        page.size(1280, 900)
        yield page


@pytest.fixture
def show_page(browser: Page, tmp_path: Path) -> Callable[[str], Page]:
    """Opens an HTML text as a file, in a browser that has noted nothing before."""

    def show(text: str) -> Page:
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        browser.console.clear()
        browser.requests.clear()
        browser.open(file)
        return browser

    return show

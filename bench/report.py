"""The report page of a repository with many commits: bytes of the file, and time until it can be used.

    python bench/report.py [--commits 10000] [--branches 300] [--keep FILE] [--runs 5]

Goal (issue 7): 10,000 commits under 5 MB, interactive in under 2 s in Chromium. Interactive is when every
handler is in place and the first frame was drawn, counted by the browser from the start of the navigation
(``data-ready`` of the page).
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import shutil
import subprocess
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from lakeplan.output.report import render_report
from lakeplan.plan.impact import simulated
from lakeplan.plan.page import History, judge_history, report_page_document
from lakeplan.review.differences import action_of, diff_rules
from lakeplan.values.desired import Policy
from lakeplan.values.plan import BranchFate, Plan, PoliciesPlan, PrefixImpact, RepositoryPlan, SettingChange
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from lakeplan.values.rules import Action, GcRules
from lakeplan.values.simulation import Amount, ImpactResult

NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)
NOW_S = int(NOW.timestamp())
DAY = 86_400
WORDS = (
    "load",
    "daily",
    "events",
    "backfill",
    "orders",
    "fix",
    "schema",
    "of",
    "customers",
    "compact",
    "raw",
    "drop",
    "rows",
)
HOLDS = {f"hold-{n:02d}": 180 for n in range(12)}
STORED = GcRules(90, {"main": 365, "release-01": 365, "release-02": 365, **dict.fromkeys(HOLDS, 365)})
PROPOSED = GcRules(21, {"main": 90, "release-01": 365, "release-02": 180, **HOLDS})


def commit_id(n: int) -> str:
    return hashlib.sha256(b"report %d" % n).hexdigest()


def history(commits: int, branches: int) -> Refs:
    """A trunk of two years with feature branches off it, merges, releases, tags, and branches that were
    deleted."""
    rng = random.Random(7)
    commits -= 36  # added at the end
    step = 730 * DAY // commits
    lines: dict[str, int] = {"main": 0}
    parents: list[tuple[int, ...]] = [()]
    names = iter(f"{rng.choice(('feature', 'wip', 'fix', 'exp'))}-{n:04d}" for n in range(10**6))
    open_lines: list[str] = []
    deleted = 0
    for n in range(1, commits):
        chance = rng.random()
        if chance < 0.06 or not open_lines:
            name = next(names)
            open_lines.append(name)
            lines[name] = lines["main"]
        line = "main" if rng.random() < 0.45 else rng.choice(open_lines[-12:])
        if line != "main" and rng.random() < 0.08:
            parents.append((lines["main"], lines[line]))
            lines["main"] = n
            open_lines.remove(line)
            if rng.random() < 0.4 or len(lines) > branches:
                del lines[line]
                deleted += 1
            continue
        parents.append((lines[line],))
        lines[line] = n
    quiet: list[tuple[int, int]] = []  # commit, its age in days
    for n in range(12):
        # A commit that the walk of an old release meets first, and a younger branch is stopped at.
        base = len(parents)
        parents += [(commits // 2,), (base,), (base,)]
        quiet += [(base, 200 + n), (base + 1, 195 + n), (base + 2, 9)]
        lines[f"hold-{n:02d}"], lines[f"quiet-{n:02d}"] = base + 1, base + 2
    spare = [name for name in lines if name.startswith(("feature", "wip", "fix", "exp"))][
        : max(0, len(lines) - branches)
    ]
    for name in spare:
        del lines[name]
    lines["release-01"], lines["release-02"] = commits // 3, 2 * commits // 3
    ages = dict(quiet)
    records = tuple(
        Commit(
            commit_id(n),
            (NOW_S - ages[n] * DAY if n in ages else NOW_S - (commits - n) * step) * 1_000_000,
            commit_id(-n - 1) if n else "",
            tuple(commit_id(p) for p in parents[n]),
            message=" ".join(rng.choices(WORDS, k=rng.randint(3, 7))),
        )
        for n in range(len(parents))
    )
    heads = tuple(Branch(name, commit_id(at)) for name, at in sorted(lines.items()))
    tags = tuple(
        Tag(f"v{n}", commit_id(at)) for n, at in enumerate(range(commits // 9, commits, commits // 8))
    )
    return Refs(records, heads, tags)


def policies(refs: Refs) -> PoliciesPlan:
    """Some branches go within thirty days."""
    dates = {c.id: c.creation_us // 1_000_000 for c in refs.commits}
    fates = []
    for n, branch in enumerate(b for b in refs.branches if b.id.startswith(("wip", "exp"))):
        made = datetime.fromtimestamp(dates[branch.commit_id] - 5 * DAY, tz=timezone.utc)
        goes = NOW + timedelta(days=1 + n % 29, hours=n % 24)
        fates.append(BranchFate(branch.id, branch.commit_id, made, None, "quiet", goes, None, True))
    one = (Policy("quiet", ("wip-*", "exp-*"), None, 14 * DAY, ""),)
    change = SettingChange("quiet", Action.ADD, {}, {"patterns": "wip-*, exp-*", "max_idle_age": "14d"})
    return PoliciesPlan(Action.ADD, changes=(change,), after=one, fates=tuple(fates))


def plan_of(refs: Refs) -> tuple[Plan, History]:
    """A plan whose objects are made up, three a commit, and whose commits are judged."""
    bare = RepositoryPlan(
        server="prod",
        name="analytics",
        entry="analytics",
        endpoint_url="https://lakefs.example.com",
        config_hash="5f" * 32,
        action=action_of(STORED, PROPOSED),
        before=STORED,
        after=PROPOSED,
        owner="data-platform",
        source="repositories/analytics.yaml:3",
        changes=diff_rules(STORED, PROPOSED),
        branches={b.id: b.commit_id for b in refs.branches},
        branch_lifecycle=policies(refs),
    )
    read = History(refs, "the server prod", timezone.utc)
    verdicts = judge_history(bare, read, NOW).verdicts
    by_mask: dict[int, Amount] = {}
    for mask in verdicts.masks:
        by_mask[mask] = by_mask.get(mask, Amount()) + Amount(3, 3 * 41_000_000)
    goes = verdicts.commit_impact(next(iter(verdicts.moments))).commits_expire * 3
    result = ImpactResult(by_mask=by_mask, ranges_read=900, entries_read=90_000)
    impact = simulated(verdicts, result, backlog=False)
    prefixes = [
        ("", 0, 1.0),
        ("raw/", 1, 0.7),
        ("raw/events/", 2, 0.6),
        ("raw/orders/", 2, 0.1),
        ("tmp/", 1, 0.3),
    ]
    impact = replace(
        impact,
        prefixes=tuple(
            PrefixImpact(p, d, int(goes * share), int(goes * share) * 41_000_000) for p, d, share in prefixes
        ),
    )
    repository = replace(bare, impact=impact)
    return Plan(NOW, "0.1.0", "7e" * 32, "0123456789abcdef" * 2 + "01234567", (repository,)), read


def curve(plan: Plan) -> dict[str, object]:
    """A made-up curve of the proposed rules, with a horizon (``schemas/curve.v1.json``)."""
    total, object_bytes = 30_000, 41_000_000

    def amount(objects: int) -> dict[str, int]:
        return {"objects": objects, "size_bytes": objects * object_bytes}

    def goes(days: int, keep: float) -> int:
        return int(total * keep * 0.5 ** (days / 120))

    def one(branch: str | None, now: int, keep: float) -> dict[str, object]:
        points = [{"days": d, **amount(goes(d, keep))} for d in range(0, 731, 3)]
        server = [
            {"days": d, **amount(goes(d // 3 * 3, keep) + more), "at_risk": amount(more)}
            for d, more in ((7, 0), (21, 420), (90, 160))
        ]
        return {
            "branch_id": branch,
            "days_now": now,
            "now": amount(goes(now // 3 * 3, keep)),
            "points": points,
            "kept_at_any_days": amount(500),
            "kept_at_no_days": amount(0),
            "server": server,
        }

    losses = [
        {
            "day": d,
            "until": (NOW + timedelta(days=d)).isoformat().replace("+00:00", "Z"),
            **amount(20 + d * 7 % 60),
        }
        for d in range(1, 91)
    ]
    rules = plan.repositories[0].after
    assert rules is not None
    return {
        "schema": "curve.v1",
        "versions": {"lakeplan": "0.1.0"},
        "repository": "prod/analytics",
        "as_of": NOW.isoformat().replace("+00:00", "Z"),
        "time_zone": "UTC",
        "listing": False,
        "at_most": True,
        "uncommitted_run": None,
        "rules": rules.to_body(),
        "etag": rules.etag,
        "refs": {"commits": 10_000, "dangling_commits": 0, "branches": 300},
        "read": {"metaranges": 900, "ranges": 900, "entries": 90_000, "size_bytes": 10**8},
        "committed": amount(total),
        "never_committed": amount(0),
        "curves": [one(None, 21, 0.6), one("main", 90, 0.9)],
        "horizon": {
            "days": 90,
            "until": losses[-1]["until"],
            "gone_now": amount(9_000),
            "later_or_never": amount(18_000),
            "total": amount(sum(int(str(loss["objects"])) for loss in losses)),
            "days_with_losses": losses,
        },
        "warnings": [],
    }


def browser() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise SystemExit("there is no Chromium on PATH")
    return found


def interactive(page: Path) -> int:
    """Milliseconds from the start of the navigation, as the page itself measures them."""
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000", "--dump-dom"]
    shown = subprocess.run([browser(), *switches, page.as_uri()], capture_output=True, text=True, check=True)
    found = re.search(r'data-ready="(\d+)"', shown.stdout)
    if found is None:
        raise SystemExit("the page never became interactive")
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="size of the report page, and time until it can be used")
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--branches", type=int, default=300)
    parser.add_argument("--keep", type=Path, help="keep the page at this path")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    plan, read = plan_of(history(args.commits, args.branches))
    start = time.perf_counter()
    document = report_page_document(plan, histories={"prod/analytics": read}, curves=[curve(plan)])
    judged = time.perf_counter()
    text = render_report(document)
    rendered = time.perf_counter()
    graph = document["graphs"][0]
    print(f"{graph['commits']:,} commits, {len(graph['branches']):,} branches, {graph['lanes']} lanes")
    print(
        f"document {judged - start:.2f} s, page {rendered - judged:.2f} s, {len(text.encode()) / 1e6:.2f} MB"
    )
    with TemporaryDirectory() as folder:
        page = args.keep or Path(folder) / "report.html"
        page.write_text(text, encoding="utf-8")
        times = sorted(interactive(page) for _ in range(args.runs))
    print(f"interactive after {times[len(times) // 2]} ms (median of {args.runs}: {times})")


if __name__ == "__main__":
    main()

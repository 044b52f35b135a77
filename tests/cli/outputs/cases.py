"""Every command's output in correct use: command lines, and the stage before each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.cli.outputs.site import Site
from tests.cli.outputs.stages import done, mark_id, override


@dataclass(frozen=True)
class Case:
    """Lines are typed in a row, each on what the one before left. ``{url}`` is the sandbox's address,
    ``{lake}`` the folder of its repositories, ``{mark}`` the id of the one mark there is."""

    stage: str
    lines: tuple[str, ...]
    code: int = 0
    prepare: Callable[[Site], None] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def typed(site: Site, line: str) -> str:
    """The line as it is typed at this site."""
    mark = mark_id(site) if "{mark}" in line else ""
    return line.format(url=site.endpoint_url, port=site.port, lake=site.folder / "lakefs", mark=mark)


def plan_file(site: Site) -> None:
    override(site, "unknown-impact")
    done(site, "plan --no-simulate --out plan.json -q")


def named_tree(site: Site) -> None:
    file = site.tree / "lakeplan.yaml"
    file.write_text(file.read_text() + "name: data-platform\n")


def branches_go(site: Site) -> None:
    done(site, "branches run -q")


def two_weeks_later(site: Site) -> None:
    site.later(days=15)


def empty_tree(site: Site) -> None:
    """Nothing of a tree is left but its folder."""
    for file in [*site.tree.rglob("*.yaml"), *site.tree.rglob("*.json")]:
        file.unlink()


def pinned_tags(site: Site) -> None:
    site.edit("repositories/analytics.yaml", "    gc:\n", "    pins: {tags: ['*'], at_risk: true}\n    gc:\n")


def loss(site: Site) -> None:
    """Removes one object of a branch's HEAD and truncates another."""
    stored = sorted(f for f in (site.folder / "lakefs/analytics/data").rglob("*") if f.is_file())
    stored[-1].unlink()
    os.truncate(stored[-2], 1)


def idle_comment(site: Site) -> None:
    site.write("event.json", '{"action": "created", "comment": {"body": "thanks"}}')


GITLAB = {
    "GITLAB_CI": "true",
    "CI_API_V4_URL": "http://127.0.0.1:10001",
    "CI_PROJECT_ID": "3",
    "REVIEW_TOKEN": "review-token",
}
"""A job of a host that does not answer."""
GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_API_URL": "http://127.0.0.1:10001",
    "GITHUB_REPOSITORY": "org/trees",
    "GITHUB_TOKEN": "job-token",
    "GITHUB_EVENT_PATH": "event.json",
}

CASES = {
    "init": Case(
        "seeded",
        ("init --endpoint prod=https://lakefs.example.com --ci github", "init -C new --endpoint prod={url}"),
        prepare=empty_tree,
    ),
    "validate": Case("seeded", ("validate", "validate --format json")),
    "test": Case("seeded", ("test",), code=1),
    "plan": Case("observed", ("plan",)),
    "show": Case(
        "seeded",
        ("show plan.json --target clickstream", "show --resolved analytics", "show --resolved ml-features"),
        prepare=plan_file,
    ),
    "report": Case("seeded", ("report plan.json --html plan.html -C .",), prepare=plan_file),
    "apply": Case(
        "seeded", ("apply plan.json --no-simulate", "apply plan.json --no-simulate"), prepare=plan_file
    ),
    "explain": Case(
        "seeded",
        (
            "explain analytics main:tables/customers.parquet",
            "explain analytics release-3",
            "explain --namespace file://{lake}/analytics --rules rules.json v1.0:tables/customers.parquet"
            " --compare-rules longer.json --as-of 2026-03-31T12:00:00Z --max-uncommitted-age 9999d",
        ),
    ),
    "drift": Case("applied", ("drift", "drift --format openmetrics")),
    "import": Case("seeded", ("import --endpoint prod={url}",), prepare=empty_tree),
    "export": Case("seeded", ("export analytics",)),
    "adopt": Case("seeded", ("adopt", "adopt")),
    "claim": Case(
        "seeded",
        ("claim analytics", "claim analytics", "claim analytics --release", "claim analytics --release"),
        prepare=named_tree,
    ),
    "audit": Case(
        "applied",
        (
            "audit --endpoint prod={url} --storage-path {lake} --price '20 EUR' analytics click*",
            "audit --endpoint prod={url} --sample 0 --write ../written lake-*",
        ),
    ),
    "storage": Case(
        "applied",
        (
            "storage --endpoint prod={url} --storage-path {lake} --price '20 EUR' analytics click*",
            "storage --endpoint prod={url} --storage-path {lake} --format csv analytics",
            "storage --endpoint prod={url} --no-listing analytics --format json --out ../storage.json",
            "storage --endpoint prod={url} --no-listing analytics --since ../storage.json"
            " --compare main release-3",
            "storage --tree . --storage-path {lake} --by-class analytics click*",
        ),
    ),
    "pins sync": Case("applied", ("pins sync", "pins sync", "plan"), prepare=pinned_tags),
    "check": Case("swept", ("check",), prepare=loss, code=3),
    "doctor": Case("seeded", ("doctor --no-spark --for apply",)),
    "simulate": Case(
        "seeded",
        ("simulate --namespace file://{lake}/analytics --rules rules.json --commits-only",),
        prepare=plan_file,
    ),
    "curve": Case("seeded", ("curve analytics --horizon 90d --at 14",)),
    "schema": Case("seeded", ("schema purge",)),
    "ci plan": Case("seeded", ("ci plan",), code=1, environment=GITLAB),
    "ci comment": Case("seeded", ("ci comment",), environment=GITLAB),
    "ci apply": Case("seeded", ("ci apply",), code=1, environment=GITLAB),
    "ci answer": Case("seeded", ("ci answer",), prepare=idle_comment, environment=GITHUB),
    "ci run": Case("seeded", ('ci run validate --args "-q"', "ci run 'drift -q'"), code=0),
    "branches plan": Case("observed", ("branches plan --no-simulate",)),
    "branches run": Case("observed", ("branches run", "branches run")),
    "branches exempt": Case(
        "observed",
        (
            "branches exempt analytics feature-login --until 2099-12-31 --reason 'release is late'",
            "branches plan --target analytics --no-simulate",
            "branches exempt analytics feature-login --remove",
        ),
    ),
    "branches undo": Case("observed", ("branches undo",), prepare=branches_go),
    "sweep mark": Case("applied", ("sweep mark --target 'lake-*'",)),
    "sweep approve": Case("marked", ("sweep approve {mark} --reason 'ticket 42'",)),
    "sweep run": Case("swept", ("sweep run {mark}",)),
    "sweep restore": Case("swept", ("sweep restore {mark}",)),
    "sweep purge": Case("swept", ("sweep purge --older-than 14d --auto-approve",), prepare=two_weeks_later),
    "sweep list": Case("swept", ("sweep list",)),
    "sweep show": Case("swept", ("sweep show {mark}",)),
    "sweep abort": Case("swept", ("sweep abort {mark}",)),
    "history list": Case("applied", ("history",)),
    "history show": Case("applied", ("history show last",)),
    "history rollback": Case(
        "applied",
        ("history rollback last --edit-tree --no-simulate --allow unknown-impact --allow clear",),
    ),
    "spark package": Case("seeded", ("spark package",)),
    "sandbox up": Case("seeded", ("sandbox up --port 0 --dir ../other",)),
    "sandbox seed": Case("seeded", ("sandbox seed more.yaml --endpoint {url}",)),
}

"""Wrong uses of commands that ask a server."""

from __future__ import annotations

from dataclasses import replace

import requests

from tests.cli.outputs.cases import GITHUB, GITLAB, empty_tree, named_tree, plan_file
from tests.cli.outputs.site import Site
from tests.cli.outputs.wrong.kinds import Uses, Wrong, cut, no_server, no_tree, output, typing


def other_tree_since(site: Site) -> None:
    """The tree asks for other days than the plan file says."""
    plan_file(site)
    site.edit("repositories/analytics.yaml", "retention_days: 28", "retention_days: 27")


def edited_since(site: Site) -> None:
    """Somebody set rules on the server since the plan."""
    plan_file(site)
    assert site.handle is not None
    requests.put(
        f"{site.endpoint_url}/api/v1/repositories/clickstream/settings/gc_rules",
        json={"default_retention_days": 99, "branches": []},
        auth=("sandbox", "sandbox-secret"),
        timeout=120,
    ).raise_for_status()


def claimed_by_another(site: Site) -> None:
    named_tree(site)
    requests.post(
        f"{site.endpoint_url}/api/v1/repositories/analytics/metadata",
        json={"metadata": {"lakeplan.tree.finance": "2026-03-01T00:00:00Z"}},
        auth=("sandbox", "sandbox-secret"),
        timeout=120,
    ).raise_for_status()


def refused(site: Site) -> None:
    """A gate of the plan is closed."""
    told = site.lakeplan("plan --no-simulate --out plan.json -q")
    assert told.code == 4, told.err


def broken_rules(site: Site) -> None:
    site.write("rules.json", '{"default_retention_days": "many"}\n')


def no_job(line: str) -> Uses:
    """A command of a pipeline's job, where there is none, or one that lacks something."""
    return {
        **typing(line),
        "outside a job": Wrong(line),
        "a job without a token": Wrong(line, environment={"GITHUB_ACTIONS": "true"}),
        "a job without an event": Wrong(line, environment=GITHUB),
        "a job of another host without a token": Wrong(line, environment={**GITLAB, "REVIEW_TOKEN": ""}),
        "an argument": Wrong(f"{line} plan.json"),
        "a file for results": Wrong(f"{line} --into lakeplan.yaml"),
        "no folder for results": Wrong(f"{line} --into"),
    }


WRONG: dict[str, Uses] = {
    "ci plan": {
        **no_job("ci plan"),
        "a quote that is open": Wrong('ci plan --args "\'"', environment=GITLAB),
    },
    "ci comment": no_job("ci comment"),
    "ci apply": no_job("ci apply"),
    "ci answer": {
        **typing("ci answer"),
        "a job without a token": Wrong("ci answer", environment={"GITHUB_ACTIONS": "true"}),
        "a job without an event": Wrong("ci answer", environment=GITHUB),
        "a job of another host": Wrong("ci answer", environment=GITLAB),
        "a file for results": Wrong("ci answer --into lakeplan.yaml"),
        "no folder for results": Wrong("ci answer --into"),
        "an argument": Wrong("ci answer plan", environment=GITHUB),
    },
    "ci run": {
        **typing("ci run validate"),
        "no command": Wrong("ci run"),
        "an empty command": Wrong("ci run ''"),
        "itself": Wrong("ci run 'ci run validate'"),
        "a quote that is open": Wrong('ci run "\'"'),
        "a command that does not exist": Wrong("ci run nothing"),
    },
    "plan": {
        **typing("plan"),
        **no_tree("plan"),
        **no_server("plan --no-simulate"),
        **output("plan"),
        "a time that cannot be read": Wrong("plan --as-of yesterday"),
        "a gate that does not exist": Wrong("plan --allow tag-lost"),
        "a target that the tree does not have": Wrong("plan --target none-*"),
        "a server that the tree does not have": Wrong("plan --server stage"),
        "a way to simulate that there is not": Wrong("plan --simulate some"),
        "a base outside git": Wrong("plan --base main", 1),
        "a cache of no size": Wrong("plan --cache-size huge"),
        "a Spark setting without a value": Wrong("plan --spark-conf spark.ui.enabled"),
        "a closed gate": Wrong("plan --no-simulate -q", 4),
    },
    "apply": {
        **typing("apply plan.json"),
        **no_tree("apply plan.json"),
        **output("apply plan.json"),
        "a file that is not there": Wrong("apply nowhere.json", 1),
        "a plan that is cut": Wrong("apply plan.json", 1, prepare=cut("plan.json")),
        "nobody to ask": Wrong("apply --target analytics"),
        "a gate opened without a terminal": Wrong("apply plan.json --allow tag-loss"),
        "a plan that a gate refused": Wrong("apply plan.json --no-simulate", 4, prepare=refused),
        "a tree that is another since": Wrong("apply plan.json --no-simulate", 5, prepare=other_tree_since),
        "rules that were edited since": Wrong("apply plan.json", 5, prepare=edited_since),
    },
    "explain": {
        **typing("explain analytics main"),
        **no_tree("explain analytics main"),
        **no_server("explain analytics main"),
        "nothing to explain": Wrong("explain"),
        "a repository alone": Wrong("explain analytics"),
        "a repository that is not there": Wrong("explain analytic main"),
        "a server that the tree does not have": Wrong("explain stage/analytics main"),
        "a path that is not there": Wrong("explain analytics main:nowhere.csv", 1),
        "a branch that is not there": Wrong("explain analytics nowhere", 1),
        "a kind that does not exist": Wrong("explain analytics main --kind file"),
        "a namespace without rules": Wrong("explain --namespace file:///data main"),
        "rules without a namespace": Wrong("explain analytics main --rules rules.json"),
        "an age that cannot be read": Wrong(
            "explain --namespace file:///data --rules rules.json main --min-age old"
        ),
    },
    "audit": {
        **typing("audit"),
        "no server": Wrong("audit"),
        "a server without a name": Wrong("audit --endpoint {url}"),
        "a server without an address": Wrong("audit --endpoint prod=nowhere"),
        "no such repository": Wrong("audit --endpoint prod={url} none-*"),
        "a price that cannot be read": Wrong("audit --endpoint prod={url} --price cheap"),
        "a report that is none": Wrong("audit --endpoint prod={url} --resume lakeplan.yaml"),
        "a tree is there": Wrong("audit --endpoint prod={url} --write .", 1),
        "credentials of another server": Wrong("audit --endpoint prod=https://l.example.com", 1),
        "a time zone that does not exist": Wrong("audit --endpoint prod={url} --time-zone Mars"),
    },
    "storage": {
        **typing("storage"),
        "no server": Wrong("storage"),
        "a tree and a server": Wrong("storage -C . --endpoint prod={url}"),
        "no tree there": Wrong("storage -C none", 1),
        "no such repository": Wrong("storage --endpoint prod={url} none-*"),
        "one branch twice": Wrong("storage --endpoint prod={url} --compare main main"),
        "no such branches": Wrong("storage --endpoint prod={url} --no-listing --compare none nowhere"),
        "a report that is none": Wrong("storage --endpoint prod={url} --since lakeplan.yaml"),
        "a report that does not exist": Wrong("storage --endpoint prod={url} --since none.json"),
    },
    "pins sync": {
        **typing("pins sync"),
        **no_tree("pins sync"),
        **no_server("pins sync"),
        **output("pins sync"),
        "a state that goes with the runner": Wrong("pins sync", environment={"CI": "true"}),
        "a server that the tree does not have": Wrong("pins sync --server stage"),
        "a target that the tree does not have": Wrong("pins sync --target none-*"),
    },
    "drift": {
        **typing("drift"),
        **no_tree("drift"),
        **no_server("drift"),
        **output("drift"),
        "a class that does not exist": Wrong("drift --fail-on server-edit"),
        "a server that the tree does not have": Wrong("drift --server stage"),
        "a target that the tree does not have": Wrong("drift --target none-*"),
    },
    "import": {
        **typing("import"),
        "a tree is there": Wrong("import --endpoint prod={url}", 1),
        "no server": Wrong("import", prepare=empty_tree),
        "a server without a name": Wrong("import -C new --endpoint {url}"),
        "two servers of a name": Wrong("import -C new --endpoint a={url} --endpoint a={url}"),
        "a split that does not exist": Wrong("import -C new --endpoint prod={url} --split day"),
        "credentials of another server": Wrong("import -C new --endpoint prod=https://l.example.com", 1),
        "a rules file that is none": Wrong(
            "import -C new --endpoint prod={url} --from-files rules.json", 1, prepare=broken_rules
        ),
        "a rules file that is not there": Wrong(
            "import -C new --endpoint prod={url} --from-files nowhere.json"
        ),
    },
    "export": {
        **typing("export analytics"),
        **no_tree("export analytics"),
        **no_server("export analytics"),
        "no repository": Wrong("export"),
        "a repository that no entry names": Wrong("export analytic"),
        "a format that does not exist": Wrong("export analytics --format json"),
        "a folder that is not there": Wrong("export analytics --out away/rules.json", 1),
    },
    "adopt": {
        **typing("adopt"),
        **no_tree("adopt"),
        **no_server("adopt"),
        "a server that the tree does not have": Wrong("adopt --server stage"),
        "a file that is not of the tree": Wrong("adopt --file ../adopted.yaml"),
        "a file that the tree does not include": Wrong("adopt --file elsewhere/adopted.yaml", 1),
    },
    "claim": {
        **typing("claim analytics"),
        **no_tree("claim analytics"),
        **{name: replace(wrong, prepare=named_tree) for name, wrong in no_server("claim analytics").items()},
        "no repository": Wrong("claim"),
        "a tree without a name": Wrong("claim analytics", 1),
        "a repository that no entry names": Wrong("claim analytic", prepare=named_tree),
        "to take and to release": Wrong("claim analytics --take --release"),
        "what another tree claims": Wrong("claim analytics", 4, prepare=claimed_by_another),
        "to take without anybody to ask": Wrong("claim analytics --take", prepare=claimed_by_another),
    },
    "doctor": {
        **typing("doctor"),
        **no_server("doctor --no-spark"),
        **output("doctor"),
        "a folder without a tree": Wrong("doctor -C away", 1),
        "a purpose that does not exist": Wrong("doctor --for everything"),
        "a server that the tree does not have": Wrong("doctor --server stage"),
        "a Spark setting without a value": Wrong("doctor --spark-conf spark.ui.enabled"),
    },
    "curve": {
        **typing("curve analytics"),
        **no_tree("curve analytics"),
        **no_server("curve analytics"),
        "nothing to draw": Wrong("curve"),
        "two things to draw": Wrong("curve analytics --namespace file:///data --rules rules.json"),
        "a namespace without rules": Wrong("curve --namespace file:///data"),
        "a repository that is not there": Wrong("curve analytic"),
        "days that are no number": Wrong("curve analytics --at soon"),
        "days below nothing": Wrong("curve analytics --at -1"),
        "a horizon that is no age": Wrong("curve analytics --horizon far"),
    },
    "simulate": {
        **typing("simulate --namespace file:///data --rules rules.json"),
        "no namespace": Wrong("simulate --rules rules.json"),
        "no rules": Wrong("simulate --namespace file:///data"),
        "a namespace that is no URL": Wrong("simulate --namespace data --rules rules.json", 1),
        "a store of another kind": Wrong("simulate --namespace oss://bucket/repo --rules rules.json", 1),
        "a namespace without a refs dump": Wrong(
            "simulate --namespace file://{lake}/analytics --rules rules.json --commits-only", 1
        ),
        "rules that are not there": Wrong("simulate --namespace file://{lake}/analytics --rules no.json"),
        "rules that are none": Wrong(
            "simulate --namespace file://{lake}/analytics --rules rules.json", 1, prepare=broken_rules
        ),
        "a time zone that does not exist": Wrong(
            "simulate --namespace file:///data --rules rules.json --time-zone Mars"
        ),
        "an age that cannot be read": Wrong(
            "simulate --namespace file:///data --rules rules.json --min-age old"
        ),
    },
}

"""The example trees do what their comments promise, and plan against a server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakeplan.cli.main import run
from lakeplan.retention.patterns import expand
from lakeplan.sandbox.seed import SeedClient
from lakeplan.tree.tree import load_tree
from lakeplan.values.desired import GcDesired
from tests.sandboxes import start_sandbox

EXAMPLES = Path(__file__).parents[2] / "examples"
LIVE = (
    "analytics-web",
    "analytics-reports",
    "ml-models",
    "ml-training",
    "ml-scratch-x",
    "events",
    "raw-landing",
)
BRANCHES = ("main", "release-1", "tmp-x", "backfill-2026", "dev")


def rules_of(tree: str, server: str, live: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Days by repository and branch; the default under ``*``."""
    found = {}
    for desired in load_tree(EXAMPLES / tree, {}).resolve(server, live):
        assert isinstance(desired.gc, GcDesired)
        rules = expand(desired.gc, BRANCHES).rules
        found[desired.name] = {"*": rules.default_retention_days, **rules.branches}
    return found


@pytest.mark.parametrize("name", ["single", "teams"])
def it_validates(name, capsys):
    assert run(["validate", "-C", str(EXAMPLES / name)]) == 0
    assert "The tree is valid" in capsys.readouterr().out


def it_gives_one_repository_its_rules():
    assert rules_of("single", "prod", ("other",)) == {
        "analytics": {"*": 21, "main": 28, "release-1": 90, "tmp-x": 3}
    }


def it_gives_teams_their_profiles_and_lets_the_exact_and_the_specific_win():
    assert rules_of("teams", "prod", (*LIVE, "nobodys")) == {
        "analytics-web": {"*": 21, "main": 30},
        "analytics-reports": {"*": 21, "main": 90, "release-1": 365},
        "ml-models": {"*": 21, "main": 30, "release-1": 365},
        "ml-training": {"*": 21, "main": 30},
        "ml-scratch-x": {"*": 5, "main": 7},
        "events": {"*": 21, "main": 30, "release-1": 365, "backfill-2026": 14},
        "raw-landing": {"*": 14, "main": 30},
    }
    assert rules_of("teams", "research", ()) == {"experiments": {"*": 5}}


def it_knows_an_owner_of_every_repository():
    desired = load_tree(EXAMPLES / "teams", {}).resolve("prod", LIVE)
    assert {d.owner for d in desired} == {"analytics", "ml", "platform"}


def it_names_every_example_in_the_index():
    index = (EXAMPLES / "README.md").read_text()
    for path in ("quickstart", "single", "teams", "branches", "ci/github", "ci/gitlab", "ci/pre-commit"):
        assert f"]({path})" in index
        assert (EXAMPLES / path).exists()


@pytest.mark.parametrize(("name", "live", "code"), [("single", ("analytics",), 0), ("teams", LIVE, 4)])
def it_plans_against_a_server(name, live, code, tmp_path, monkeypatch, capsys):
    with start_sandbox(tmp_path / "sandbox") as handle:
        client = SeedClient(handle.endpoint_url, handle.access_key_id, handle.secret_access_key)
        for repository in (*live, "experiments"):
            body = {
                "name": repository,
                "storage_namespace": f"local://{repository}",
                "default_branch": "main",
            }
            client.call("POST", "/repositories", json=body)
        tree = tmp_path / "tree"
        shutil.copytree(EXAMPLES / name, tree)
        text = (tree / "lakeplan.yaml").read_text()
        for host in ("https://lakefs.research.example.com", "https://lakefs.example.com"):
            text = text.replace(host, handle.endpoint_url)
        (tree / "lakeplan.yaml").write_text(text.replace("s3://example-ops/lakeplan", "file://.state"))
        for server in ("PROD", "RESEARCH"):
            monkeypatch.setenv(f"LAKEPLAN_{server}_ENDPOINT_URL", handle.endpoint_url)
            monkeypatch.setenv(f"LAKEPLAN_{server}_ACCESS_KEY_ID", handle.access_key_id)
            monkeypatch.setenv(f"LAKEPLAN_{server}_SECRET_ACCESS_KEY", handle.secret_access_key)
        monkeypatch.setenv("COLUMNS", "160")
        assert run(["plan", "-C", str(tree)]) == code
        out, _ = capsys.readouterr()
    assert f"{len(live) + (name == 'teams')} to add" in out
    # Of the tree of teams the globs match for the first time, and a repository is nobody's.
    assert ("adoption" in out) == (name == "teams")
    assert "unmanaged" in out

"""A tree to begin with."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from lakeplan.cli.main import run
from lakeplan.tree.tree import load_tree
from tests.examples.hosted import load_pipeline


@pytest.fixture
def empty(world):
    (world.tree / "lakeplan.yaml").unlink()
    return world


def endpoint(world):
    return ("--endpoint", f"prod={world.handle.endpoint_url}")


def it_writes_a_tree_that_can_be_planned_at_once(empty):
    empty.api.repository("analytics")
    empty.handle.faults.forget()
    result = empty.lakeplan("init", *endpoint(empty))
    assert result.code == 0, result.err
    assert not empty.handle.faults.requests
    assert empty.lakeplan("validate").code == 0
    plan = empty.lakeplan("plan", "--detailed-exitcode")
    assert plan.code == 0, plan.err
    assert "prod/analytics" in plan.out


def it_shows_an_example_that_is_valid_without_its_comment_signs(empty):
    empty.api.repository("analytics")
    empty.lakeplan("init", *endpoint(empty), "-q")
    _, example = (empty.tree / "lakeplan.yaml").read_text().split("uncomment it:\n")
    lines = [line.removeprefix("# ") for line in example.splitlines()]
    empty.write("repositories/analytics.yaml", "\n".join(lines))
    assert "1 to add" in empty.lakeplan("plan", "--no-simulate").out


def it_writes_the_default_limits_it_says_are_default(empty):
    empty.lakeplan("init", *endpoint(empty), "-q")
    written = load_tree(empty.tree, {}).safety
    text = (empty.tree / "lakeplan.yaml").read_text()
    begin, end = text.index("safety:"), text.index("bounds:")
    (empty.tree / "lakeplan.yaml").write_text(text[:begin] + text[end:])
    assert load_tree(empty.tree, {}).safety == written


@pytest.mark.parametrize(
    ("host", "names"),
    [
        (
            "github",
            {
                ".github/workflows/lakeplan.yml",
                ".github/workflows/lakeplan-nightly.yml",
                ".github/workflows/lakeplan-between.yml",
                ".github/workflows/lakeplan-comments.yml",
                ".github/actions/lakeplan/action.yml",
            },
        ),
        ("gitlab", {"ci/lakeplan.gitlab-ci.yml", ".gitlab-ci.yml"}),
    ],
)
def it_brings_the_workflows_with_the_variables_of_the_server(empty, host, names):
    result = empty.lakeplan(
        "init", "--endpoint", "eu-west=https://x.example", "--ci", host, "--state", "s3://ops/x"
    )
    assert result.code == 0, result.err
    files = {p.relative_to(empty.tree).as_posix(): p for p in empty.tree.rglob("*") if p.is_file()}
    assert names <= set(files)
    workflow = next(
        files[n].read_text()
        for n in sorted(names)
        if n.endswith("lakeplan.yml") or "/lakeplan.gitlab-ci" in n
    )
    assert load_pipeline(workflow)
    assert "LAKEPLAN_EU_WEST_ENDPOINT_URL" in workflow
    assert "LAKEPLAN_PROD_" not in workflow
    assert load_tree(empty.tree, {}).state_url == "s3://ops/x"


def it_changes_no_file_that_is_there(empty):
    empty.write(".gitignore", "mine\n")
    result = empty.lakeplan("init", *endpoint(empty))
    assert result.code == 0
    assert "add .lakeplan/" in result.out
    assert (empty.tree / ".gitignore").read_text() == "mine\n"
    before = {p: p.read_text() for p in empty.tree.rglob("*.yaml")}
    again = empty.lakeplan("init", "--endpoint", "other=https://x.example", "--ci", "github")
    assert again.code == 1
    assert "lakeplan.yaml" in again.err
    assert {p: p.read_text() for p in empty.tree.rglob("*.yaml")} == before
    assert not (empty.tree / ".github").exists()


def workflow(folder, name="lakeplan"):
    return yaml.safe_load((folder / f".github/workflows/{name}.yml").read_text())


def uses(folder):
    return [s for job in workflow(folder)["jobs"].values() for s in job["steps"] if "command" in s["with"]]


def it_puts_workflows_at_the_top_of_the_repository_and_names_the_folder_of_the_tree(empty):
    subprocess.run(["git", "init", "-q", str(empty.folder)], check=True)
    result = empty.lakeplan("init", *endpoint(empty), "--ci", "github")
    assert result.code == 0, result.err
    assert not (empty.tree / ".github").exists()
    assert {step["with"]["tree"] for step in uses(empty.folder)} == {"tree"}
    assert (empty.folder / ".github/actions/lakeplan/action.yml").is_file()
    assert (empty.tree / "lakeplan.yaml").is_file()


def it_does_so_before_there_is_a_repository_too(empty, monkeypatch):
    monkeypatch.chdir(empty.folder)
    assert run(["init", "-C", "retention", *endpoint(empty), "--ci", "gitlab", "-q"]) == 0
    pipeline = load_pipeline((empty.folder / "ci/lakeplan.gitlab-ci.yml").read_text())
    assert pipeline["variables"]["TREE"] == "retention"
    assert (empty.folder / "retention/lakeplan.yaml").is_file()


def it_adds_workflows_to_a_tree_that_is_there(world):
    before = (world.tree / "lakeplan.yaml").read_text()
    result = world.lakeplan("init", "--ci", "github")
    assert result.code == 0, result.err
    assert "LAKEPLAN_PROD_ENDPOINT_URL" in str(uses(world.tree))
    assert (world.tree / "lakeplan.yaml").read_text() == before
    again = world.lakeplan("init", "--ci", "github")
    assert again.code == 1
    assert ".github/workflows/lakeplan.yml" in again.err


def it_says_what_to_add_to_a_pipeline_that_is_there(empty):
    empty.write(".gitlab-ci.yml", "mine: {}\n")
    result = empty.lakeplan("init", *endpoint(empty), "--ci", "gitlab")
    assert result.code == 0, result.err
    assert "include ci/lakeplan.gitlab-ci.yml in it" in result.out
    assert (empty.tree / ".gitlab-ci.yml").read_text() == "mine: {}\n"


COMMIT = "0123456789" * 4


@pytest.mark.parametrize(
    ("source", "action", "version"),
    [
        ("1.2.3", "./.github/actions/lakeplan", "1.2.3"),
        (f"git+https://github.com/org/lakeplan@{COMMIT}", f"org/lakeplan@{COMMIT}", None),
        (f"git+https://github.com/org/lakeplan.git@{COMMIT}", f"org/lakeplan@{COMMIT}", None),
        (
            f"git+https://git.example.com/x/lakeplan@{COMMIT}",
            "./.github/actions/lakeplan",
            f"git+https://git.example.com/x/lakeplan@{COMMIT}",
        ),
        ("vendor/lakeplan", "./.github/actions/lakeplan", "./vendor/lakeplan"),
    ],
)
def it_installs_from_the_chosen_source(empty, source, action, version):
    assert empty.lakeplan("init", *endpoint(empty), "--ci", "github", "--source", source).code == 0
    assert {(s["uses"], s["with"].get("version")) for s in uses(empty.tree)} == {(action, version)}
    assert (empty.tree / ".github/actions").exists() == action.startswith("./")


@pytest.mark.parametrize(
    "url",
    [
        "git+https://me:hidden-token@github.com/org/lakeplan",
        "git+https://hidden-token@git.example.com/org/lakeplan",
        "https://me:hidden-token@git.example.com/org/lakeplan",
        "https://git.example.com/org/lakeplan?private_token=hidden-token",
    ],
)
def it_writes_no_token_into_the_workflows_and_does_not_repeat_it(empty, url):
    result = empty.lakeplan("init", *endpoint(empty), "--ci", "github", "--source", f"{url}@{COMMIT}")
    assert (result.code, "may be a secret" in result.err) == (64, True)
    assert "hidden-token" not in result.err
    assert not list(empty.tree.iterdir())


def it_installs_over_ssh(empty):
    source = f"git+ssh://git@git.example.com/org/lakeplan@{COMMIT}"
    assert empty.lakeplan("init", *endpoint(empty), "--ci", "github", "--source", source).code == 0


@pytest.mark.parametrize(
    ("state", "cloud", "inputs"),
    [
        ("s3://ops/x", None, {"aws-role", "aws-region"}),
        ("https://acc.blob.core.windows.net/ops/x", None, {"azure-client-id", "azure-tenant-id"}),
        ("s3://ops/x", "gcp", {"gcp-provider", "gcp-service-account"}),
        ("s3://ops/x", "none", set()),
        (None, None, set()),
    ],
)
def it_signs_in_to_the_cloud_of_the_state_and_asks_for_a_token_only_then(empty, state, cloud, inputs):
    options = [*(("--state", state) if state else ()), *(("--cloud", cloud) if cloud else ())]
    assert empty.lakeplan("init", *endpoint(empty), "--ci", "github", *options).code == 0
    for step in uses(empty.tree):
        if step["with"]["command"] != "validate":
            assert set(step["with"]) - {"command", "tree", "version"} == inputs
    for name in ("lakeplan", "lakeplan-nightly", "lakeplan-between"):
        for job in workflow(empty.tree, name)["jobs"].values():
            assert ("id-token" in job["permissions"]) == bool(inputs)
    assert empty.lakeplan("init", "--ci", "gitlab", *(("--cloud", cloud) if cloud else ())).code == 0
    pipeline = load_pipeline((empty.tree / "ci/lakeplan.gitlab-ci.yml").read_text())
    assert ("id_tokens" in pipeline[".lakeplan-cloud"]) == bool(inputs)
    signs = {"aws": "AWS_WEB_IDENTITY", "azure": "AZURE_FEDERATED", "gcp": "LAKEPLAN_GCP_AUDIENCE"}
    of = cloud or {"s": "aws", "h": "azure"}.get((state or " ")[0], "none")
    assert [name for name, sign in signs.items() if sign in str(pipeline)] == ([of] if inputs else [])


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ([], 64),
        (["--endpoint", "prod"], 64),
        (["--endpoint", "prod=https://x", "--ci", "jenkins"], 64),
        (["--endpoint", "prod=https://x", "--ci", "github", "--cloud", "sky"], 64),
        (["--endpoint", "prod=https://x", "--ci", "github", "--source", "/abs"], 64),
        (["--endpoint", "prod=https://x", "--ci", "github", "--source", "../up"], 64),
        (["--endpoint", "prod=https://x", "--ci", "github", "--source", "git+https://x/y@main"], 64),
        (
            ["--endpoint", "prod=https://x", "--ci", "github", "--source", "git+https://x/$(y)@" + "0" * 40],
            64,
        ),
        (["--endpoint", "prod=ftp://x"], 64),
        (["--endpoint", "prod=https://x", "--state", "nonsense"], 64),
        (["--endpoint", "pr od=https://x"], 64),
        (["--endpoint", "prod=https://x", "extra"], 64),
    ],
)
def it_explains_wrong_use(empty, monkeypatch, tmp_path, wrong, code):
    monkeypatch.setenv("HOME", str(tmp_path))
    result = empty.lakeplan("init", *wrong)
    assert result.code == code, result.err
    assert "Traceback" not in result.err
    assert not list(empty.tree.iterdir())


class DescribeTheBranchWhoseMergesAreApplied:
    def branches(self, world, *more):
        result = world.lakeplan("init", *endpoint(world), "--ci", "github", *more)
        assert result.code == 0, result.err
        written = yaml.safe_load((world.tree / ".github/workflows/lakeplan.yml").read_text())
        (found,) = written[True]["push"]["branches"]  # YAML reads the key on as true
        assert f"merged into {found};" in result.out
        return found

    def it_is_the_default_branch_of_origin(self, empty):
        empty.git("init", "-q")
        empty.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/team/trunk")
        assert self.branches(empty) == "team/trunk"

    def it_is_main_where_origin_has_none(self, empty):
        empty.git("init", "-q", "-b", "feature")
        assert self.branches(empty) == "main"

    def it_is_the_one_that_is_asked_for(self, empty):
        empty.git("init", "-q")
        empty.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
        assert self.branches(empty, "--branch", "1.x") == "1.x"

    @pytest.mark.parametrize("name", ["*", "a b", "x]\nevil: [y", "!main", "-x", "a,b"])
    def it_is_never_a_name_that_a_workflow_would_read_otherwise(self, empty, name):
        result = empty.lakeplan("init", *endpoint(empty), "--ci", "github", f"--branch={name}")
        assert (result.code, "cannot use the branch name" in result.err) == (64, True)
        assert not (empty.tree / ".github").exists()

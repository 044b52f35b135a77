"""Wrong uses of commands that read a tree, a plan file or nothing."""

from __future__ import annotations

from tests.cli.outputs.cases import plan_file
from tests.cli.outputs.site import Site
from tests.cli.outputs.wrong.kinds import Uses, Wrong, cut, no_tree, not_yaml, output, typing


def without_tests(site: Site) -> None:
    (site.tree / "tests" / "retention.yaml").unlink()


def strange_test(site: Site) -> None:
    site.edit("tests/retention.yaml", "survives: {commits: [second, third]", "survive: {commits: [second]")


WRONG: dict[str, Uses] = {
    "init": {
        **typing("init"),
        "no server": Wrong("init -C new"),
        "a server without a name": Wrong("init -C new --endpoint https://lakefs.example.com"),
        "a server whose name cannot be one": Wrong("init -C new --endpoint 'Prod!=https://l.example.com'"),
        "workflows of another host": Wrong("init -C new --endpoint prod=https://l.example.com --ci jenkins"),
        "a tree is there": Wrong("init --endpoint prod=https://lakefs.example.com", 1),
        "a state that cannot be one": Wrong(
            "init -C new --endpoint prod=https://l.example.com --state ftp://x/y"
        ),
    },
    "validate": {
        **typing("validate"),
        **no_tree("validate"),
        **output("validate"),
        "not YAML": Wrong("validate", 1, prepare=not_yaml),
        "an argument": Wrong("validate repositories/analytics.yaml"),
        "a variable that is not set": Wrong("validate", 1, environment={"LAKEPLAN_VAR_SANDBOX_URL": ""}),
    },
    "test": {
        **typing("test"),
        **no_tree("test"),
        **output("test"),
        "no tests": Wrong("test", prepare=without_tests),
        "a file that is not there": Wrong("test tests/nowhere.yaml"),
        "a key that does not exist": Wrong("test", 1, prepare=strange_test),
    },
    "show": {
        **typing("show plan.json"),
        **output("show plan.json"),
        "nothing to show": Wrong("show"),
        "two things to show": Wrong("show plan.json --resolved analytics"),
        "a file that is not there": Wrong("show nowhere.json", 1),
        "a plan that is cut": Wrong("show plan.json", 1, prepare=cut("plan.json")),
        "a file that is no plan": Wrong("show rules.json", 1),
        "a repository that no entry names": Wrong("show --resolved analytic"),
        "a target that the plan does not have": Wrong("show plan.json --target none-*", prepare=plan_file),
        "a folder that is not there": Wrong("show plan.json --out away/plan.json", 1, prepare=plan_file),
    },
    "report": {
        **typing("report plan.json --html plan.html"),
        "no plan": Wrong("report --html plan.html"),
        "no page": Wrong("report plan.json"),
        "a file that is not there": Wrong("report nowhere.json --html plan.html", 1),
        "a plan that is cut": Wrong("report plan.json --html plan.html", 1, prepare=cut("plan.json")),
        "a target that the plan does not have": Wrong(
            "report plan.json --html plan.html --target none-*", prepare=plan_file
        ),
        "a folder that is not there": Wrong("report plan.json --html away/p.html", 1, prepare=plan_file),
        "which of two repositories": Wrong(
            "report plan.json --html p.html --namespace file:///data", prepare=plan_file
        ),
        "a namespace of another repository": Wrong(
            "report plan.json --html p.html --namespace x=file:///data", prepare=plan_file
        ),
        "a namespace that is no URL": Wrong(
            "report plan.json --html p.html --namespace analytics=data", prepare=plan_file
        ),
        "two namespaces of a repository": Wrong(
            "report plan.json --html p.html --namespace prod/analytics=file:///a"
            " --namespace analytics=file:///b",
            prepare=plan_file,
        ),
        "a time zone that does not exist": Wrong(
            "report plan.json --html p.html --namespace analytics=file:///a --time-zone Mars",
            prepare=plan_file,
        ),
        "a curve that is not there": Wrong(
            "report plan.json --html p.html --curve nowhere.json", 1, prepare=plan_file
        ),
        "curves of no history": Wrong("report plan.json --html p.html --with-curves", prepare=plan_file),
        "a folder without a tree": Wrong("report plan.json --html p.html -C away", 1, prepare=plan_file),
    },
    "schema": {
        "an option that does not exist": Wrong("schema tree --format json"),
        "a schema that does not exist": Wrong("schema nothing"),
        "a name that is nearly one": Wrong("schema repositori"),
        "a file name": Wrong("schema tree.v1.json"),
        "two schemas": Wrong("schema tree repository"),
        "no name after all": Wrong("schema ''"),
    },
    "spark package": {
        **typing("spark package"),
        "no file": Wrong("spark package --out"),
        "a folder that is not there": Wrong("spark package --out away/lakeplan.zip", 1),
        "a folder, not a file": Wrong("spark package --out tests", 1),
        "an argument": Wrong("spark package lakeplan.zip"),
    },
    "demo": {
        **typing("demo"),
        "a folder that is not empty": Wrong("demo --dir repositories"),
        "a file instead of a folder": Wrong("demo --dir lakeplan.yaml"),
        "an option without its value": Wrong("demo --dir"),
        "an argument": Wrong("demo quickstart"),
    },
    "sandbox up": {
        **typing("sandbox up"),
        "a port that is taken": Wrong("sandbox up --port {port}"),
        "a port that cannot be one": Wrong("sandbox up --port 70000"),
        "a port in words, from the environment": Wrong("sandbox up", environment={"LAKEPLAN_PORT": "http"}),
        "a flavour that does not exist": Wrong("sandbox up --flavor cloud"),
        "an access key that cannot be one": Wrong("sandbox up --access-key a:b"),
        "a folder that another one serves": Wrong("sandbox up --port 0 --dir {lake}"),
        "an argument": Wrong("sandbox up 8000"),
    },
    "sandbox seed": {
        **typing("sandbox seed more.yaml"),
        "no file": Wrong("sandbox seed"),
        "a file that is not there": Wrong("sandbox seed nowhere.yaml"),
        "another kind of file": Wrong("sandbox seed repositories/analytics.yaml --endpoint {url}", 1),
        "a time that cannot be read": Wrong("sandbox seed more.yaml --as-of tomorrow"),
        "a wrong secret": Wrong("sandbox seed more.yaml --endpoint {url} --secret-key no-such-secret", 1),
        "a server that does not answer": Wrong("sandbox seed more.yaml --endpoint http://127.0.0.1:10001", 1),
        "repositories that are there": Wrong("sandbox seed again.yaml --endpoint {url}"),
    },
}

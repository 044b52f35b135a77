"""``--redact-paths`` as a public pipeline uses it."""

from __future__ import annotations

import json
import logging
import re

import jsonschema
import pytest

from lakeplan.cli.main import run
from lakeplan.tree.schemas import load_schema
from lakeplan.values.urls import path_digest
from tests.openmetrics import samples

KEY = "prod/analytics"


@pytest.fixture
def secret(world):
    """An object of an old commit that newly expires, below ``payroll/``."""
    world.api.repository("analytics")
    world.api.upload("analytics", "main", "payroll/2020/list.csv", b"x" * 10)
    world.api.commit("analytics", "main", 40)
    world.api.delete("analytics", "main", "payroll/2020/list.csv")
    world.api.commit("analytics", "main", 30)
    world.api.commit("analytics", "main", 1, b=20)
    world.write(
        "repositories/analytics.yaml",
        "apiVersion: lakeplan/v1\nrepositories:\n  analytics:\n    gc: {default_retention_days: 7}\n"
        "    holds: [{prefix: payroll/2019/, reason: legal}]\n",
    )
    return world


def it_plans_shows_and_applies_without_a_path(secret):
    plan, comment = secret.folder / "plan.json", secret.folder / "comment.md"
    outs = ("--format", "json", "--out", plan, "--format", "markdown", "--out", comment)
    result = secret.lakeplan("plan", "--redact-paths", *outs)
    assert result.code == 0, result.err
    document = json.loads(plan.read_text())
    jsonschema.Draft202012Validator(load_schema("plan")).validate(document)
    prefixes = [p["prefix"] for p in document["repositories"][0]["impact"]["prefixes"]]
    assert path_digest(KEY, "payroll/2020/") in prefixes
    assert document["repositories"][0]["storage_namespace"] == path_digest(KEY, "local://analytics")
    assert document["digest"][:12] in comment.read_text()
    shown = secret.lakeplan("show", plan, "--redact-paths").out
    report = secret.folder / "plan.html"
    assert run(["report", str(plan), "--html", str(report), "--redact-paths", "-q"]) == 0
    for text in (result.out, shown, plan.read_text(), comment.read_text(), report.read_text()):
        assert "payroll" not in text
        assert "local://" not in text
    assert path_digest(KEY, "payroll/2020/") in shown
    applied = secret.lakeplan("apply", plan, "--redact-paths")
    assert applied.code == 0, applied.err
    assert secret.api.rules("analytics") == {"*": 7}


def it_keeps_to_a_hold_of_the_base_without_saying_why(secret):
    """What the change lets go is held by its plan file, which says what and not the reason."""
    secret.git("init")
    secret.git("add", "-A")
    secret.git("commit", "-m", "base")
    secret.rules("analytics", 7)
    plan = secret.folder / "plan.json"
    secret.override("unknown-impact")
    how = ("--base", "HEAD", "--no-simulate")
    result = secret.lakeplan("plan", *how, "--redact-paths", "--format", "json", "--out", plan)
    assert result.code == 0, result.err
    (hold,) = json.loads(plan.read_text())["sweep_guards"][KEY]["holds"]
    assert hold == {"kind": "prefix", "name": "payroll/2019/", "until": None, "reason": ""}
    assert "legal" not in plan.read_text()
    unredacted = secret.plan_file("full.json", *how)
    assert "legal" in unredacted.read_text()
    shown = secret.lakeplan("show", unredacted, "--redact-paths", "--format", "json").out
    for text in (result.out, shown):
        assert "legal" not in text
        assert json.dumps(path_digest(KEY, "payroll/2019/"))[1:-1] in text.replace("\n", "")
    applied = secret.lakeplan("apply", plan, "--no-simulate")
    assert applied.code == 0, applied.err
    assert secret.api.rules("analytics") == {"*": 7}


def it_redacts_answers_questions_and_configuration(secret):
    secret.api.set_rules("analytics", 7)
    text = secret.lakeplan(
        "explain", "analytics", "payroll/2020/list.csv", "--redact-paths", "--path-only"
    ).out
    assert path_digest(KEY, "payroll/2020/list.csv") in text.replace("\n", "")
    assert "payroll" not in text
    for extra in ((), ("--format", "json")):
        resolved = secret.lakeplan("show", "--resolved", "analytics", "--redact-paths", *extra).out
        assert "payroll" not in resolved
        assert "legal" in resolved
    found = secret.lakeplan("drift", "--redact-paths", "--format", "openmetrics")
    assert samples(found.out)["lakeplan_drift_checked"] == {(): 1.0}


def it_redacts_errors_of_the_same_run_only(secret, capsys, tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text('{"default_retention_days": 7, "branches": []}')
    arguments = ["simulate", "--namespace", (tmp_path / "payroll").as_uri(), "--rules", str(rules)]
    assert run([*arguments, "--commits-only", "--redact-paths"]) == 1
    assert "payroll" not in capsys.readouterr().err
    assert run([*arguments, "--commits-only"]) == 1
    assert "payroll" in capsys.readouterr().err.replace("\n", "")


def it_redacts_log_lines(secret, capsys):
    secret.lakeplan("drift", "--redact-paths")  # sets the log up
    logging.getLogger("lakeplan.test").warning("cannot read %s (%d)", "s3://payroll/x", 404)
    assert re.search(r"cannot read path-[0-9a-f]{8} \(404\)", capsys.readouterr().err)


def it_is_an_option_of_the_environment_too(secret, monkeypatch):
    monkeypatch.setenv("LAKEPLAN_REDACT_PATHS", "1")
    assert "payroll" not in secret.lakeplan("show", "--resolved", "analytics").out


def it_logs_no_held_prefix_and_repeats_no_path(secret):
    """The hold matches nothing, which a sweep warns of."""
    root = (secret.tree / "lakeplan.yaml").read_text()
    storage = f"{{'': {{type: local, path: {secret.folder / 'sandbox'}}}}}"
    secret.write("lakeplan.yaml", root.replace("}}\n", f", storages: {storage}}}}}\n", 1))
    secret.api.set_rules("analytics", 7)
    marked = secret.lakeplan(("sweep", "mark"), "--redact-paths")
    assert marked.code == 0, marked.err
    assert "the hold on prefix" in marked.err
    asked = secret.lakeplan("explain", "--redact-paths", "analytics", "payroll/none")
    assert "is not in any commit" in asked.err
    for result in (marked, asked):
        assert "payroll" not in result.out + result.err

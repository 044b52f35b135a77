"""The text formats of a plan, beside rich: made only when asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lakeplan.cli.git import prefix_of
from lakeplan.output.annotations import plan_annotations, render_github, render_junit_plan
from lakeplan.output.markdown_plan import render_markdown
from lakeplan.output.metrics import plan_metrics
from lakeplan.output.redact import redact_plan, redacted
from lakeplan.values.plan import Plan
from lakeplan.values.plan_document import dump_plan

PLAN_FORMATS = ("rich", "json", "markdown", "github", "junit", "openmetrics")


def plan_texts(plan: Plan, document: Mapping[str, Any], tree: Path) -> Mapping[str, Callable[[], str]]:
    """Every text format of a plan of the tree in folder ``tree``. ``document`` is what is rendered; the plan
    file is always the plan's."""
    return {
        "json": lambda: dump_plan(plan),
        "markdown": lambda: render_markdown(document, tree=tree_prefix(tree)),
        "github": lambda: render_github(plan_annotations(document), tree=tree_prefix(tree)),
        "junit": lambda: render_junit_plan(document, tree=tree_prefix(tree)),
        "openmetrics": lambda: plan_metrics(document),
    }


def tree_prefix(tree: Path) -> str:
    """The tree's folder as its host knows it: relative to the git repository, else to where the command
    runs; ``""`` at the top."""
    prefix = prefix_of(tree)
    if prefix is None:
        relative = os.path.relpath(tree)
        prefix = "" if relative == "." or relative.startswith("..") else relative.replace(os.sep, "/")
    return prefix


def plan_shown(plan: Plan, *, redact: bool) -> tuple[Plan, Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """The plan of the plan file, and what makes of its document the one to render."""
    if not redact:
        return plan, dict
    return redact_plan(plan), redacted

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
from lakeplan.values.plan import Plan
from lakeplan.values.plan_document import dump_plan, to_document

PLAN_FORMATS = ("rich", "json", "markdown", "github", "junit", "openmetrics")


def plan_texts(
    plan: Plan, tree: Path, document: Mapping[str, Any] | None = None
) -> Mapping[str, Callable[[], str]]:
    """Every text format of a plan of the tree in folder ``tree``. ``document`` is what is rendered, where it
    is not the plan's own: the plan file is always the plan's."""

    def rendered() -> Mapping[str, Any]:
        return to_document(plan) if document is None else document

    return {
        "json": lambda: dump_plan(plan),
        "markdown": lambda: render_markdown(rendered(), tree=tree_prefix(tree)),
        "github": lambda: render_github(plan_annotations(rendered()), tree=tree_prefix(tree)),
        "junit": lambda: render_junit_plan(rendered(), tree=tree_prefix(tree)),
        "openmetrics": lambda: plan_metrics(rendered()),
    }


def tree_prefix(tree: Path) -> str:
    """The tree's folder as its host knows it: relative to the git repository, else to where the command
    runs; ``""`` at the top."""
    prefix = prefix_of(tree)
    if prefix is None:
        relative = os.path.relpath(tree)
        prefix = "" if relative == "." or relative.startswith("..") else relative.replace(os.sep, "/")
    return prefix

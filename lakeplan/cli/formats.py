"""Registers every output format: the documents that it supports, and the functions that render them.

All documents have the rich form and JSON, which their commands provide. A renderer is imported when its
format is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from lakeplan.values.local import PRIVATE, SHARED

if TYPE_CHECKING:
    from lakeplan.tree.tree import Tree

RICH = "rich"
JSON = "json"
MARKDOWN = "markdown"
Document = Mapping[str, Any]


@dataclass(frozen=True)
class RenderContext:
    """The values that a renderer may need in addition to the document. ``tree`` gives the tree's folder in
    the git repository, ``owner_of`` the owner of ``server/name``; ``files`` and ``tree_name`` are the tree's.
    ``same_as_base`` are the repositories that a pull request does not change."""

    tree: Callable[[], str] = lambda: ""
    owner_of: Callable[[str], str] = lambda repository: ""
    files: Sequence[str] = ()
    tree_name: str = ""
    same_as_base: Collection[str] = ()

    @classmethod
    def of(cls, tree: Tree) -> RenderContext:
        """Return the context for a document about the repositories of a tree."""
        return cls(owner_of=tree.owner_of, tree_name=tree.name)


@dataclass(frozen=True)
class Format:
    """An output format. ``renderers``: by the kind of document, as commands name it to
    ``options.documents``, the function that renders it, as ``module:name`` in ``lakeplan.output``. It takes
    the document, and every field of ``RenderContext`` that it has a parameter for."""

    name: str
    renderers: Mapping[str, str] = field(default_factory=dict)
    mode: int = PRIVATE
    """The mode of its files."""


FORMATS = (
    Format(RICH),
    Format(JSON),
    Format(
        MARKDOWN,
        {
            "plan": "comments:render_markdown",
            "apply": "comments:render_apply_markdown",
            "check": "check:check_markdown",
            "audit": "audit:audit_markdown",
        },
    ),
    Format(
        "csv",
        {
            "check": "check:check_csv",
            "mark-objects": "sweep:objects_csv",
            "storage": "storage:storage_csv",
        },
    ),
    Format("parquet", {"mark-objects": "sweep:objects_parquet"}),
    Format(
        "github",
        {
            "plan": "annotations:render_github_plan",
            "problems": "annotations:render_github_problems",
        },
    ),
    Format(
        "junit",
        {
            "plan": "annotations:render_junit_plan",
            "problems": "annotations:render_junit_problems",
            "test": "explain:render_tests_junit",
        },
    ),
    Format(
        "openmetrics",
        {
            "plan": "metrics:plan_metrics",
            "apply": "metrics:apply_metrics",
            "drift": "metrics:drift_metrics",
            "history": "metrics:history_metrics",
            "branch-plan": "metrics:branches_plan_metrics",
            "branch-run": "metrics:branches_run_metrics",
            "marks": "metrics:mark_metrics",
            "mark-list": "metrics:mark_list_metrics",
            "sweep": "metrics:sweep_metrics",
            "storage": "metrics:storage_metrics",
        },
        mode=SHARED,  # a collector of metrics runs as another user
    ),
    Format("csv", {"history": "operations:history_csv"}),
    Format("svg", {"curve": "simulate:curve_svg"}),
)
"""In the order in which help names them."""
_MODES = {format.name: format.mode for format in FORMATS}


def formats_of(kind: str) -> tuple[str, ...]:
    """The formats of a kind of document. A kind that no format lists has only the rich form and JSON."""
    return tuple(f.name for f in FORMATS if f.name in (RICH, JSON) or kind in f.renderers)


def texts_of(kind: str, document: Document, context: RenderContext) -> dict[str, Callable[[], str | bytes]]:
    """A function for each format of a document, except JSON and the rich form. Binary formats give bytes."""
    renderers = {format.name: format.renderers[kind] for format in FORMATS if kind in format.renderers}
    return {name: partial(_text, renderer, document, context) for name, renderer in renderers.items()}


def _text(renderer: str, document: Document, context: RenderContext) -> str | bytes:
    render = load_renderer(renderer)
    needed = {name: getattr(context, name) for name in signature(render).parameters if hasattr(context, name)}
    if "tree" in needed:
        needed["tree"] = context.tree()
    return render(document, **needed)


def load_renderer(name: str) -> Callable[..., str | bytes]:
    """The function of ``module:name``."""
    module, _, function = name.partition(":")
    renderer: Callable[..., str | bytes] = getattr(import_module(f"lakeplan.output.{module}"), function)
    return renderer


def file_mode(format: str) -> int:
    return _MODES.get(format, PRIVATE)

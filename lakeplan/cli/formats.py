"""Registers every output format: the documents that it supports, and the functions that render them.

All documents have the rich form and JSON, which their commands give themselves. A renderer is imported when
its format is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
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
class Renderer:
    """A function that renders documents. ``function`` is ``module:name`` in ``lakeplan.output``. It takes the
    document, and by name what it ``needs`` of ``RenderContext``."""

    function: str
    needs: tuple[str, ...] = ()

    def load(self) -> Callable[..., str | bytes]:
        module, _, name = self.function.partition(":")
        function: Callable[..., str | bytes] = getattr(import_module(f"lakeplan.output.{module}"), name)
        return function

    def text(self, document: Document, context: RenderContext) -> str | bytes:
        needed = {name: context.tree() if name == "tree" else getattr(context, name) for name in self.needs}
        return self.load()(document, **needed)


@dataclass(frozen=True)
class Format:
    """An output format. ``renderers``: by the kind of document, as commands name it to
    ``options.documents``."""

    name: str
    renderers: Mapping[str, Renderer] = field(default_factory=dict)
    mode: int = PRIVATE
    """Of its files."""


def _metrics(name: str, *needs: str) -> Renderer:
    return Renderer(f"metrics:{name}", needs)


FORMATS = (
    Format(RICH),
    Format(JSON),
    Format(
        MARKDOWN,
        {
            "plan": Renderer("comments:render_markdown", ("tree",)),
            "apply": Renderer("comments:render_apply_markdown", ("tree",)),
            "check": Renderer("check:check_markdown"),
            "audit": Renderer("audit:audit_markdown"),
        },
    ),
    Format(
        "csv",
        {
            "check": Renderer("check:check_csv"),
            "mark-objects": Renderer("sweep:objects_csv"),
            "storage": Renderer("storage:storage_csv"),
        },
    ),
    Format("parquet", {"mark-objects": Renderer("sweep:objects_parquet")}),
    Format(
        "github",
        {
            "plan": Renderer("annotations:render_github_plan", ("tree", "same_as_base")),
            "problems": Renderer("annotations:render_github_problems", ("tree",)),
        },
    ),
    Format(
        "junit",
        {
            "plan": Renderer("annotations:render_junit_plan", ("tree",)),
            "problems": Renderer("annotations:render_junit_problems", ("files", "tree")),
            "test": Renderer("show:render_tests_junit", ("tree",)),
        },
    ),
    Format(
        "openmetrics",
        {
            "plan": _metrics("plan_metrics"),
            "apply": _metrics("apply_metrics", "owner_of", "tree_name"),
            "drift": _metrics("drift_metrics", "tree_name"),
            "history": _metrics("history_metrics", "owner_of", "tree_name"),
            "branch-plan": _metrics("branches_plan_metrics", "owner_of", "tree_name"),
            "branch-run": _metrics("branches_run_metrics", "owner_of", "tree_name"),
            "marks": _metrics("mark_metrics", "owner_of", "tree_name"),
            "mark-list": _metrics("mark_list_metrics", "owner_of", "tree_name"),
            "sweep": _metrics("sweep_metrics", "owner_of", "tree_name"),
            "storage": _metrics("storage_metrics"),
        },
        mode=SHARED,  # a collector of metrics runs as another user
    ),
    Format("csv", {"history": Renderer("operations:history_csv")}),
    Format("svg", {"curve": Renderer("simulate:curve_svg")}),
)
"""In the order in which help names them."""
_MODES = {format.name: format.mode for format in FORMATS}


def formats_of(kind: str) -> tuple[str, ...]:
    """The formats of a kind of document. A kind that no format lists has the rich form and JSON."""
    return tuple(f.name for f in FORMATS if f.name in (RICH, JSON) or kind in f.renderers)


def texts_of(kind: str, document: Document, context: RenderContext) -> dict[str, Callable[[], str | bytes]]:
    """A function for each format of a document, except JSON and the rich form. Binary formats give bytes."""
    renderers = {format.name: format.renderers[kind] for format in FORMATS if kind in format.renderers}
    return {name: partial(renderer.text, document, context) for name, renderer in renderers.items()}


def file_mode(format: str) -> int:
    return _MODES.get(format, PRIVATE)

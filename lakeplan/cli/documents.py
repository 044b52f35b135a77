"""How the documents of sweeps and branch deletions go out: JSON, people, metrics, all of one document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from lakeplan.cli.outputs import Output, emit_document
from lakeplan.cli.redaction import shown
from lakeplan.config.tree import Tree
from lakeplan.errors import ExitCode
from lakeplan.render.metrics.text import Owners

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Way:
    """Where the documents of one command go. Owners come from the tree."""

    outputs: tuple[Output, ...]
    tree: Tree
    no_color: bool
    redact: bool = False

    def emit(
        self,
        document: Json,
        render: Callable[[Json, Console], None],
        metrics: Callable[[Json, Owners], str] | None = None,
        *,
        code: int = ExitCode.OK,
    ) -> None:
        """``metrics`` None: the command has no such format. ``code``: how the command ends."""
        emit_document(
            self.outputs,
            shown(document, redact=self.redact),
            render,
            no_color=self.no_color,
            metrics=None if metrics is None else lambda made: metrics(made, self.tree.owner_of),
            code=code,
        )

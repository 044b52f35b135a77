"""``--format`` and ``--out``, repeatable and in pairs: which document goes where."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from lakeplan.cli.console import stderr, stdout
from lakeplan.errors import ExitCode, UsageError
from lakeplan.output.text import json_for, safe_json, safe_output
from lakeplan.values.local import PRIVATE, SHARED, write_file

STANDARD_OUTPUT = Path("-")
RICH = "rich"
JSON = "json"
OPENMETRICS = "openmetrics"
Document = TypeVar("Document", bound=Mapping[str, Any])


@dataclass(frozen=True)
class Output:
    format: str
    path: Path | None
    """None is standard output."""


def pair_outputs(
    formats: Sequence[str] | None,
    outs: Sequence[Path] | None,
    supported: Sequence[str],
    *,
    quiet: bool = False,
) -> tuple[Output, ...]:
    """Formats and files, paired in the order given.

    A format without a file goes to standard output; ``--out FILE`` without a format is JSON. When nothing
    goes to standard output people still see the rich form, unless ``quiet``. Raises UsageError.
    """
    named, paths = list(formats or ()), list(outs or ())
    for name in named:
        if name not in supported:
            raise UsageError(f"unknown format {name!r}", hint=f"one of {', '.join(supported)}")
    if not named and paths:
        named = ["json"] * len(paths)
    if len(paths) > len(named):
        raise UsageError(
            f"{len(paths)} --out for {len(named)} --format", hint="give each --out its --format, in order"
        )
    outputs = [
        Output(name, None if i >= len(paths) or paths[i] == STANDARD_OUTPUT else paths[i])
        for i, name in enumerate(named)
    ]
    if sum(1 for o in outputs if o.path is None) > 1:
        raise UsageError("two formats go to standard output", hint="give each --format its --out FILE")
    if not any(o.path is None for o in outputs) and not quiet:
        outputs.append(Output(RICH, None))
    return tuple(outputs)


def emit(
    outputs: Sequence[Output],
    texts: Mapping[str, Callable[[], str]],
    show: Callable[[Console], None],
    *,
    no_color: bool,
    code: int = ExitCode.OK,
) -> None:
    """Writes every output. ``texts`` makes the formats that are text; ``show`` is the rich form. ``code`` is
    how the command ends: after a failure, a command that is quiet shows the rich form on standard error."""
    for output in outputs:
        if output.format == RICH:
            _emit_rich(output, show, no_color=no_color)
            continue
        text = texts[output.format]()
        text = safe_json(text) if output.format == JSON else safe_output(text)
        if output.path is None:
            sys.stdout.write(json_for(text, sys.stdout.encoding))
        else:
            # A collector of metrics runs as another user.
            write_file(output.path, text, mode=SHARED if output.format == OPENMETRICS else PRIVATE)
    if code not in (ExitCode.OK, ExitCode.CHANGES_PENDING) and all(
        output.path is not None for output in outputs
    ):
        show(stderr(no_color=no_color))


def emit_document(
    outputs: Sequence[Output],
    document: Document,
    render: Callable[[Document, Console], None],
    *,
    no_color: bool,
    metrics: Callable[[Document], str] | None = None,
    code: int = ExitCode.OK,
) -> None:
    """``emit`` for a command whose formats are JSON, the rich form and perhaps metrics, all of one
    document."""
    texts = {"json": lambda: json.dumps(document, indent=2, ensure_ascii=False) + "\n"}
    if metrics is not None:
        texts[OPENMETRICS] = lambda: metrics(document)
    emit(
        outputs,
        texts,
        lambda console: render(document, console),
        no_color=no_color,
        code=code,
    )


def _emit_rich(output: Output, show: Callable[[Console], None], *, no_color: bool) -> None:
    if output.path is None:
        show(stdout(no_color=no_color))
        return
    console = Console(record=True, no_color=True, highlight=False, width=120, file=io.StringIO())
    show(console)
    write_file(output.path, console.export_text())

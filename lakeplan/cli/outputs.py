"""``--format`` and ``--out``, repeatable and in pairs: where each document is written."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rich.console import Console

from lakeplan.cli.console import stderr, stdout
from lakeplan.cli.formats import JSON, RICH, Document, RenderContext, file_mode, texts_of
from lakeplan.cli.git import tree_prefix
from lakeplan.errors import ExitCode, UsageError
from lakeplan.output.redact import redact_plan, redacted
from lakeplan.output.text import KEY, json_for, safe_json, safe_output
from lakeplan.values.documents import encode
from lakeplan.values.local import check_writable, write_file
from lakeplan.values.plan_document import dump_plan, to_document
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.tree.tree import Tree
    from lakeplan.values.desired import Price
    from lakeplan.values.plan import Plan

STANDARD_OUTPUT = Path("-")
NO_CONTEXT = RenderContext()
D = TypeVar("D", bound=Mapping[str, object])
"""A document of one type."""


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
    """Pair formats with files, in the order given. A format without a file is written to standard output, and
    ``--out FILE`` without a format is JSON. If nothing is written to standard output, the rich form is
    printed there, unless ``quiet``. Raises UsageError."""
    named, paths = list(formats or ()), list(outs or ())
    _check_formats(named, supported)
    if not named and paths:
        named = ["json"] * len(paths)
    if len(paths) > len(named):
        raise UsageError(
            f"{len(paths)} --out options were given, but only {count_of(len(named), '--format option')}",
            hint="Pass one --format for each --out, in the same order.",
        )
    outputs = [
        Output(name, None if i >= len(paths) or paths[i] == STANDARD_OUTPUT else paths[i])
        for i, name in enumerate(named)
    ]
    if sum(1 for o in outputs if o.path is None) > 1:
        raise UsageError(
            "more than one format would be written to standard output",
            hint="Pass a separate --out FILE for each --format.",
        )
    if not any(o.path is None for o in outputs) and not quiet:
        outputs.append(Output(RICH, None))
    return tuple(outputs)


def _check_formats(names: Iterable[str], supported: Sequence[str]) -> None:
    for name in names:
        if name not in supported:
            raise UsageError(f"unknown format {name!r}", hint=f"Use one of {', '.join(supported)}.")


@dataclass(frozen=True)
class Outputs:
    """The destinations of the documents of one command. ``kind``: of document, in ``cli.formats``."""

    all: tuple[Output, ...]
    no_color: bool = False
    redact: bool = False
    kind: str = ""
    quiet: bool = False

    @property
    def is_stdout_used(self) -> bool:
        """Whether a document is written to standard output, so that text for people must go elsewhere."""
        return any(output.path is None and output.format != RICH for output in self.all)

    def shown(self, document: D) -> D:
        """The document, redacted if ``--redact-paths`` asks for it."""
        return cast(D, redacted(document)) if self.redact else document

    def shown_plan(self, plan: Plan) -> tuple[Plan, Document]:
        """The plan that is written to the plan file, and the document that is rendered."""
        if not self.redact:
            return plan, to_document(plan)
        plan = redact_plan(plan)
        return plan, redacted(to_document(plan))

    def write_plan(
        self, plan: Plan, document: Document, show: Callable[[Console], None], *, tree: Path
    ) -> None:
        """Every format of a plan of the tree in folder ``tree``; the plan file is always the plan's."""
        context = RenderContext(tree=partial(tree_prefix, tree), same_as_base=plan.same_as_base)
        texts = texts_of("plan", document, context)
        self.write({**texts, JSON: partial(dump_plan, plan)}, show)

    def introduce(self, show: Callable[[Console], None]) -> bool:
        """Prints something before the command does its work: on standard output or, if a document is written
        there, on standard error. With ``--quiet``, prints nothing and returns False."""
        if any(output.path is None and output.format == RICH for output in self.all):
            show(stdout(no_color=self.no_color))
        elif self.quiet:
            return False
        else:
            show(stderr(no_color=self.no_color))
        return True

    def beside(self, page: Path | None) -> Outputs:
        """These outputs, without people's text if an HTML page goes to standard output. Raises UsageError if
        a document goes there as well."""
        if page != STANDARD_OUTPUT:
            return self
        if self.is_stdout_used:
            raise UsageError(
                "the HTML page and another document would both be written to standard output",
                hint="Pass a file to --html or to --out.",
            )
        return replace(self, all=tuple(output for output in self.all if output.path is not None))

    def check(self, supported: Sequence[str]) -> None:
        """Raises UsageError for formats that a command does not support with one of its options."""
        _check_formats((output.format for output in self.all), supported)

    def check_files(self) -> None:
        """Check that the files of ``--out`` can be written before a command deletes or writes anything, so
        that a wrong path does not lose its report. Raises LakeplanError."""
        for output in self.all:
            if output.path is not None:
                check_writable(output.path)

    def write(
        self,
        texts: Mapping[str, Callable[[], str | bytes]],
        show: Callable[[Console], None],
        *,
        code: int = ExitCode.OK,
    ) -> None:
        """Writes every output of a command whose output is already redacted or consists of several documents.
        ``texts`` has a function for each text format, and ``show`` prints the rich form. ``code`` is the exit
        code: if a quiet command fails, the rich form is printed on standard error."""
        for output in self.all:
            if output.format == RICH:
                _write_rich(output, show, no_color=self.no_color)
                continue
            text = texts[output.format]()
            if isinstance(text, bytes):
                _write_bytes(output, text)
                continue
            text = safe_json(text) if output.format == JSON else safe_output(text)
            if output.path is None:
                sys.stdout.write(json_for(text, sys.stdout.encoding))
            else:
                write_file(output.path, text, mode=file_mode(output.format))
        is_failure = code not in (ExitCode.OK, ExitCode.CHANGES_PENDING)
        if is_failure and all(output.path is not None for output in self.all):
            show(stderr(no_color=self.no_color))

    def emit(
        self,
        document: D,
        render: Callable[[D, Console], None],
        context: RenderContext = NO_CONTEXT,
        *,
        kind: str = "",
        code: int = ExitCode.OK,
        sort_keys: bool = False,
    ) -> int:
        """Writes a document in the rich form, as JSON, and in the other formats of its kind (by default the
        command's own). Returns ``code``, which is how the command ends."""
        shown = self.shown(document)
        texts = texts_of(kind or self.kind, shown, context)
        texts[JSON] = partial(_json, shown, sort_keys=sort_keys)
        self.write(texts, partial(render, shown), code=code)
        return code


def _json(document: Document, *, sort_keys: bool) -> str:
    text = json.dumps(document, indent=2, sort_keys=sort_keys, ensure_ascii=False) + "\n"
    return json_for(text, "utf-8")


def with_costs(document: D, tree: Tree, *lists: str, price: Price | None = None) -> D:
    """Return the document with the price of its server. The price is added to the document itself or, if
    ``lists`` are given, to every item of these lists. Servers without a price add nothing. ``price`` replaces
    the prices of the tree."""
    costs = {name: price or server.cost_per_gb_month for name, server in tree.servers.items()}
    prices = {name: cost for name, cost in costs.items() if cost}
    given = cast(Document, document)
    if not lists:
        return cast(D, _priced(given, prices))
    made = {
        key: [_priced(item, prices) for item in value] if key in lists else value
        for key, value in given.items()
    }
    return cast(D, made)


def _priced(part: Document, prices: Mapping[str, Price]) -> dict[str, Any]:
    server = part["server"] if "server" in part else part["repository"].partition("/")[0]
    return {**part, KEY: encode(prices[server])} if server in prices else dict(part)


def write_html(path: Path, page: str) -> None:
    """Writes a page to a file or, for ``-``, to standard output."""
    if path == STANDARD_OUTPUT:
        sys.stdout.buffer.write(page.encode("utf-8"))
        sys.stdout.flush()
    else:
        write_file(path, page)


def _write_bytes(output: Output, data: bytes) -> None:
    if output.path is not None:
        write_file(output.path, data, mode=file_mode(output.format))
    elif sys.stdout.isatty():
        raise UsageError(f"{output.format} cannot be written to a terminal", hint="Add --out FILE.")
    else:
        sys.stdout.buffer.write(data)


def _write_rich(output: Output, show: Callable[[Console], None], *, no_color: bool) -> None:
    if output.path is None:
        show(stdout(no_color=no_color))
        return
    console = Console(record=True, no_color=True, highlight=False, width=120, file=io.StringIO())
    show(console)
    write_file(output.path, console.export_text())

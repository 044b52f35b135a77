"""``lakeplan show``, of a plan file or of the resolved tree."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.text import Text

from lakeplan.api import read_plan
from lakeplan.cli import options
from lakeplan.cli.formats import Document, formats_of
from lakeplan.cli.options import argument, command, option
from lakeplan.cli.outputs import Outputs
from lakeplan.errors import UsageError
from lakeplan.output.explain import render_repository
from lakeplan.output.plan import render_plan
from lakeplan.output.text import safe, safe_lines
from lakeplan.review.selection import targeted
from lakeplan.tree.structure import nearest
from lakeplan.tree.tree import Tree, load_tree
from lakeplan.values.desired import NAME_HINT, DesiredRepository, ServerConfig

WIDEST = 60
"""Columns are aligned up to this width."""


def show_resolved(tree_dir: Path, repository: str, outputs: Outputs) -> None:
    """Prints the resolved configuration of ``name`` or ``server/name``, once for each server that has it.

    Raises ConfigError for a tree with problems, UsageError when no entry names the repository.
    """
    outputs.check(formats_of("repository"))
    tree = load_tree(tree_dir, os.environ)
    documents = [
        {**resolved_document(one), "server_values": server_values(tree.servers[one.server])}
        for one in find_resolved(tree, repository)
    ]
    outputs.emit({"repositories": documents}, _render_all)


def find_resolved(tree: Tree, repository: str) -> list[DesiredRepository]:
    """The repository on every server where some entry names it."""
    name = repository.rpartition("/")[2]
    servers = tree.servers_of(repository)
    if not servers:
        close = nearest(name, [e.name for e in tree.entries if not e.is_glob])
        raise UsageError(
            f"the tree has no entry for {repository!r}",
            where=str(tree.root / "lakeplan.yaml"),
            hint=f"Did you mean {close}?" if close else NAME_HINT,
        )
    return [r for server in servers if (r := tree.find(server, name)) is not None]


def resolved_document(repository: DesiredRepository) -> dict[str, Any]:
    """The repository as JSON: its resolved configuration, and each value with its source."""
    return {
        "server": repository.server,
        "name": repository.name,
        "entry": repository.entry,
        "source": str(repository.source),
        "config_hash": repository.config_hash,
        "resolved": repository.resolved,
        "values": [
            {
                "path": _dotted(repository.resolved, pointer),
                "pointer": pointer,
                "value": _at(repository.resolved, pointer),
                "file": source.file,
                "line": source.line,
                "column": source.column,
            }
            for pointer, source in repository.values.items()
        ],
    }


def server_values(server: ServerConfig) -> list[dict[str, Any]]:
    """The values that the server's settings add to its repositories, such as its price."""
    price, source = server.cost_per_gb_month, server.cost_source
    if price is None or source is None:
        return []
    shown = f"{price.amount:g} {price.currency}".rstrip()
    path = f"servers.{server.name}.cost_per_gb_month"
    return [{"path": path, "value": shown, "file": source.file, "line": source.line, "column": source.column}]


def _render_all(document: Document, console: Console) -> None:
    for repository in document["repositories"]:
        _render(repository, console)


def _render(document: dict[str, Any], console: Console) -> None:
    title = f"{document['server']}/{document['name']}"
    _print(console, (title, "bold"), (f" entry {document['entry']}, {document['source']}", "dim"))
    if not document["values"]:
        _print(console, ("  nothing is managed", ""))
    rows = [
        (value["path"], json.dumps(value["value"], ensure_ascii=False), f"{value['file']}:{value['line']}")
        for value in document["values"]
    ]
    rows += [(v["path"], v["value"], f"{v['file']}:{v['line']}") for v in document["server_values"]]
    # Lines are not wrapped, because a position that is cut in two can be neither read nor clicked. If the
    # columns do not fit side by side, the path gets its own line.
    path_width, value_width = (min(WIDEST, max((len(r[i]) for r in rows), default=0)) for i in (0, 1))
    place_width = max((len(place) for _, _, place in rows), default=0)
    stacked = path_width + value_width + place_width + 6 > console.width
    for path, shown, place in rows:
        if stacked:
            _print(console, (f"  {path}", ""))
            _print(console, (f"      {shown.ljust(value_width)}  ", ""), (place, "dim"))
            continue
        columns = f"  {path.ljust(path_width)}  {shown.ljust(value_width)}  "
        _print(console, (columns, ""), (place, "dim"))


def _print(console: Console, *parts: tuple[str, str]) -> None:
    """One line of texts, each in its style."""
    line = [(safe_lines(safe(text), console.encoding), style) for text, style in parts]
    console.print(Text.assemble(*line), soft_wrap=True)


def _parts(pointer: str) -> Iterator[str]:
    for part in pointer.split("/")[1:]:
        yield part.replace("~1", "/").replace("~0", "~")


def _at(document: Any, pointer: str) -> Any:
    for part in _parts(pointer):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _dotted(document: Any, pointer: str) -> str:
    """``gc.branches[main].retention_days``: items by their names where they have one."""
    text = ""
    for part in _parts(pointer):
        if isinstance(document, list):
            document = document[int(part)]
            text += f"[{_item_name(document) or part}]"
        else:
            document = document[part]
            text += f".{part}" if text else part
    return text


def _item_name(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    return next((str(item[k]) for k in ("branch_id", "pattern", "id") if k in item), "")


@command(without="no_progress quiet")
def show(
    *,
    plan_file: Annotated[Path | None, argument("Plan file.", "[PLAN]")] = None,
    resolved: Annotated[
        str | None,
        option(
            "Show the settings of this repository and where each one is set.",
            "REPO",
            autocompletion=options.complete_repositories,
        ),
    ] = None,
    tree: options.TreeDir = Path(),
    target: options.Targets = None,
    outputs: Annotated[Outputs, options.documents("plan")],
) -> None:
    """Show a plan file or, with --resolved, the settings of a repository. Does not contact a server.

    With --resolved, each value is printed with the file and line that set it.

    \b
    Examples:
      lakeplan show plan.json
      lakeplan show plan.json --target 'team-a-*'
      lakeplan show plan.json --format markdown --out comment.md
      lakeplan show --resolved analytics
    """
    if (plan_file is None) == (resolved is None):
        raise UsageError(
            "specify either a plan file or --resolved REPO",
            hint="For example, run `lakeplan show plan.json`.",
        )
    if resolved is not None:
        show_resolved(tree, resolved, outputs)
        return
    assert plan_file is not None
    plan, document = outputs.shown_plan(read_plan(plan_file))
    wanted = {(r.server, r.name) for r in targeted(plan, target or (), plan_file)}

    def rich_form(console: Console) -> None:
        if not target:
            render_plan(document, console)
        for repository in document["repositories"]:
            if (repository["server"], repository["name"]) in wanted:
                render_repository(repository, console)

    outputs.write_plan(plan, document, rich_form, tree=tree)

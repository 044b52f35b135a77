"""Behaviours of earlier lakeFS servers that the sandbox no longer has."""

from __future__ import annotations

import pytest

from lakeplan.sandbox import graph
from lakeplan.sandbox.graph import Resolved
from lakeplan.sandbox.state import Records


def resolve_like_old_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until lakeFS 0.87 (treeverse/lakeFS#4743), the unique beginning of a commit id came before a branch."""
    resolve = graph._resolve_base

    def resolve_prefix_first(records: Records, name: str) -> Resolved:
        ids = records.commits_with_prefix(name) if graph._HEX.fullmatch(name) else []
        return Resolved(ids[0]) if len(ids) == 1 else resolve(records, name)

    monkeypatch.setattr(graph, "_resolve_base", resolve_prefix_first)

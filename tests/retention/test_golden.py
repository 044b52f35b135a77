"""The server's own answers, recorded: every case, every rule set, commit by commit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import pytest

from lakeplan.formats.refs import read_refs
from lakeplan.retention.graph import CommitGraph, missing_heads
from lakeplan.retention.rules import DocumentedRule, ServerWalk
from lakeplan.values.repository import Refs, RefsDumpIds
from lakeplan.values.rules import GcRules

pytestmark = pytest.mark.golden


def _refs(namespace: Path, ids: Mapping[str, str]) -> Refs:
    def read(_: Literal["meta_range", "range"], file_id: str) -> bytes:
        return (namespace / "_lakefs" / file_id).read_bytes()

    return read_refs(RefsDumpIds(**ids), read)


def _rules(body: Mapping[str, Any]) -> GcRules:
    days = {branch["branch_id"]: branch["retention_days"] for branch in body["branches"]}
    return GcRules(body["default_retention_days"], days)


def _moment(epoch_seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=epoch_seconds)


def it_gives_exactly_the_active_commits_of_the_server(golden: Any) -> None:
    refs = _refs(golden.namespace, golden.case["refs_dump"])
    assert missing_heads(refs) == []
    graph = CommitGraph.from_refs(refs)
    recorded = [*golden.case["expected"]]
    if "official_collector" in golden.case:
        recorded.append(golden.case["official_collector"])
    for expected in recorded:
        rules, as_of = _rules(expected["rules"]), _moment(expected["as_of"])
        active = ServerWalk(graph, rules).active(as_of)
        documented = DocumentedRule(graph, rules).active(as_of)
        answer = {graph.ids[n]: graph.meta_range_ids[n] for n in range(len(graph)) if active[n]}
        assert answer == expected["active_commits"]
        assert all(documented[n] for n in range(len(graph)) if active[n])

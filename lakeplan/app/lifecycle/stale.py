"""Stale branches of a survey: asked of the simulation, and put beside each branch."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from lakeplan.app.lifecycle.survey import Survey
from lakeplan.core.lifecycle.stale import StaleBranches, stale_branches
from lakeplan.errors import LakeplanError
from lakeplan.model.rules import GcRules
from lakeplan.model.simulation import ImpactResult
from lakeplan.ports.lakefs import LakeFSReader
from lakeplan.ports.simulation import ImpactRequest


def find_stale(found: Survey, rules: GcRules | None, as_of: datetime, zone: ZoneInfo) -> StaleBranches | None:
    """Under ``rules``. None when there is none, or nothing read the history."""
    if found.graph is None:
        return None
    going = [outlook.id for outlook in found.deleted]
    return stale_branches(found.graph, found.repository.default_branch, going, rules, as_of, zone)


def stale_request(
    key: str, found: Survey, stale: StaleBranches, reader: LakeFSReader
) -> ImpactRequest | None:
    """For the simulation to answer under ``key``; None where no object needs to be read."""
    if not stale.any_alone:
        return None
    return ImpactRequest(
        key=key,
        storage_namespace=found.repository.storage_namespace,
        metadata=reader.metadata_reader(found.desired.name),
        metaranges=stale.metaranges(),
        transitions=stale.transitions(),
        detail=stale.names[0],
    )


def with_stale(
    found: Survey, stale: StaleBranches | None, answer: ImpactResult | LakeplanError | None
) -> Survey:
    """With ``only_here`` beside each stale branch; its objects are unknown without an answer."""
    if stale is None:
        return found
    only = stale.only_here(None if isinstance(answer, LakeplanError) else answer)
    outlooks = {name: replace(o, only_here=only.get(name)) for name, o in found.outlooks.items()}
    return replace(found, outlooks=outlooks)

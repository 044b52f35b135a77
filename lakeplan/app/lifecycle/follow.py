"""What retention makes of a survey's deletions: asked of the simulation, and put beside each branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from lakeplan.app.lifecycle.survey import Survey
from lakeplan.core.lifecycle.consequences import Consequences, consequences
from lakeplan.errors import LakeplanError
from lakeplan.model.branches import SETTLED, MomentTotal
from lakeplan.model.rules import GcRules
from lakeplan.model.simulation import ImpactResult
from lakeplan.ports.lakefs import LakeFSReader
from lakeplan.ports.simulation import ImpactRequest


@dataclass(frozen=True)
class Followed:
    """``survey`` with what follows beside each branch that goes; ``objects_unknown`` says why objects are
    not told."""

    survey: Survey
    totals: Mapping[str, MomentTotal] = field(default_factory=dict)
    objects_unknown: str = ""


def what_follows(
    found: Survey, rules: GcRules | None, as_of: datetime, zone: ZoneInfo
) -> Consequences | None:
    """The commits' part. None when no branch goes, or without rules: nothing is collected then."""
    if not found.deleted or found.graph is None or rules is None:
        return None
    tags = found.refs.tags if found.refs is not None else ()
    return consequences(found.graph, [o.id for o in found.deleted], rules, as_of, zone, tags)


def request_of(key: str, found: Survey, what: Consequences, reader: LakeFSReader) -> ImpactRequest:
    """The objects' part, for the simulation to answer under ``key``."""
    return ImpactRequest(
        key=key,
        storage_namespace=found.repository.storage_namespace,
        metadata=reader.metadata_reader(found.desired.name),
        metaranges=what.metaranges(),
        transitions=what.transitions(),
        detail=SETTLED,
    )


def follow(
    found: Survey,
    what: Consequences | None,
    result: ImpactResult | LakeplanError | None,
    *,
    simulated: bool,
) -> Followed:
    """Both parts together. ``simulated``: whether the simulation was asked at all."""
    if what is None:
        return Followed(found)
    unknown = ""
    if isinstance(result, LakeplanError):
        unknown, result = str(result), None
    elif result is None and what.any_follow:
        unknown = "the simulation gave no answer" if simulated else "not simulated (--no-simulate)"
    elif result is None:
        result = ImpactResult({})
    follows = what.by_branch(result)
    outlooks = {n: replace(o, follows=follows.get(n)) for n, o in found.outlooks.items()}
    return Followed(replace(found, outlooks=outlooks), what.totals(result), unknown)

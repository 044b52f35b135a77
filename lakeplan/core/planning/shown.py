"""What a plan names one by one, out of verdicts and simulated objects."""

from __future__ import annotations

import numpy as np

from lakeplan import limits
from lakeplan.core.planning.verdicts import BACKLOG, Verdicts, expire_name
from lakeplan.model.plan import Horizon
from lakeplan.model.shown import Bit, Shown
from lakeplan.model.shown_records import RECORD, commit_digests, packed


def named_transitions(*, backlog: bool) -> dict[str, Bit]:
    """Transitions of which every object is named."""
    named = {expire_name(Horizon.NOW): Bit.NOW, expire_name(Horizon.WEEK): Bit.WEEK}
    return {**named, BACKLOG: Bit.BACKLOG} if backlog else named


def shown_of(key: str, verdicts: Verdicts, objects: bytes | None) -> Shown | None:
    """Commits that expire, and ``objects`` (records; None: too many). None beyond the limit."""
    if objects is None:
        return None
    known = np.frombuffer(objects, RECORD)
    parts = [(np.ascontiguousarray(known["digest"]), known["bits"])]
    for horizon, bit in ((Horizon.NOW, Bit.COMMIT_NOW), (Horizon.WEEK, Bit.COMMIT_WEEK)):
        ids = [verdicts.graph.ids[commit] for commit in verdicts.expiring(horizon)]
        parts.append((commit_digests(key, ids), np.full(len(ids), int(bit), np.uint8)))
    if sum(len(digests) for digests, _ in parts) > limits.SHOWN_RECORDS:
        return None
    return Shown.of(packed(parts))

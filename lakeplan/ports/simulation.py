"""What planning asks of the simulation: which objects go, in one pass over the ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lakeplan.errors import LakeplanError
from lakeplan.model.shown import Bit
from lakeplan.model.simulation import ImpactResult, Transition
from lakeplan.ports.lakefs import MetadataReader


@dataclass(frozen=True)
class ImpactRequest:
    """One repository. ``key`` is ``server/name``; ``storage_namespace`` the URL the server uses for it (full
    addresses inside it count as relative); ``metaranges`` maps the metarange id of every commit that any
    verdict keeps to its mask (OR over the commits that share it); ``transitions`` are the changes asked
    about, by name. ``tags`` maps a tag to the metarange
    of its commit: for these, what they lose in any of ``tag_transitions`` is counted. Prefixes are broken
    down for ``detail``. ``shown``: transitions whose objects are named one by one, with their ``Bit``."""

    key: str
    storage_namespace: str
    metadata: MetadataReader
    metaranges: Mapping[str, int]
    transitions: Mapping[str, Transition]
    detail: str
    tags: Mapping[str, str] = field(default_factory=dict)
    tag_transitions: tuple[str, ...] = ()
    shown: Mapping[str, Bit] = field(default_factory=dict)
    storage_id: str | None = None
    """Whose inventory says which of the objects are stored; None: that is not asked."""


class Simulator(Protocol):
    def impact(self, requests: Sequence[ImpactRequest]) -> Mapping[str, ImpactResult | LakeplanError]:
        """All repositories in one job. A repository that cannot be read gets its error; the others go on."""

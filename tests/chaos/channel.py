"""The channel that notices go to: what it accepted, and when. A fault may hide its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeplan.errors import LakeplanError
from lakeplan.values.notify import Event, Item, SentMessage

if TYPE_CHECKING:
    from tests.chaos.world import ChaosWorld


@dataclass
class Channel:
    """A ``Publisher``. ``accepted`` has by branch and HEAD every moment (server's clock, microseconds) at
    which it accepted a notice."""

    world: ChaosWorld
    refuses: bool = False
    accepted: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def publish(
        self, event: Event, title: str, items: Sequence[Item], hint: str = ""
    ) -> Sequence[SentMessage]:
        def accept() -> None:
            if self.refuses:
                raise LakeplanError("it returned status 500")
            for item in items:
                key = (str(item.facts["branch"]), str(item.facts["commit_id"]))
                self.accepted.setdefault(key, []).append(self.world.truth.now_us())

        process = self.world.process
        assert process is not None
        try:
            process.calls.around("channel", f"{len(items)} notices", True, accept)
        except LakeplanError as error:
            return [SentMessage(tuple(items), "ops", error.message)]
        return [SentMessage(tuple(items), "ops")]

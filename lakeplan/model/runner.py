"""Who runs the work of a command, and why: threads of this process, or Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """``name`` and the reason, for documents and logs."""

    name: str
    reason: str

    def to_row(self) -> dict[str, str]:
        return {"name": self.name, "reason": self.reason}

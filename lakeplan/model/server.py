"""A lakeFS server as it describes itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class ServerIdentity:
    """``context`` is the server's ``version_context``; ``date`` its clock, None when it sends none."""

    version: str
    context: str
    date: datetime | None

    @property
    def is_enterprise(self) -> bool:
        return "enterprise" in self.context.lower()

    @property
    def flavour(self) -> str:
        return "lakeFS Enterprise" if self.is_enterprise else "lakeFS (open source)"

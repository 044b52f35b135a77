"""What stored bytes cost: a price of a server, as the tree tells it. A GB is 10^9 bytes."""

from __future__ import annotations

from dataclasses import dataclass

GB = 10**9


@dataclass(frozen=True)
class Price:
    """``amount`` a GB and month, in ``currency`` ("": the tree names none)."""

    amount: float
    currency: str = ""

    def monthly(self, size_bytes: int) -> float:
        return size_bytes / GB * self.amount

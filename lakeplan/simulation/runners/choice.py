"""What a runner is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeplan.simulation.exchange import Piece

Batches = Iterable["pa.RecordBatch"]


@dataclass(frozen=True)
class Step:
    """``run`` gets batches of ``exchange.PIECES`` and what is shared, and gives such batches. Pieces with one
    ``place`` come to one call; ``places`` says how many there are. ``run`` may carry credentials: runners
    write it to no file. What is shared carries none."""

    run: Callable[[Batches, Any], Iterator[pa.RecordBatch]]
    places: int


class Runner(Protocol):
    name: str

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the programs that take part, beside Python's packages."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time."""

    def run(self, bins: Sequence[bytes], steps: Sequence[Step], shared: Any) -> Iterator[Piece]:
        """Each bin becomes a piece for the first step; gives the pieces of the last. Raises LakeplanError."""

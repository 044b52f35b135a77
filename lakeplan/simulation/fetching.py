"""Files fetched ahead of their use, a bounded number of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

FETCH_AHEAD = 4
"""Files in flight in one worker: ranges have 20 MiB each at most."""
Item = TypeVar("Item")
Found = TypeVar("Found")


def ahead(
    items: Iterable[Item], fetch: Callable[[Item], Found], pool: ThreadPoolExecutor, at_once: int
) -> Iterator[tuple[Item, Callable[[], Found]]]:
    """Each item in order, with a function that gives what was fetched or raises what fetching raised. At most
    ``at_once`` are fetched, or fetched and not yet taken."""
    waiting: deque[tuple[Item, Future[Found]]] = deque()
    coming = iter(items)
    try:
        while True:
            for item in islice(coming, at_once - len(waiting)):
                waiting.append((item, pool.submit(fetch, item)))
            if not waiting:
                return
            item, future = waiting.popleft()
            yield item, future.result
    finally:
        for _, future in waiting:
            future.cancel()

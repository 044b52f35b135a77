from __future__ import annotations

from lakeplan.formats.namespace import (
    PARTITION_OBJECTS,
    ObjectPaths,
    XidSource,
    is_candidate_key,
    is_xid,
    time_of_descending,
)


def it_starts_a_partition_every_hour_and_every_50000_objects() -> None:
    now = 1_790_000_000.0

    def clock() -> float:
        return now

    paths = ObjectPaths(clock, XidSource(clock, lambda n: bytes(n)))
    partitions = [paths.new().split("/")[1] for _ in range(PARTITION_OBJECTS + 1)]
    assert len(set(partitions[:-1])) == 1
    assert partitions[-1] != partitions[0]
    now += 3601
    later = paths.new()
    _, partition, name = later.split("/")
    assert is_candidate_key(later)
    assert is_xid(name)
    assert time_of_descending(partition) == int(now)
    assert partition < partitions[-1]


def it_never_gives_an_address_twice() -> None:
    paths = ObjectPaths(lambda: 1.0, XidSource(lambda: 1.0, lambda n: bytes(n)))
    assert len({paths.new() for _ in range(500)}) == 500

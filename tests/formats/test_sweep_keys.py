from __future__ import annotations

import pytest

from lakeplan.formats.namespace import attempt_of, result_key

SWEEP = "_lakeplan/sweeps/m1/"


@pytest.mark.parametrize("attempt", [0, 1, 12])
def it_reads_the_attempt_out_of_the_key_of_a_record(attempt: int) -> None:
    assert attempt_of(result_key(SWEEP, "going/part-0001.parquet", attempt), SWEEP) == attempt


@pytest.mark.parametrize(
    "name",
    [
        "readme",
        "part-0001",
        "part-0001.parquet.bak",
        "part-0001.x.parquet",
        "part-0001.0.parquet",
        "part-0001.01.parquet",
        "part-0001.٣.parquet",
        "part-0001.1.2.parquet",
        "more/part-0001.parquet",
        f"part-0001.{'9' * 19}.parquet",
    ],
)
def it_takes_no_other_file_for_a_record(name: str) -> None:
    assert attempt_of(f"{SWEEP}results/{name}", SWEEP) is None

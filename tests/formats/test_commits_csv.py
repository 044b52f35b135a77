from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan import limits
from lakeplan.errors import FormatError
from lakeplan.formats.collector import read_commits_csv, write_commits_csv

HEADER = b"commit_id,expired,metarange_id\n"
IDS = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(st.dictionaries(IDS, IDS | st.just(""), max_size=5))
def it_reads_what_it_writes(active: dict[str, str]) -> None:
    data = write_commits_csv(active)
    assert data.startswith(HEADER)
    assert read_commits_csv(data, name="x") == active


def it_leaves_out_what_is_expired() -> None:
    rows = b"c1,false,\nc2,true,\n"
    assert read_commits_csv(HEADER + rows, name="x") == {"c1": ""}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"commit,expired,metarange_id\n",
        HEADER + b"c1,false",
        HEADER + b"c1,false\n",
        HEADER + b"c1,maybe,\n",
        HEADER + b",false,\n",
        HEADER + b"c1,false,abc\n",
        HEADER + b'"c1,false,\n',
        b"\xff\n",
    ],
)
def it_names_a_damaged_file(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read_commits_csv(data, name="commits.csv")
    assert caught.value.where == "commits.csv"


def it_limits_size_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_commits_csv({f"{n:064}": "" for n in range(10)})
    assert len(read_commits_csv(data, name="x")) == 10
    for name, value in (("CSV_ROWS", 10), ("CSV_BYTES", 100)):
        with monkeypatch.context() as patch:
            patch.setattr(limits, name, value)
            with pytest.raises(FormatError, match="x: "):
                read_commits_csv(data, name="x")

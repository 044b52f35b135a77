from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.formats.collector import write_commits_csv
from tests.commits_csv import read_commits_csv

HEADER = b"commit_id,expired,metarange_id\n"
IDS = st.text("0123456789abcdef", min_size=64, max_size=64)


@given(st.dictionaries(IDS, IDS | st.just(""), max_size=5))
def it_writes_what_can_be_read(active: dict[str, str]) -> None:
    data = write_commits_csv(active)
    assert data.startswith(HEADER)
    assert read_commits_csv(data) == active

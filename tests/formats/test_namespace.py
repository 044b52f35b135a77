from __future__ import annotations

import pytest

from lakeplan.formats.namespace import commits_csv_key, is_candidate_key, metadata_key, uncommitted_prefix


@pytest.mark.parametrize(
    ("key", "candidate"),
    [
        ("data/p/x", True),
        ("data/x", True),
        ("data/!ab/c/p/x", True),
        ("old-object-at-the-root", True),
        ("dummy", False),
        ("data/dummy", True),
        ("data/", False),
        ("", False),
        ("_lakefs/dummy", False),
        ("_lakefs/0f", False),
        ("datax/y", False),
        ("other/x", False),
    ],
)
def it_tells_what_may_be_garbage(key: str, candidate: bool) -> None:
    assert is_candidate_key(key) is candidate


def it_knows_where_metadata_stands() -> None:
    assert metadata_key("0f") == "_lakefs/0f"
    assert commits_csv_key("run") == "_lakefs/retention/gc/commits/run_id=run/commits.csv"
    assert uncommitted_prefix("run") == "_lakefs/retention/gc/uncommitted/run/uncommitted/"

"""``commits.csv`` of lakeFS's collector as its readers take it."""

from __future__ import annotations

import csv


def read_commits_csv(data: bytes) -> dict[str, str]:
    """Active commits: commit id → metarange id ("" for a first commit)."""
    assert data.endswith(b"\n")
    header, *rows = csv.reader(data.decode().splitlines(), strict=True)
    assert header == ["commit_id", "expired", "metarange_id"]
    assert {expired for _, expired, _ in rows} <= {"true", "false"}
    return {commit: metarange for commit, expired, metarange in rows if expired == "false"}

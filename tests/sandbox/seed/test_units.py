"""Ages and sizes."""

from __future__ import annotations

import pytest

from lakeplan.sandbox.seed_document import parse_age, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("40d", 40 * 86400), ("1w3d12h", 907_200), ("0d", 0), ("90m", 5400), ("5s", 5)],
)
def it_reads_ages(text, seconds):
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "40", "d", "40 d", "-1d", "1.5d", "40days", "1y"])
def it_knows_what_is_no_age(text):
    assert parse_age(text) is None


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("512", 512), ("4KB", 4000), ("4 KiB", 4096), ("2MB", 2_000_000)]
)
def it_reads_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KB", "1.5KB", "-1", "4kb", "4 TB"])
def it_knows_what_is_no_size(text):
    assert parse_size(text) is None

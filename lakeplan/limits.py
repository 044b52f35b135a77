"""Every limit on what lakeplan reads: sizes, depths, counts, times and ratios.

``docs/limits.md`` lists those that a large installation can meet.

Input from a pull request, a server, a store or a cache may be crafted to exhaust the machine that reads it.
The limits are far above what real repositories need. Beyond a limit, reading stops with an error. No limit
ever shortens an input silently. The values are names of this module, so that tests can lower them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# SSTables: ranges and metaranges. lakeFS writes ranges of 20 MiB and values of at most 40 MiB.
TABLE_BYTES = 256 * MIB
"""One file, and all its blocks after decompression."""
BLOCK_BYTES = 64 * MIB
"""One block after decompression."""
SNAPPY_RATIO = 32
"""Snappy cannot shrink anything to less than a 22nd; a block that claims more is damaged."""
TABLE_RECORDS = 2_000_000
KEY_BYTES = 16 * KIB
"""One path or name. S3 and Azure allow 1,024 characters."""
KEY_RATIO = 64
"""Keys share their beginnings: all keys of a block may be this many times as long as the block."""
TABLE_KEY_BYTES = 512 * MIB
"""All keys of one file."""
ADDRESS_RATIO = 8
"""A few addresses are spelled so that they may refer to several objects. All keys that the addresses of one
file may mean may be this many times as long as the addresses, and always as long as the next limit."""
ADDRESS_BYTES = 16 * MIB
MESSAGE_FIELDS = 100_000
"""Fields of one protobuf message, such as a commit with its metadata."""
INTERVAL_ENTRIES = 1024
"""Entries between two restart points for which the fast decoder is used. lakeFS writes 16."""

# Parquet: uncommitted runs, marks, results, listings, reports of a collector.
PARQUET_BYTES = 256 * MIB
PARQUET_UNPACKED_BYTES = 512 * MIB
"""All columns of one file after decompression, by its footer, by the headers of its pages, and as read."""
PARQUET_ROWS = 5_000_000
"""Servers and lakeplan write at most 1,000,000 rows to a file."""
PARQUET_FOOTER_BYTES = 16 * MIB
THRIFT_VALUES = 2_000_000
"""Values in a footer. A column of a row group has about 40."""
PAGE_HEADER_VALUES = 100
"""Values in the header of a page, which has at most 30."""
PARQUET_CHUNKS = 100_000
"""Row groups of a file, their columns, and elements of its schema, together. Each takes about a kilobyte in
memory."""
PARQUET_PAGES = 200_000
"""Pages of one file. Writers begin a new page after 1 MiB or 20,000 rows."""
PARQUET_COLUMNS = 100
PARQUET_LISTED = 5_000_000
"""Values in all lists of one file. A part of a mark has 10,000 rows with at most 10 paths each."""

# Text: JSON, CSV, YAML.
JSON_BYTES = 64 * MIB
"""One document from a server or a store."""
MESSAGE_BYTES = 64 * KIB
"""One error of a server. A longer one is read but not parsed."""
NOTIFICATION_BYTES = 24 * KIB
NOTIFICATION_ITEMS = 20
"""One notification. Teams accepts 28 KB, Slack 50 blocks."""
NOTIFICATION_TEXT = 400
"""Characters of one name or text in a notification; the rest is cut off and marked."""
JSON_DEPTH = 64
JSON_VALUES = 3_000_000
"""Values of one document. A value may take 200 bytes of memory."""
TEXT_BYTES = 256 * MIB
"""One text in memory. One character beyond the Basic Multilingual Plane makes all of them four bytes wide."""
TREE_FILE_BYTES = 8 * MIB
TREE_BYTES, TREE_NODES = 64 * MIB, 1_000_000
"""All files of a tree, and all their values. A value takes 600 bytes in memory, and 10 µs to read."""
RESOLVED_VALUES = 2_000_000
"""Values of all repositories of a tree, with what each takes from globs and profiles."""
TREE_ENTRIES = 200_000
"""Files and folders that the patterns of ``include`` may visit."""
INCLUDE_PARTS = 50
"""Parts of one pattern of ``include``."""
TREE_PROBLEMS, PROBLEM_CHARACTERS = 1_000, 10_000
"""What is reported at once, and the characters of one text; the rest is cut off and marked."""
SUGGESTION_STEPS, SUGGESTION_NAMES = 10_000, 20
"""Steps to find the name that one wrong name probably meant, and names that are listed instead."""
DRAWN_STEPS = 1_000_000
"""Commits of policy tests, each times the names, objects and expectations of its test."""
DRIFT_VALUES = 100
"""Values of one repository that ``drift --write`` edits: a file is read again for each."""
GLOB_CHARACTERS = 1_024
"""One pattern of branches, tags or repositories."""
GLOBS = 1_000
"""Patterns of branches and tags in one entry or profile."""
TREE_GLOBS = 100_000
GLOB_STEPS = 100_000
"""Steps to compare all globs of a tree with each other."""
SERVER_GLOB_CHARACTERS = 64 * KIB
"""All patterns of one setting that a server stores for a repository."""
GLOB_PAIRS = 5_000_000
"""Characters of all pairs of a hold and a server's pattern that a plan compares for one repository."""
YAML_NODES = 500_000
"""Values of one file, with every alias counted as the values it repeats."""
YAML_TEXT = 4 * TREE_FILE_BYTES
"""Characters of all values of one file, counted as the values are."""
YAML_KEY_CHARACTERS = 1_024
"""One key. Every problem below it repeats it."""
YAML_DEPTH = 64

# Files named on the command line.
PLAN_BYTES = 128 * MIB
SHOWN_RECORDS = 10_000_000
"""Objects and commits that one plan names one by one, 17 bytes each. A repository with more is not swept
without a person."""
FILE_BYTES = 64 * MIB
"""Rules files, tests, configuration files and any other."""

# Answers over HTTP.
ANSWER_SECONDS = 300.0
"""One answer of the API, body included."""
FILE_SECONDS = 1800.0
"""One file from a server or a store."""
RATE_BYTES, RATE_GRACE_SECONDS = 4 * KIB, 30.0
"""A body must bring this many bytes a second on average, after the grace."""
OBJECT_BYTES = 256 * MIB
"""One object that is read as a whole: metadata, marks, records, cache entries."""
STORE_ANSWER_BYTES = 32 * MIB
"""One page of a store's listing, or any other small answer of a store."""
STORE_PAGES = 20_000_000
STORE_LISTING_SECONDS = 48 * 3600.0
"""One listing of a store, with what is done with its entries meanwhile."""
FOLDER_DEPTH = 256
"""Levels of folders in a namespace on this machine."""
STORE_VERSIONS = 1_000_000
"""Versions of one object that a deletion of all of them lists."""
LISTED, LISTED_COMMITS, LISTED_CHANGES = 2_000_000, 5_000_000, 50_000_000
"""Entries of one listing: of anything, of commits, of uncommitted changes."""
LISTING_BYTES = 512 * MIB
"""What all pages of a listing of ``LISTED`` entries take in memory as text; longer listings in proportion."""
LISTING_SECONDS = 4 * 3600.0
EMPTY_PAGES = 1000
"""Pages of a listing beyond what its entries need."""
PAGE_ITEMS = 10_000
"""Entries on one page; lakeFS sends 1,000."""
URL_CHARACTERS = 16 * KIB

# Hosts of git repositories.
HOST_ITEMS = 10_000
"""Items of one listing of a host's API: comments, artifacts, pull requests."""
HOST_COMMITS = 250
"""Commits of one push whose pull requests are looked up, from the last. Those of earlier commits are searched
among so many pull requests."""
HOST_REQUESTS = 200
"""Open pull requests that are compared with one another."""
HOST_REDIRECTS = 3
ARTIFACT_MEMBERS = 100

# Programs.
CHECK_BYTES = MIB
CHECK_FINDINGS = 100
"""What one check of a tree prints."""
GIT_BYTES = 64 * MIB
GIT_MEMORY_BYTES = 512 * MIB
GIT_SECONDS, GIT_SILENT_SECONDS = 120.0, 5.0
"""One command of git, and the wait for the next bytes of its answer."""


class TooLarge(ValueError):
    """An input is beyond a limit. The message says which, in words that fit after the input's name."""


def parse_json(
    data: str | bytes,
    *,
    limit: int | None = None,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """A JSON document within the limits of size, depth and count. ``pairs`` makes its objects.

    Raises ValueError (``TooLarge`` beyond a limit), also for NaN, infinities, and numbers too large to hold.
    """
    check_size(len(data), JSON_BYTES if limit is None else limit)
    if isinstance(data, bytes):
        check_text(data)
    marks = ("[", "{", ",") if isinstance(data, str) else (b"[", b"{", b",")
    opened, separators = sum(map(data.count, marks[:2])), data.count(marks[2])  # type: ignore[arg-type]
    if opened + separators > JSON_VALUES:
        raise TooLarge(f"it exceeds the limit of {JSON_VALUES:,} values")
    try:
        document = json.loads(data, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=pairs)
    except RecursionError:
        raise TooLarge(f"it is nested more deeply than the limit of {JSON_DEPTH} levels") from None
    if opened > JSON_DEPTH:
        _check_depth(document)
    return document


def check_size(size: int, limit: int) -> None:
    """Raises TooLarge for more bytes than the limit."""
    if size > limit:
        raise TooLarge(f"it is larger than the limit of {size_text(limit)}")


def check_text(data: bytes) -> None:
    """Raises TooLarge for UTF-8 text that would take more memory than ``TEXT_BYTES``."""
    if len(data) * 4 > TEXT_BYTES and memory_of_text(data) > TEXT_BYTES:
        raise TooLarge(f"its text takes more memory than the limit of {size_text(TEXT_BYTES)}")


def memory_of_text(data: bytes) -> int:
    """The most bytes that UTF-8 text can take in memory, where every character is as wide as the widest."""
    if data.isascii():
        return len(data)
    return len(data) * (4 if data.translate(None, bytes(range(0xF0))) else 2)


def size_text(size: int) -> str:
    """A limit in the unit that it is written in."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.10g} {name}"
    return f"{size} bytes"


def _check_depth(document: Any) -> None:
    """Raises TooLarge for a document that is nested too deeply."""
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > JSON_DEPTH + 1:
            raise TooLarge(f"it is nested more deeply than the limit of {JSON_DEPTH} levels")
        following: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                following.extend(v for v in value.values() if isinstance(v, (dict, list)))
            elif isinstance(value, list):
                following.extend(v for v in value if isinstance(v, (dict, list)))
        level = following


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number

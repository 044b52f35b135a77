"""Keys of a storage namespace, all relative to its root (shared/lakefs/format.md)."""

from __future__ import annotations

from lakeplan.errors import FormatError

METADATA_PREFIX = "_lakefs/"
DATA_PREFIX = "data/"
DUMMY_KEY = "_lakefs/dummy"
ROOT_DUMMY_KEY = "dummy"
"""What very old servers wrote at the root to see whether they can."""
REFS_MANIFEST_KEY = "_lakefs/refs_manifest.json"
GC_PREFIX = "_lakefs/retention/gc/"
GC_RULES_KEY = "_lakefs/retention/gc/rules/config.json"
GC_COMMITS_PREFIX = "_lakefs/retention/gc/commits/"
GC_UNCOMMITTED_PREFIX = "_lakefs/retention/gc/uncommitted/"
_DOTS = frozenset((".", ".."))


def metadata_key(file_id: str) -> str:
    """Where the range or metarange with this id stands."""
    return METADATA_PREFIX + file_id


def commits_csv_key(run_id: str) -> str:
    return f"{GC_COMMITS_PREFIX}run_id={run_id}/commits.csv"


def uncommitted_prefix(run_id: str) -> str:
    """The folder of one run of uncommitted addresses, with its final slash."""
    return f"{GC_UNCOMMITTED_PREFIX}{run_id}/uncommitted/"


def check_not_nested(key: str) -> None:
    """Raises FormatError for a key that shows that another repository's namespace is below ``data/``."""
    at = f"/{key}".find(f"/{METADATA_PREFIX}")
    if key.startswith(DATA_PREFIX) and at >= 0:
        raise FormatError(
            f"another repository has its storage namespace inside this one's, at {key[: at - 1]}",
            hint="neither can be swept; move one of them to a namespace of its own",
        )


def is_candidate_key(key: str) -> bool:
    """Whether a stored object may be garbage at all: under ``data/``, or directly at the root (where old
    repositories keep objects) other than ``dummy`` (shared/lakefs/retention.md, the official collector).
    Never one with ``.`` or ``..`` in its path, which no lakeFS writes and a client might resolve."""
    if not _DOTS.isdisjoint(key.split("/") if "." in key else ()):
        return False
    if key.startswith(DATA_PREFIX):
        return len(key) > len(DATA_PREFIX)
    return bool(key) and "/" not in key and key != ROOT_DUMMY_KEY

"""Keys that lakeplan writes in a namespace, below ``_lakeplan/``: neither lakeFS nor a collector looks there.

``owner.json``; ``probe.json``; ``rules.json``; ``holds/<hold>/<commit>.json`` (what holds kept);
``marks/<mark id>/`` (``mark.json``, ``going/``, ``kept/``, ``seen.json``);
``sweeps/<mark id>/`` (``begun/``, ``copied/``, ``results/``, ``summary.json``);
``quarantine/<mark id>/<address>``. And where collectors leave their reports.
"""

from __future__ import annotations

from urllib.parse import quote

from lakeplan.errors import UsageError
from lakeplan.formats.namespace import GC_PREFIX
from lakeplan.limits import number_of
from lakeplan.model.sweep import LAKEPLAN_PREFIX

OWNER_KEY = f"{LAKEPLAN_PREFIX}owner.json"
PROBE_KEY = f"{LAKEPLAN_PREFIX}probe.json"
"""Written anew by every check for other repositories in the same storage."""
MARKS_PREFIX = f"{LAKEPLAN_PREFIX}marks/"
SWEEPS_PREFIX = f"{LAKEPLAN_PREFIX}sweeps/"
HOLDS_PREFIX = f"{LAKEPLAN_PREFIX}holds/"
QUARANTINE_PREFIX = f"{LAKEPLAN_PREFIX}quarantine/"
MARK_FILE = "mark.json"
SEEN_FILE = "seen.json"
CLOCK_FILE = "clock.json"
"""Written again before every round: when the store says it was written is the store's time."""
RULES_KEY = f"{LAKEPLAN_PREFIX}rules.json"
"""The GC rules as they were last seen, beside the state's own record of them."""
SUMMARY_FILE = "summary.json"
OFFICIAL_FILE = "official.json"
"""Names the run under which a sweep writes the official report: written before the report itself."""
UNIFIED_PREFIX = f"{GC_PREFIX}unified/"
OLD_RUNS_PREFIX = f"{GC_PREFIX}addresses/"
COLLECTOR_RUNS = (UNIFIED_PREFIX, f"{GC_PREFIX}addresses/")
"""Where other collectors write the runs in which they deleted (retention.md)."""


def mark_prefix(mark_id: str) -> str:
    return f"{MARKS_PREFIX}{checked_mark_id(mark_id)}/"


def sweep_prefix(mark_id: str) -> str:
    return f"{SWEEPS_PREFIX}{checked_mark_id(mark_id)}/"


def quarantine_prefix(mark_id: str) -> str:
    return f"{QUARANTINE_PREFIX}{checked_mark_id(mark_id)}/"


def begun_key(sweep: str, part: str) -> str:
    """Says that a part's deletions may have begun. ``sweep`` is the sweep's prefix."""
    return f"{sweep}begun/{part_id(part)}.json"


def copied_key(sweep: str, part: str) -> str:
    """Says what of a part was copied into quarantine."""
    return f"{sweep}copied/{part_id(part)}.json"


def result_key(sweep: str, part: str, attempt: int = 0) -> str:
    """Says what became of every object of a part. A later attempt at what failed has a record of its own,
    which replaces the earlier ones."""
    return f"{sweep}results/{part_id(part)}{f'.{attempt}' if attempt else ''}.parquet"


def attempt_of(key: str, sweep: str) -> int | None:
    """Which attempt's record has this key; None for a key that ``result_key`` never makes."""
    number = key.removesuffix(".parquet").rpartition(".")[2]
    attempt = number_of(number) or 0
    return attempt if key == result_key(sweep, key, attempt) else None


def part_id(name: str) -> str:
    """What the name of a part, and the names of its records, have in common."""
    return name.rpartition("/")[2].partition(".")[0]


def checked_mark_id(mark_id: str) -> str:
    """A mark's id becomes part of keys. Raises UsageError for what is none."""
    if not mark_id or mark_id != quote(mark_id, safe="") or mark_id.startswith("."):
        raise UsageError(
            f"{mark_id!r} is not the id of a mark", hint="lakeplan sweep report lists marks and their ids"
        )
    return mark_id

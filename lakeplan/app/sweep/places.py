"""Where a sweep keeps what it must remember in the state: which repository a mark belongs to, approvals, and
since when a repository's rules are as they are. (In the namespace: ``lakeplan.formats.sweep_keys``.)"""

from __future__ import annotations

from lakeplan.app.state import repository_key
from lakeplan.formats.sweep_keys import checked_mark_id

MARK_INDEX = "sweep/marks/"


def mark_index_key(mark_id: str) -> str:
    return f"{MARK_INDEX}{checked_mark_id(mark_id)}.json"


def approval_key(mark_id: str) -> str:
    return f"sweep/approvals/{checked_mark_id(mark_id)}.json"


def rules_key(repository: str) -> str:
    return repository_key("sweep/rules", repository)

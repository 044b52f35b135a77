"""Whether a run has an older version of its tree than the last apply."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lakeplan.errors import StalePlan
from lakeplan.review.history import check_newest
from lakeplan.review.run import Run, open_journal
from lakeplan.stores.open import open_state

NOW = datetime(2026, 3, 31, tzinfo=timezone.utc)
OWN = Run("20260331T000002", {}, lambda: NOW, lambda _: False, "c1", tree_dirty=False, tree_digest="one")


def applied(second: int, digest: str, name: str = "", commit: str = "c2") -> tuple[str, Run]:
    run_id = f"20260331T00000{second}"
    return "apply", replace(OWN, run_id=run_id, tree_digest=digest, tree_name=name, tree_commit=commit)


SWEPT = "sweep run", replace(OWN, run_id="20260331T000000")


@pytest.mark.parametrize(
    ("runs", "is_old"),
    [
        ([], False),
        ([applied(1, "one")], False),
        ([applied(1, "two")], False),  # this run's tree may be newer
        ([applied(3, "two")], True),
        ([applied(3, "two"), applied(4, "one")], False),
        ([applied(0, "one"), applied(1, "two")], True),
        ([SWEPT, applied(1, "two")], True),
        ([SWEPT, applied(1, "two", "another")], False),
        ([SWEPT, applied(1, "other line ends", commit="c1")], False),
    ],
)
def it_knows_whether_a_newer_tree_was_applied(
    tmp_path: Path, runs: list[tuple[str, Run]], is_old: bool
) -> None:
    state = open_state(f"file://{tmp_path}")
    for command, run in runs:
        open_journal(state, run, command).save()
    if not is_old:
        check_newest(state, OWN, "prod/lake")
        return
    with pytest.raises(StalePlan, match="has applied a newer version of the tree"):
        check_newest(state, OWN, "prod/lake")

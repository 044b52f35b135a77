"""Whether a run has an older version of its tree than the last apply."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lakeplan.errors import StalePlan
from lakeplan.review.history import check_newest
from lakeplan.review.run import Run, open_journal
from lakeplan.stores.open import Versioned, open_state

NOW = datetime(2026, 3, 31, tzinfo=timezone.utc)
OWN = Run("20260331T000002", {}, lambda: NOW, lambda _: False, "c1", tree_dirty=False, tree_digest="one")


def applied(
    second: int, digest: str, name: str = "", commit: str = "c2", **more: str | None
) -> tuple[str, Run, dict[str, str | None]]:
    run_id = f"20260331T00000{second}"
    run = replace(OWN, run_id=run_id, tree_digest=digest, tree_name=name, tree_commit=commit)
    return "apply", run, {"finished_at": NOW.isoformat(), **more}


def began(second: int, digest: str, end: str | None = None) -> tuple[str, Run, dict[str, str | None]]:
    return applied(second, digest, finished_at=None if end is None else NOW.isoformat(), end=end)


def planned(second: int, digest: str, **more: str | None) -> tuple[str, Run, dict[str, str | None]]:
    return applied(
        second, digest, **{"plan_digest": "sha256:p", "plan_as_of": "2026-03-30T23:00:00+00:00", **more}
    )


def merged(second: int, digest: str, hour: int, name: str = "") -> tuple[str, Run, dict[str, str | None]]:
    command, run, facts = planned(second, digest, plan_digest=f"sha256:{second}")
    return command, replace(run, tree_name=name, ci={"merged_at": f"2026-03-31T0{hour}:00:00Z"}), facts


SWEPT = "sweep run", replace(OWN, run_id="20260331T000000"), {}


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
        # An old job runs again.
        *(
            ([applied(0, "one"), applied(1, "two"), began(1, "one", e)], True)
            for e in (None, "stale", "failed")
        ),
        ([applied(0, "one"), began(1, "two")], True),
        ([applied(0, "one"), began(1, "two", "refused")], True),
        ([planned(0, "one"), applied(1, "two"), planned(2, "one")], True),
        # Nor does it stop a run with the newest tree.
        *(
            ([planned(0, "two"), applied(1, "one"), planned(3, "two", finished_at=at, end=e)], False)
            for at, e in ((None, None), (NOW.isoformat(), "refused"), (NOW.isoformat(), None))
        ),
        ([planned(0, "one"), planned(1, "two")], True),  # with a newer checkout
        # A job runs late.
        ([merged(0, "one", 2), merged(1, "two", 3), merged(2, "one", 2)], True),
        ([merged(0, "two", 2), merged(1, "one", 4), merged(3, "two", 3)], False),
        ([merged(0, "one", 2), merged(3, "two", 3)], True),
        ([merged(0, "one", 2), merged(1, "x", 4, "another"), merged(3, "two", 3)], True),
        ([planned(0, "two", end="refused"), applied(1, "one"), planned(3, "two")], True),
        *(([applied(0, "two"), applied(1, "one"), began(1, "two", e)], False) for e in ("stale", "refresh")),
    ],
)
def it_knows_whether_a_newer_tree_was_applied(
    tmp_path: Path, runs: list[tuple[str, Run]], is_old: bool
) -> None:
    state, own = open_state(f"file://{tmp_path}"), replace(OWN, ended={})
    for n, (command, run, facts) in enumerate(runs):
        open_journal(state, replace(run, run_id=f"{run.run_id}-{n}"), command, **facts).save()
    if not is_old:
        check_newest(state, own, "prod/lake")
        return
    with pytest.raises(StalePlan, match="has applied a newer version of the tree"):
        check_newest(state, own, "prod/lake")


@pytest.mark.parametrize(("second", "stops"), [(0, False), (1, True)])
def it_stops_where_the_record_of_a_newer_apply_may_be_damaged(
    tmp_path: Path, second: int, stops: bool
) -> None:
    state = open_state(f"file://{tmp_path}")
    command, run, facts = applied(1, "one")
    open_journal(state, run, command, **facts).save()
    state.write(f"history/20260331T00000{second}-x.json", b"{", if_version=None)
    with pytest.raises(StalePlan, match="is damaged") if stops else nullcontext():
        check_newest(state, replace(OWN, ended={}), "prod/lake")


def it_reads_the_records_of_ended_runs_once_however_long_ago_the_last_apply_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = open_state(f"file://{tmp_path}")
    for second, digest in ((0, "one"), (1, "two")):
        open_journal(stored, applied(second, digest)[1], "apply", finished_at=NOW.isoformat()).save()
    swept = replace(OWN, tree_digest="two", tree_commit="c2")
    for n in range(1_100):
        run = replace(swept, run_id=f"20260331T000001-{n:04}")
        open_journal(stored, run, "sweep mark", finished_at=NOW.isoformat()).save()
    own, read, really = replace(OWN, run_id="20260331T000003", ended={}), list[str](), stored.read

    def counted(key: str) -> Versioned | None:
        read.append(key)
        return really(key)

    monkeypatch.setattr(stored, "read", counted)
    for _ in range(2):
        with pytest.raises(StalePlan, match="has applied a newer version of the tree"):
            check_newest(stored, own, "prod/lake")
    assert len(read) == len(set(read)) == 1_102

"""What a part of the doctor found, in words; and how such findings of many repositories become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from lakeplan.app.clocks import MAX_DIFFERENCE
from lakeplan.errors import LakeplanError, PermissionDenied

POLICIES = "docs/permissions.md has the whole policy"
SHOWN = 5
SKEW_WARN_SECONDS = 60
SKEW_FAIL_SECONDS = MAX_DIFFERENCE.total_seconds()
Purpose = Literal["plan", "apply", "lifecycle", "sweep"]
Word = Literal["ok", "warn", "fail"]
_RANK: dict[Word, int] = {"ok": 0, "warn": 1, "fail": 2}


@dataclass(frozen=True)
class Found:
    """``hint`` is what to do when it is not ok."""

    name: str
    result: Word
    message: str
    hint: str = ""


def of_error(name: str, error: LakeplanError, hint: str = "") -> Found:
    """A failure. ``hint`` wins over the error's own."""
    return Found(name, "fail", error.message, hint or error.hint or POLICIES)


def grant(permission: str, error: LakeplanError) -> str:
    """What to do about a failed check of a permission."""
    if isinstance(error, PermissionDenied):
        return f"grant {permission}; {POLICIES}"
    return error.hint or POLICIES


def names(found: Sequence[str]) -> str:
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def on_repositories(count: int) -> str:
    return f"on {count:,} repositories" if count != 1 else "on 1 repository"


def summed(looked: Mapping[str, Sequence[Found]]) -> list[Found]:
    """One finding a check, over all repositories (``looked``: by name): the worst, and on which it is so."""
    checks = dict.fromkeys(one.name for found in looked.values() for one in found)
    return [_sum(check, looked) for check in checks]


def _sum(check: str, looked: Mapping[str, Sequence[Found]]) -> Found:
    by_repository = {name: one for name, found in looked.items() for one in found if one.name == check}
    worst = max(by_repository.values(), key=lambda one: _RANK[one.result])
    if worst.result == "ok":
        text = worst.message if len(by_repository) == 1 else on_repositories(len(by_repository))
        return Found(check, "ok", text)
    where = [name for name, one in by_repository.items() if one.result == worst.result]
    return Found(check, worst.result, f"{worst.message} (on {names(where)})", worst.hint)


def clock(name: str, date: datetime, now: datetime, hint: str) -> Found:
    """Another clock against this machine's."""
    seconds = round((now - date).total_seconds())
    text = f"{abs(seconds):,} s {'behind' if seconds > 0 else 'ahead of'} this machine's"
    if abs(seconds) <= SKEW_WARN_SECONDS:
        return Found(name, "ok", "agrees with this machine's" if abs(seconds) <= 2 else text)
    return Found(name, "warn" if abs(seconds) <= SKEW_FAIL_SECONDS else "fail", text, hint)

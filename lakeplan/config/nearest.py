"""The known word that somebody probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def edit_distance(a: str, b: str, limit: int) -> int:
    """Insertions, deletions, replacements and swaps of neighbours between two words; more than ``limit`` is
    reported as ``limit + 1``."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        before, last, row = row, before, [i] + [0] * len(b)
        for j, cb in enumerate(b, 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (ca != cb))
            if i > 1 and j > 1 and ca == b[j - 2] and a[i - 2] == cb:
                row[j] = min(row[j], last[j - 2] + 1)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word at the smallest distance, when that is small for its length. Ties: the first."""
    if len(word) > 100:
        return None
    limit = min(4, (len(word) + 1) // 3)
    scored = [(edit_distance(word.lower(), k.lower(), limit), i, k) for i, k in enumerate(known)]
    best = min(scored, default=None)
    return best[2] if best and best[0] <= limit else None

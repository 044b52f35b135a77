"""What all stores check before a request is made, and how they answer a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakeplan.adapters.storage.translate import Kind
from lakeplan.errors import StorageError
from lakeplan.model.stored import Deletion

NOT_NAMED = "the answer does not name this key; not known to be deleted"
CHANGED = "changed since it was listed"
TOO_MANY_VERSIONS = "it has more versions than lakeplan lists; delete old ones with a rule of the store"
NO_KEY = "an empty key names no object"


def check_batch(keys: Sequence[str], limit: int, where: str) -> None:
    """Raises StorageError for more keys than one request may name."""
    if len(keys) > limit:
        raise StorageError(f"{len(keys)} keys in one batch, the most is {limit}", where=where)


def in_order(keys: Iterable[str], failed: dict[str, Deletion], deleted: set[str]) -> list[Deletion]:
    """One answer a key. ``deleted`` has only what the store confirmed; a key of neither has failed."""
    answers = []
    for key in keys:
        if key in failed:
            answers.append(failed[key])
        elif key in deleted:
            answers.append(Deletion(key))
        else:
            answers.append(Deletion(key, NOT_NAMED, transient=True))
    return answers


def reason_of(code: str, kind: Kind | None) -> str:
    """A store's code with our words for it; its own text may carry what must not be shown."""
    return f"{code}: {kind.value.message}" if kind is not None else code or "no reason given"


def check_copy(source: str, target: str, where: str) -> None:
    """A copy that is found to be bad is removed: it must never be the source."""
    if source == target or not target:
        raise StorageError("an object cannot be copied to its own place", where=where)


def not_equal(source: str, where: str) -> StorageError:
    return StorageError(
        f"the copy of {source} does not equal it and was removed", where=where, hint="try again"
    )

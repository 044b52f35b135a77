"""What a sweep does to objects of a namespace, and what the store says of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Versions(Enum):
    """Which versions of an object a deletion takes, in a store that keeps versions."""

    MARKER = "marker"
    """The current one only: older versions stay, and with them their bytes."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Deletion:
    """What the store answered for one key of a batch.

    ``reason`` is "" when the store confirmed that no object is at the key any more (S3 does not tell whether
    one was there). Otherwise it is the store's own reason in a few words, without secrets, and ``transient``
    says whether the same request may succeed later (throttling, an inner error). ``changed``: it was not
    deleted because another object is at the key than the expected one.
    """

    key: str
    reason: str = ""
    transient: bool = False
    changed: bool = False

    @property
    def deleted(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """One object as its store describes it. ``storage_class`` is the store's word ("" when it has none);
    ``readable`` is False for archived data, which must be restored before it can be read or copied."""

    key: str
    size: int
    modified_us: int
    e_tag: str = ""
    storage_class: str = ""
    readable: bool = True


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What a store does with deleted data; None where it does not say (no permission, or no such request).

    ``versioned``: deleted objects stay as older versions. ``soft_delete``: deleted objects stay for a while
    (Azure); deletion then frees nothing until they lapse.
    """

    versioned: bool | None = None
    soft_delete: bool | None = None

"""Where an address was seen: bits that are OR-ed over all its sightings."""

from __future__ import annotations

from enum import IntFlag


class Seen(IntFlag):
    ENTRY = 1
    """A commit of the dump holds it: its entry is relative, or full and inside the namespace."""
    ALIAS = 2
    """A commit, of any repository, has an address that may mean it: in an unusual spelling, or with the same
    tail at another URL."""
    CANDIDATE = 4
    """An entry whose key may be garbage at all: under ``data/`` or directly at the root."""
    LISTED = 8
    """Stored, under a key that may be garbage."""
    OLD = 16
    """Stored, and older than the minimum age."""
    UNCOMMITTED = 32
    """In the newest run of uncommitted addresses."""
    ERROR = 64
    """No address: ``path`` says what could not be read."""
    HELD = 128
    """A commit holds it at a path under a prefix that a hold names."""
    FOREIGN = 256
    """A commit of another repository holds it, by its full address."""
    MARKED = 512
    """A mark that is being swept names it."""

"""Secrets that cannot be shown by accident."""

from __future__ import annotations

from dataclasses import dataclass


class Secret:
    """A text whose ``repr`` and ``str`` are ``***``.

    It can be pickled, text included: a metadata reader carries its credentials to local Spark workers. Such
    a pickle stays in the memory and the job files of one Spark application; nothing else may pickle it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that sends it."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))


@dataclass(frozen=True)
class Credentials:
    """An access key of a lakeFS server. ``source`` says where it was found (names of variables or a file)."""

    access_key_id: Secret
    secret_access_key: Secret
    source: str = ""

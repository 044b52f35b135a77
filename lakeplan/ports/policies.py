"""What lakeplan needs of a server for branch lifecycle policies and object lifecycle rules.

Both exist on lakeFS Enterprise only: everywhere else each call raises FeatureMissing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakeplan.model.lifecycle import Policy
from lakeplan.model.settings import ObjectRule, SettingItem, SettingKind, Stored


class SettingsReader(Protocol):
    def get_policies(self, repository: str) -> Stored[Policy]:
        """The stored policies in their order, with the server's ETag."""

    def get_object_rules(self, repository: str) -> Stored[ObjectRule]: ...


class SettingsWriter(Protocol):
    """The writes that apply makes. Kept apart from the reader."""

    def can_set(self, repository: str, kind: SettingKind) -> bool:
        """The server's preflight where it has one; True where it has none."""

    def set_items(
        self, repository: str, kind: SettingKind, items: Sequence[SettingItem], *, if_match: str
    ) -> None:
        """Replaces the whole list. ``if_match`` is the ETag read before; "" sends no precondition. Raises
        PreconditionFailed when the server has another one."""

    def delete_items(self, repository: str, kind: SettingKind) -> None:
        """Removes the list; idempotent. The server takes no precondition here."""

"""What a plan does to one setting of a repository."""

from __future__ import annotations

from enum import Enum


class Action(str, Enum):
    """What happens to a setting of a repository: its GC rules, policies or object rules."""

    ADD = "add"
    CHANGE = "change"
    CLEAR = "clear"
    NONE = "none"

    @property
    def writes(self) -> bool:
        return self is not Action.NONE

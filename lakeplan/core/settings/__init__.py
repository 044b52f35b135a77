"""Policies and object rules of the tree against those a server stores: pure functions over both kinds.

A policy that the tree gives no id gets one from the server. Such an id is never a difference.
"""

from lakeplan.core.settings.difference import (
    action_of_setting,
    diff_setting,
    fits,
    is_reordering,
    item_name,
    item_values,
    pair_items,
    same_setting,
    what_changed,
    with_server_ids,
)
from lakeplan.core.settings.fates import (
    EVEREST,
    deleted_while_held,
    fates_of,
    first_deletion,
    held_deletions,
)

__all__ = [
    "EVEREST",
    "action_of_setting",
    "deleted_while_held",
    "diff_setting",
    "fates_of",
    "first_deletion",
    "fits",
    "held_deletions",
    "is_reordering",
    "item_name",
    "item_values",
    "pair_items",
    "same_setting",
    "what_changed",
    "with_server_ids",
]

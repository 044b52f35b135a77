"""Policies and object rules of the tree against those a server stores: pure functions over both kinds.

A policy that the tree gives no id gets one from the server. Such an id is never a difference.
"""

from lakeplan.core.settings.difference import (
    action_of_setting,
    diff_setting,
    is_reordering,
    same_setting,
    with_server_ids,
)

__all__ = ["action_of_setting", "diff_setting", "is_reordering", "same_setting", "with_server_ids"]

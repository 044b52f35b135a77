"""Reads ``notify``: channels, and the channel of each owner."""

from __future__ import annotations

import re

from lakeplan.tree.checks import text_of
from lakeplan.tree.structure import nearest
from lakeplan.tree.yaml import ListNode, MapNode, Node, Problems
from lakeplan.values.notify import Channel, ChannelKind, Event, NotifyConfig

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
_KINDS = {kind.value: kind for kind in ChannelKind}
_EVENTS = {event.value: event for event in Event}


def read_notify(root: MapNode, problems: Problems) -> NotifyConfig | None:
    """None where the tree has no ``notify``. What is not well formed has its problem and is left out."""
    node = root.items.get("notify")
    if not isinstance(node, MapNode):
        return None
    channels = _channels(node.items.get("channels"), problems)
    owners: dict[str, str] = {}
    block = node.items.get("owners")
    for owner, child in block.items.items() if isinstance(block, MapNode) else ():
        if _is_known(child, ("notify", "owners", owner), channels, problems):
            owners[owner] = text_of(child) or ""
    default = node.items.get("default")
    if default is not None:
        _is_known(default, ("notify", "default"), channels, problems)
    only = next(iter(channels)) if len(channels) == 1 else None
    return NotifyConfig(channels, owners, text_of(default) or only)


def _channels(node: Node | None, problems: Problems) -> dict[str, Channel]:
    found: dict[str, Channel] = {}
    variables: dict[str, str] = {}
    for name, child in node.items.items() if isinstance(node, MapNode) else ():
        assert isinstance(node, MapNode)
        at, path = node.where(name), ("notify", "channels", name)
        if not _NAME.fullmatch(name):
            text = "a channel's name begins with a letter and has letters, digits, - and _ (at most 63)"
            problems.add(at, path, text)
            continue
        kind = _KINDS.get(text_of(child.items.get("kind")) or "") if isinstance(child, MapNode) else None
        if kind is None or not isinstance(child, MapNode):
            continue
        events = child.items.get("events")
        listed = [text_of(item) for item in events.items] if isinstance(events, ListNode) else list(_EVENTS)
        channel = Channel(name, kind, tuple(_EVENTS[e] for e in listed if e in _EVENTS))
        other = variables.setdefault(channel.variable, name)
        if other != name:
            text = f"{name!r} and {other!r} share the variable {channel.variable}: rename one of them"
            problems.add(at, path, text)
        found[name] = channel
    return found


def _is_known(node: Node, path: tuple[str, ...], channels: dict[str, Channel], problems: Problems) -> bool:
    name = text_of(node)
    if name is None or name in channels:
        return name is not None
    close = nearest(name, channels)
    hint = f"did you mean {close}?" if close else f"there are {', '.join(channels)}"
    problems.add(node.source, path, f"there is no channel {name!r}: {hint}")
    return False

"""Notifications: channels of a tree, who is notified of what, and a message before it is formatted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Event(str, Enum):
    """What a notification is about. ``BRANCH_DELETION`` is the notice before a policy deletes branches."""

    PLAN_REFUSED = "plan-refused"
    APPLY_FAILED = "apply-failed"
    DRIFT = "drift"
    MARK_AWAITING_APPROVAL = "mark-awaiting-approval"
    SWEEP_FINISHED = "sweep-finished"
    BRANCH_DELETION = "branch-deletion"


class ChannelKind(str, Enum):
    """The payload that a webhook accepts."""

    JSON = "json"
    SLACK = "slack"
    TEAMS = "teams"


@dataclass(frozen=True)
class Channel:
    """A webhook. Its URL is a secret, which only the environment has (``variable``)."""

    name: str
    kind: ChannelKind
    events: tuple[Event, ...] = tuple(Event)

    @property
    def variable(self) -> str:
        return f"LAKEPLAN_NOTIFY_{self.name.upper().replace('-', '_')}_URL"


@dataclass(frozen=True)
class NotifyConfig:
    """``owners`` maps an owner to a channel's name; ``default`` is the channel for everything else."""

    channels: Mapping[str, Channel] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None

    def channel_for(self, event: Event, owner: str | None) -> Channel | None:
        """The owner's channel, or the default one where that does not accept the event; None for neither."""
        for name in (self.owners.get(owner or ""), self.default):
            channel = self.channels.get(name or "")
            if channel is not None and event in channel.events:
                return channel
        return None

    def __str__(self) -> str:
        """One line that differs whenever somebody else would be notified."""
        channels = [f"{c.name} ({', '.join(e.value for e in c.events)})" for c in self.channels.values()]
        owners = [f"{owner}: {name}" for owner, name in sorted(self.owners.items())]
        return "; ".join(
            [*sorted(channels), *owners, *([f"default: {self.default}"] if self.default else [])]
        )


@dataclass(frozen=True)
class Item:
    """One line of a message. ``subject`` is a name and ``text`` prose, both of which anybody may have
    written; ``command`` is what a person can run about it. ``facts`` are for programs."""

    subject: str
    text: str = ""
    command: str = ""
    owner: str | None = None
    facts: Mapping[str, str | int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Occasion:
    """What a command reports, before its receivers are known."""

    event: Event
    title: str
    items: Sequence[Item]
    hint: str = ""


@dataclass(frozen=True)
class Message:
    """``id`` is the same when the same message is sent again. ``at`` is ISO 8601 UTC."""

    id: str
    event: Event
    at: str
    title: str
    items: tuple[Item, ...]
    hint: str = ""
    link: str = ""


@dataclass(frozen=True)
class Sent:
    """Items that went in one message. ``problem`` says why it was not accepted; "" when it was."""

    items: tuple[Item, ...]
    channel: str = ""
    problem: str = ""


class Publisher(Protocol):
    def publish(self, event: Event, title: str, items: Sequence[Item], hint: str = "") -> Sequence[Sent]:
        """Sends the items to the channels of their owners, within a bounded time. Never raises for a channel
        that does not answer: every item is in one of the results."""


class NoPublisher:
    """Of a tree without ``notify``."""

    def publish(self, event: Event, title: str, items: Sequence[Item], hint: str = "") -> Sequence[Sent]:
        return (Sent(tuple(items), problem="the tree has no `notify` channel"),)

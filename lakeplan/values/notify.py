"""Notifications: the channels of a tree, and messages before they are formatted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Event(str, Enum):
    """The subject of a notification. ``BRANCH_DELETION`` is the notice before a policy deletes branches."""

    PLAN_REFUSED = "plan-refused"
    APPLY_FAILED = "apply-failed"
    DRIFT = "drift"
    MARK_AWAITING_APPROVAL = "mark-awaiting-approval"
    SWEEP_FINISHED = "sweep-finished"
    BRANCH_DELETION = "branch-deletion"


class ChannelKind(str, Enum):
    """The kind of payload that a webhook accepts."""

    JSON = "json"
    SLACK = "slack"
    TEAMS = "teams"


@dataclass(frozen=True)
class Channel:
    """A webhook. Its URL is a secret, which comes from the environment (``variable``)."""

    name: str
    kind: ChannelKind
    events: tuple[Event, ...] = tuple(Event)

    @property
    def variable(self) -> str:
        return f"LAKEPLAN_NOTIFY_{self.name.upper().replace('-', '_')}_URL"


@dataclass(frozen=True)
class NotifyConfig:
    """The channels of a tree. ``owners`` maps an owner to a channel's name. ``default`` is the channel for
    everything else."""

    channels: Mapping[str, Channel] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None

    def channel_for(self, event: Event, owner: str | None) -> Channel | None:
        """Return the owner's channel, or the default channel if the owner's does not accept the event, or
        None."""
        for name in (self.owners.get(owner or ""), self.default):
            channel = self.channels.get(name or "")
            if channel is not None and event in channel.events:
                return channel
        return None

    def __str__(self) -> str:
        """Return a line that identifies who is notified."""
        channels = [f"{c.name} ({', '.join(e.value for e in c.events)})" for c in self.channels.values()]
        owners = [f"{owner}: {name}" for owner, name in sorted(self.owners.items())]
        return "; ".join(
            [*sorted(channels), *owners, *([f"default: {self.default}"] if self.default else [])]
        )


@dataclass(frozen=True)
class Item:
    """A line of a message. ``subject`` is a name and ``text`` is prose; strangers may have written both.
    ``command`` is the command to run next. ``facts`` are for programs."""

    subject: str
    text: str = ""
    command: str = ""
    owner: str | None = None
    facts: Mapping[str, str | int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Occasion:
    """A report of a command, before its recipients are known."""

    event: Event
    title: str
    items: Sequence[Item]
    hint: str = ""


@dataclass(frozen=True)
class Message:
    """A message for one channel. A message that is sent again has the same ``id``. ``at`` is ISO 8601 UTC."""

    id: str
    event: Event
    at: str
    title: str
    items: tuple[Item, ...]
    hint: str = ""
    link: str = ""


@dataclass(frozen=True)
class SentMessage:
    """The items of one message. ``problem`` says why the message was not accepted, or is "" if it was."""

    items: tuple[Item, ...]
    channel: str = ""
    problem: str = ""


class Publisher(Protocol):
    def publish(
        self, event: Event, title: str, items: Sequence[Item], hint: str = ""
    ) -> Sequence[SentMessage]:
        """Send the items to the channels of their owners, within a limited time. Every item is in one of the
        results, even if a channel does not answer."""


class NoPublisher:
    """The publisher of a tree without ``notify``."""

    def publish(
        self, event: Event, title: str, items: Sequence[Item], hint: str = ""
    ) -> Sequence[SentMessage]:
        return (SentMessage(tuple(items), problem="the tree has no `notify` channel"),)

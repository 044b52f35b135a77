"""Sends notifications: chooses channels, splits messages, and limits attempts and time."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from lakeplan.limits import NOTIFICATION_BYTES, NOTIFICATION_ITEMS
from lakeplan.values.notify import Channel, ChannelKind, Event, Item, Message, NotifyConfig, SentMessage
from lakeplan.values.records import utc_text

TOTAL_SECONDS = 60.0
"""The time limit for all notifications of one call together."""
ATTEMPT_SECONDS = 10.0
TRIES = 3
PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Answer:
    """A channel's answer. ``problem`` is empty if the channel accepted the message. If ``maybe``, it may have
    accepted the message without answering. If ``again``, it may help to send the message again after ``wait``
    seconds."""

    problem: str = ""
    maybe: bool = False
    again: bool = False
    wait: float = 0.0


class Post(Protocol):
    def __call__(self, channel: Channel, payload: bytes, id: str, seconds: float) -> Answer:
        """Sends one message within ``seconds``. Network errors are answers, not exceptions."""


@dataclass(frozen=True)
class Clocks:
    """The clocks of notifications. ``now`` dates messages. The others limit the time that sending takes."""

    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Notifier:
    """A ``Publisher`` over webhooks. ``payload`` formats a message for a kind of channel. ``link`` is the
    address of the CI run, if there is one."""

    config: NotifyConfig
    post: Post
    payload: Callable[[ChannelKind, Message], bytes]
    clocks: Clocks
    link: str = ""
    seconds: float = field(default=TOTAL_SECONDS)

    def publish(
        self, event: Event, title: str, items: Sequence[Item], hint: str = ""
    ) -> Sequence[SentMessage]:
        end = self.clocks.monotonic() + self.seconds
        by_channel: dict[str, list[Item]] = {}
        channels: dict[str, Channel] = {}
        sent: list[SentMessage] = []
        for item in items:
            channel = self.config.channel_for(event, item.owner)
            if channel is None:
                sent.append(SentMessage((item,), problem=_no_channel(event, item.owner)))
                continue
            channels[channel.name] = channel
            by_channel.setdefault(channel.name, []).append(item)
        for name, chosen in by_channel.items():
            sent += self._to_channel(channels[name], event, title, chosen, hint, end)
        return sent

    def _to_channel(
        self, channel: Channel, event: Event, title: str, items: Sequence[Item], hint: str, end: float
    ) -> list[SentMessage]:
        """Sends all items to a channel. If it refuses a message, the others are not sent."""
        done: list[SentMessage] = []
        left = [
            range(len(items))[at : at + NOTIFICATION_ITEMS] for at in range(0, len(items), NOTIFICATION_ITEMS)
        ]
        while left:
            places = left.pop(0)
            part = tuple(items[place] for place in places)
            message = Message(
                self._id(channel, event, part),
                event,
                utc_text(self.clocks.now().replace(microsecond=0)),
                _title(title, places, len(items)),
                part,
                hint,
                self.link,
            )
            payload = self.payload(channel.kind, message)
            if len(payload) > NOTIFICATION_BYTES and len(part) > 1:
                half = len(part) // 2
                left[:0] = [places[:half], places[half:]]
                continue
            problem = self._send(channel, payload, message.id, end)
            done.append(SentMessage(part, channel.name, problem))
            if problem:
                rest = tuple(items[place] for places in left for place in places)
                return [*done, *([SentMessage(rest, channel.name, problem)] if rest else [])]
        return done

    def _send(self, channel: Channel, payload: bytes, id: str, end: float) -> str:
        """Return why the channel did not accept a message, or "". A message that may have arrived is sent
        again only if the recipient can recognize the duplicate by its id."""
        problem = ""
        for attempt in range(TRIES):
            left = end - self.clocks.monotonic()
            if left <= 0:
                return problem or "the time limit was reached before it was sent"
            answer = self.post(channel, payload, id, min(left, ATTEMPT_SECONDS))
            problem = answer.problem
            may_repeat = answer.again and (not answer.maybe or channel.kind is ChannelKind.JSON)
            if not problem or not may_repeat or attempt == TRIES - 1:
                return problem
            pause = max(answer.wait, PAUSE_SECONDS * 2**attempt)
            if self.clocks.monotonic() + pause >= end:
                return problem
            self.clocks.sleep(pause)
        return problem

    def _id(self, channel: Channel, event: Event, items: Sequence[Item]) -> str:
        """The id of a message. The same message on the same day has the same id, even from another run."""
        day = self.clocks.now().date().isoformat()
        text = json.dumps(
            [channel.name, event.value, day, [[i.subject, sorted(i.facts.items())] for i in items]]
        )
        return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _title(title: str, places: range, total: int) -> str:
    """Return the title with the number of all items and, if there are several messages, the items in this
    one."""
    if len(places) == total:
        return f"{title} ({total:,})"
    return f"{title} ({places[0] + 1:,} to {places[-1] + 1:,} of {total:,})"


def _no_channel(event: Event, owner: str | None) -> str:
    whose = f"of owner {owner!r}" if owner else "without an owner"
    return (
        f"no channel accepts {event.value} for repositories {whose}; set `notify.default` or `notify.owners`"
    )

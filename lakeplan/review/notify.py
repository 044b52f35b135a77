"""Sends notifications: chooses channels, splits messages, and limits attempts and time."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import requests
from urllib3.exceptions import NewConnectionError

from lakeplan.lakefs.credentials import Secret
from lakeplan.lakefs.transport import NoAuth, new_session, read_whole, requested_wait
from lakeplan.limits import MESSAGE_BYTES, NOTIFICATION_BYTES, NOTIFICATION_ITEMS, TooLarge
from lakeplan.values.bodies import TooSlow, within
from lakeplan.values.notify import Channel, ChannelKind, Event, Item, Message, NotifyConfig, SentMessage
from lakeplan.values.records import utc_text
from lakeplan.values.urls import BadUrl, parse_signed_url

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


@dataclass(frozen=True)
class Clocks:
    """The clocks of notifications. ``now`` dates messages. The others limit the time that sending takes."""

    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Notifier:
    """A ``Publisher`` over webhooks, whose URLs are in ``environ``. ``payload`` formats a message for a kind
    of channel. ``link`` is the address of the CI run, if there is one."""

    config: NotifyConfig
    environ: Mapping[str, str] = field(repr=False)
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
            answer = post(channel, self.environ, payload, id, min(left, ATTEMPT_SECONDS))
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


# ---- webhooks, whose URLs are secrets that never appear in messages
ID_HEADER = "Idempotency-Key"
_NOT_SENT = (requests.exceptions.ConnectTimeout, requests.exceptions.ProxyError)


def post(channel: Channel, environ: Mapping[str, str], payload: bytes, id: str, seconds: float) -> Answer:
    """Sends one message within ``seconds``. Network errors are answers, not exceptions."""
    url = url_of(channel, environ)
    if isinstance(url, Answer):
        return url
    try:
        response = within(seconds, lambda: _post(url, payload, id, seconds))
    except (TooSlow, TooLarge):
        return Answer("the webhook's response was too slow or too large", maybe=True, again=True)
    except requests.exceptions.SSLError:
        return Answer("the TLS connection failed")
    except requests.RequestException as error:
        # The library's message contains the URL.
        if isinstance(error, _NOT_SENT) or _is_unconnected(error):
            return Answer("the connection failed", again=True)
        return Answer(f"the request failed ({type(error).__name__})", maybe=True, again=True)
    return _judge(channel.kind, response)


def url_of(channel: Channel, environ: Mapping[str, str]) -> Secret | Answer:
    """The URL of a channel, or why there is none. Plain http is accepted only for this machine."""
    text = environ.get(channel.variable, "").strip()
    if not text:
        return Answer(f"{channel.variable} is not set")
    try:
        url = parse_signed_url(text)
    except BadUrl as error:
        return Answer(f"{channel.variable} is not a usable URL: {error}")
    if url.scheme != "https" and not url.is_loopback:
        return Answer(f"{channel.variable} must be an https URL")
    return Secret(text)


def _post(url: Secret, payload: bytes, id: str, seconds: float) -> requests.Response:
    with new_session() as session:
        response = session.post(
            url.reveal(),
            data=payload,
            headers={"Content-Type": "application/json", ID_HEADER: id},
            auth=NoAuth(),
            timeout=(min(5.0, seconds), seconds),
            allow_redirects=False,
            stream=True,
        )
        read_whole(response, MESSAGE_BYTES, time.monotonic)
        return response


def _is_unconnected(error: requests.RequestException) -> bool:
    """Return whether no connection was made, so that nothing was sent."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, NewConnectionError)


def _judge(kind: ChannelKind, response: requests.Response) -> Answer:
    """Return whether the channel accepted the message. The text of its response is untrusted and not
    repeated."""
    status = response.status_code
    if status in (429, 503):
        return Answer(
            f"the webhook is overloaded (status {status})",
            again=True,
            wait=requested_wait(response, time.time()) or 0.0,
        )
    if 300 <= status < 400:
        return Answer(f"the webhook redirects (status {status}), and lakeplan does not follow redirects")
    if not 200 <= status < 300:
        return Answer(f"the webhook returned status {status}", maybe=status >= 500, again=status >= 500)
    answer = response.content[:500].decode("utf-8", "replace").strip().lower()
    if kind is ChannelKind.SLACK and answer not in ("", "ok") and '"ok":true' not in answer.replace(" ", ""):
        return Answer("the webhook did not return ok")
    if kind is ChannelKind.TEAMS and "fail" in answer:
        return Answer("the webhook reported a failure")
    return Answer()

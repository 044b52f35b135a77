"""Sends notifications of a command to the tree's channels, whose URLs are in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakeplan.cli.console import say, stderr
from lakeplan.cli.process import ci_of, now_utc
from lakeplan.review.notify import Answer, Clocks, Notifier
from lakeplan.values.notify import (
    Channel,
    ChannelKind,
    Message,
    NoPublisher,
    NotifyConfig,
    Occasion,
    Publisher,
)

if TYPE_CHECKING:
    from lakeplan.cli.wiring import Session


def publisher_of(config: NotifyConfig | None, environ: Mapping[str, str]) -> Publisher:
    if config is None:
        return NoPublisher()

    # The modules for HTTP and payloads are imported only when something is sent.
    def post(channel: Channel, payload: bytes, id: str, seconds: float) -> Answer:
        from lakeplan.review.webhook import Webhooks

        return Webhooks(environ)(channel, payload, id, seconds)

    def payload_of(kind: ChannelKind, message: Message) -> bytes:
        from lakeplan.output.occasions import payload

        return payload(kind, message)

    link = ci_of(environ).get("run_url", "")
    return Notifier(config, post, payload_of, Clocks(now_utc), link=link)


def notify(session: Session, occasion: Occasion | None, reviewed: NotifyConfig | None = None) -> None:
    """Notifies the channels of the tree, and warns about each that fails. ``reviewed`` is the base tree's
    ``notify``, which a pull request cannot change for itself. Without either, nothing is sent."""
    config = reviewed or session.tree.notify
    if occasion is None or config is None:
        return
    publisher = publisher_of(config, session.environ)
    sent = publisher.publish(occasion.event, occasion.title, occasion.items, occasion.hint)
    for channel, problem in dict.fromkeys((part.channel, part.problem) for part in sent if part.problem):
        where = f" (channel {channel})" if channel else ""
        text = f"warning: the notification of {occasion.event.value} could not be delivered: {problem}{where}"
        say(stderr(), text, label=("warning:", "yellow"))


def url_problem(channel: Channel, environ: Mapping[str, str]) -> str:
    """Return why nothing can be sent to a channel, or "" if its URL is set. Sends nothing itself."""
    from lakeplan.review.webhook import url_of

    url = url_of(channel, environ)
    return url.problem if isinstance(url, Answer) else ""

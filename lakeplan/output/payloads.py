"""Notifications as the JSON that webhooks accept (``schemas/notification.v1.json`` describes lakeplan's own).

Names and texts come from branches, owners, servers and pull requests. None of them may mention anybody, make
a link or format anything: in Slack they are escaped and cut up, in Teams they are text runs, which are never
read as Markdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypedDict

from lakeplan.limits import NOTIFICATION_TEXT
from lakeplan.output.text import safe, safe_json
from lakeplan.values.notify import ChannelKind, Item, Message

FORMAT: Final = "lakeplan.notification/v1"
_QUOTE = "\u2019"
_BREAK = "\u200b"
"""Between characters that a chat program would act on together."""
_ACTED_ON = re.compile(r"(?<=[@#*_~\[\]!|])(?=\S)|(?<=[:.])(?=[A-Za-z/])|(?<=\S)(?=[@*_~])")
_SLACK_TEXT = 250
_SLACK_SECTION = 3000
"""What Slack accepts. Escaped, a character is at most five, so that two texts fit."""


class NotificationItem(TypedDict):
    """``facts`` depend on the event: names, numbers and times, for programs."""

    subject: str
    text: str
    command: str
    owner: str | None
    facts: Mapping[str, str | int | None]


class Notification(TypedDict):
    """``schemas/notification.v1.json``. ``id`` is the same when the same notification is sent again."""

    format: Literal["lakeplan.notification/v1"]
    id: str
    event: str
    at: str
    title: str
    hint: str
    link: str
    items: list[NotificationItem]


def payload(kind: ChannelKind, message: Message) -> bytes:
    """The body of one request."""
    document = _PAYLOADS[kind](message)
    return safe_json(json.dumps(document, ensure_ascii=False)).encode()


def notification(message: Message) -> Notification:
    return {
        "format": FORMAT,
        "id": message.id,
        "event": message.event.value,
        "at": message.at,
        "title": _short(message.title),
        "hint": _short(message.hint),
        "link": message.link,
        "items": [
            {
                "subject": _short(item.subject),
                "text": _short(item.text),
                "command": safe(item.command),
                "owner": item.owner,
                "facts": dict(item.facts),
            }
            for item in message.items
        ],
    }


def _short(text: str, longest: int = NOTIFICATION_TEXT) -> str:
    """One line without control characters, of bounded length."""
    shown = safe(text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


# ---- Slack
def _slack(message: Message) -> dict[str, Any]:
    texts = [f"*{_prose(message.title)}*", *(text for item in message.items for text in _slack_item(item))]
    texts += [_prose(message.hint)] if message.hint else []
    texts += [f"<{_link(message.link)}|CI run>"] if _link(message.link) else []
    return {
        "text": _prose(message.title),
        "mrkdwn": False,
        "link_names": False,
        "parse": "none",
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}} for text in texts
        ],
    }


def _slack_item(item: Item) -> list[str]:
    """A command that does not fit is left out: half of one would be another."""
    command = _code(safe(item.command)) if item.command else ""
    texts = [f"{_code(_short(item.subject, _SLACK_TEXT))} {_prose(item.text)}".rstrip()]
    return [*texts, *([command] if 0 < len(command) <= _SLACK_SECTION else [])]


def _escaped(text: str) -> str:
    """As Slack documents it. Without < and > there are no mentions, channels or links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(text: str) -> str:
    """A code span, in which nothing is formatted; it has no backquote inside."""
    return f"`{_escaped(text.replace('`', _QUOTE))}`"


def _prose(text: str) -> str:
    """Text in which programs that also read ``@here``, bare addresses or Markdown find none."""
    shown = _short(text, _SLACK_TEXT).replace("`", _QUOTE)
    return _escaped(_BREAK.join(part for part in _ACTED_ON.split(shown) if part))


def _link(text: str) -> str:
    """The address of a CI run, if nothing in it could end the link."""
    return text if re.fullmatch(r"https://[A-Za-z0-9._~:/?#&=%-]{1,500}", text) else ""


# ---- Teams
def _teams(message: Message) -> dict[str, Any]:
    """What a workflow with the trigger "When a Teams webhook request is received" expects."""
    body: list[dict[str, Any]] = [_runs(_run(_short(message.title), size="medium", weight="bolder"))]
    for item in message.items:
        body.append(
            {
                **_runs(_run(_short(item.subject), fontType="monospace"), _run(f" {_short(item.text)}")),
                "separator": True,
            }
        )
        if item.command:
            body.append(_runs(_run(safe(item.command), fontType="monospace", size="small")))
    if message.hint:
        body.append(_runs(_run(_short(message.hint), isSubtle=True)))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
    }
    if _link(message.link):
        card["actions"] = [{"type": "Action.OpenUrl", "title": "CI run", "url": message.link}]
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def _runs(*runs: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _run(text: str, **style: object) -> dict[str, Any]:
    return {"type": "TextRun", "text": text, **style}


_PAYLOADS: Mapping[ChannelKind, Callable[[Message], Mapping[str, Any]]] = {
    ChannelKind.JSON: notification,
    ChannelKind.SLACK: _slack,
    ChannelKind.TEAMS: _teams,
}

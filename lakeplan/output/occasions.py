"""Occasions for notifications, made from the documents of commands, and the JSON that webhooks accept
(``schemas/notification.v1.json`` is lakeplan's own).

Names and texts come from branches, owners, servers and pull requests. None of them may mention anyone, create
a link or change the formatting. For Slack they are escaped and broken up. For Teams they are text runs, which
are never read as Markdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from lakeplan.errors import LakeplanError
from lakeplan.limits import NOTIFICATION_TEXT
from lakeplan.output.plan_impact import gates_of
from lakeplan.output.text import count, moment, safe, safe_json, size
from lakeplan.values.gates import WHOLE_PLAN
from lakeplan.values.notify import ChannelKind, Event, Item, Message, Occasion
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.plan.documents import ApplyDocument, DriftDocument
    from lakeplan.sweep.documents import MarkDocument, MarksDocument, SweepDocument


Owners = Callable[[str], str]
"""The owner of ``server/name``; "" without one."""


def plan_refused(document: Mapping[str, Any], owner_of: Owners) -> Occasion | None:
    """The gates that refuse a plan, or None if none does."""
    items = [
        Item(
            subject=f"{gate['scope']} {gate['gate']}",
            text=gate["message"],
            owner=_owner(gate["scope"], owner_of),
            facts={"scope": gate["scope"], "gate": gate["gate"], "value": _whole(gate["value"])},
        )
        for gate in gates_of(document)
        if gate["outcome"] == "refused"
    ]
    hint = "Change the rules, or add an override of the gate to the tree and have it reviewed."
    return Occasion(Event.PLAN_REFUSED, "Gates refused a plan", items, hint) if items else None


def apply_failed(document: ApplyDocument, owner_of: Owners) -> Occasion | None:
    """The settings that were not written as planned, or None if all were."""
    items = [
        Item(
            subject=f"{result['repository']} {result['setting']}",
            text=f"{result['outcome']}: {result['message']}",
            owner=_owner(result["repository"], owner_of),
            facts={**_of(result, "repository", "setting", "outcome"), "run_id": document["run_id"]},
        )
        for result in document["results"]
        if result["exit_code"]
    ]
    hint = "Run `lakeplan apply` again. It skips settings that were already applied."
    return (
        Occasion(Event.APPLY_FAILED, "An apply failed to write some settings", items, hint) if items else None
    )


def apply_stopped(error: LakeplanError) -> Occasion:
    """An apply that ended with an error, before or after its first write."""
    item = Item(error.where or "apply", error.message, facts={"exit_code": int(error.exit_code)})
    return Occasion(Event.APPLY_FAILED, "An apply ended with an error", [item], error.hint)


def drift_found(document: DriftDocument, classes: Collection[str]) -> Occasion | None:
    """Return the repositories with drift of these classes and those that could not be compared, or None."""
    items = [
        Item(
            subject=drifted["repository"],
            text=f"{', '.join(classes_found)}{'; ' if drifted['note'] else ''}{drifted['note']}",
            owner=drifted["owner"],
            facts={"repository": drifted["repository"], "classes": " ".join(classes_found)},
        )
        for drifted in document["repositories"]
        if (classes_found := [name for name in drifted["classes"] if name in classes])
    ]
    items += [
        Item(
            subject=failure["repository"],
            text=f"could not be compared: {failure['message']}",
            owner=failure["owner"],
            facts={"repository": failure["repository"], "classes": ""},
        )
        for failure in document["failures"]
    ]
    hint = "Run `lakeplan drift` to see the differences."
    return Occasion(Event.DRIFT, "Drift", items, hint) if items else None


def marks_waiting(
    document: MarksDocument, owner_of: Owners, ids: Collection[str] | None = None
) -> Occasion | None:
    """Marks that would delete something, among ``ids`` if given, or None if there are none."""
    waiting = [
        mark
        for mark in document["marks"]
        if mark["goes"]["objects"] and (ids is None or mark["mark_id"] in ids)
    ]
    items = [_mark(mark, owner_of) for mark in waiting]
    title = "Marks await approval"
    hint = "Inspect the mark, then run `lakeplan sweep approve MARK --reason TEXT`."
    return Occasion(Event.MARK_AWAITING_APPROVAL, title, items, hint) if items else None


def _mark(mark: MarkDocument, owner_of: Owners) -> Item:
    key, goes = f"{mark['server']}/{mark['repository']}", mark["goes"]
    return Item(
        subject=f"{key} {mark['mark_id']}",
        text=f"{count_of(goes['objects'], 'object')} ({size(goes['size_bytes'])}) would be deleted by a sweep"
        f" between {moment(mark['sweep_from'])} and {moment(mark['sweep_until'])}",
        command=f"lakeplan sweep show {mark['mark_id']}",
        owner=_owner(key, owner_of),
        facts={
            "repository": key,
            "mark_id": mark["mark_id"],
            **_of(goes, "objects", "size_bytes"),
            **_of(mark, "sweep_from", "sweep_until"),
        },
    )


def sweeps_ended(documents: Sequence[SweepDocument], owner_of: Owners) -> Occasion | None:
    """Sweeps that ended, finished or not, or None if there are none."""
    items = [_sweep(document, owner_of) for document in documents]
    return Occasion(Event.SWEEP_FINISHED, "Sweeps ended", items) if items else None


def _sweep(document: SweepDocument, owner_of: Owners) -> Item:
    deleted, failed, pending = document["deleted"], document["failed"], document["pending"]
    texts = [f"{count_of(deleted['objects'], 'object')} deleted ({size(deleted['size_bytes'])})"]
    texts += [f"{count(failed['objects'])} failed"] if failed["objects"] else []
    texts += [f"{count(pending['objects'])} left"] if pending["objects"] else []
    texts += [f"stopped: {document['problem']}"] if document["problem"] else []
    return Item(
        subject=f"{document['repository']} {document['mark_id']}",
        text=", ".join(texts),
        command=f"lakeplan sweep show {document['mark_id']}",
        owner=_owner(document["repository"], owner_of),
        facts={
            **_of(document, "repository", "mark_id"),
            "finished": int(document["finished"]),
            "deleted_objects": deleted["objects"],
            "deleted_bytes": deleted["size_bytes"],
            "failed_objects": failed["objects"],
            "pending_objects": pending["objects"],
        },
    )


def _of(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The facts with these names."""
    return {name: row[name] for name in names}


def _owner(scope: str, owner_of: Owners) -> str | None:
    return None if scope == WHOLE_PLAN else owner_of(scope) or None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


FORMAT: Final = "lakeplan.notification/v1"
_QUOTE = "\u2019"
_BREAK = "\u200b"
"""Put between characters that a chat program would interpret together."""
_ACTED_ON = re.compile(r"(?<=[@#*_~\[\]!|])(?=\S)|(?<=[:.])(?=[A-Za-z/])|(?<=\S)(?=[@*_~])")
_SLACK_TEXT = 250
_SLACK_SECTION = 3000
"""The maximum length that Slack accepts. A character becomes at most five when it is escaped, so two texts
fit."""


class NotificationItem(TypedDict):
    """One item of a notification. ``facts`` depend on the event: names, numbers and times, for programs."""

    subject: str
    text: str
    command: str
    owner: str | None
    facts: Mapping[str, str | int | None]


class Notification(TypedDict):
    """The document of ``schemas/notification.v1.json``. ``id`` stays the same when a notification is sent
    again."""

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
    """One line without control characters, at most ``longest`` characters long."""
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
    """Return the texts of an item. A command that does not fit is omitted, because a part of it would be a
    different command."""
    command = _code(safe(item.command)) if item.command else ""
    texts = [f"{_code(_short(item.subject, _SLACK_TEXT))} {_prose(item.text)}".rstrip()]
    return [*texts, *([command] if 0 < len(command) <= _SLACK_SECTION else [])]


def _escaped(text: str) -> str:
    """Text escaped as Slack documents. Without < and > it has no mentions, channels or links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(text: str) -> str:
    """A code span, in which Slack formats nothing. It contains no backquote."""
    return f"`{_escaped(text.replace('`', _QUOTE))}`"


def _prose(text: str) -> str:
    """Text without ``@here``, bare addresses or Markdown, for programs that read those too."""
    shown = _short(text, _SLACK_TEXT).replace("`", _QUOTE)
    return _escaped(_BREAK.join(part for part in _ACTED_ON.split(shown) if part))


def _link(text: str) -> str:
    """The address of a CI run, or "" if something in it could end the link."""
    return text if re.fullmatch(r"https://[A-Za-z0-9._~:/?#&=%-]{1,500}", text) else ""


# ---- Teams
def _teams(message: Message) -> dict[str, Any]:
    """The payload for a workflow with the trigger "When a Teams webhook request is received"."""
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

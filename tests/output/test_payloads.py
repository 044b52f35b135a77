"""Payloads of webhooks: valid, and nothing in a name mentions, links or formats anything."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from lakeplan.output.occasions import payload
from lakeplan.tree.schemas import load_schema
from lakeplan.values.notify import ChannelKind, Event, Item, Message

HOSTILE = [
    "<!channel> deploy",
    "<!here|x>",
    "<@U024BE7LH>",
    "<https://evil.example|click>",
    "[click](https://evil.example)",
    "*bold* _it_ ~s~ `code`",
    "`<!channel>`",
    "@channel @here @all",
    "https://evil.example/x",
    "a\nb\r\nc",
    "\u202egpj.exe",
    "\x1b[31mred\x07",
    "&lt;!channel&gt;",
    "<at>everyone</at>",
    "x" * 5000,
    "\ud800",
]


def made(kind: ChannelKind, text: str, **more: Any) -> Any:
    message = Message(
        "id",
        Event.BRANCH_DELETION,
        "2026-03-31T12:00:00Z",
        f"title {text}",
        (Item(text, text, f"lakeplan branches exempt '{text[:200]}'", text, {"branch": text}),),
        f"hint {text}",
        **more,
    )
    return json.loads(payload(kind, message))


def slack_texts(document: Any) -> list[str]:
    return [document["text"], *(block["text"]["text"] for block in document["blocks"])]


def outside_code(text: str) -> str:
    return re.sub(r"`[^`]*`", "", text)


class DescribeSlack:
    @pytest.mark.parametrize("text", HOSTILE)
    def it_neither_mentions_nor_links_nor_formats(self, text: str) -> None:
        for shown in slack_texts(made(ChannelKind.SLACK, text)):
            assert "<" not in shown
            assert ">" not in shown
            assert not re.search(r"&(?!(amp|lt|gt);)", shown)
            prose = outside_code(shown)
            assert not re.search(r"@[A-Za-z]", prose)
            assert "://" not in prose
            assert "\n" not in prose
            assert len(shown) <= 3000

    @given(st.text(max_size=60))
    def it_has_an_even_number_of_backquotes_and_no_markup_of_others(self, text: str) -> None:
        for shown in slack_texts(made(ChannelKind.SLACK, text)):
            assert shown.count("`") % 2 == 0
            assert not re.search(r"[<>]", shown)
            assert not re.search(r"@[^\W\d_]", outside_code(shown))

    def it_asks_slack_not_to_parse(self) -> None:
        document = made(ChannelKind.SLACK, "x")
        assert (document["parse"], document["link_names"], document["unfurl_links"]) == ("none", False, False)
        assert all(block["text"]["verbatim"] for block in document["blocks"])

    def it_links_the_run_and_nothing_odd(self) -> None:
        good = made(ChannelKind.SLACK, "x", link="https://github.com/o/r/actions/runs/1")
        assert slack_texts(good)[-1] == "<https://github.com/o/r/actions/runs/1|CI run>"
        for odd in ("https://a|<!channel>", "javascript:alert(1)", "https://a>b", "https://a\n"):
            assert "CI run" not in json.dumps(made(ChannelKind.SLACK, "x", link=odd))
            assert "CI run" not in json.dumps(made(ChannelKind.TEAMS, "x", link=odd))

    def it_shows_a_command_as_it_can_be_run(self) -> None:
        item = Item("a", "b", "lakeplan branches exempt prod/a feature_x --until 2026-12-31")
        message = Message("i", Event.BRANCH_DELETION, "t", "title", (item,))
        document = json.loads(payload(ChannelKind.SLACK, message))
        assert "`lakeplan branches exempt prod/a feature_x --until 2026-12-31`" in slack_texts(document)


class DescribeTeams:
    def it_is_an_adaptive_card_in_a_message(self) -> None:
        document = made(ChannelKind.TEAMS, "x", link="https://github.com/o/r/actions/runs/1")
        (attachment,) = document["attachments"]
        assert document["type"] == "message"
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        card = attachment["content"]
        assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
        assert card["actions"][0]["url"] == "https://github.com/o/r/actions/runs/1"
        assert "entities" not in card["msteams"], "without them nobody can be mentioned"

    @pytest.mark.parametrize("text", HOSTILE)
    def it_has_text_runs_only_which_are_never_markdown(self, text: str) -> None:
        body = made(ChannelKind.TEAMS, text)["attachments"][0]["content"]["body"]
        assert {block["type"] for block in body} == {"RichTextBlock"}
        runs = [run for block in body for run in block["inlines"]]
        assert {run["type"] for run in runs} == {"TextRun"}
        assert not any("\n" in run["text"] for run in runs)
        assert "selectAction" not in json.dumps(body)


class DescribeJson:
    @pytest.mark.parametrize("text", HOSTILE)
    def it_has_the_schema(self, text: str) -> None:
        document = made(ChannelKind.JSON, text)
        Draft202012Validator(load_schema("notification")).validate(document)
        assert len(document["items"][0]["subject"]) <= 400

    def it_names_every_event(self) -> None:
        schema = load_schema("notification")["properties"]["event"]["enum"]
        channel = load_schema("tree")["$defs"]["channel"]["properties"]
        assert schema == [event.value for event in Event] == channel["events"]["items"]["enum"]
        assert channel["kind"]["enum"] == [kind.value for kind in ChannelKind]


@pytest.mark.parametrize("kind", list(ChannelKind))
@pytest.mark.parametrize("text", HOSTILE)
def it_sends_no_control_characters(kind: ChannelKind, text: str) -> None:
    item = Item(text, text, text, text, {"branch": text})
    sent = payload(kind, Message("id", Event.DRIFT, "t", text, (item,), text))
    assert not re.search("[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]", sent.decode())


def it_keeps_facts_as_they_are_for_programs() -> None:
    facts = made(ChannelKind.JSON, "\u202egpj.exe")["items"][0]["facts"]
    assert facts == {"branch": "\u202egpj.exe"}

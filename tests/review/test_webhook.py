"""Notifications over real HTTP: what is sent, how often, how long, and that the URL stays secret."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

import pytest

from lakeplan.output.occasions import payload
from lakeplan.review.notify import ATTEMPT_SECONDS, Clocks, Notifier
from lakeplan.values.notify import Channel, ChannelKind, Event, Item, NotifyConfig
from tests.webhooks import SECRET, Receiver, receiver

NOW = datetime(2026, 3, 31, 12, tzinfo=timezone.utc)


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


class Time:
    """Waiting takes no time here, and is remembered."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return time.monotonic() + sum(self.pauses)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def notifier(
    environ: Mapping[str, str], kind: str = "json", clock: Time | None = None, **more: Any
) -> Notifier:
    clock = clock or Time()
    channel = Channel("ops", ChannelKind(kind))
    return Notifier(
        NotifyConfig({"ops": channel}, default="ops"),
        environ,
        payload,
        Clocks(lambda: NOW, clock.monotonic, clock.sleep),
        **more,
    )


def send(hook: Receiver, kind: str = "json", items: int = 1, **more: Any) -> Any:
    lines = [Item(f"prod/analytics feature-{number}", "text") for number in range(items)]
    made = notifier({"LAKEPLAN_NOTIFY_OPS_URL": hook.url}, kind, **more)
    return made.publish(Event.BRANCH_DELETION, "title", lines)


@pytest.mark.parametrize("kind", ["json", "slack", "teams"])
def it_posts_json_once(hook: Receiver, kind: str) -> None:
    (sent,) = send(hook, kind)
    assert sent.problem == ""
    assert sent.channel == "ops"
    (request,) = hook.received
    assert "title (1)" in request.body.decode()
    assert request.headers["Content-Type"] == "application/json"
    assert len(request.headers["Idempotency-Key"]) == 32
    assert "Authorization" not in request.headers
    assert isinstance(request.json, dict)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("kind", ["json", "slack", "teams"])
def it_sends_again_what_was_turned_away_with_the_same_id(hook: Receiver, kind: str, status: int) -> None:
    clock = Time()
    hook.answers = [(status, {"Retry-After": "7"}, b""), (200, {}, b"ok")]
    (sent,) = send(hook, kind, clock=clock)
    assert sent.problem == ""
    first, second = hook.received
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert first.body == second.body
    assert clock.pauses == [7.0]


def it_gives_up_after_three_attempts(hook: Receiver) -> None:
    clock = Time()
    hook.answers = [(503, {}, b"")]
    (sent,) = send(hook, clock=clock)
    assert sent.problem == "the webhook is overloaded (status 503)"
    assert len(hook.received) == 3
    assert clock.pauses == [1.0, 2.0]


def it_does_not_wait_longer_than_all_may_take(hook: Receiver) -> None:
    clock = Time()
    hook.answers = [(429, {"Retry-After": "3600"}, b"")]
    (sent,) = send(hook, clock=clock)
    assert "status 429" in sent.problem
    assert (len(hook.received), clock.pauses) == (1, [])


@pytest.mark.parametrize("answer", [None, (500, {}, b"oops"), (502, {}, b""), (504, {}, b"")])
def it_repeats_what_may_have_arrived_only_where_the_id_lets_it_be_dropped(
    hook: Receiver, answer: Any
) -> None:
    hook.answers = [answer, (200, {}, b"ok")]
    (sent,) = send(hook, "json")
    assert (sent.problem, len(hook.received)) == ("", 2)
    for kind in ("slack", "teams"):
        hook.answers, hook.received = [answer, (200, {}, b"ok")], []
        (sent,) = send(hook, kind)
        assert sent.problem
        assert len(hook.received) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413])
def it_does_not_repeat_what_was_refused(hook: Receiver, status: int) -> None:
    hook.answers = [(status, {}, b"invalid_payload")]
    (sent,) = send(hook)
    assert sent.problem == f"the webhook returned status {status}"
    assert len(hook.received) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def it_follows_no_redirect(hook: Receiver, status: int) -> None:
    with receiver() as other:
        hook.answers = [(status, {"Location": other.url}, b"")]
        (sent,) = send(hook)
        assert (
            sent.problem == f"the webhook redirects (status {status}), and lakeplan does not follow redirects"
        )
        assert other.received == []
        assert len(hook.received) == 1


@pytest.mark.parametrize(
    ("kind", "body", "accepted"),
    [
        ("slack", b"ok", True),
        ("slack", b"", True),
        ("slack", b'{"ok": true}', True),
        ("slack", b"no_team", False),
        ("slack", b'{"ok": false, "error": "x"}', False),
        ("slack", b"<html>sign in</html>", False),
        ("teams", b"", True),
        ("teams", b"1", True),
        ("teams", b"Webhook message delivery failed with error: x", False),
        ("json", b"<html></html>", True),
    ],
)
def it_accepts_only_what_the_channel_says_it_accepted(
    hook: Receiver, kind: str, body: bytes, accepted: bool
) -> None:
    hook.answers = [(202, {}, body)]
    (sent,) = send(hook, kind)
    assert (sent.problem == "") is accepted


def it_ends_within_its_time_however_slow_the_answer_is(hook: Receiver) -> None:
    hook.answers = [3.0]
    began = time.monotonic()
    (sent,) = send(hook, "slack", seconds=0.5)
    assert time.monotonic() - began < 2
    assert sent.problem
    assert ATTEMPT_SECONDS <= 10


def it_has_no_time_left_for_a_second_channel(hook: Receiver) -> None:
    (sent,) = send(hook, seconds=0.0)
    assert sent.problem == "the time limit was reached before it was sent"
    assert hook.received == []


def it_makes_several_messages_of_many_items(hook: Receiver) -> None:
    sent = send(hook, items=45)
    assert [len(part.items) for part in sent] == [20, 20, 5]
    assert [len(request.json["items"]) for request in hook.received] == [20, 20, 5]
    titles = [request.json["title"] for request in hook.received]
    assert titles == ["title (1 to 20 of 45)", "title (21 to 40 of 45)", "title (41 to 45 of 45)"]
    assert len({request.headers["Idempotency-Key"] for request in hook.received}) == 3


def it_halves_a_message_that_is_too_long(hook: Receiver) -> None:
    made = notifier({"LAKEPLAN_NOTIFY_OPS_URL": hook.url}, "teams")
    items = [Item(f"{'é' * 390}{number}", "é" * 390, "x" * 500) for number in range(20)]
    sent = made.publish(Event.DRIFT, "title", items)
    assert sorted(sum((part.items for part in sent), ()), key=items.index) == items
    assert all(not part.problem for part in sent)
    assert len(sent) > 1
    assert all(len(request.body) <= 24 * 1024 for request in hook.received)


def it_sends_the_rest_nowhere_once_a_message_was_refused(hook: Receiver) -> None:
    hook.answers = [(200, {}, b"ok"), (404, {}, b"")]
    sent = send(hook, items=70)
    assert [len(part.items) for part in sent] == [20, 20, 30]
    assert [part.problem for part in sent] == [
        "",
        "the webhook returned status 404",
        "the webhook returned status 404",
    ]
    assert len(hook.received) == 2


def it_sends_to_the_channels_of_owners(hook: Receiver) -> None:
    with receiver() as other:
        channels = {name: Channel(name, ChannelKind.JSON) for name in ("ops", "ds")}
        made = Notifier(
            NotifyConfig(channels, {"science": "ds"}, "ops"),
            {"LAKEPLAN_NOTIFY_OPS_URL": hook.url, "LAKEPLAN_NOTIFY_DS_URL": other.url},
            payload,
            Clocks(lambda: NOW),
        )
        items = [Item("a", owner="science"), Item("b", owner="others"), Item("c", owner=None)]
        made.publish(Event.DRIFT, "title", items)
        assert [i["subject"] for i in other.received[0].json["items"]] == ["a"]
        assert [i["subject"] for i in hook.received[0].json["items"]] == ["b", "c"]


def it_says_who_is_told_by_nobody(hook: Receiver) -> None:
    made = Notifier(NotifyConfig({"ops": Channel("ops", ChannelKind.JSON)}), {}, payload, Clocks(lambda: NOW))
    (sent,) = made.publish(Event.DRIFT, "title", [Item("a", owner="team")])
    assert sent.problem == (
        "no channel accepts drift for repositories of owner 'team'; set `notify.default` or `notify.owners`"
    )


def it_gives_another_day_another_id(hook: Receiver) -> None:
    ids = set()
    for day in (30, 31, 31):
        made = notifier({"LAKEPLAN_NOTIFY_OPS_URL": hook.url})
        object.__setattr__(made, "clocks", Clocks(lambda day=day: NOW.replace(day=day)))
        made.publish(Event.DRIFT, "title", [Item("a")])
    ids = [request.headers["Idempotency-Key"] for request in hook.received]
    assert ids[1] == ids[2] != ids[0]


class DescribeTheUrl:
    @pytest.mark.parametrize(
        ("url", "problem"),
        [
            ("", "LAKEPLAN_NOTIFY_OPS_URL is not set"),
            ("  ", "LAKEPLAN_NOTIFY_OPS_URL is not set"),
            (f"http://hooks.example.com/{SECRET}", "LAKEPLAN_NOTIFY_OPS_URL must be an https URL"),
            (f"ftp://hooks.example.com/{SECRET}", "is not a usable URL"),
            (f"hooks.example.com/{SECRET}", "is not a usable URL"),
            (f"https://me:{SECRET}@hooks.example.com/x", "is not a usable URL"),
            (f"https://hooks.example.com\\{SECRET}", "is not a usable URL"),
            (f"https://hooks.example.com/{SECRET}\r\nX-Header: 1", "is not a usable URL"),
            (f"https://127.0.0.1:1/{SECRET}", "the connection failed"),
            (f"https://does-not-exist.invalid/{SECRET}", "the connection failed"),
        ],
    )
    def it_is_checked_and_never_said(
        self, url: str, problem: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        caplog.set_level(logging.DEBUG)
        made = notifier({"LAKEPLAN_NOTIFY_OPS_URL": url})
        (sent,) = made.publish(Event.DRIFT, "title", [Item("a")])
        assert problem in sent.problem
        said = f"{sent} {made!r} {caplog.text} {''.join(capfd.readouterr())}"
        assert SECRET not in said

    @pytest.mark.parametrize("answer", [(200, {}, b"ok"), (404, {}, SECRET.encode()), None, (302, {}, b"")])
    def it_is_in_no_log_however_the_request_ends(
        self, hook: Receiver, answer: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        for name in ("urllib3", "urllib3.connectionpool", "requests"):
            logging.getLogger(name).setLevel(logging.DEBUG)
        hook.answers = [answer]
        (sent,) = send(hook)
        assert SECRET not in f"{sent} {caplog.text}"
        assert "secret-signature" not in f"{sent} {caplog.text}"

    def it_is_sent_no_credentials_of_a_netrc_file(
        self, hook: Receiver, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
        (tmp_path / ".netrc").chmod(0o600)
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        monkeypatch.setenv("HOME", str(tmp_path))
        send(hook)
        assert "Authorization" not in hook.received[0].headers

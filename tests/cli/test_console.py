from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from lakeplan.cli.console import OMITTED, configure_logging, text_of, trace_of
from lakeplan.cli.main import run
from lakeplan.errors import StorageError

TOKEN = "top-secret-token"


def send() -> None:
    requests.get("http://127.0.0.1:1", headers={"Authorization": f"{TOKEN}\n"}, timeout=1)


def write_header() -> None:
    connection = http.client.HTTPConnection("127.0.0.1", 1)
    connection.putrequest("GET", "/")
    connection.putheader("X-Amz-Security-Token", f"{TOKEN}\nx")


def parse_port() -> None:
    assert urlsplit(f"http://user:{TOKEN}").port


@pytest.mark.parametrize(
    ("act", "kind"), [(send, "InvalidHeader"), (write_header, "ValueError"), (parse_port, "ValueError")]
)
def it_omits_the_text_of_libraries_that_send_credentials(act: Callable[[], None], kind: str) -> None:
    with pytest.raises((ValueError, OSError)) as caught:
        act()
    assert TOKEN in str(caught.value)
    assert text_of(caught.value) == OMITTED
    try:
        raise StorageError("the storage cannot be reached") from caught.value
    except StorageError as error:
        trace = trace_of(error)
    assert TOKEN not in trace
    assert f"{kind}: {OMITTED}" in trace
    assert trace.endswith("StorageError: the storage cannot be reached")
    assert trace.index(kind) < trace.index("StorageError: ")


def it_shows_other_texts_and_the_whole_chain() -> None:
    try:
        try:
            int("seven")
        except ValueError:
            raise KeyError("days")  # noqa: B904 - the context is shown too
    except KeyError as error:
        trace = trace_of(error)
    assert "ValueError: invalid literal for int() with base 10: 'seven'" in trace
    assert trace.endswith("KeyError: 'days'")


def it_keeps_a_session_token_out_of_the_log(
    s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A secret that ends with a line break: botocore's error quotes the header, and the log showed it."""
    url = f"s3://{s3_bucket}/state"
    (tmp_path / "lakeplan.yaml").write_text(
        "apiVersion: lakeplan/v1\nservers: {prod: {endpoint_url: http://127.0.0.1:1}}\n"
        f"state: {{url: {url}}}\n"
    )
    monkeypatch.setenv("LAKEPLAN_STATE_URL", url)
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"{TOKEN}\nx")
    assert run(["history", "-C", str(tmp_path), "--log-level", "debug"]) == 1
    printed = "".join(capsys.readouterr())
    assert "the storage cannot be reached" in printed
    assert TOKEN not in printed


def it_keeps_them_out_of_unexpected_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lakeplan.cli.main.whole_command", Failing)
    configure_logging("debug")
    assert run([]) == 1
    printed = capsys.readouterr().err
    assert "unexpected InvalidHeader" in printed
    assert TOKEN not in printed


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def it_reports_no_bug_where_memory_or_processes_do_not_suffice(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("lakeplan.cli.main.whole_command", fail)
    assert run([]) == 1
    printed = capsys.readouterr().err
    assert "memory or processes" in printed
    assert "bug in lakeplan" not in printed


class Failing:
    def main(self, **_: object) -> None:
        send()


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "--endpoint", "prod=https://h.example.com", "--state", f"https://u:{TOKEN}@h.example.com"),
        ("simulate", "--namespace", "s3://bucket/repo", "--endpoint-url", f"u:{TOKEN}@h.example.com"),
        ("simulate", "--namespace", "s3://bucket/repo", "--endpoint-url", f"https://u:{TOKEN}@h .com"),
    ],
)
def it_does_not_repeat_the_password_of_a_url(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.json").write_text('{"default_retention_days": 7, "branches": []}')
    more = (
        ["--rules", str(tmp_path / "rules.json")]
        if arguments[0] == "simulate"
        else ["-C", str(tmp_path / "x")]
    )
    assert run([*arguments, *more]) != 0
    printed = "".join(capsys.readouterr())
    assert "error: " in printed
    assert TOKEN not in printed

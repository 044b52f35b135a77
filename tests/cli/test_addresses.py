from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from lakeplan.cli.addresses import KnownAddresses, address_question, typed_addresses
from lakeplan.values.progress import Silent
from tests.lakefs.conftest import Answer, Scripted

TREE = """\
apiVersion: lakeplan/v1
servers: {{prod: {{endpoint_url: '{url}'}}}}
repositories: {{lake: {{gc: {{default_retention_days: 7}}}}}}
"""


class DescribeKnownAddresses:
    def it_remembers_by_tree_and_by_what_the_address_is_of(self, tmp_path: Path) -> None:
        known = KnownAddresses(tmp_path / "config" / "addresses.json")
        known.remember(Path("/a"), "server prod", "https://x")
        known.remember(Path("/a"), "state", "s3://b")
        known.remember(Path("/b"), "server prod", "https://y")
        again = KnownAddresses(known.place)
        assert again.last(Path("/a"), "server prod") == "https://x"
        assert again.last(Path("/a"), "state") == "s3://b"
        assert again.last(Path("/b"), "server prod") == "https://y"
        assert again.last(Path("/c"), "server prod") is None
        assert known.place is not None
        assert known.place.stat().st_mode & 0o777 == 0o600
        assert known.place.parent.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "[]", '{"/a": []}', '{"/a": {"state": 5}}'])
    def it_takes_a_damaged_file_for_an_empty_one(self, tmp_path: Path, text: str) -> None:
        place = tmp_path / "addresses.json"
        place.write_text(text)
        known = KnownAddresses(place)
        assert known.last(Path("/a"), "state") is None
        known.remember(Path("/a"), "state", "s3://b")
        assert known.last(Path("/a"), "state") == "s3://b"

    def it_goes_on_where_nothing_can_be_saved(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "config").write_text("a file in the place of a folder")
        known = KnownAddresses(tmp_path / "config" / "addresses.json")
        known.remember(Path("/a"), "state", "s3://b")
        assert known.last(Path("/a"), "state") is None
        assert "the approval was not saved" in caplog.text

    @pytest.mark.parametrize("mode", [0o620, 0o602])
    def it_does_not_trust_a_file_that_others_may_write(self, tmp_path: Path, mode: int) -> None:
        place = tmp_path / "addresses.json"
        place.write_text(json.dumps({"/a": {"state": "s3://evil"}}))
        place.chmod(mode)
        assert KnownAddresses(place).last(Path("/a"), "state") is None


@pytest.mark.parametrize("folder", ["tree", "tree/home"])
def it_reads_no_answers_that_the_tree_could_bring(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / folder
    place = home / ".config" / "lakeplan" / "addresses.json"
    place.parent.mkdir(parents=True)
    tree = (tmp_path / "tree").resolve()
    place.write_text(json.dumps({str(tree): {"server prod": "https://evil"}}))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: "no")
    question = address_question(tree, {"HOME": str(home)}, Silent())
    assert question is not None
    assert not question("server prod", "https://evil")


def it_does_not_ask_again_for_an_address_that_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, environ = tmp_path / "tree", {"HOME": str(tmp_path / "home")}
    assert typed_addresses(tree, environ)("state", "s3://ops/lakeplan")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: "no")
    question = address_question(tree, environ, Silent())
    assert question is not None
    assert question("state", "s3://ops/lakeplan")
    assert not question("state", "s3://elsewhere/lakeplan")
    assert not question("server prod", "s3://ops/lakeplan")


def it_asks_a_person_once_for_each_address(tmp_path: Path) -> None:
    tree, home = tmp_path / "tree", tmp_path / "home"
    tree.mkdir()
    home.mkdir()
    first, second = Scripted(), Scripted()
    first.script = second.script = [Answer(401, {"message": "no"})]
    try:
        (tree / "lakeplan.yaml").write_text(TREE.format(url=first.url))
        seen = at_a_terminal(tree, home, "no")
        assert "have not been sent anywhere yet" in seen
        assert "nothing was sent" in seen
        assert first.seen == []
        at_a_terminal(tree, home, "yes")
        assert len(first.seen) == 1
        assert "Send them there?" not in at_a_terminal(tree, home, None)
        assert len(first.seen) == 2
        (tree / "lakeplan.yaml").write_text(TREE.format(url=second.url))
        seen = at_a_terminal(tree, home, "no")
        assert first.url in seen
        assert second.url in seen
        assert second.seen == []
    finally:
        first.stop()
        second.stop()


def at_a_terminal(tree: Path, home: Path, answer: str | None) -> str:
    """The output for a person who answers the question at a terminal."""
    ours, theirs = pty.openpty()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LAKE", "XDG"))}
    env |= {
        "HOME": str(home),
        "TERM": "dumb",
        "COLUMNS": "200",
        "LAKEPLAN_PROD_ACCESS_KEY_ID": "key",
        "LAKEPLAN_PROD_SECRET_ACCESS_KEY": "secret",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "lakeplan", "plan", "-C", str(tree), "--no-simulate"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
    )
    os.close(theirs)
    seen = b""
    try:
        while True:
            ready, _, _ = select.select([ours], [], [], 60)
            assert ready, seen
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
            if answer is not None and b"Only 'yes' is accepted" in seen:
                os.write(ours, answer.encode() + b"\n")
                answer = None
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = seen.decode()
    assert "Traceback" not in text
    return text

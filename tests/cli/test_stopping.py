"""Commands that are stopped while a progress bar is shown, on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeplan.cli import process as module
from lakeplan.cli.process import stopping
from lakeplan.errors import ExitCode
from tests.simulation.namespaces import NOW, History, Snapshot, Stored, entry, write_namespace

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def it_gives_the_terminal_back_and_says_so(
    silent_server: str, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "lakeplan.yaml").write_text(
        "apiVersion: lakeplan/v1\n"
        f"servers: {{prod: {{endpoint_url: '{silent_server}'}}}}\n"
        "repositories: {lake: {gc: {default_retention_days: 7}}}\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lakeplan", "plan", "-C", str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={
            **os.environ,
            "TERM": "xterm",
            "NO_COLOR": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "LAKEPLAN_PROD_ENDPOINT_URL": silent_server,
            "LAKEPLAN_PROD_ACCESS_KEY_ID": "key",
            "LAKEPLAN_PROD_SECRET_ACCESS_KEY": "secret",
        },
    )
    os.close(theirs)
    try:
        seen = _read_until(ours, "listing the repositories of prod")
        process.send_signal(number)
        seen += _read_until(ours, None)
        assert process.wait(timeout=60) == ExitCode.INTERRUPTED
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert seen.rindex(SHOW) > seen.rindex(HIDE)
    assert "interrupted" in seen[seen.rindex(SHOW) :]
    assert "Traceback" not in seen


READS_FOR_LONG = """
import os, time
from lakeplan.cli.main import main
from lakeplan.simulation import steps

def fetch(*_):
    os.write(1, b"reads\\n")  # at once: several threads read
    time.sleep(60)

steps.fetch = fetch
main()
"""


@pytest.mark.usefixtures("ctrl_c")
def it_ends_a_simulation_that_reads_for_long(tmp_path: Path) -> None:
    commits = (
        Snapshot("a", 60, (), (entry("x/1", "data/p/1"),)),
        Snapshot("b", 50, ("a",), (entry("y/1", "data/p/1"),)),
    )
    url = write_namespace(tmp_path / "ns", History(commits, {"main": "b"}, {"data/p/1": Stored()}))
    (tmp_path / "rules.json").write_text('{"default_retention_days": 7, "branches": null}')
    options = ["--rules", str(tmp_path / "rules.json"), "--as-of", NOW.isoformat(), "--cache", "off"]
    process = subprocess.Popen(
        [sys.executable, "-c", READS_FOR_LONG, "simulate", "--namespace", url, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "reads\n"
        time.sleep(1)  # until every thread reads, and the main one waits for them
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == ExitCode.INTERRUPTED
        said = process.stdout.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert "error: interrupted" in said
    assert "Traceback" not in said


def _read_until(terminal: int, words: str | None) -> str:
    """The terminal's output until it contains ``words``, or to its end."""
    seen = b""
    while words is None or words.encode() not in seen:
        ready, _, _ = select.select([terminal], [], [], 30)
        assert ready, f"nothing more after {seen!r}"
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # Linux says EIO when the other side is closed
            chunk = b""
        if not chunk:
            assert words is None, f"it ended: {seen!r}"
            break
        seen += chunk
    return seen.decode()


class DescribeOutputThatGoesNowhere:
    """Also what is still in a buffer when the command ends."""

    COMMAND = (sys.executable, "-P", "-m", "lakeplan", "schema")

    @pytest.mark.parametrize("command", ["plan", "--help"])
    def it_is_no_success_when_nobody_reads_it(self, command: str) -> None:
        ours, theirs = os.pipe()
        os.close(ours)
        try:
            done = subprocess.run(
                [*self.COMMAND, command], stdout=theirs, stderr=subprocess.PIPE, check=False
            )
        finally:
            os.close(theirs)
        assert (done.returncode, done.stderr) == (ExitCode.ERROR, b"")

    @pytest.mark.parametrize("command", ["plan", "--help"])
    def it_says_that_there_is_no_room(self, command: str) -> None:
        with open("/dev/full", "wb") as full:
            done = subprocess.run([*self.COMMAND, command], stdout=full, stderr=subprocess.PIPE, check=False)
        assert done.returncode == ExitCode.ERROR
        assert done.stderr.startswith(b"error: cannot write the output: No space left on device\n")

    @pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
    def it_works_with_closed_streams(self, closed: str) -> None:
        command = f"{shlex.join(self.COMMAND)} plan {closed}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (ExitCode.OK, b"")

    def it_reads_nothing_from_a_closed_input(self) -> None:
        command = f"{shlex.join(self.COMMAND[:-1])} sandbox seed - <&-"
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
        assert done.returncode == ExitCode.ERROR
        assert b"unexpected" not in done.stderr


class DescribeStopping:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def it_sees_a_signal_that_comes_as_it_begins_to_wait(
        self, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With a lock in the place of sleeps, about one signal in a thousand woke nobody."""
        monkeypatch.setattr(module, "STEP", 0.001)
        before = signal.getsignal(number)
        with stopping(number):
            for _ in range(1000):
                self.asked_of_a_thread(number)
        assert signal.getsignal(number) is before

    def asked_of_a_thread(self, number: signal.Signals) -> None:
        begins = threading.Event()

        def ask() -> None:
            begins.wait()
            os.kill(os.getpid(), number)

        with stopping(number) as stop:
            thread = threading.Thread(target=ask)
            thread.start()
            begins.set()
            assert stop.wait(60)
            thread.join()
        assert stop.is_set()

    def it_waits_no_longer_than_it_is_told(self) -> None:
        began = time.monotonic()
        with stopping() as stop:
            assert not stop.wait(0)
            assert not stop.wait(0.05)
        assert 0.05 <= time.monotonic() - began < 30

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from lakeplan.cli.progress import TerminalProgress, clock_text, progress_for, rate_of
from lakeplan.values.progress import Silent
from tests.cpu import wait_until

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on(stream: io.StringIO, term: str = "xterm") -> TerminalProgress:
    return TerminalProgress(Console(file=stream, force_terminal=True, width=80, _environ={"TERM": term}))


class DescribeSilence:
    def it_writes_nothing_where_standard_error_is_no_terminal(self) -> None:
        stream = io.StringIO()
        with on(stream).task("reading", 3) as step:
            step()
        assert stream.getvalue() == ""

    def it_writes_nothing_to_a_terminal_that_cannot_move_its_cursor(self) -> None:
        stream = Terminal()
        with on(stream, term="dumb").task("reading", 3) as step:
            step()
        assert stream.getvalue() == ""

    def it_is_silent_when_asked_to_be(self) -> None:
        assert isinstance(progress_for(shown=False), Silent)
        assert isinstance(progress_for(shown=True), TerminalProgress)


class DescribeBars:
    def it_shows_text_steps_and_total_and_takes_its_lines_away(self) -> None:
        stream = Terminal()
        with on(stream).task("reading [red]repositories", 1_200) as step:
            for _ in range(7):
                step()
            wait_until(lambda: "7/1,200" in stream.getvalue())
        text = stream.getvalue()
        assert "reading [red]repositories" in text
        assert "7/1,200" in text
        assert text.rindex(SHOW) > text.rindex(HIDE)
        assert "reading" not in text[text.rindex("\x1b[2K") :]

    def it_shows_rate_and_remaining_time_once_they_are_known(self) -> None:
        stream = Terminal()
        with on(stream).task("deleting", 1_000_000) as step:
            step(10_000)
            wait_until(lambda: re.search(r"[\d,]{5,}/s", stream.getvalue()) and " left" in stream.getvalue())
        text = stream.getvalue()
        assert "10,000/1,000,000" in text
        assert re.search(r"[\d,]{5,}/s", text)
        assert re.search(r"0:0\d:\d\d left", text)

    def it_shows_no_rate_when_the_number_of_steps_is_unknown(self) -> None:
        stream = Terminal()
        with on(stream).task("simulating", None) as step:
            step()
            wait_until(lambda: "0:00:01" in stream.getvalue())
        assert "0:00:01" in stream.getvalue()
        assert "/s" not in stream.getvalue()
        assert "left" not in stream.getvalue()

    def it_shows_no_steps_when_their_number_is_unknown(self) -> None:
        stream = Terminal()
        with on(stream).task("simulating", None):
            wait_until(lambda: "simulating" in stream.getvalue())
        assert "simulating" in stream.getvalue()
        assert "0/" not in stream.getvalue()

    def it_counts_steps_of_many_threads(self) -> None:
        stream = Terminal()
        with on(stream).task("reading", 1_600) as step:
            threads = [threading.Thread(target=lambda: [step() for _ in range(200)]) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wait_until(lambda: "1,600/1,600" in stream.getvalue())
        assert "1,600/1,600" in stream.getvalue()

    def it_runs_tasks_inside_and_beside_each_other(self) -> None:
        stream = Terminal()
        progress = on(stream)
        with progress.task("outer", 2) as outer:
            with progress.task("inner", 2) as inner:
                inner()
                wait_until(lambda: "inner" in stream.getvalue())
            outer()
            wait_until(lambda: "1/2" in stream.getvalue().rpartition("inner")[2])
        with progress.task("after", 1):
            wait_until(lambda: "after" in stream.getvalue())
        text = stream.getvalue()
        assert all(name in text for name in ("outer", "inner", "after"))
        assert text.count(HIDE) == text.count(SHOW) == 2

    def it_takes_a_late_step_as_nothing(self) -> None:
        stream = Terminal()
        progress = on(stream)
        with progress.task("first", 5) as late:
            pass
        with progress.task("second", 5):
            late()
            before = len(stream.getvalue())
            wait_until(lambda: "second" in stream.getvalue()[before:])
        assert "0/5" in stream.getvalue()
        assert "1/5" not in stream.getvalue()

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
    def it_gives_the_terminal_back_after_an_error(self, error: type[BaseException]) -> None:
        stream = Terminal()
        progress = on(stream)
        with pytest.raises(error), progress.task("outer", 1), progress.task("inner", 1):
            raise error
        assert stream.getvalue().rindex(SHOW) > stream.getvalue().rindex(HIDE)

    def it_leaves_a_piped_standard_output_alone(self, capsys: pytest.CaptureFixture[str]) -> None:
        stream = Terminal()
        with on(stream).task("reading", 1):
            print('{"json": true}')
        assert capsys.readouterr().out == '{"json": true}\n'
        assert "json" not in stream.getvalue()


@pytest.mark.parametrize(
    ("completed", "total", "elapsed", "rate"),
    [(10, 20, 2.0, 5.0), (0, 20, 2.0, None), (10, None, 2.0, None), (10, 20, 0.5, None), (1, 2, None, None)],
)
def it_knows_a_rate(completed: float, total: float | None, elapsed: float | None, rate: float | None) -> None:
    assert rate_of(completed, total, elapsed) == rate


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0:00:00"), (65.2, "0:01:05"), (86_399, "23:59:59"), (90_000, "1 d 1:00:00")]
)
def it_tells_times(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def it_gives_a_real_terminal_back_on_control_c(ctrl_c: None) -> None:
    code = (
        "import time\n"
        "from lakeplan.cli.progress import TerminalProgress\n"
        "with TerminalProgress().task('working', 9) as step:\n"
        "    step()\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        seen = b""
        while chunk := _read(ours):
            seen += chunk
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(ours)
    text = seen.decode()
    assert "working" in text
    assert text.rindex(SHOW) > text.rindex(HIDE)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says EIO when the other side is closed
        return b""

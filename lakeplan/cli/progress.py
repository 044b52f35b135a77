"""Shows progress bars on standard error during long work, if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from lakeplan.cli.console import stderr
from lakeplan.output.text import safe
from lakeplan.values.progress import Progress, Silent, Step, nothing


@dataclass(frozen=True, eq=False)
class _Task:
    """A line of one display. Each display counts its lines from 0."""

    live: RichProgress
    id: TaskID


@dataclass
class TerminalProgress:
    """One line per running task on standard error, if that is a terminal that can move its cursor.

    A line disappears when its task ends. While no task runs nothing is drawn, so that a question or an error
    has the terminal to itself. Tasks and steps may come from any thread; a step after the end of its task is
    ignored.
    """

    console: Console = field(default_factory=stderr)
    _lock: RLock = field(default_factory=RLock, init=False, repr=False)
    _live: RichProgress | None = field(default=None, init=False, repr=False)
    _running: list[_Task] = field(default_factory=list, init=False, repr=False)

    @property
    def is_shown(self) -> bool:
        """Whether somebody can see bars. FORCE_COLOR and the like do not make a terminal of a file."""
        return self.console.file.isatty() and not self.console.is_dumb_terminal

    @contextmanager
    def task(self, text: str, total: int | None) -> Iterator[Step]:
        if not self.is_shown:
            yield nothing
            return
        task: _Task | None = None

        def step(count: int = 1) -> None:
            self._step(task, count)

        try:
            task = self._begin(text, total)
            yield step
        finally:
            self._end(task)

    def _begin(self, text: str, total: int | None) -> _Task:
        with self._lock:
            if self._live is None:
                self._live = _bars(self.console)
                self._live.start()
            task = _Task(self._live, self._live.add_task(safe(text, self.console.encoding), total=total))
            self._running.append(task)
            return task

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hides the bars, for a question."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
            try:
                yield
            finally:
                if self._live is not None:
                    self._live.start()

    def note(self, text: str) -> None:
        with self._lock:
            line = Text(safe(text, self.console.encoding), style="dim")
            (self._live.console if self._live else self.console).print(line, soft_wrap=True)

    def _step(self, task: _Task | None, count: int) -> None:
        with self._lock:
            if task is not None and task in self._running:
                task.live.advance(task.id, count)

    def _end(self, task: _Task | None) -> None:
        with self._lock:
            live = self._live
            if live is None:
                return
            if task is not None and task in self._running:
                self._running.remove(task)
                live.remove_task(task.id)
            if not self._running:
                self._live = None
                live.stop()


def progress_for(*, shown: bool, no_color: bool = False) -> Progress:
    """Progress bars, or none with ``--no-progress`` or ``-q``."""
    return TerminalProgress(stderr(no_color=no_color)) if shown else Silent()


class _Steps(ProgressColumn):
    """``3/12``, or nothing if the number of steps is not known."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{int(task.completed):,}/{int(task.total):,}")


class _Rate(ProgressColumn):
    """``1,234/s`` since the task began: deletions are reported in batches, so a shorter period would jump."""

    def render(self, task: Task) -> Text:
        rate = rate_of(task.completed, task.total, task.elapsed)
        return Text("" if rate is None else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")


class _Time(ProgressColumn):
    """The remaining time at this rate, or the elapsed time while no rate is known."""

    def render(self, task: Task) -> Text:
        rate = rate_of(task.completed, task.total, task.elapsed)
        if rate is None or task.total is None:
            return Text(clock_text(task.elapsed or 0.0))
        return Text(f"{clock_text((task.total - task.completed) / rate)} left")


def rate_of(completed: float, total: float | None, elapsed: float | None) -> float | None:
    """Steps a second; None while it is not known (no total, no step, less than a second)."""
    if total is None or not completed or elapsed is None or elapsed < 1:
        return None
    return completed / elapsed


def clock_text(seconds: float) -> str:
    """``0:01:05``; ``2 d 0:01:05``."""
    days, rest = divmod(max(0, round(seconds)), 86_400)
    text = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} d {text}" if days else text


def _bars(console: Console) -> RichProgress:
    # Nothing is written to standard output, because a program may read it as JSON.
    return RichProgress(
        SpinnerColumn("line"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        _Steps(),
        _Rate(),
        _Time(),
        console=console,
        transient=True,
        refresh_per_second=8,
        redirect_stdout=sys.stdout.isatty(),
    )

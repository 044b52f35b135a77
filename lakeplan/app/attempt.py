"""The write of one setting of one repository: what was seen before it, how far it came, how it ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from lakeplan.app.run import GC, Applied, Connection, Outcome, Run
from lakeplan.app.state import History
from lakeplan.errors import LakeplanError, StalePlan
from lakeplan.model.plan import RepositoryPlan
from lakeplan.ports.storage import StateWriter


class Attempt(ABC):
    """Check, write, read back, record; subclasses know what is written. ``live`` is the repository planned
    again just before, when the gates were judged."""

    def __init__(
        self,
        repository: RepositoryPlan,
        live: RepositoryPlan | None,
        run: Run,
        state: StateWriter,
        history: History,
        *,
        setting: str,
        force: bool,
    ) -> None:
        self.repository = repository
        self.live = live
        self.run = run
        self.state = state
        self.force = force
        self._history = history
        self._setting = setting
        self._written = False

    @property
    @abstractmethod
    def called(self) -> str:
        """What messages call it: ``the rules``."""

    @abstractmethod
    def etags(self) -> tuple[str, str]:
        """lakeplan's ETags of what was seen before, and of what is to be there."""

    @abstractmethod
    def action(self) -> str: ...

    @abstractmethod
    def check(self, connection: Connection) -> bool:
        """Reads what is stored. True when it is to be written, False when it is as planned already. Raises
        StalePlan when it is neither that nor what was planned on, and PermissionDenied."""

    @abstractmethod
    def bodies(self) -> Mapping[str, Any]:
        """``before`` and ``after`` for the history."""

    @abstractmethod
    def send(self, connection: Connection) -> None:
        """Writes and reads back. Raises StalePlan when something else is read."""

    @abstractmethod
    def record(self) -> None:
        """Stores what was read back in the state."""

    def run_it(self, connection: Connection) -> Outcome:
        outcome = Outcome.ALREADY
        if self.check(connection):
            # Before the write, so that a killed run tells what it was about to replace.
            self._note(status="pending", **self.bodies())
            self.send(connection)
            self._written = True
            outcome = Outcome.APPLIED
        self.record()
        self._note(status=outcome.value)
        return outcome

    def failed(self, error: LakeplanError) -> Applied:
        text = str(error)
        if self._written:
            text = f"{self.called} were written and read back, but could not be recorded: {text}"
        try:
            self._note(status=Outcome.FAILED.value, message=text)
        except LakeplanError as other:
            text = f"{text} (nor could the history be kept: {other})"
        return self.ended(Outcome.FAILED, text, error.hint, int(error.exit_code))

    def ended(self, outcome: Outcome, message: str = "", hint: str = "", exit_code: int = 0) -> Applied:
        before, after = self.etags()
        key, action = self.repository.key, self.action()
        return Applied(key, action, outcome, before, after, message, hint, exit_code, self._setting)

    def changed_since_judged(self) -> StalePlan:
        """It was there when the gates were judged, so what a write does now was not: not even by force."""
        return StalePlan(
            f"{self.called} were as planned a moment ago, and somebody changed them since",
            where=self.repository.key,
            hint="apply again",
        )

    def _note(self, **values: Any) -> None:
        """In the history GC rules stand at the repository itself, each other setting under its name."""
        key = self.repository.key
        if self._setting == GC:
            self._history.step(key, **values)
            return
        known = self._history.record.get("repositories", {}).get(key, {}).get(self._setting, {})
        self._history.step(key, **{self._setting: {**known, **values}})

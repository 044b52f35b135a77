"""The write of one setting of one repository: what was seen before it, how far it came, how it ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from lakeplan.app.read_back import read_back
from lakeplan.app.run import GC, Applied, Connection, Outcome, Run
from lakeplan.app.state import History, record_attempt
from lakeplan.errors import (
    ExitCode,
    LakeplanError,
    PreconditionFailed,
    StalePlan,
    WriteUncertain,
    may_have_acted,
    may_still_act,
)
from lakeplan.model.plan import RepositoryPlan
from lakeplan.ports.storage import StateWriter

TRIES = 3
"""How often a write whose answer was lost is sent. Before each but the first, what is stored is read for
longer than a server's caches last, and must still be what was checked."""


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
        self._sent = False
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
    def check_unchanged(self) -> None:
        """Raises StalePlan when what was read last is not what was planned on."""

    @abstractmethod
    def bodies(self) -> Mapping[str, Any]:
        """``before`` and ``after`` for the history."""

    @abstractmethod
    def prepare(self, connection: Connection) -> None:
        """Does what must be done before the first request that writes."""

    @abstractmethod
    def put(self, connection: Connection) -> None:
        """Sends the write, once."""

    @abstractmethod
    def read(self, connection: Connection) -> None:
        """Reads what is stored now."""

    @abstractmethod
    def is_stored(self) -> bool:
        """Whether what was read last is what is to be there."""

    @abstractmethod
    def is_as_checked(self) -> bool:
        """Whether what was read last is what ``check`` saw, so that it may be written over."""

    @abstractmethod
    def found(self) -> Any:
        """What was read last, for the history."""

    @abstractmethod
    def difference(self) -> str:
        """How what was read last differs from what is to be there, in words."""

    @abstractmethod
    def record(self) -> None:
        """Stores what was read back in the state."""

    def run_it(self, connection: Connection, renew: Callable[[], None]) -> Outcome:
        """``renew`` holds the repository's lease for longer, and raises once somebody else has it."""
        outcome = Outcome.ALREADY
        if self.check(connection):
            # Before the write, so that a killed run shows what it was about to replace, and so that nobody
            # else is held responsible for what it wrote.
            bodies = self.bodies()
            self._note(status="pending", **bodies)
            self.prepare(connection)
            record_attempt(
                self.state,
                self.repository.key,
                self._setting,
                bodies["after"],
                config_hash=self.repository.config_hash,
                run_id=self.run.run_id,
                at=self.run.now(),
            )
            self._send(connection, renew)
            self._written = True
            outcome = Outcome.APPLIED
        self.record()
        self._note(status=outcome.value)
        return outcome

    def _send(self, connection: Connection, renew: Callable[[], None]) -> None:
        """Writes until it is read back. Raises StalePlan when something else is read, WriteUncertain when
        reading does not show what became of it."""
        lost: list[LakeplanError] = []
        for _ in range(TRIES):
            try:
                renew()
                answer = self._put(connection)
            except LakeplanError as error:
                if any(may_still_act(earlier) for earlier in lost):
                    raise self._uncertain(f"no answer arrived, and then: {error.message}") from error
                raise
            self._read_back(connection)
            if self.is_stored():
                return
            if isinstance(answer, PreconditionFailed):
                self.check_unchanged()
                raise answer
            if not self.is_as_checked():
                raise self._other_value(answer)
            if answer is None:
                raise self._uncertain("the server accepted the write, but still stores the old value")
            lost.append(answer)
        if any(may_still_act(error) for error in lost):
            raise self._uncertain(
                f"no answer arrived ({lost[-1].message}), and the old value is still stored"
            )
        raise lost[-1]

    def _put(self, connection: Connection) -> LakeplanError | None:
        """The error that leaves open what the server did; None when it accepted the write."""
        self._sent = True
        try:
            self.put(connection)
        except PreconditionFailed as error:
            return error  # of an earlier try that did take effect, perhaps one that a proxy repeated
        except LakeplanError as error:
            if not may_have_acted(error):
                self._sent = False
                raise
            return error
        return None

    def _read_back(self, connection: Connection) -> None:
        def reads_as_planned() -> bool:
            self.read(connection)
            return self.is_stored()

        try:
            read_back(reads_as_planned, bool, self.run.sleep)
        except LakeplanError as error:
            raise self._uncertain(f"what is stored cannot be read ({error.message})") from error

    def _other_value(self, answer: LakeplanError | None) -> StalePlan:
        how = "read back differ from those written"
        if answer is not None:
            how = f"on the server changed since the write, whose answer was lost ({answer.message})"
        return StalePlan(
            f"{self.called} {how}: {self.difference()}; somebody else wrote too, or the server changed them",
            where=self.repository.key,
            hint="check what the server stores now, then plan again",
        )

    def _uncertain(self, why: str) -> WriteUncertain:
        return WriteUncertain(
            f"{self.called} may have been written: {why}",
            where=self.repository.key,
            hint="wait a minute, then run lakeplan plan: where it shows no change, the write took effect",
        )

    def failed(self, error: LakeplanError) -> Applied:
        """The end of a write that raised. What was read back is applied, whatever failed after it."""
        text, outcome, code = str(error), Outcome.FAILED, int(error.exit_code)
        if self._written:
            text = f"{self.called} were written and read back, but could not be recorded: {text}"
            outcome, code = Outcome.APPLIED, int(ExitCode.PARTLY_DONE)
        elif isinstance(error, WriteUncertain):
            outcome = Outcome.UNCERTAIN
        values = {"found": {"body": self.found()}} if self._sent and not self._written else {}
        try:
            self._note(status=outcome.value, message=text, **values)
        except LakeplanError as other:
            text = f"{text} (nor could the history be kept: {other})"
        return self.ended(outcome, text, error.hint, code)

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

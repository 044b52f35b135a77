"""Writes one setting of one repository: checks it, writes it, reads it back, and records the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from lakeplan.branches.deletion_records import record_heads
from lakeplan.branches.pin_records import StoredRules, read_stored, store_rules
from lakeplan.branches.verdicts import takes
from lakeplan.errors import (
    ExitCode,
    LakeplanError,
    PermissionDenied,
    PreconditionFailed,
    StalePlan,
    WriteUncertain,
    may_have_acted,
    may_still_act,
)
from lakeplan.plan.gather import read_setting
from lakeplan.review.differences import diff_rules, same_setting, what_changed, with_server_ids
from lakeplan.review.run import GC, NOT_BEGUN, Applied, Outcome, Run, WritableServer, read_back
from lakeplan.state.clocks import is_recent
from lakeplan.state.store import RunJournal, record_applied, record_attempt, record_forecast, record_setting
from lakeplan.stores.open import StateWriter
from lakeplan.values.desired import Policy, SettingItem, SettingKind, item_body, setting_etag
from lakeplan.values.plan import ObjectRulesPlan, PoliciesPlan, RepositoryPlan
from lakeplan.values.rules import GcRules, etag_of
from lakeplan.values.simulation import Amount

V = TypeVar("V")
TRIES = 3
"""Attempts at a write whose answers are lost. Before each further attempt, the stored value is read for
longer than a server's caches last, and must still be the checked value."""

FRESH_SECONDS = 15.0
"""A value that was checked longer ago is read again before it is overwritten: the state may be slow."""


@dataclass(frozen=True)
class Job:
    """The work of an apply on one repository. ``live`` is the plan that was made again just before, when the
    gates were judged. ``force`` skips the ETag checks and sends no precondition."""

    repository: RepositoryPlan
    live: RepositoryPlan | None
    run: Run
    state: StateWriter
    history: RunJournal
    force: bool
    plan_digest: str


class Attempt(ABC, Generic[V]):
    """One write: check, write, read back, record. Subclasses define which setting is written."""

    def __init__(self, job: Job, setting: str, label: str, before: V, after: V) -> None:
        self.repository, self.live, self.force = job.repository, job.live, job.force
        self.run, self.state, self._history = job.run, job.state, job.history
        self._setting, self._label = setting, label
        self._before = self._last_read = before
        self._after = after
        self.unforecast = ""
        """Why the plan's forecast was not recorded with the rules."""
        self._sent = False
        self._written = False
        self._checked_at = job.run.now()

    permission = ""
    """The lakeFS permission that the write needs, if it is known."""

    @property
    def called(self) -> str:
        """The setting's name in messages, such as ``the rules``."""
        return f"the {self._label}"

    @abstractmethod
    def action(self) -> str:
        """The planned action, a value of ``Action``."""

    @abstractmethod
    def etag(self, value: V) -> str:
        """lakeplan's own ETag of a value."""

    @abstractmethod
    def body(self, value: V) -> Any:
        """A value in its wire format, for the history and the state."""

    def same(self, one: V, other: V) -> bool:
        """Whether two values are the same for a server."""
        return one == other

    @abstractmethod
    def judged(self) -> list[V]:
        """The stored value when the gates were judged, if they were judged by it."""

    @abstractmethod
    def may_write(self, connection: WritableServer) -> bool:
        """Whether the credentials permit the write."""

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raises StalePlan if the value read last differs from the one at planning time."""

    def prepare(self, connection: WritableServer) -> None:
        """Does what must be done before the first request that writes."""

    @abstractmethod
    def put(self, connection: WritableServer) -> None:
        """Sends the write, once."""

    @abstractmethod
    def read(self, connection: WritableServer) -> None:
        """Reads the stored value."""

    @abstractmethod
    def difference(self) -> str:
        """Return how the value read last differs from the planned one, in words."""

    @abstractmethod
    def record(self) -> None:
        """Records the value that was read back in the state."""

    def is_stored(self) -> bool:
        """Whether the value read last is the planned one."""
        return self.same(self._last_read, self._after)

    def is_as_checked(self) -> bool:
        """Whether the value read last is the one that ``check`` read, so that it may be overwritten."""
        return self.same(self._last_read, self._before)

    def check(self, connection: WritableServer) -> bool:
        """Reads the stored value. Returns whether it must be written: False if it is as planned. Raises
        PermissionDenied, and StalePlan if it is neither as planned nor as it was at planning time."""
        self.read(connection)
        self._before = self._last_read
        if self.is_stored():
            return False
        self.check_may_write(connection)
        return True

    def check_may_write(self, connection: WritableServer) -> None:
        """Checks a value that is not yet as planned. Raises StalePlan and PermissionDenied."""
        judged = self.judged()
        if any(self.same(value, self._after) for value in judged):
            raise self.changed_since_judged()
        if not self.force:
            self.check_unchanged()
        elif not all(self.same(value, self._before) for value in judged):
            raise self.changed_since_judged()
        if not self.may_write(connection):
            raise PermissionDenied(
                f"these credentials are not allowed to change this repository's {self._label}",
                where=self.repository.key,
                hint=f"Grant {self.permission} on the repository." if self.permission else "",
            )

    def run_it(self, connection: WritableServer, renew: Callable[[], None]) -> Outcome:
        """Checks and writes. ``renew`` renews the repository's lease, and raises if somebody else has it."""
        outcome = Outcome.ALREADY
        self._checked_at = self.run.now()
        if self.check(connection):
            # Recorded before the write, so that a killed run shows what it was about to replace, and drift
            # does not attribute its write to somebody else.
            after = self.body(self._after)
            self._note(status="pending", before=self.body(self._before), after=after)
            self.prepare(connection)
            record_attempt(
                self.state,
                self.repository.key,
                self._setting,
                after,
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

    def _send(self, connection: WritableServer, renew: Callable[[], None]) -> None:
        """Writes until the planned value is read back. Raises StalePlan if another value is read, and
        WriteUncertain if reading does not show the outcome."""
        lost: list[LakeplanError] = []
        for _ in range(TRIES):
            try:
                renew()
                if not lost:
                    self._check_again(connection)
                answer = self._put(connection)
            except LakeplanError as error:
                if any(may_still_act(earlier) for earlier in lost):
                    raise self._uncertain(
                        f"the server did not confirm the write, and another attempt failed ({error.message})"
                    ) from error
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
                f"the server did not confirm the write ({lost[-1].message}), and the old value is still"
                " stored"
            )
        raise lost[-1]

    def _check_again(self, connection: WritableServer) -> None:
        """Raises StalePlan if the check was a while ago and somebody has changed the value since."""
        if self.is_fresh(self._checked_at):
            return
        self.read(connection)
        if not self.is_as_checked():
            raise self.changed_since_judged()

    def is_fresh(self, checked_at: datetime) -> bool:
        """Whether a value that was checked then need not be read again."""
        return is_recent(checked_at, self.run.now(), FRESH_SECONDS)

    def _put(self, connection: WritableServer) -> LakeplanError | None:
        """Sends the write once. Returns an error that leaves its outcome open, or None if it was accepted."""
        self._sent = True
        try:
            self.put(connection)
        except PreconditionFailed as error:
            return error  # an earlier attempt may have taken effect, or a proxy repeated the request
        except LakeplanError as error:
            if not may_have_acted(error):
                self._sent = False
                raise
            return error
        return None

    def _read_back(self, connection: WritableServer) -> None:
        def reads_as_planned() -> bool:
            self.read(connection)
            return self.is_stored()

        try:
            read_back(reads_as_planned, bool, self.run.sleep)
        except LakeplanError as error:
            raise self._uncertain(f"the stored value cannot be read ({error.message})") from error

    def _other_value(self, answer: LakeplanError | None) -> StalePlan:
        how = "on the server differ from those that lakeplan sent"
        if answer is not None:
            how = f"{how}, and the response to the write was lost ({answer.message})"
        return StalePlan(
            f"{self.called} {how}: {self.difference()}. Either someone else or the server changed them",
            where=self.repository.key,
            hint="Check what the server stores now, then run `lakeplan plan` again.",
        )

    def _uncertain(self, why: str) -> WriteUncertain:
        return WriteUncertain(
            f"{self.called} may have been written: {why}",
            where=self.repository.key,
            hint="Wait a minute, then run `lakeplan plan`. If it shows no change, the write took effect.",
        )

    def failed(self, error: LakeplanError) -> Applied:
        """The result after an error, which is also recorded in the history."""
        text, outcome, code = self.judge_failure(error)
        values = {"found": {"body": self.body(self._last_read)}} if self._sent and not self._written else {}
        try:
            self._note(status=outcome.value, message=text, **values)
        except LakeplanError as other:
            text = f"{text} (and the history could not be written: {other})"
        return self.ended(outcome, text, error.hint, code)

    def judge_failure(self, error: LakeplanError) -> tuple[str, Outcome, int]:
        """The message, outcome and exit code after an error. A value that was read back is applied, whatever
        failed afterwards."""
        if self._written:
            text = f"{self.called} were written and verified, but could not be recorded: {error}"
            return text, Outcome.APPLIED, int(ExitCode.PARTLY_DONE)
        outcome = Outcome.UNCERTAIN if isinstance(error, WriteUncertain) else Outcome.FAILED
        return str(error), outcome, int(error.exit_code)

    def ended(self, outcome: Outcome, message: str = "", hint: str = "", exit_code: int = 0) -> Applied:
        key, action = self.repository.key, self.action()
        before, after = self.etag(self._before), self.etag(self._after)
        return Applied(key, action, outcome, before, after, message, hint, exit_code, self._setting)

    def changed_since_judged(self) -> StalePlan:
        """The error if another value is stored than when the gates were judged, which ``force`` does not skip
        either: the effect of the write was not judged."""
        return StalePlan(
            f"someone else changed {self.called} during this run",
            where=self.repository.key,
            hint="Run `lakeplan apply` again.",
        )

    def _note(self, **values: Any) -> None:
        """Adds values to the history. Values of GC rules belong to the repository itself, and others are
        under the name of their setting."""
        key = self.repository.key
        if self._setting == GC:
            self._history.step(key, **values)
            return
        steps = self._history.record.get("repositories", {})
        if steps.get(key) == NOT_BEGUN:
            del steps[key]  # this status would be that of GC rules, which the run may not write
        known = steps.get(key, {}).get(self._setting, {})
        self._history.step(key, **{self._setting: {**known, **values}})


class RulesAttempt(Attempt[GcRules | None]):
    permission = "retention:SetGarbageCollectionRules"

    def __init__(self, job: Job) -> None:
        super().__init__(job, GC, "GC rules", job.repository.before, job.repository.after)
        self._plan_digest = job.plan_digest
        self._stored = StoredRules(None, None)

    @property
    def called(self) -> str:
        return "the rules"

    def action(self) -> str:
        return self.repository.action.value

    def etag(self, value: GcRules | None) -> str:
        return etag_of(value)

    def body(self, value: GcRules | None) -> Any:
        return None if value is None else value.to_body()

    def judged(self) -> list[GcRules | None]:
        return [] if self.live is None else [self.live.before]

    def may_write(self, connection: WritableServer) -> bool:
        return connection.writer.can_set_gc_rules(self.repository.name)

    def check_unchanged(self) -> None:
        stored, planned = etag_of(self._last_read), self.repository.before_etag
        if stored != planned:
            raise StalePlan(
                f"the rules have changed since the plan (ETag {stored[:12]} instead of {planned[:12]})",
                where=self.repository.key,
                hint="Run `lakeplan plan` again and have it reviewed. --force skips this check.",
            )

    def put(self, connection: WritableServer) -> None:
        store_rules(connection, self.repository.name, self._stored.with_entries(self.repository.after))

    def read(self, connection: WritableServer) -> None:
        self._stored = read_stored(connection.reader, self.repository.name)
        self._last_read = self._stored.bare

    def difference(self) -> str:
        changes = diff_rules(self.repository.after, self._last_read)
        return ", ".join(f"{c.path} {_days(c.before)} to {_days(c.after)}" for c in changes)

    def record(self) -> None:
        record_applied(
            self.state,
            self.repository.key,
            self.repository.after,
            config_hash=self.repository.config_hash,
            run_id=self.run.run_id,
            at=self.run.now(),
        )
        self._record_forecast()

    def _record_forecast(self) -> None:
        """Records the plan's forecast. A forecast is valid only for rules that the same run recorded, so it
        is recorded again for rules that were already in place."""
        repository = self.repository
        expire = {
            h.as_of: Amount(h.objects_expire, h.bytes_expire or 0)
            for h in repository.impact.horizons.values()
            if h.objects_expire is not None
        }
        # A plan that changes only pins has no forecast for rules that an older plan set.
        if not repository.action.writes or repository.after is None or not expire:
            return
        try:
            record_forecast(
                self.state,
                repository.key,
                run_id=self.run.run_id,
                plan_digest=self._plan_digest,
                expire=expire,
            )
        except LakeplanError as error:
            self.unforecast = f"{repository.key}: the plan's forecast was not recorded: {error.message}"


def _days(value: int | None) -> str:
    return "unset" if value is None else str(value)


_PERMISSIONS = {SettingKind.BRANCH_LIFECYCLE: "branches:SetBranchLifecyclePolicies"}
Items = Sequence[SettingItem]


class SettingAttempt(Attempt[Items | None]):
    """Writes policies or object rules, as a whole list."""

    def __init__(self, job: Job, setting: PoliciesPlan | ObjectRulesPlan) -> None:
        super().__init__(job, setting.kind.value, setting.kind.label, setting.before, setting.after)
        self._plan = setting
        self._etag = self._last_etag = ""
        """The server's ETags of the checked value and of the value read last."""
        self.permission = _PERMISSIONS.get(setting.kind, "")

    def action(self) -> str:
        return self._plan.action.value

    def etag(self, value: Items | None) -> str:
        return setting_etag(value)

    def body(self, value: Items | None) -> Any:
        return None if value is None else [item_body(item) for item in value]

    def same(self, one: Items | None, other: Items | None) -> bool:
        return same_setting(one, other)

    def judged(self) -> list[Items | None]:
        settings = () if self.live is None else self.live.settings
        return [setting.before for setting in settings if setting.kind is self._plan.kind]

    def may_write(self, connection: WritableServer) -> bool:
        return connection.settings_writer.can_set(self.repository.name, self._plan.kind)

    def check(self, connection: WritableServer) -> bool:
        is_needed = super().check(connection)
        self._etag = self._last_etag
        return is_needed

    def prepare(self, connection: WritableServer) -> None:
        if isinstance(self._plan, PoliciesPlan) and self._plan.after:
            self._record_heads(connection, self._plan.after)

    def put(self, connection: WritableServer) -> None:
        kind, name, after = self._plan.kind, self.repository.name, self._plan.after
        if not after:
            connection.settings_writer.delete_items(name, kind)
            return
        # A list that is not set has no ETag to match. Then only the reads before and after protect it.
        etag = "" if self.force else self._etag
        items = with_server_ids(after, self._before)
        connection.settings_writer.set_items(name, kind, items, if_match=etag)

    def read(self, connection: WritableServer) -> None:
        stored = read_setting(connection.reader, self._plan.kind, self.repository.name)
        self._last_read, self._last_etag = stored.items, stored.etag

    def is_as_checked(self) -> bool:
        return self._last_etag == self._etag and super().is_as_checked()

    def difference(self) -> str:
        return what_changed(self._after, self._last_read)

    def record(self) -> None:
        """Records the list with the server's ids, and both ETags."""
        record_setting(
            self.state,
            self.repository.key,
            self._plan.kind.value,
            {
                "etag": self._plan.after_etag,
                "server_etag": self._last_etag,
                "body": self.body(self._last_read),
            },
            config_hash=self.repository.config_hash,
            run_id=self.run.run_id,
            at=self.run.now(),
        )

    def check_unchanged(self) -> None:
        if self._last_etag == self._plan.server_etag and same_setting(self._last_read, self._plan.before):
            return
        raise StalePlan(
            f"{self.called} on the server have changed since the plan:"
            f" {what_changed(self._plan.before, self._last_read)}",
            where=self.repository.key,
            hint="Run `lakeplan plan` again and have it reviewed. --force skips this check.",
        )

    def _record_heads(self, connection: WritableServer, policies: Sequence[Policy]) -> None:
        """Records the HEAD of every branch that a policy matches, so that ``branches undo`` can restore those
        that the server's job deletes. Later commits are not recorded."""
        live = connection.branches.list_live(self.repository.name)
        named = [branch for branch in live if any(takes(policy, branch.id) for policy in policies)]
        record_heads(self.state, self.repository.key, named, self.run)

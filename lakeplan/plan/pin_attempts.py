"""Rules and pins of one repository, written in an order that never keeps less (``branches.pins``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from lakeplan.branches.pin_records import (
    PinRecord,
    read_pin_record,
    read_stored,
    replace_rules,
    store_rules,
    write_pin_record,
)
from lakeplan.branches.pins import (
    History,
    Step,
    Write,
    losses,
    pin_rules,
    required_pins,
    without_pins,
)
from lakeplan.errors import (
    ExitCode,
    FeatureMissing,
    GateRefused,
    LakeplanError,
    NotFound,
    PermissionDenied,
    StalePlan,
    UnexpectedAnswer,
    WriteUncertain,
    may_have_acted,
)
from lakeplan.plan.attempts import Job, RulesAttempt
from lakeplan.plan.pins import PinInspection, PinOptions, inspect_pins
from lakeplan.retention.graph import CommitGraph
from lakeplan.review.claims import check_claims
from lakeplan.review.history import check_newest
from lakeplan.review.run import PINS, Applied, Outcome, PinSync, WritableServer, read_back
from lakeplan.review.selection import read_all_refs
from lakeplan.values.branches import LiveBranch
from lakeplan.values.pins import Pin, may_be_pin
from lakeplan.values.repository import Branch
from lakeplan.values.rules import Action, GcRules
from lakeplan.values.units import count_of


def _as_recorded(pin: Pin) -> tuple[str, int | None, frozenset[str]]:
    return pin.commit_id, pin.days, frozenset(pin.holds)


CONFLICT = 409
RULES = "the rules"
RENEW_EVERY = 20
"""Branches between two renewals of the lease."""


class PinnedRulesAttempt(RulesAttempt):
    """Writes rules and pins. Everything is computed again right before the first write, and before pins are
    deleted. If it is killed or stops, nothing is kept for less time than before, and a later run finishes."""

    _inspection: PinInspection
    _renew: Callable[[], None]

    def __init__(self, job: Job, pins: PinSync) -> None:
        super().__init__(job)
        self._pins = pins
        self._record = PinRecord()
        self._steps: dict[Write, Step] = {}
        self._target: GcRules | None = None
        self._expected: GcRules | None = None
        self._retiring = False
        self._changed: set[str] = set()
        """Names of pins, and ``RULES``, that requests of this attempt changed on the server or may have
        changed. The write of the planned rules itself is added only when pins follow it."""

    @property
    def called(self) -> str:
        return "the rules and pins"

    def action(self) -> str:
        return Action.CHANGE.value if not self.repository.action.writes else super().action()

    # ---- the order of writes
    def run_it(self, connection: WritableServer, renew: Callable[[], None]) -> Outcome:
        self._renew = renew
        if self.repository.action.writes:
            outcome = super().run_it(connection, renew)
        else:
            outcome = self._run_pins_alone(connection)
        self._retire(connection)
        recorded, wanted = self._record.pins, self._inspection.change.want
        if set(map(_as_recorded, recorded)) != set(map(_as_recorded, wanted)):
            # A killed run left other pins on record, or a hold was added or expired.
            self._write_record(wanted)
        return outcome

    def _run_pins_alone(self, connection: WritableServer) -> Outcome:
        """Changes pins but no rule of the tree, so no rules are recorded."""
        if not self.check(connection):
            self._note(status=Outcome.ALREADY.value)
            return Outcome.ALREADY
        self._note(status="pending", pins=self._pins_for_history())
        self.prepare(connection)
        if Write.RULES in self._steps:
            self._send(connection, self._renew)
            self._changed.add(RULES)
        self._write_record(self._all_pins())
        self._note(status=Outcome.APPLIED.value)
        return Outcome.APPLIED

    def check(self, connection: WritableServer) -> bool:
        self._inspection = self._inspect(connection)
        self._stored = self._inspection.stored
        self._last_read = self._before = self._stored.bare
        change = self._inspection.change
        self._steps = {step.write: step for step in change.steps()}
        writes = self.repository.action.writes
        if writes and self._last_read != self.repository.after:
            self.check_may_write(connection)
        elif not writes and change.retired and self.judged() != [self._last_read]:
            raise self.changed_since_judged()
        elif not self.may_write(connection):
            raise PermissionDenied(
                "pins require changes to this repository's GC rules, but these credentials are not allowed to"
                " change the rules",
                where=self.repository.key,
                hint=f"Grant {self.permission} on the repository.",
            )
        step = self._steps.get(Write.RULES)
        self._target = step.after.rules if step is not None else self._before_rules()
        self._expected = self._before_rules()
        return bool(self._steps)

    def _before_rules(self) -> GcRules | None:
        """The rules that the server stores right before the new ones are written."""
        step = self._steps.get(Write.ENTRIES)
        return step.after.rules if step is not None else self._inspection.change.stored

    def _inspect(self, connection: WritableServer) -> PinInspection:
        key, name = self.repository.key, self.repository.name
        self._record = read_pin_record(self.state, key)
        stored = read_stored(connection.reader, name, list_pins=True)
        after = self.repository.after if self.repository.action.writes else stored.bare
        refs, _ = read_all_refs(connection.reader, name, read_only=False)
        options = PinOptions(self.run.now(), self._pins.zone, self._pins.retire)
        return inspect_pins(self._pins.desired, stored, self._record, after, refs, options)

    def prepare(self, connection: WritableServer) -> None:
        change = self._inspection.change
        # Recorded before they are created: a pin that is not on record would never be deleted.
        self._write_record(self._all_pins())
        if (step := self._steps.get(Write.ENTRIES)) is not None:
            self._write_rules(connection, change.stored, step.after.rules)
        if Write.CREATE in self._steps:
            self._create(connection, change.new)
        self._confirm(connection, (*change.have, *change.new))

    def put(self, connection: WritableServer) -> None:
        if Write.RULES in self._steps:
            store_rules(connection, self.repository.name, self._target)

    def read(self, connection: WritableServer) -> None:
        self._stored = read_stored(connection.reader, self.repository.name)
        self._last_read = self._stored.bare

    def is_stored(self) -> bool:
        return self._stored.raw == self._target

    def is_as_checked(self) -> bool:
        return self._stored.raw == self._expected

    def record(self) -> None:
        super().record()
        self._write_record(self._all_pins())

    def ended(self, outcome: Outcome, message: str = "", hint: str = "", exit_code: int = 0) -> Applied:
        if outcome is Outcome.APPLIED and not message:
            message = self._in_words()
        end = super().ended(outcome, message, hint, exit_code)
        return end if self.repository.action.writes else replace(end, setting=PINS)

    def judge_failure(self, error: LakeplanError) -> tuple[str, Outcome, int]:
        text, outcome, code = super().judge_failure(error)
        if self._changed and outcome is not Outcome.APPLIED:
            code = int(ExitCode.PARTLY_DONE)
            if not self._retiring:
                text = f"{text} (some pins or their rules may already have been written)"
        if self._retiring:
            # Everything new was written. The pins that are left keep more, not less.
            text = f"the rules and new pins were written, but deleting retired pins failed: {text}"
        return text, outcome, code

    @contextmanager
    def _changing(self, what: str) -> Iterator[None]:
        """Notes what the request inside changed or may have changed."""
        try:
            yield
        except LakeplanError as error:
            if may_have_acted(error):
                self._changed.add(what)
            raise
        self._changed.add(what)

    # ---- single writes
    def _write_rules(self, connection: WritableServer, before: GcRules | None, rules: GcRules | None) -> None:
        """Writes rules that differ only in entries of pins, and reads them back. Raises StalePlan if somebody
        changed them, because creating or deleting branches in between may have taken long."""
        self._renew()
        replace_rules(
            connection,
            self.repository.name,
            (before, rules),
            sleep=self.run.sleep,
            where=self.repository.key,
            again="`lakeplan plan` again",
            writing=self._changing(RULES),
        )

    def _create(self, connection: WritableServer, pins: Sequence[Pin]) -> None:
        """Creates pins and reads them back as hidden branches at their commits. The first is read back alone,
        because a server without hidden branches creates visible ones."""
        for number, pin in enumerate(pins):
            if number % RENEW_EVERY == 0:
                self._renew()
            branch = LiveBranch(pin.name, pin.commit_id, hidden=True)
            try:
                with self._changing(pin.name):
                    connection.branch_writer.create_branch(self.repository.name, branch)
            except LakeplanError as error:
                if not may_have_acted(error):
                    if isinstance(error, UnexpectedAnswer) and error.status == CONFLICT:
                        # Somebody else created it since. It must not be on record, or it would be deleted.
                        self._write_record(one for one in self._all_pins() if one not in pins[number:])
                    raise
            if number == 0:
                self._check_made(connection, [pin])
        self._check_made(connection, pins)

    def _check_made(self, connection: WritableServer, pins: Iterable[Pin]) -> None:
        name, wanted = self.repository.name, {pin.name: pin.commit_id for pin in pins}

        def read() -> dict[str, LiveBranch]:
            return {branch.id: branch for branch in connection.reader.list_pins(name)}

        def complete(live: dict[str, LiveBranch]) -> bool:
            return all(pin in live and may_be_pin(live[pin]) for pin in wanted)

        live = read_back(read, complete, self.run.sleep)
        for pin, commit_id in wanted.items():
            listed = live.get(pin)
            if listed is None:
                raise WriteUncertain(
                    f"the branch {pin} was created, but the server does not list it",
                    where=self.repository.key,
                    hint="Wait a minute, then run `lakeplan plan`.",
                )
            if listed == LiveBranch(pin, commit_id, hidden=False):
                connection.branch_writer.delete_branch(name, pin)  # this run has just created it
                self._changed.discard(pin)
                raise FeatureMissing(
                    "the server does not support hidden branches, so it cannot have pins",
                    where=self.repository.key,
                    hint="Upgrade lakeFS, or remove pins, min_commits and keep from the tree.",
                )
            if not may_be_pin(listed):
                raise StalePlan(
                    f"the branch {pin} is at commit {listed.commit_id[:12]}, but lakeplan created it at"
                    " another commit",
                    where=self.repository.key,
                    hint="Find out who moved it, then run `lakeplan plan` again.",
                )

    def _confirm(self, connection: WritableServer, pins: Sequence[Pin]) -> None:
        """Reads everything again and judges every state of the change. Raises GateRefused if one would keep
        less, and StalePlan if rules or pins differ from those written."""
        name, change = self.repository.name, self._inspection.change
        check_claims(connection.reader.metadata(name), self._pins.desired.tree, self.repository.key)
        rules = self._target if self._retiring else self._expected
        refs, _ = read_all_refs(connection.reader, name, read_only=False)
        there = set(refs.branches)
        gone = [pin.name for pin in pins if Branch(pin.name, pin.commit_id) not in there]
        if gone or connection.reader.get_gc_rules(name) != rules:
            what = f"deleted or moved the pin {gone[0]}" if gone else "changed the rules"
            raise StalePlan(
                f"someone else {what} during this run",
                where=self.repository.key,
                hint="Run `lakeplan plan` again.",
            )
        refs = without_pins(refs, (*change.have, *change.want))
        old = self._inspection.history
        history = History(refs, CommitGraph.from_refs(refs), old.rules, old.moments, old.zone)
        if (loss := next(losses(history, change), None)) is not None:
            raise GateRefused(
                f"a branch changed during this run: {loss}",
                where=self.repository.key,
                hint="Run `lakeplan plan` again. No retention of this repository was shortened.",
            )
        if self._retiring:
            if self._pins.config_hash is not None:  # an apply has the newest tree
                check_newest(self.state, self.run, self.repository.key)
            self._confirm_retired(history)

    def _confirm_retired(self, history: History) -> None:
        """Raises StalePlan if a pin that would be deleted is required again, such as by a new tag."""
        desired, change = self._pins.desired, self._inspection.change

        def required(at: History) -> set[str]:
            pins = required_pins(at, pin_rules(desired), desired.holds, change.have)
            return {pin.name for pin in pins}

        since = required(history) - required(self._inspection.history)
        if again := [pin.name for pin in change.retired if pin.name in since]:
            raise StalePlan(
                f"the pin {again[0]} is required again, so lakeplan did not delete it",
                where=self.repository.key,
                hint="Run `lakeplan plan` again.",
            )

    # ---- retired pins
    def _retire(self, connection: WritableServer) -> None:
        """Deletes retired pins, each after a check that nobody moved it, and then their rules."""
        change = self._inspection.change
        if not change.retired:
            return
        self._retiring = True
        if self._written:
            self._changed.add(RULES)
        self._sent = self._written = False
        there, confirmed_at = [*change.have, *change.new], None
        for number, pin in enumerate(change.retired):
            # Hooks of the server may make a deletion slow.
            if confirmed_at is None or not self.is_fresh(confirmed_at):
                self._confirm(connection, there)
                self._renew()
                confirmed_at = self.run.now()
            elif number % RENEW_EVERY == 0:
                self._renew()
            self._delete(connection, pin)
            there.remove(pin)
        if (step := self._steps.get(Write.CLEAN)) is not None:
            self._write_rules(connection, self._target, step.after.rules)

    def _delete(self, connection: WritableServer, pin: Pin) -> None:
        name = self.repository.name
        try:
            staged = connection.branches.staged(name, pin.name)
        except NotFound:
            return
        if staged.changes or staged.more:
            raise StalePlan(
                f"the pin {pin.name} has uncommitted changes, so lakeplan did not delete it",
                where=self.repository.key,
                hint="Find out who made them, move or reset them, then run `lakeplan plan` again.",
            )
        # The HEAD is read last: a commit removes the uncommitted changes and moves the HEAD.
        head = connection.branches.find_branch(name, pin.name)
        if head is None:
            return
        if head != pin.commit_id:
            raise StalePlan(
                f"someone else moved the pin {pin.name} to commit {head[:12]}, so lakeplan did not delete it",
                where=self.repository.key,
                hint="Find out who moved the pin, then delete the pin manually.",
            )
        # A branch that is not found was deleted by somebody else.
        with suppress(NotFound), self._changing(pin.name):
            connection.branch_writer.delete_branch(name, pin.name)

    # ---- records
    def _all_pins(self) -> tuple[Pin, ...]:
        """The wanted pins and the retired ones, which exist until they are deleted."""
        change = self._inspection.change
        return (*change.want, *change.retired)

    def _write_record(self, pins: Iterable[Pin]) -> None:
        run = self.run
        known = self._pins.config_hash
        config_hash = self.repository.config_hash if known is None else known
        record = replace(self._record, pins=tuple(pins), config_hash=config_hash)
        self._record = write_pin_record(
            self.state, self.repository.key, record, run_id=run.run_id, at=run.now()
        )

    def _in_words(self) -> str:
        change = self._inspection.change
        counts = {"created": len(change.new), "deleted": len(change.retired)}
        return ", ".join(f"{count_of(n, 'pin')} {what}" for what, n in counts.items() if n)

    def _pins_for_history(self) -> dict[str, Any]:
        change = self._inspection.change
        return {
            "made": [pin.commit_id for pin in change.new],
            "retired": [pin.commit_id for pin in change.retired],
        }

"""The writes of an apply: lease, check, write, read back, record; one repository after the other.

Every end is what was seen, not what was intended. Repositories fail one by one, the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from lakeplan.app.state import History, Lease, record_applied
from lakeplan.errors import LakeplanError, PermissionDenied, StalePlan
from lakeplan.model.plan import GateOutcome, GateResult, Plan, RepositoryPlan
from lakeplan.model.rules import GcRules, etag_of
from lakeplan.ports.lakefs import GcRulesWriter, LakeFSReader
from lakeplan.ports.progress import Progress
from lakeplan.ports.storage import StateWriter


class Outcome(str, Enum):
    """How one repository ended. ``already`` is the work of an earlier, interrupted run."""

    APPLIED = "applied"
    ALREADY = "already"
    FAILED = "failed"


@dataclass(frozen=True)
class Applied:
    """One repository's end, as seen and not as intended. ``exit_code`` is the error's when it failed."""

    repository: str
    action: str
    outcome: Outcome
    before_etag: str
    after_etag: str
    message: str = ""
    hint: str = ""
    exit_code: int = 0


@dataclass(frozen=True)
class ApplyReport:
    run_id: str
    results: tuple[Applied, ...]
    not_written: tuple[str, ...] = ()
    unexpanded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""
    """What else a person should know of the run; "" for nothing."""

    @property
    def failed(self) -> tuple[Applied, ...]:
        return tuple(r for r in self.results if r.outcome is Outcome.FAILED)


class Connection(Protocol):
    """A server to write to: a reader and, apart from it, a writer."""

    @property
    def reader(self) -> LakeFSReader: ...
    @property
    def writer(self) -> GcRulesWriter: ...


@dataclass(frozen=True)
class Run:
    """Who runs, when and where: recorded in the history and in leases."""

    run_id: str
    holder: Mapping[str, Any]
    now: Callable[[], datetime]
    is_gone: Callable[[Mapping[str, Any]], bool]
    tree_commit: str | None = None


@dataclass(frozen=True)
class ApplyPorts:
    connect: Callable[[str], Connection]
    state: StateWriter
    progress: Progress


def gate_text(gate: GateResult) -> str:
    """One gate as a line: scope, name and what it saw."""
    return f"{gate.scope}: gate {gate.gate}: {gate.message}"


def write(
    plan: Plan,
    steps: Iterable[RepositoryPlan],
    live: Plan,
    run: Run,
    ports: ApplyPorts,
    *,
    plan_digest: str,
    force: bool,
) -> ApplyReport:
    """Walks the steps: lease, check, write, read back, record. Failures are reported per repository."""
    again = {r.key: r for r in live.repositories}
    work = list(steps)
    history = History(ports.state, run.run_id, _history_head(plan, run, plan_digest, force))
    history.save()
    results = []
    with ports.progress.task("applying", len(work)) as step_done:
        for repository in work:
            attempt = _Attempt(repository, again.get(repository.key), run, ports, history, force=force)
            results.append(attempt.run_it())
            step_done()
    history.record["finished_at"] = run.now().isoformat()
    unrecorded = _save(history)
    written = {r.key for r in plan.writes}
    extra = tuple(sorted(r.key for r in live.writes if r.key not in written))
    later = {r.key: tuple(sorted(_still_without(r, work))) for r in live.repositories if r.unexpanded}
    return ApplyReport(
        run.run_id,
        tuple(results),
        not_written=extra,
        unexpanded={k: v for k, v in later.items() if v},
        note=unrecorded,
    )


def _save(history: History) -> str:
    """Why the end of the run could not be recorded, or "". What was written stays reported either way."""
    try:
        history.save()
    except LakeplanError as error:
        return f"the end of the run is not in the history: {error}"
    return ""


def _still_without(repository: RepositoryPlan, steps: Iterable[RepositoryPlan]) -> set[str]:
    """Branches that appeared since the plan and got no rule."""
    given = {b for s in steps if s.key == repository.key and s.after for b in s.after.branches}
    return set(repository.unexpanded) - given


class _Attempt:
    """One repository's write: what was seen before it, how far it came, how it ended."""

    def __init__(
        self,
        repository: RepositoryPlan,
        live: RepositoryPlan | None,
        run: Run,
        ports: ApplyPorts,
        history: History,
        *,
        force: bool,
    ) -> None:
        self._repository = repository
        self._live = live
        self._run = run
        self._ports = ports
        self._history = history
        self._force = force
        self._seen = repository.before
        self._written = False

    def run_it(self) -> Applied:
        """Lease, check, write, read back, record. Never raises a LakeplanError: it ends in a report."""
        key = self._repository.key
        if self._live is not None and self._live.failure is not None:
            failure = self._live.failure
            return self._ended(Outcome.FAILED, failure.message, failure.hint, failure.exit_code)
        try:
            with Lease(self._ports.state, key, self._run.holder, self._run.now, self._run.is_gone):
                outcome = self._set_rules(self._ports.connect(self._repository.server))
                record_applied(
                    self._ports.state,
                    key,
                    self._repository.after,
                    config_hash=self._repository.config_hash,
                    run_id=self._run.run_id,
                    at=self._run.now(),
                )
                self._history.step(key, status=outcome.value)
        except LakeplanError as error:
            return self._failed(error)
        return self._ended(outcome)

    def _failed(self, error: LakeplanError) -> Applied:
        text = str(error)
        if self._written:
            text = f"the rules were written and read back, but could not be recorded: {text}"
        try:
            self._history.step(self._repository.key, status=Outcome.FAILED.value, message=text)
        except LakeplanError as other:
            text = f"{text} (nor could the history be kept: {other})"
        return self._ended(Outcome.FAILED, text, error.hint, int(error.exit_code))

    def _ended(self, outcome: Outcome, message: str = "", hint: str = "", exit_code: int = 0) -> Applied:
        repository = self._repository
        before, after = etag_of(self._seen), repository.after_etag
        action = repository.action.value
        return Applied(repository.key, action, outcome, before, after, message, hint, exit_code)

    def _set_rules(self, connection: Connection) -> Outcome:
        """GC rules have no If-Match (api.md): the check just before is the best there is, and the read-back
        tells when somebody wrote in between."""
        repository = self._repository
        self._seen = connection.reader.get_gc_rules(repository.name)
        stored = etag_of(self._seen)
        if stored == repository.after_etag:
            return Outcome.ALREADY
        if self._live is not None and self._live.before_etag == repository.after_etag:
            # They were there when the gates were judged, so what a write does now was not: not even by force.
            raise StalePlan(
                "the rules were as planned a moment ago, and somebody changed them since",
                where=repository.key,
                hint="apply again",
            )
        if stored != repository.before_etag and not self._force:
            raise StalePlan(
                f"the rules changed since the plan (ETag {stored[:12]}, planned on"
                f" {repository.before_etag[:12]})",
                where=repository.key,
                hint="plan again and have it reviewed; --force skips this check",
            )
        if not connection.writer.can_set_gc_rules(repository.name):
            raise PermissionDenied(
                "the credentials may not change this repository's GC rules",
                where=repository.key,
                hint="grant retention:SetGarbageCollectionRules on it",
            )
        # Before the write, so that a killed run tells what it was about to replace.
        self._history.step(
            repository.key, status="pending", before=_body(self._seen), after=_body(repository.after)
        )
        self._send(connection)
        self._written = True
        return Outcome.APPLIED

    def _send(self, connection: Connection) -> None:
        repository = self._repository
        if repository.after is None:
            connection.writer.delete_gc_rules(repository.name)
        else:
            connection.writer.set_gc_rules(repository.name, repository.after)
        read_back = etag_of(connection.reader.get_gc_rules(repository.name))
        if read_back != repository.after_etag:
            raise StalePlan(
                f"the rules read back differ from those written (ETag {read_back[:12]}, written"
                f" {repository.after_etag[:12]}): somebody else wrote too, or the server changed them",
                where=repository.key,
                hint="look at the repository's rules on the server, then plan again",
            )


def _history_head(plan: Plan, run: Run, plan_digest: str, force: bool) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "command": "apply",
        "by": dict(run.holder),
        "started_at": run.now().isoformat(),
        "tree_commit": run.tree_commit,
        "plan_digest": plan_digest,
        "plan_as_of": plan.as_of.isoformat(),
        "plan_tree_commit": plan.tree_commit,
        "allowed": list(plan.allowed),
        "acknowledged": sorted(
            f"{gate_text(g)} ({g.opens_with})"
            for g in (*plan.gates, *(g for r in plan.repositories for g in r.gates))
            if g.outcome is GateOutcome.ACKNOWLEDGED
        ),
        "force": force,
    }


def _body(rules: GcRules | None) -> dict[str, object] | None:
    return None if rules is None else rules.to_body()

"""Writes an apply, one repository after the other: lease, check, write, read back, record.

Reports have what was observed, not what was intended. A repository that fails does not stop the others, but
the first setting that fails ends its repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from lakeplan.errors import LakeplanError
from lakeplan.plan.attempts import Attempt, Job, RulesAttempt, SettingAttempt
from lakeplan.plan.gather import ENFORCED_BY_LAKEPLAN
from lakeplan.plan.pin_attempts import PinnedRulesAttempt
from lakeplan.review.claims import claim, claim_all
from lakeplan.review.run import (
    NOT_BEGUN,
    PINS,
    Applied,
    ApplyPorts,
    ApplyReport,
    Outcome,
    Run,
    close_journal,
    open_journal,
)
from lakeplan.state.clocks import server_clock
from lakeplan.state.store import Lease, RunJournal, check_lease, read_applied
from lakeplan.values.plan import GateOutcome, GateResult, Plan, RepositoryPlan
from lakeplan.values.records import moment_in
from lakeplan.values.rules import Action


def gate_text(gate: GateResult) -> str:
    """One gate as a line: its scope, name and message."""
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
    """Writes every step and reports failures per repository. The state's records of all repositories are read
    before the first write."""
    again = {r.key: r for r in live.repositories}
    work = list(steps)
    facts = _history_facts(plan, live, plan_digest, force)
    history = ports.journal or open_journal(ports.state, run, run.command)
    history.record |= facts
    history.save()
    jobs = (Job(r, again.get(r.key), run, ports.state, history, force, plan_digest) for r in work)
    attempts = {job.repository.key: _attempts(job, ports) for job in jobs}
    results_of = _with_damaged_state(work, attempts, ports)
    with ports.progress.task("applying", len(work)) as step_done:
        for repository in work:
            key = repository.key
            if key not in results_of:
                results_of[key] = _write_one(
                    repository, again.get(key), attempts[key], run, ports, since=live.as_of
                )
            step_done()
    results = [end for repository in work for end in results_of[repository.key]]
    unchanged = [r for r in plan.repositories if r.key in again and r.key not in results_of]
    unclaimed = claim_all((again[r.key] for r in unchanged), ports.tree, ports.connect, run)
    _note_untried(history, results_of)
    unrecorded = close_journal(history, run)
    not_forecast = "; ".join([a.unforecast for many in attempts.values() for a in many if a.unforecast][:3])
    written = {r.key for r in plan.writes}
    extra = tuple(sorted(r.key for r in live.writes if r.key not in written))
    later = {r.key: tuple(sorted(_still_without(r, work))) for r in live.repositories if r.unexpanded}
    return ApplyReport(
        run.run_id,
        tuple(results),
        not_written=extra,
        unexpanded={k: v for k, v in later.items() if v},
        elsewhere=tuple(sorted(r.key for r in plan.repositories if ENFORCED_BY_LAKEPLAN in r.warnings)),
        note=". ".join(filter(None, (unrecorded, unclaimed, not_forecast))),
    )


def _note_untried(history: RunJournal, results_of: Mapping[str, Sequence[Applied]]) -> None:
    """Add repositories that failed before their first attempt to the record, which is stored later, and
    remove those that needed none."""
    recorded = history.record.setdefault("repositories", {})
    for key in [key for key, step in recorded.items() if step == NOT_BEGUN]:
        del recorded[key]
    for key, results in results_of.items():
        failed = next((end for end in results if end.exit_code), None)
        if failed is not None and key not in recorded:
            recorded[key] = {"status": failed.outcome.value, "message": failed.message}


def _still_without(repository: RepositoryPlan, steps: Iterable[RepositoryPlan]) -> set[str]:
    """Branches that are newer than the plan and got no rule."""
    given = {b for s in steps if s.key == repository.key and s.after for b in s.after.branches}
    return set(repository.unexpanded) - given


def _attempts(job: Job, ports: ApplyPorts) -> list[Attempt[Any]]:
    """The writes of a job in order: GC rules and pins, policies, object rules."""
    attempts: list[Attempt[Any]] = []
    repository = job.repository
    pins = ports.pins.get(repository.key)
    changes = any(r is not None and r.pins is not None and r.pins.writes for r in (repository, job.live))
    if pins is not None and (repository.action.writes or changes):
        attempts.append(PinnedRulesAttempt(job, pins))
    elif repository.action.writes:
        attempts.append(RulesAttempt(job))
    attempts += [SettingAttempt(job, setting) for setting in repository.settings if setting.action.writes]
    return attempts


def _with_damaged_state(
    work: Iterable[RepositoryPlan], attempts: Mapping[str, Sequence[Attempt[Any]]], ports: ApplyPorts
) -> dict[str, list[Applied]]:
    """The results of repositories whose records in the state are damaged, by ``server/name``."""
    results = {}
    for repository in work:
        try:
            _check_state(repository.key, ports)
        except LakeplanError as error:
            results[repository.key] = _failed(repository, attempts[repository.key], 0, error)
    return results


def _check_state(key: str, ports: ApplyPorts) -> None:
    """Reads every record of a repository that this run needs. Raises LakeplanError for a damaged one."""
    read_applied(ports.state, key)
    check_lease(ports.state, key)
    for read in ports.also_needs:
        read(ports.state, key)


def _failed(
    repository: RepositoryPlan, attempts: Sequence[Attempt[Any]], first: int, error: LakeplanError
) -> list[Applied]:
    """The results of the attempt that failed and of those after it."""
    code = int(error.exit_code)
    if not attempts:
        return [pins_unchanged(repository, str(error), error.hint, code)]
    failed, *rest = attempts[first:]
    text = f"not tried, because writing {failed.called} failed"
    return [failed.failed(error), *(a.ended(Outcome.FAILED, text, "", code) for a in rest)]


def _write_one(
    repository: RepositoryPlan,
    live: RepositoryPlan | None,
    attempts: Sequence[Attempt[Any]],
    run: Run,
    ports: ApplyPorts,
    *,
    since: datetime,
) -> list[Applied]:
    """Writes every setting of one repository under one lease. Errors are reported, not raised. It was planned
    again at ``since``."""
    if live is not None and live.failure is not None:
        failure = live.failure
        text, hint, code = failure.message, failure.hint, failure.exit_code
        # Only pins were to be changed, and they cannot be changed without the repository.
        pins = [pins_unchanged(repository, text, hint, code)]
        return [a.ended(Outcome.FAILED, text, hint, code) for a in attempts] or pins
    done: list[Applied] = []
    try:
        connection = ports.connect(repository.server)

        # If shorter retention were recorded with a wrong time, sweep.settle would be shorter.
        clocks = server_clock(connection.reader, repository.name, run.now, where=repository.key)
        _check_state(repository.key, ports)  # again, because earlier repositories may have taken long
        lease = Lease(ports.state, repository.key, run.holder, run.now, run.is_gone, lambda: clocks.earliest)
        with lease:
            applied = read_applied(ports.state, repository.key)
            if attempts and applied is not None and since < moment_in(applied[0]["at"]) <= run.now():
                # Another run wrote it. The server may still return the values from before that.
                raise attempts[0].changed_since_judged()
            claim(repository.name, repository.key, ports.tree, connection, run)
            for attempt in attempts:
                outcome = attempt.run_it(connection, lease.renew)
                done.append(attempt.ended(outcome))
    except LakeplanError as error:
        return [*done, *_failed(repository, attempts, len(done), error)]
    return done


def pins_unchanged(repository: RepositoryPlan, message: str, hint: str, exit_code: int) -> Applied:
    """The result of a repository whose pins were not changed."""
    key, before, after = repository.key, repository.before_etag, repository.after_etag
    return Applied(
        key, Action.CHANGE.value, Outcome.FAILED, before, after, message, hint, exit_code or 1, setting=PINS
    )


def _history_facts(plan: Plan, live: Plan, plan_digest: str, force: bool) -> dict[str, Any]:
    """The history's facts about an apply. ``live`` is the plan made again, whose gates were judged."""
    return {
        "plan_digest": plan_digest,
        "plan_as_of": plan.as_of.isoformat(),
        "plan_tree_commit": plan.tree_commit,
        "allowed": list(live.allowed),
        "overridden": sorted(
            f"{gate_text(g)} ({g.opens_with})"
            for g in (*live.gates, *(g for r in live.repositories for g in r.gates))
            if g.outcome is GateOutcome.OVERRIDDEN
        ),
        "force": force,
    }

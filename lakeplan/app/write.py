"""The writes of an apply: lease, check, write, read back, record; one repository after the other.

Every end is what was seen, not what was intended. Repositories fail one by one, the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from lakeplan.app.gather_settings import ENFORCED_BY_LAKEPLAN
from lakeplan.app.run import GC, Connection
from lakeplan.app.run import Applied as Applied
from lakeplan.app.run import ApplyPorts as ApplyPorts
from lakeplan.app.run import ApplyReport as ApplyReport
from lakeplan.app.run import Outcome as Outcome
from lakeplan.app.run import Run as Run
from lakeplan.app.state import History, Lease, record_applied, record_setting
from lakeplan.app.write_settings import applied_record, bodies, push_setting
from lakeplan.errors import LakeplanError, PermissionDenied, StalePlan
from lakeplan.model.plan import GateOutcome, GateResult, Plan, RepositoryPlan
from lakeplan.model.rules import GcRules, etag_of
from lakeplan.model.setting_plan import ObjectRulesPlan, PoliciesPlan


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
    results: list[Applied] = []
    with ports.progress.task("applying", len(work)) as step_done:
        for repository in work:
            current = again.get(repository.key)
            history.step(repository.key, status="pending", **_bodies(repository))
            ended = _write_one(repository, current, run, ports, force=force)
            history.step(repository.key, **_ends(ended))
            results += ended
            step_done()
    history.record["finished_at"] = run.now().isoformat()
    history.save()
    written = {r.key for r in plan.writes}
    extra = tuple(sorted(r.key for r in live.writes if r.key not in written))
    later = {r.key: tuple(sorted(_still_without(r, work))) for r in live.repositories if r.unexpanded}
    return ApplyReport(
        run.run_id,
        tuple(results),
        not_written=extra,
        unexpanded={k: v for k, v in later.items() if v},
        elsewhere=tuple(sorted(r.key for r in plan.repositories if ENFORCED_BY_LAKEPLAN in r.warnings)),
    )


def _bodies(repository: RepositoryPlan) -> dict[str, Any]:
    """What the history says of a repository before it is written: each setting before and after."""
    found: dict[str, Any] = {}
    if repository.action.writes:
        found = {"before": _body(repository.before), "after": _body(repository.after)}
    for setting in repository.settings:
        if setting.action.writes:
            found[setting.kind.value] = {"before": bodies(setting.before), "after": bodies(setting.after)}
    return found


def _ends(ended: Iterable[Applied]) -> dict[str, Any]:
    """The worst end of a repository's settings, and what was said."""
    results = list(ended)
    order = (Outcome.FAILED, Outcome.APPLIED, Outcome.ALREADY)
    worst = next(o for o in order if any(r.outcome is o for r in results))
    return {"status": worst.value, "message": "; ".join(r.message for r in results if r.message)}


def _still_without(repository: RepositoryPlan, steps: Iterable[RepositoryPlan]) -> set[str]:
    """Branches that appeared since the plan and got no rule."""
    given = {b for s in steps if s.key == repository.key and s.after for b in s.after.branches}
    return set(repository.unexpanded) - given


@dataclass
class _Part:
    """One setting of a repository on its way to the server."""

    repository: RepositoryPlan
    setting: str
    action: str
    before_etag: str
    after_etag: str
    write: Callable[[], Outcome] = field(repr=False)

    def ended(self, outcome: Outcome, message: str = "", hint: str = "", exit_code: int = 0) -> Applied:
        return Applied(
            self.repository.key,
            self.action,
            outcome,
            self.before_etag,
            self.after_etag,
            message,
            hint,
            exit_code,
            self.setting,
        )


def _write_one(
    repository: RepositoryPlan,
    live: RepositoryPlan | None,
    run: Run,
    ports: ApplyPorts,
    *,
    force: bool,
) -> list[Applied]:
    """Every setting of one repository under one lease; the first failure ends it."""
    parts = _parts(repository, run, ports, force=force)
    if live is not None and live.failure is not None:
        failure = live.failure
        return [p.ended(Outcome.FAILED, failure.message, failure.hint, failure.exit_code) for p in parts]
    done: list[Applied] = []
    try:
        with Lease(ports.state, repository.key, run.holder, run.now, run.is_gone):
            for part in parts:
                outcome = part.write()
                done.append(part.ended(outcome))
    except LakeplanError as error:
        done = done[: len(parts) - 1]  # all of them when the lease could not be given back
        failed, *rest = parts[len(done) :]
        code = int(error.exit_code)
        after = f"not tried, because its {failed.setting} could not be written"
        ends = [failed.ended(Outcome.FAILED, str(error), error.hint, code)]
        return [*done, *ends, *(p.ended(Outcome.FAILED, after, "", code) for p in rest)]
    return done


def _parts(repository: RepositoryPlan, run: Run, ports: ApplyPorts, *, force: bool) -> list[_Part]:
    """What is to be written, in order: GC rules, then policies, then object rules."""

    def rules() -> Outcome:
        outcome = _set_rules(repository, ports.connect(repository.server), force=force)
        record_applied(
            ports.state,
            repository.key,
            repository.after,
            config_hash=repository.config_hash,
            run_id=run.run_id,
            at=run.now(),
        )
        return outcome

    def pushing(setting: PoliciesPlan | ObjectRulesPlan) -> Callable[[], Outcome]:
        def push() -> Outcome:
            connection = ports.connect(repository.server)
            pushed = push_setting(repository, setting, connection, ports.state, run, force=force)
            record_setting(
                ports.state,
                repository.key,
                setting.kind.value,
                applied_record(setting, pushed),
                config_hash=repository.config_hash,
                run_id=run.run_id,
                at=run.now(),
            )
            return pushed.outcome

        return push

    parts = []
    if repository.action.writes:
        etags = (repository.before_etag, repository.after_etag)
        parts.append(_Part(repository, GC, repository.action.value, *etags, rules))
    for setting in repository.settings:
        if setting.action.writes:
            etags = (setting.before_etag, setting.after_etag)
            parts.append(
                _Part(repository, setting.kind.value, setting.action.value, *etags, pushing(setting))
            )
    return parts


def _set_rules(repository: RepositoryPlan, connection: Connection, *, force: bool) -> Outcome:
    """Check, write, read back. GC rules have no If-Match (api.md): the check just before is the best there
    is, and the read-back tells when somebody wrote in between."""
    name = repository.name
    stored = etag_of(connection.reader.get_gc_rules(name))
    if stored == repository.after_etag:
        return Outcome.ALREADY
    if stored != repository.before_etag and not force:
        raise StalePlan(
            f"the rules changed since the plan (ETag {stored[:12]}, planned on"
            f" {repository.before_etag[:12]})",
            where=repository.key,
            hint="plan again and have it reviewed; --force skips this check",
        )
    if not connection.writer.can_set_gc_rules(name):
        raise PermissionDenied(
            "the credentials may not change this repository's GC rules",
            where=repository.key,
            hint="grant retention:SetGarbageCollectionRules on it",
        )
    if repository.after is None:
        connection.writer.delete_gc_rules(name)
    else:
        connection.writer.set_gc_rules(name, repository.after)
    read_back = etag_of(connection.reader.get_gc_rules(name))
    if read_back != repository.after_etag:
        raise StalePlan(
            f"the rules read back differ from those written (ETag {read_back[:12]}, written"
            f" {repository.after_etag[:12]}): somebody else wrote too, or the server changed them",
            where=repository.key,
            hint="look at the repository's rules on the server, then plan again",
        )
    return Outcome.APPLIED


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
            gate_text(g)
            for g in (*plan.gates, *(g for r in plan.repositories for g in r.gates))
            if g.outcome is GateOutcome.ACKNOWLEDGED
        ),
        "force": force,
    }


def _body(rules: GcRules | None) -> dict[str, object] | None:
    return None if rules is None else rules.to_body()

"""Writing GC rules. They have no If-Match (api.md): the check just before is the best there is, and the
read-back shows when somebody wrote in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.app.attempt import Attempt
from lakeplan.app.run import GC, Connection, Run
from lakeplan.app.state import History, record_applied
from lakeplan.core.diff import diff_rules
from lakeplan.errors import PermissionDenied, StalePlan
from lakeplan.model.plan import RepositoryPlan
from lakeplan.model.rules import GcRules, etag_of
from lakeplan.ports.storage import StateWriter


class RulesAttempt(Attempt):
    def __init__(
        self,
        repository: RepositoryPlan,
        live: RepositoryPlan | None,
        run: Run,
        state: StateWriter,
        history: History,
        *,
        force: bool,
    ) -> None:
        super().__init__(repository, live, run, state, history, setting=GC, force=force)
        self._before = self._seen = repository.before

    @property
    def called(self) -> str:
        return "the rules"

    def etags(self) -> tuple[str, str]:
        return etag_of(self._before), self.repository.after_etag

    def action(self) -> str:
        return self.repository.action.value

    def check(self, connection: Connection) -> bool:
        repository = self.repository
        self.read(connection)
        self._before = self._seen
        if self.is_stored():
            return False
        if self.live is not None and self.live.before_etag == repository.after_etag:
            raise self.changed_since_judged()
        if not self.force:
            self.check_unchanged()
        if not connection.writer.can_set_gc_rules(repository.name):
            raise PermissionDenied(
                "the credentials may not change this repository's GC rules",
                where=repository.key,
                hint="grant retention:SetGarbageCollectionRules on it",
            )
        return True

    def check_unchanged(self) -> None:
        stored, planned = etag_of(self._seen), self.repository.before_etag
        if stored != planned:
            raise StalePlan(
                f"the rules changed since the plan (ETag {stored[:12]}, planned on {planned[:12]})",
                where=self.repository.key,
                hint="plan again and have it reviewed; --force skips this check",
            )

    def bodies(self) -> Mapping[str, Any]:
        return {"before": _body(self._before), "after": _body(self.repository.after)}

    def prepare(self, connection: Connection) -> None:
        """Nothing comes before a write of rules."""

    def put(self, connection: Connection) -> None:
        repository = self.repository
        if repository.after is None:
            connection.writer.delete_gc_rules(repository.name)
        else:
            connection.writer.set_gc_rules(repository.name, repository.after)

    def read(self, connection: Connection) -> None:
        self._seen = connection.reader.get_gc_rules(self.repository.name)

    def is_stored(self) -> bool:
        return self._seen == self.repository.after

    def is_as_checked(self) -> bool:
        return self._seen == self._before

    def found(self) -> Any:
        return _body(self._seen)

    def difference(self) -> str:
        changes = diff_rules(self.repository.after, self._seen)
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


def _days(value: int | None) -> str:
    return "unset" if value is None else str(value)


def _body(rules: GcRules | None) -> dict[str, object] | None:
    return None if rules is None else rules.to_body()

"""Writing GC rules. They have no If-Match (api.md): the check just before is the best there is, and the
read-back tells when somebody wrote in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeplan.app.attempt import Attempt
from lakeplan.app.run import GC, Connection, Run
from lakeplan.app.state import History, record_applied
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
        self._seen = repository.before

    @property
    def called(self) -> str:
        return "the rules"

    def etags(self) -> tuple[str, str]:
        return etag_of(self._seen), self.repository.after_etag

    def action(self) -> str:
        return self.repository.action.value

    def check(self, connection: Connection) -> bool:
        repository = self.repository
        self._seen = connection.reader.get_gc_rules(repository.name)
        stored = etag_of(self._seen)
        if stored == repository.after_etag:
            return False
        if self.live is not None and self.live.before_etag == repository.after_etag:
            raise self.changed_since_judged()
        if stored != repository.before_etag and not self.force:
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
        return True

    def bodies(self) -> Mapping[str, Any]:
        return {"before": _body(self._seen), "after": _body(self.repository.after)}

    def send(self, connection: Connection) -> None:
        repository = self.repository
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

    def record(self) -> None:
        record_applied(
            self.state,
            self.repository.key,
            self.repository.after,
            config_hash=self.repository.config_hash,
            run_id=self.run.run_id,
            at=self.run.now(),
        )


def _body(rules: GcRules | None) -> dict[str, object] | None:
    return None if rules is None else rules.to_body()

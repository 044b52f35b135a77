"""``lakeplan report --with-curves``: the curve of each repository whose history was read, by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeplan.app.report_page import History
from lakeplan.cli.report_sources import Sources
from lakeplan.errors import LakeplanError
from lakeplan.model.plan import Plan, RepositoryPlan
from lakeplan.model.redaction import is_digest
from lakeplan.ports.progress import Progress
from lakeplan.simulation.curve_request import CurveRequest
from lakeplan.simulation.runners import Runners

if TYPE_CHECKING:  # Spark takes long to import; a page without curves should not wait for it
    from lakeplan.simulation.curve import CurveInput

MAX_CURVES = 5
"""A curve reads every range of its repository."""
HORIZON_DAYS = 90


@dataclass
class Curves:
    """By key. ``failed`` says in words which curves could not be made, and why."""

    found: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def names(self) -> dict[str, str]:
        """The key of each by the name that its document has."""
        return {str(document["repository"]): key for key, document in self.found.items()}


def compute_curves(
    plan: Plan,
    repositories: Sequence[RepositoryPlan],
    histories: Mapping[str, History],
    sources: Sources,
    runners: Runners,
    progress: Progress,
) -> Curves:
    """Curves of the proposed rules (of the stored ones where none are proposed) at the plan's moment.
    One that fails does not keep the page from showing the rest."""
    from lakeplan.simulation.curve import curve

    curves = Curves()
    wanted = [r for r in repositories if r.key in histories and (r.after or r.before) is not None]
    for repository in wanted[:MAX_CURVES]:
        history = histories[repository.key]
        rules = repository.after or repository.before
        assert rules is not None
        request = CurveRequest(rules, plan.as_of, history.zone, (), None, HORIZON_DAYS)
        try:
            given = _given(request, repository, history, sources)
            curves.found[repository.key] = curve(request, given, runners, progress)
        except LakeplanError as error:
            curves.failed.append(f"{repository.key}: no retention curve: {error.message}")
    if len(wanted) > MAX_CURVES:
        rest = ", ".join(r.key for r in wanted[MAX_CURVES:][:MAX_CURVES])
        curves.left_out.append(
            f"more than {MAX_CURVES} retention curves: not of {rest}; name them by --target"
        )
    return curves


def _given(
    request: CurveRequest, repository: RepositoryPlan, history: History, sources: Sources
) -> CurveInput:
    from lakeplan.simulation.curve import of_namespace, of_repository

    if repository.key in sources.urls:
        namespace = sources.namespace(repository.key)
        planned = repository.storage_namespace
        known = planned if planned and not is_digest(planned) else None
        return of_namespace(request, namespace, storage_namespace=known)
    assert sources.session is not None, "a history was read from a server"
    reader = sources.session.reader(repository.server)
    url = reader.get_repository(repository.name).storage_namespace
    metadata = reader.metadata_reader(repository.name)
    return of_repository(repository.key, history.graph, metadata, url, history.blind_to)

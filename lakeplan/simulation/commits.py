"""The part of a simulation that needs no Spark: verdicts per commit, and ``commits/``."""

from __future__ import annotations

from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.document import Json, summary
from lakeplan.simulation.inputs import History, read_history
from lakeplan.simulation.output import check_target, write_summary, written
from lakeplan.simulation.request import SimulateRequest
from lakeplan.simulation.verdicts import Judged, judge


def judge_all(request: SimulateRequest, history: History) -> list[Judged]:
    return [judge(history.graph, r, request.as_of, request.zone) for r in request.rule_sets]


def simulate_commits(request: SimulateRequest, namespace: NamespaceReader) -> Json:
    """``--commits-only``: the summary document without objects; writes ``commits/`` and ``summary.json`` when
    an output is asked for. Raises what ``read_history`` does, and UsageError for the output."""
    if request.output is not None:
        check_target(request.output, overwrite=request.overwrite)
    history = read_history(namespace)
    judged = judge_all(request, history)
    document = summary(request, namespace.url, history, judged, None)
    if request.output is not None:
        # pyarrow takes longer to import than everything above takes to run
        from lakeplan.simulation import tables

        with written(request.output, overwrite=request.overwrite) as folder:
            tables.write(folder / "commits", tables.commits(history.graph, judged))
            write_summary(folder, document)
    return document

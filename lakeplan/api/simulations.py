"""Simulations: what rules would delete in a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

from lakeplan.simulation.document import SimulateRequest, simulate_commits
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.verdicts import COMPARE, RULES, RuleSet
from lakeplan.stores.open import open_namespace
from lakeplan.values.progress import Silent
from lakeplan.values.rules import GcRules

_DAY = timedelta(days=1)


def simulate(
    namespace: str,
    rules: GcRules,
    *,
    as_of: datetime,
    compare: GcRules | None = None,
    commits_only: bool = False,
    listing: bool = True,
    output: Path | str | None = None,
    overwrite: bool = False,
    min_age: timedelta = _DAY,
    max_uncommitted_age: timedelta = _DAY,
    zone: tzinfo = timezone.utc,
    endpoint_url: str | None = None,
    region: str | None = None,
    runner: str | None = None,
    master: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    spark_home: str | None = None,
) -> dict[str, Any]:
    """What ``lakeplan simulate`` says of a namespace that holds a refs dump, as the document that
    ``schemas/simulate.v1.json`` describes. With ``output`` Parquet tables are written there.

    ``as_of`` is aware. ``commits_only`` stops at commits and needs no Spark; otherwise ``runner``
    (``auto``, ``local``, ``spark``) reads ranges: see ``docs/performance.md``. Nothing is cached.

    Raises UsageError for the output, StorageError and FormatError for what cannot be read, SimulationFailed
    when Spark stops. There is no partial answer.
    """
    sets = [RuleSet(RULES, rules)] + ([] if compare is None else [RuleSet(COMPARE, compare)])
    request = SimulateRequest(
        rule_sets=tuple(sets),
        as_of=as_of,
        min_age_seconds=int(min_age.total_seconds()),
        zone=zone,
        listing=listing,
        max_uncommitted_age_seconds=int(max_uncommitted_age.total_seconds()),
        output=None if output is None else Path(output),
        overwrite=overwrite,
    )
    reader = open_namespace(namespace, endpoint_url=endpoint_url, region=region)
    if commits_only:
        return simulate_commits(request, reader)
    # Spark takes longer to import than everything else here takes to run.
    from lakeplan.simulation import run

    runners = Runners(runner, master, tuple((spark_conf or {}).items()), spark_home)
    return run.simulate(request, reader, runners, Silent())

"""``lakeplan simulate``: what rules would delete in a namespace, without a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from lakeplan.cli import namespaces, options
from lakeplan.cli.namespaces import CacheOptions, check_storage_namespace, parse_age, parse_zone
from lakeplan.cli.options import command, option
from lakeplan.cli.outputs import Outputs
from lakeplan.cli.process import moment_of
from lakeplan.output.simulate import render_simulate
from lakeplan.simulation.documents import SimulateRequest, simulate_commits
from lakeplan.simulation.inputs import read_rules
from lakeplan.simulation.verdicts import COMPARE, RULES, RuleSet


@command()
def simulate(
    *,
    namespace: Annotated[
        str,
        option(
            "URL of a storage namespace that contains a refs dump: file:///…, s3://… or https://…blob…", "URL"
        ),
    ],
    rules: Annotated[Path, option("JSON file of GC rules, in lakectl's format.", "FILE")],
    compare_rules: Annotated[
        Path | None, option("JSON file of other GC rules to compare with --rules.", "FILE")
    ] = None,
    as_of: options.AsOf = None,
    min_age: namespaces.Age = "24h",
    output: Annotated[
        Path | None, option("Folder in which to write Parquet tables and summary.json.", "DIR")
    ] = None,
    overwrite: Annotated[bool, option("Replace the results of an earlier run.")] = False,
    commits_only: Annotated[bool, option("Evaluate only commits. Spark is not needed.")] = False,
    stored: namespaces.NamespaceOptions,
    runners: options.RunnerOptions,
    cache: CacheOptions,
    outputs: Annotated[Outputs, options.documents("simulate")],
    progress: options.ProgressOptions,
) -> int:
    """Show what GC rules would delete from a storage namespace, without contacting a server.

    \b
    Examples:
      lakeplan simulate --namespace file:///data/a --rules gc.json --commits-only
      lakeplan simulate --namespace s3://bucket/repo --rules gc.json --output out/
      lakeplan simulate --namespace s3://bucket/repo --rules now.json \\
          --compare-rules new.json --format json --out summary.json
    """
    request = SimulateRequest(
        rule_sets=_rule_sets(rules, compare_rules),
        as_of=moment_of(as_of),
        min_age_seconds=parse_age("--min-age", min_age),
        zone=parse_zone(stored.time_zone),
        listing=not stored.no_listing,
        max_uncommitted_age_seconds=parse_age("--max-uncommitted-age", stored.max_uncommitted_age),
        storage_namespace=check_storage_namespace(stored.storage_namespace),
        output=output,
        overwrite=overwrite,
    )
    place = stored.inventory_place()
    reader = stored.open(namespace)
    if commits_only:
        document = simulate_commits(request, reader)
    else:
        if place is not None:
            request = replace(request, inventory=place.open(reader.url, request.as_of))
        # Arrow takes longer to import than --commits-only takes to run.
        from lakeplan.simulation import run

        document = run.simulate(request, reader, runners, progress, cache.open(local=runners.is_local))
    return outputs.emit(document, render_simulate)


def _rule_sets(rules: Path, compare: Path | None) -> tuple[RuleSet, ...]:
    named = [(RULES, rules)] + ([(COMPARE, compare)] if compare is not None else [])
    return tuple(RuleSet(name, read_rules(path)) for name, path in named)

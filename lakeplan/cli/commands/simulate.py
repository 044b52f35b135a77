"""``lakeplan simulate``: what rules would delete in a namespace, without a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lakeplan.api.rules import read_rules
from lakeplan.cli import caches, namespaces, options
from lakeplan.cli.caches import inventory_place
from lakeplan.cli.console import configure_logging
from lakeplan.cli.namespaces import check_storage_namespace, parse_age, parse_zone
from lakeplan.cli.outputs import emit_document, pair_outputs
from lakeplan.cli.progress import progress_for
from lakeplan.cli.redaction import shown
from lakeplan.cli.who import now_utc, parse_time
from lakeplan.errors import ExitCode
from lakeplan.output.simulate import render_simulate
from lakeplan.simulation.document import SimulateRequest, simulate_commits
from lakeplan.simulation.runners import Runners
from lakeplan.simulation.verdicts import COMPARE, RULES, RuleSet
from lakeplan.stores.open import open_namespace
from lakeplan.stores.protocols import NamespaceReader
from lakeplan.values.progress import Progress

FORMATS = ("rich", "json")
HELP = """Show what rules would delete in a namespace; needs no server.

\b
Examples:
  lakeplan simulate --namespace file:///data/a --rules gc.json --commits-only
  lakeplan simulate --namespace s3://bucket/repo --rules gc.json --output out/
  lakeplan simulate --namespace s3://bucket/repo --rules now.json \\
      --compare-rules new.json --format json --out summary.json
"""
Namespace = Annotated[
    str,
    typer.Option("--namespace", help="file:///…, s3://… or https://…blob… with a refs dump.", metavar="URL"),
]
Rules = Annotated[
    Path, typer.Option("--rules", help="GC rules as JSON, the way lakectl takes them.", metavar="FILE")
]
CompareRules = Annotated[
    Path | None, typer.Option("--compare-rules", help="Other rules to judge beside them.", metavar="FILE")
]
OutputDir = Annotated[
    Path | None,
    typer.Option("--output", help="Where Parquet tables and summary.json go.", metavar="DIR"),
]


def register(app: typer.Typer) -> None:
    @app.command("simulate", help=HELP, short_help="Show what rules would delete; needs no server.")
    def simulate(
        namespace: Namespace,
        rules: Rules,
        compare_rules: CompareRules = None,
        as_of: options.AsOf = None,
        min_age: namespaces.Age = "24h",
        output: OutputDir = None,
        overwrite: Annotated[
            bool, typer.Option("--overwrite", help="Replace the results of an earlier run.")
        ] = False,
        commits_only: Annotated[
            bool, typer.Option("--commits-only", help="Only the verdicts per commit: no Spark.")
        ] = False,
        no_listing: namespaces.NoListing = False,
        inventory: namespaces.Inventory = None,
        max_inventory_age: namespaces.InventoryAge = "8d",
        max_uncommitted_age: namespaces.UncommittedAge = "24h",
        storage_namespace: namespaces.StorageNamespace = None,
        endpoint_url: namespaces.EndpointUrl = None,
        region: namespaces.Region = None,
        time_zone: namespaces.TimeZone = "UTC",
        runner: options.Runner = None,
        master: options.Master = None,
        spark_conf: options.SparkConf = None,
        spark_home: options.SparkHome = None,
        cache: caches.Where = None,
        cache_size: caches.Size = caches.DEFAULT_SIZE,
        format: Annotated[options.Formats, options.formats(FORMATS)] = None,
        out: options.Outs = None,
        redact_paths: options.RedactPaths = False,
        no_color: options.NoColor = False,
        no_progress: options.NoProgress = False,
        log_level: options.LogLevel = "warning",
        quiet: options.Quiet = False,
    ) -> int:
        configure_logging(log_level)
        outputs = pair_outputs(format, out, FORMATS, quiet=quiet)
        kept = caches.cache_choice(cache, cache_size)
        request = SimulateRequest(
            rule_sets=_rule_sets(rules, compare_rules),
            as_of=now_utc() if as_of is None else parse_time(as_of),
            min_age_seconds=parse_age("--min-age", min_age),
            zone=parse_zone(time_zone),
            listing=not no_listing,
            max_uncommitted_age_seconds=parse_age("--max-uncommitted-age", max_uncommitted_age),
            storage_namespace=check_storage_namespace(storage_namespace),
            output=output,
            overwrite=overwrite,
        )
        place = inventory_place(
            inventory, max_inventory_age, no_listing=no_listing, endpoint_url=endpoint_url, region=region
        )
        reader = open_namespace(namespace, endpoint_url=endpoint_url, region=region)
        if commits_only:
            document = simulate_commits(request, reader)
        else:
            if place is not None:
                request = replace(request, inventory=place.open(reader.url, request.as_of))
            progress = progress_for(shown=not (no_progress or quiet), no_color=no_color)
            document = _simulate(
                request, reader, options.runners(runner, master, spark_conf, spark_home), kept, progress
            )
        outside = shown(document, redact=redact_paths)
        emit_document(outputs, outside, render_simulate, no_color=no_color)
        return ExitCode.OK


def _simulate(
    request: SimulateRequest,
    reader: NamespaceReader,
    runners: Runners,
    cache: caches.CacheChoice,
    progress: Progress,
) -> dict[str, object]:
    # Arrow takes longer to import than --commits-only takes to run.
    from lakeplan.simulation.run import simulate

    return simulate(request, reader, runners, progress, cache.open(local=runners.is_local))


def _rule_sets(rules: Path, compare: Path | None) -> tuple[RuleSet, ...]:
    named = [(RULES, rules)] + ([(COMPARE, compare)] if compare is not None else [])
    return tuple(RuleSet(name, read_rules(path)) for name, path in named)

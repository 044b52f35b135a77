"""``lakeplan simulate``: what rules would delete in a namespace, without a server."""

from __future__ import annotations

import json
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from lakeplan.adapters.storage import open_namespace
from lakeplan.cli import options
from lakeplan.cli.console import configure_logging
from lakeplan.cli.outputs import emit, pair_outputs
from lakeplan.cli.progress import progress_for
from lakeplan.cli.when import parse_time
from lakeplan.config.units import parse_duration
from lakeplan.errors import ExitCode, UsageError
from lakeplan.ports.progress import Progress
from lakeplan.ports.storage import NamespaceReader
from lakeplan.render.simulate import render_simulate
from lakeplan.simulation.commits import simulate_commits
from lakeplan.simulation.request import SimulateRequest
from lakeplan.simulation.rules_file import read_rules
from lakeplan.simulation.rulesets import COMPARE, RULES, RuleSet

FORMATS = ("rich", "json")
Age = Annotated[str, typer.Option("--min-age", help="Younger objects stay, such as 24h.", metavar="AGE")]
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
StorageNamespace = Annotated[
    str | None,
    typer.Option(
        "--storage-namespace", help="The server's URL of the namespace, when it is another.", metavar="URL"
    ),
]


def register(app: typer.Typer) -> None:
    @app.command("simulate", help="Show what rules would delete in a namespace; needs no server.")
    def simulate(
        namespace: Namespace,
        rules: Rules,
        compare_rules: CompareRules = None,
        as_of: options.AsOf = None,
        min_age: Age = "24h",
        output: OutputDir = None,
        overwrite: Annotated[
            bool, typer.Option("--overwrite", help="Replace the results of an earlier run.")
        ] = False,
        commits_only: Annotated[
            bool, typer.Option("--commits-only", help="Only the verdicts per commit: no Spark.")
        ] = False,
        no_listing: Annotated[
            bool, typer.Option("--no-listing", help="Do not list what is stored: figures are at most.")
        ] = False,
        max_uncommitted_age: Annotated[
            str,
            typer.Option(
                "--max-uncommitted-age", help="How old a run of uncommitted addresses may be.", metavar="AGE"
            ),
        ] = "24h",
        storage_namespace: StorageNamespace = None,
        endpoint_url: Annotated[
            str | None, typer.Option("--endpoint-url", help="Endpoint of an S3 store.", metavar="URL")
        ] = None,
        region: Annotated[str | None, typer.Option("--region", help="Region of an S3 store.")] = None,
        time_zone: Annotated[
            str, typer.Option("--time-zone", help="The server's time zone.", metavar="ZONE")
        ] = "UTC",
        master: options.Master = None,
        spark_conf: options.SparkConf = None,
        format: options.Formats = None,
        out: options.Outs = None,
        no_color: options.NoColor = False,
        no_progress: options.NoProgress = False,
        log_level: options.LogLevel = "warning",
        quiet: options.Quiet = False,
    ) -> int:
        configure_logging(log_level)
        outputs = pair_outputs(format, out, FORMATS, quiet=quiet)
        request = SimulateRequest(
            rule_sets=_rule_sets(rules, compare_rules),
            as_of=datetime.now(timezone.utc) if as_of is None else parse_time(as_of),
            min_age_seconds=_age("--min-age", min_age),
            zone=_zone(time_zone),
            listing=not no_listing,
            max_uncommitted_age_seconds=_age("--max-uncommitted-age", max_uncommitted_age),
            storage_namespace=_storage_namespace(storage_namespace),
            output=output,
            overwrite=overwrite,
        )
        reader = open_namespace(namespace, endpoint_url=endpoint_url, region=region)
        if commits_only:
            document = simulate_commits(request, reader)
        else:
            progress = progress_for(shown=not (no_progress or quiet), no_color=no_color)
            document = _simulate(request, reader, master, spark_conf or [], progress)
        emit(
            outputs,
            {"json": lambda: json.dumps(document, indent=2, ensure_ascii=False) + "\n"},
            lambda console: render_simulate(document, console),
            no_color=no_color,
        )
        return ExitCode.OK


def _simulate(
    request: SimulateRequest,
    reader: NamespaceReader,
    master: str | None,
    spark_conf: list[str],
    progress: Progress,
) -> dict[str, object]:
    # Spark takes longer to import than --commits-only takes to run.
    from lakeplan.cli.wiring import parse_spark_conf
    from lakeplan.simulation.run import simulate
    from lakeplan.simulation.session import SparkOptions

    options = SparkOptions(master=master, conf=parse_spark_conf(spark_conf))
    return simulate(request, reader, options, progress)


def _rule_sets(rules: Path, compare: Path | None) -> tuple[RuleSet, ...]:
    named = [(RULES, rules)] + ([(COMPARE, compare)] if compare is not None else [])
    return tuple(RuleSet(name, read_rules(_read(path), name=str(path))) for name, path in named)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the rules: {error.strerror}", where=str(path), hint="name a file of GC rules"
        ) from None


def _age(option: str, text: str) -> int:
    if text.strip() in ("0", "0s"):
        return 0
    try:
        return parse_duration(text.strip())
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"{option} 24h") from None


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"there is no time zone {name!r}", hint="a name such as Europe/Paris") from None


def _storage_namespace(url: str | None) -> str | None:
    if url is not None and "://" not in url:
        raise UsageError(
            f"--storage-namespace {url!r} is no URL", hint="the server's own, such as s3://bucket/prefix"
        )
    return url

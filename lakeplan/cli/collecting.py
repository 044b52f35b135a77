"""Where the official collector's port meets spark-submit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from lakeplan.cli.options import Options, option, parse_spark_conf
from lakeplan.cli.outputs import Outputs
from lakeplan.cli.sweeping import bind_storage, sweep_ports
from lakeplan.cli.wiring import Session
from lakeplan.errors import ExitCode, UsageError
from lakeplan.output.operations import render_collector_runs
from lakeplan.review.selection import Selection
from lakeplan.sweep.collector import LakefsAccess, check_conf, storage_access
from lakeplan.sweep.finish import collector_reports
from lakeplan.sweep.ports import Site
from lakeplan.sweep.spark_submit import SparkSubmit, SubmitOptions

SparkSubmitPath = Annotated[str, option("spark-submit program that runs the official collector.", "PATH")]
CollectorClient = Annotated[
    str | None,
    option("Official collector to run: Maven coordinates, or the path or URL of a jar.", "PACKAGE|JAR"),
]
CollectorConf = Annotated[
    list[str] | None, option("Spark setting for the official collector, KEY=VALUE. Repeatable.", "K=V")
]
CollectorRuns = Annotated[bool, option("List the runs of every garbage collector instead of marks.")]
S3_PROVIDERS = ("fs.s3a.aws.credentials.provider", "fs.s3a.assumed.role.arn")
"""Who sets one of these says where the job finds S3 credentials."""


@dataclass(frozen=True)
class CollectorOptions:
    """As given on the command line; looked at only when the engine is the official one."""

    spark_submit: str
    client: str | None
    conf: Sequence[str] | None
    spark_conf: Sequence[str] | None


def _collecting(
    spark_submit: SparkSubmitPath = "spark-submit",
    collector: CollectorClient = None,
    collector_conf: CollectorConf = None,
    spark_conf: Sequence[str] | None = None,
) -> CollectorOptions:
    return CollectorOptions(spark_submit, collector, collector_conf, spark_conf)


Collecting = Annotated[CollectorOptions, Options(_collecting)]


def open_collector(session: Session, site: Site, options: CollectorOptions) -> SparkSubmit:
    """Raises UsageError for options that will not do, CredentialsError."""
    if not options.client:
        raise UsageError(
            "sweep.engine is lakefs-spark-client, but --collector does not say which version to run",
            where=site.key,
            hint="Add --collector io.lakefs:lakefs-spark-client_2.12:VERSION (_2.13 for Spark 4), or a jar.",
        )
    own = parse_spark_conf(options.spark_conf)
    check_conf({key: value for key, value in own.items() if "lakefs." in key}, option="--spark-conf")
    conf = parse_spark_conf(options.conf)
    credentials = session.credentials(site.server.name)
    storage = site.server.storages.get(site.repository.storage_id)
    bind_storage(site.server, storage, session.environ, session.approve)
    return SparkSubmit(
        SubmitOptions(options.spark_submit, options.client, conf),
        LakefsAccess(
            site.server.endpoint_url,
            credentials.access_key_id.reveal(),
            credentials.secret_access_key.reveal(),
        ),
        storage_access(
            site.repository.storage_namespace,
            endpoint_url=storage.endpoint_url if storage else None,
            region=storage.region if storage else None,
            environ=session.environ,
            own_provider=any(key.endswith(S3_PROVIDERS) for key in conf),
        ),
        session.environ,
        session.progress.note,
    )


def show_collector_runs(session: Session, selection: Selection, outputs: Outputs) -> int:
    """Every collection that a report of any kind tells of. 3 when a repository could not be read."""
    with sweep_ports(session) as ports:
        runs = collector_reports(session.tree, selection, ports)
    code = ExitCode.PARTLY_DONE if runs["failed"] else ExitCode.OK
    outputs.emit(runs, render_collector_runs)
    return code

"""Where the sweep's ports meet their adapters: namespaces by storage id, one runner for a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated

from lakeplan.cli.options import Options, option, parse_spark_conf
from lakeplan.cli.process import now_utc
from lakeplan.cli.wiring import Session
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.lakefs.credentials import check_binding
from lakeplan.simulation.requests import Checker
from lakeplan.simulation.runners import AUTO, SPARK, Runner, Runners, choose
from lakeplan.stores.open import AzureLocation, SweepStore, folder_of, open_sweep_store, parse_location
from lakeplan.sweep.ports import Site, SweepPorts
from lakeplan.sweep.spark_submit import LakefsAccess, SparkSubmit, SubmitOptions, check_conf, storage_access
from lakeplan.values.desired import ServerConfig, StorageConfig, server_variable
from lakeplan.values.repository import Repository
from lakeplan.values.simulation import RunnerChoice
from lakeplan.values.urls import UrlForm, parse_web_url, shown_url, storage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeplan.sweep.rounds import Workers


@dataclass
class Engine:
    """The runners of one command. All that runs on Spark shares a session, started when first needed."""

    runners: Runners
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _session: SparkSession | None = field(default=None, init=False)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        self._stack.close()

    @contextmanager
    def runner(self, entries: int) -> Iterator[tuple[Runner, RunnerChoice]]:
        """Return the runner of a marker."""
        if choose(self.runners.asked or AUTO, entries, master=self.runners.master).name == SPARK:
            self._spark()  # the runner takes the session that is active
        with self.runners.open(entries) as opened:
            yield opened

    @contextmanager
    def workers(self, parallelism: int | None) -> Iterator[tuple[Workers, RunnerChoice]]:
        """Return the workers of a sweeper."""
        from lakeplan.sweep.rounds import SparkWorkers, ThreadWorkers

        choice = self.runners.choose(None)
        if choice.name == SPARK:
            yield SparkWorkers(self._spark()), choice
            return
        yield ThreadWorkers(parallelism or len(os.sched_getaffinity(0))), choice

    def _spark(self) -> SparkSession:
        if self._session is None:
            from lakeplan.simulation.spark import open_session

            self._session = self._stack.enter_context(open_session(self.runners))
        return self._session


@contextmanager
def open_checker(session: Session) -> Iterator[Checker]:
    """The checker that reads ranges. At the end of the block, Spark stops if it was started."""
    from lakeplan.simulation.checking import StepChecker

    with Engine(session.runners) as engine:
        yield StepChecker(engine.runner, session.progress)


@contextmanager
def sweep_ports(
    session: Session,
    *,
    parallelism: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    verify_cache: bool = False,
) -> Iterator[SweepPorts]:
    """Everything that a sweep command needs; Spark, if it was started, ends with the block. ``verify_cache``:
    a sample of the cached facts about other repositories is read again."""
    # Arrow and numpy take long to import: only commands that need them pay for them.
    from lakeplan.simulation.foreign import open_foreign_cache
    from lakeplan.simulation.marking import StepMarker
    from lakeplan.sweep.rounds import PartSweeper

    with Engine(session.runners) as engine:
        yield SweepPorts(
            reader=session.reader,
            preparer=session.preparer,
            store=partial(open_store, session),
            marker=StepMarker(
                engine.runner,
                session.progress,
                open_foreign_cache(session.environ, session.tree.root),
                verify_cache=verify_cache,
            ),
            sweeper=PartSweeper(engine.workers, session.progress, parallelism=parallelism, stop=stop),
            state=session.state(),
            progress=session.progress,
            now=now_utc,
            stop=stop,
        )


def open_store(session: Session, server: ServerConfig, repository: Repository) -> SweepStore:
    """The namespace of a repository, as ``servers.<name>.storages`` describes its storage. Raises
    LakeplanError if it does not, and CredentialsError for an endpoint that is not bound."""
    namespace = repository.storage_namespace
    config = server.storages.get(repository.storage_id)
    where = f"servers.{server.name}.storages"
    kind = storage_of(namespace)
    if kind is not None and kind.form is UrlForm.SERVER and kind.in_tree:
        if config is None or config.type != kind.name or config.path is None:
            raise LakeplanError(
                f"the repository's data is in a folder on the server ({shown_url(namespace)}), but the"
                " tree does not specify the path of that folder",
                where=where,
                hint=f'Add "{repository.storage_id}": {{type: local, path: /path/on/the/server}} to {where}.',
            )
        return open_sweep_store(folder_of(namespace, config.path))
    if kind is None or not kind.in_tree:
        parse_location(namespace)  # says why, for the kinds that have a reason
        raise LakeplanError(
            "lakeplan can only sweep namespaces in S3, Google Cloud Storage, Azure or a folder on the server",
            where=shown_url(namespace),
            hint="To mark the other repositories, select them with `lakeplan sweep mark --target`.",
        )
    config = config or StorageConfig(kind.name)
    if config.type != kind.name:
        raise LakeplanError(
            f"the namespace is {shown_url(namespace)}, but its storage has the type {config.type} in the"
            " tree",
            where=where,
            hint=f"Set the type to {kind.name}.",
        )
    bind_storage(session, server, config)
    _check_gateway(namespace, config, where)
    return open_sweep_store(
        namespace,
        endpoint_url=config.endpoint_url,
        region=config.region,
        connect_seconds=session.timeouts.connect if session.timeouts else None,
        read_seconds=session.timeouts.read if session.timeouts else None,
    )


def bind_storage(session: Session, server: ServerConfig, config: StorageConfig | None) -> None:
    """Raises CredentialsError for an ``endpoint_url`` that the storage's credentials are not bound to."""
    name = server_variable(server.name, "STORAGE_URL")
    check_binding(
        f"storage of server {server.name}",
        config.endpoint_url if config else None,
        session.environ.get(name),
        variable=name,
        approve=session.approve,
    )


def _check_gateway(namespace: str, config: StorageConfig, where: str) -> None:
    """The server names the host of an Azure namespace. One that is neither Azure's nor this machine's must be
    in the tree, where it is bound."""
    location = parse_location(namespace)
    if not isinstance(location, AzureLocation) or location.is_azure:
        return
    url = parse_web_url(location.account_url)
    listed = config.endpoint_url and parse_web_url(config.endpoint_url).origin == url.origin
    if not listed and not url.is_loopback:
        raise LakeplanError(
            f"the namespace is at {url.origin}, an address that the tree does not list",
            where=where,
            hint="Check the server's configuration. If the address is correct, set the endpoint_url of this"
            " storage to it.",
        )


CollectorRuns = Annotated[bool, option("List the runs of every garbage collector instead of marks.")]
S3_PROVIDERS = ("fs.s3a.aws.credentials.provider", "fs.s3a.assumed.role.arn")
"""If one of these is set, the user has chosen where the job finds S3 credentials."""


@dataclass(frozen=True)
class CollectorChoice:
    """The options of the official collector, which are checked only if it is the engine."""

    spark_submit: Annotated[
        str, option("The spark-submit program that runs the official collector.", "PATH")
    ] = "spark-submit"
    collector: Annotated[
        str | None,
        option("Official collector to run: Maven coordinates, or the path or URL of a jar.", "PACKAGE|JAR"),
    ] = None
    collector_conf: Annotated[
        list[str] | None,
        option("Spark setting for the official collector in the form KEY=VALUE. Repeatable.", "K=V"),
    ] = None
    spark_conf: list[str] | None = None


CollectorOptions = Annotated[CollectorChoice, Options(CollectorChoice)]


def open_collector(session: Session, site: Site, options: CollectorChoice) -> SparkSubmit:
    """The official collector for a repository. Raises UsageError for unusable options, CredentialsError."""
    if not options.collector:
        raise UsageError(
            "sweep.engine is lakefs-spark-client, but no collector version was specified",
            where=site.key,
            hint="Pass --collector io.lakefs:lakefs-spark-client_2.12:VERSION (_2.13 for Spark 4), or the"
            " path of a jar.",
        )
    chosen = parse_spark_conf(options.spark_conf)
    check_conf({key: value for key, value in chosen.items() if "lakefs." in key}, option="--spark-conf")
    conf = parse_spark_conf(options.collector_conf, "--collector-conf")
    credentials = session.credentials(site.server.name)
    keys = credentials.access_key_id.reveal(), credentials.secret_access_key.reveal()
    storage = site.server.storages.get(site.repository.storage_id)
    bind_storage(session, site.server, storage)
    return SparkSubmit(
        SubmitOptions(options.spark_submit, options.collector, conf),
        LakefsAccess(site.server.endpoint_url, *keys),
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

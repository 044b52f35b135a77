"""``lakeplan audit`` and ``lakeplan storage``: what servers store, with or without a tree."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from lakeplan.cli import namespaces, options
from lakeplan.cli.commands import trees
from lakeplan.cli.namespaces import parse_zone
from lakeplan.cli.options import argument, command, option
from lakeplan.cli.outputs import Outputs, with_costs, write_html
from lakeplan.cli.process import new_mark_id, now_utc, stopping
from lakeplan.cli.sweeping import bind_storage
from lakeplan.cli.wiring import Session, SessionOptions, TimeoutOptions
from lakeplan.errors import ExitCode, LakeplanError, UsageError
from lakeplan.fleet.audit import AuditPorts, AuditSettings, audit_servers, sound_rules, stored_policies
from lakeplan.fleet.judging import AuditDocument
from lakeplan.fleet.storage import StorageDocument, storage_of_servers, with_growth, with_owners
from lakeplan.lakefs.transport import Pace
from lakeplan.output.audit import render_audit
from lakeplan.output.storage import render_storage
from lakeplan.plan.drift import Imported, SkippedRepository
from lakeplan.retention.patterns import names_repository
from lakeplan.simulation.runners import LOCAL, Runners
from lakeplan.stores.open import (
    AzureLocation,
    FolderLocation,
    NamespaceReader,
    folder_of,
    open_namespace,
    parse_location,
)
from lakeplan.tree.files import ROOT_FILE
from lakeplan.tree.schemas import read_document
from lakeplan.tree.servers import parse_price
from lakeplan.values.desired import Price, SettingKind, server_variable
from lakeplan.values.repository import Repository
from lakeplan.values.urls import UrlForm, shown_url, storage_of

Names = Annotated[
    list[str] | None, argument("Names or patterns of repositories. Default: all.", "[REPOSITORY]...")
]
DumpRefs = Annotated[
    bool,
    option(
        "Also include commits of deleted branches. To find these commits, lakeplan requests refs dumps,"
        " which the server stores in the namespaces."
    ),
]
Rate = Annotated[float, option("Maximum number of requests per second to each server.", "N", min=0.1)]
MaxRequests = Annotated[
    int,
    option(
        "Maximum number of requests per repository. Repositories that need more requests are skipped.",
        "N",
        min=1,
    ),
]
PriceText = Annotated[str | None, option("Price per GB per month, for example '0.023 USD'.", "PRICE")]


@dataclass(frozen=True)
class Storage:
    """The options for opening namespaces. With ``no_listing`` they are not opened."""

    no_listing: namespaces.NoListing = False
    endpoint_url: namespaces.EndpointUrl = None
    region: namespaces.Region = None
    storage_path: Annotated[
        Path | None, option("Folder on this machine that contains the data of local:// namespaces.", "DIR")
    ] = None


StorageOptions = Annotated[Storage, options.Options(Storage)]


@command()
def audit(
    *,
    repositories: Names = None,
    endpoint: trees.Endpoints = None,
    storage: StorageOptions,
    dump_refs: DumpRefs = False,
    sample: Annotated[
        int,
        option(
            "Number of objects to probe if storage is not listed. Each probe reads one byte.",
            "N",
            min=0,
            max=10_000,
        ),
    ] = 30,
    rate: Rate = 100.0,
    max_requests: MaxRequests = 20_000,
    stale_days: Annotated[
        int, option("Treat a branch as stale if its last commit is older than this.", "DAYS", min=1)
    ] = 90,
    price: PriceText = None,
    time_zone: namespaces.TimeZone = "UTC",
    resume: Annotated[Path | None, option("Reuse the results in this earlier JSON report.", "FILE")] = None,
    write: Annotated[
        Path | None,
        option(
            "Folder in which to write a tree with the stored rules and branch policies. Invalid values are"
            " corrected.",
            "DIR",
        ),
    ] = None,
    html: Annotated[
        Path | None, option("Also write an HTML page to this file, or - for standard output.", "FILE")
    ] = None,
    outputs: Annotated[Outputs, options.documents("audit")],
    opening: SessionOptions,
    timeouts: TimeoutOptions,
) -> int:
    """Show what retention does on a server, which data it has destroyed, and what it costs. Changes nothing.

    The command does not need a tree: it uses lakectl's server and credentials. If storage can be listed, the
    figures are exact. If not, they come from metadata and from a sample of objects that is read through the
    server.

    \b
    Examples:
      lakeplan audit
      lakeplan audit 'analytics*' --price '0.023 USD'
      lakeplan audit --format json --out audit.json
      lakeplan audit --resume audit.json --format json --out audit.json
      lakeplan audit --html audit.html
      lakeplan audit --write retention
    """
    outputs = outputs.beside(html)
    paid, zone = None if price is None else price_of(price), parse_zone(time_zone)
    endpoints = trees.endpoints_of(endpoint, opening.lakectl_config)
    earlier: AuditDocument | None = None if resume is None else read_report(resume, "audit", "--resume")
    if earlier is not None:
        refuse_other_servers(earlier, endpoints, "--resume")
    if write is not None:
        trees.refuse_a_tree(write)
    with (
        TemporaryDirectory(prefix="lakeplan-audit-") as folder,
        stopping(signal.SIGTERM, signal.SIGINT) as stop,
    ):
        session = session_without_tree(Path(folder), endpoints, opening, timeouts, rate)
        document = audit_servers(
            endpoints,
            audit_ports(session, storage, stop.is_set),
            AuditSettings(
                session.as_of,
                zone,
                dump_refs=dump_refs,
                sample=sample,
                max_requests=max_requests,
                stale_days=stale_days,
                seed=new_mark_id(now_utc()),
            ),
            takes=lambda server, name: takes_repository(repositories, server, name),
            known={row["repository"]: row for row in earlier["repositories"]} if earlier else {},
            now=now_utc,
        )
        check_selected(document)
        if write is not None:
            write_tree(write, document, endpoints, Path(folder))
    document = with_costs(document, session.tree, "repositories", price=paid)
    if html is not None:
        from lakeplan.output.audit import render_audit_page

        write_html(html, render_audit_page(outputs.shown(document)))
    return outputs.emit(document, render_audit, code=exit_code_of(document))


def check_selected(document: AuditDocument | StorageDocument) -> None:
    """Raises UsageError for a document of no repository."""
    if not (document["repositories"] or document["failed"] or document["unfinished"]):
        raise UsageError(
            "no repository is selected",
            hint="Check the names, and check that the credentials can list the repositories.",
        )


def exit_code_of(document: AuditDocument | StorageDocument) -> ExitCode:
    """3 if a repository could not be read or the command was stopped. Findings are not errors."""
    return ExitCode.PARTLY_DONE if document["failed"] or document["unfinished"] else ExitCode.OK


def session_without_tree(
    folder: Path, endpoints: Mapping[str, str], opening: SessionOptions, timeouts: TimeoutOptions, rate: float
) -> Session:
    """A session of these servers alone. Their tree is written to the empty ``folder``. Raises UsageError
    for servers that no tree can have."""
    trees.write_files(folder, {ROOT_FILE: trees.servers_only(endpoints, None)})
    with trees.of_options():
        session = opening.session(folder, timeouts=timeouts)
    return replace(session, pace=Pace(rate), approve=session.approve and _typed)


def _typed(what: str, url: str) -> bool:
    return True  # the person typed the address


def takes_repository(patterns: list[str] | None, server: str, name: str) -> bool:
    return not patterns or any(names_repository(pattern, server, name) for pattern in patterns)


def audit_ports(session: Session, storage: Storage, stop: Callable[[], bool]) -> AuditPorts:
    # Arrow and numpy take long to import: help needs neither.
    from lakeplan.simulation.checking import StepSurveyor

    return AuditPorts(
        reader=session.reader,
        branches=lambda server: session.branch_readers(server).branches,
        store=lambda server, repository: open_described(session, server, repository, storage),
        surveyor=StepSurveyor(Runners(LOCAL).open),
        grace_seconds=lambda server: session.preparer(server).grace_period_seconds(),
        progress=session.progress,
        stop=stop,
    )


def open_described(
    session: Session, server: str, repository: Repository, storage: Storage
) -> NamespaceReader | str:
    """As ``open_store``, but ``servers.<name>.storages`` of the tree supplies whatever the options do not
    set."""
    found = session.tree.servers[server]
    config = found.storages.get(repository.storage_id)
    if config is not None and not storage.no_listing:
        if storage.endpoint_url is None:
            try:
                bind_storage(session, found, config)
            except LakeplanError as error:
                return f"{server_variable(server, 'STORAGE_URL')}: {error.message}"
        storage = Storage(
            endpoint_url=storage.endpoint_url or config.endpoint_url,
            region=storage.region or config.region,
            storage_path=storage.storage_path or (Path(config.path) if config.path else None),
        )
    return open_store(repository, storage)


def open_store(repository: Repository, storage: Storage) -> NamespaceReader | str:
    """The namespace of a repository, or why it is not read."""
    if storage.no_listing:
        return "--no-listing was given"
    url = repository.storage_namespace
    kind = storage_of(url)
    try:
        if kind is not None and kind.form is UrlForm.SERVER and kind.in_tree:
            if storage.storage_path is None:
                return (
                    "the namespace is a folder on the server; use --storage-path to specify the location of"
                    " the folder on this machine"
                )
            return open_namespace(folder_of(url, str(storage.storage_path)))
        location = parse_location(url)
        if isinstance(location, AzureLocation) and not location.is_azure:
            return "the server reports a namespace whose address does not belong to Azure"
        if isinstance(location, FolderLocation):
            return (
                "the server reports a file:// namespace, and lakeplan does not open folders that a server"
                " specifies"
            )
        return open_namespace(url, endpoint_url=storage.endpoint_url, region=storage.region)
    except LakeplanError as error:
        return error.message


def price_of(text: str) -> Price:
    try:
        return Price(*parse_price(text))
    except ValueError as error:
        raise UsageError(
            f"--price: {error}", hint="Use an amount and a currency, for example --price '0.023 USD'"
        ) from None


def read_report(path: Path, kind: str, option: str) -> Any:
    """An earlier JSON report of this kind. Raises UsageError for any other file."""
    hint = f"Pass a JSON report of `lakeplan {kind}`, or remove {option}."
    return read_document(path, kind, "the report", hint=hint)


def refuse_other_servers(
    earlier: AuditDocument | StorageDocument, endpoints: Mapping[str, str], option: str
) -> None:
    """Raises UsageError for a report of other servers of the same names."""
    for name, url in endpoints.items():
        before = earlier["servers"].get(name, url)
        if before.rstrip("/") != url.rstrip("/"):
            raise UsageError(
                f"{option}: the report shows server {name} at {shown_url(before)}, but it is now at"
                f" {shown_url(url)}",
                hint=f"Create a new report, or remove {option}.",
            )


def write_tree(folder: Path, document: AuditDocument, endpoints: Mapping[str, str], scratch: Path) -> None:
    """A tree of the stored rules and branch policies, with invalid values corrected. Raises LakeplanError
    when no repository has any."""
    imported = []
    for row in document["repositories"]:
        server, _, name = row["repository"].partition("/")
        rules, policies = sound_rules(row), stored_policies(row)
        if rules is not None or policies:
            settings = {SettingKind.BRANCH_LIFECYCLE: policies} if policies else {}
            imported.append(Imported(server, name, rules, settings=settings))
    if not imported:
        raise LakeplanError(
            "no repository has GC rules or branch policies, so there is no tree to write",
            hint="Run `lakeplan init` to create a tree, and add rules to it.",
        )
    unread = [SkippedRepository(key, row["message"]) for key, row in document["failed"].items()]
    made = trees.make_checked(endpoints, imported, unread, "repository", scratch)
    trees.write_files(folder, made.files)


@command()
def storage(
    *,
    repositories: Names = None,
    tree: Annotated[
        Path | None,
        option("Use the servers, storages, owners and prices of this tree.", "DIR", names=("-C", "--tree")),
    ] = None,
    endpoint: trees.Endpoints = None,
    storage: StorageOptions,
    compare: Annotated[
        tuple[str, str] | None, option("Also show how much data these two branches share.", "BRANCH BRANCH")
    ] = None,
    since: Annotated[
        Path | None, option("Also show the growth since this earlier JSON report.", "FILE")
    ] = None,
    by_prefix: Annotated[
        bool, option("Also show prefixes and ages. lakeplan then keeps every path in memory.")
    ] = False,
    by_class: Annotated[
        bool, option("Also show storage classes. lakeplan then lists storage a second time.")
    ] = False,
    html: Annotated[
        Path | None,
        option(
            "Also write an HTML page with a treemap of prefixes to this file, or - for standard output.",
            "FILE",
        ),
    ] = None,
    dump_refs: DumpRefs = False,
    rate: Rate = 100.0,
    max_requests: MaxRequests = 20_000,
    price: PriceText = None,
    time_zone: Annotated[
        str | None,
        option(
            "Time zone of the servers. Default: each server's time zone in the tree, or UTC without a tree.",
            "ZONE",
        ),
    ] = None,
    outputs: Annotated[Outputs, options.documents("storage")],
    opening: SessionOptions,
    timeouts: TimeoutOptions,
) -> int:
    """Show what repositories store, which branches and tags keep it, and what could be deleted.

    The command does not need a tree: it uses lakectl's server and credentials. With --tree, it uses the
    servers, storages, owners and prices of the tree. The command changes nothing. If storage cannot be
    listed, figures come from metadata where possible, and all others are unknown.

    \b
    Examples:
      lakeplan storage
      lakeplan storage 'analytics*' --price '0.023 USD'
      lakeplan storage analytics --compare main experiment
      lakeplan storage analytics --by-prefix --html storage.html
      lakeplan storage --format json --out storage.json
      lakeplan storage --since storage.json
      lakeplan storage -C retention --by-class
    """
    outputs = outputs.beside(html)
    paid, zone = None if price is None else price_of(price), parse_zone(time_zone or "UTC")
    if compare is not None and compare[0] == compare[1]:
        raise UsageError("--compare lists the same branch twice", hint="Specify two different branches.")
    if tree is not None and endpoint:
        raise UsageError(
            "--tree and --endpoint cannot be combined",
            hint="Remove one of them. The environment variable LAKEPLAN_TREE has the same effect as --tree.",
        )
    earlier: StorageDocument | None = None if since is None else read_report(since, "storage", "--since")
    with (
        TemporaryDirectory(prefix="lakeplan-storage-") as folder,
        stopping(signal.SIGTERM, signal.SIGINT) as stop,
    ):
        if tree is None:
            endpoints = trees.endpoints_of(endpoint, opening.lakectl_config, or_tree=True)
            session = session_without_tree(Path(folder), endpoints, opening, timeouts, rate)
        else:
            session = replace(opening.session(tree, timeouts=timeouts), pace=Pace(rate))
            endpoints = {name: server.endpoint_url for name, server in session.tree.servers.items()}
        settings = AuditSettings(
            session.as_of,
            zone,
            dump_refs=dump_refs,
            sample=0,
            max_requests=max_requests,
            places=by_prefix or html is not None,
            classes=by_class,
            zones={}
            if time_zone is not None
            else {name: server.zone for name, server in session.tree.servers.items()},
        )
        document = storage_of_servers(
            endpoints,
            audit_ports(session, storage, stop.is_set),
            settings,
            takes=lambda server, name: takes_repository(repositories, server, name),
            compare=compare,
        )
    check_selected(document)
    rows = document["repositories"]
    if compare and rows and not document["failed"] and all(row["compared"] is None for row in rows):
        raise UsageError(
            "no repository has both branches of --compare",
            hint="Check the names of the branches and repositories.",
        )
    if earlier is not None:
        refuse_other_servers(earlier, endpoints, "--since")
        document = with_growth(document, earlier)
    if tree is not None:
        document = with_owners(document, session.tree.owner_of)
    document = with_costs(document, session.tree, "repositories", price=paid)
    if html is not None:
        from lakeplan.output.storage import render_storage_page

        write_html(html, render_storage_page(outputs.shown(document)))
    return outputs.emit(document, render_storage, code=exit_code_of(document))

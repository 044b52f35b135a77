"""``lakeplan storage``."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, cast

from lakeplan.cli import namespaces, options
from lakeplan.cli.command import command
from lakeplan.cli.commands.audit import (
    DumpRefs,
    MaxRequests,
    Names,
    PriceText,
    Rate,
    StorageOptions,
    audit_ports,
    exit_code_of,
    price_of,
    read_report,
    session_without_tree,
    takes_repository,
)
from lakeplan.cli.commands.import_ import Endpoints, endpoints_of
from lakeplan.cli.namespaces import parse_zone
from lakeplan.cli.options import option
from lakeplan.cli.outputs import Outputs, with_costs
from lakeplan.cli.process import stopping
from lakeplan.cli.wiring import SessionOptions, TimeoutOptions
from lakeplan.errors import UsageError
from lakeplan.fleet.audit import AuditSettings
from lakeplan.fleet.documents import StorageDocument
from lakeplan.fleet.storage import storage_of_servers, with_growth, with_owners
from lakeplan.lakefs.transport import Pace
from lakeplan.output.storage import render_storage
from lakeplan.values.local import write_file

HELP = """Show what repositories store, which branches and tags hold it, and what could be deleted.

Needs no tree: it uses lakectl's server and credentials. With a tree it uses its servers, owners and prices.
Changes nothing. Where storage cannot be listed, figures come from metadata, and what only a listing shows is
unknown.

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


@command(HELP)
def storage(
    *,
    repositories: Names = None,
    tree: Annotated[
        Path | None, option("Use the servers, owners and prices of this tree.", "DIR", names=("-C", "--tree"))
    ] = None,
    endpoint: Endpoints = None,
    storage: StorageOptions,
    compare: Annotated[
        tuple[str, str] | None, option("Also show what two branches share.", "BRANCH BRANCH")
    ] = None,
    since: Annotated[Path | None, option("Also show the growth since this JSON report.", "FILE")] = None,
    by_prefix: Annotated[bool, option("Also show prefixes and ages. Keeps every path in memory.")] = False,
    by_class: Annotated[bool, option("Also show storage classes. Lists storage a second time.")] = False,
    html: Annotated[
        Path | None, option("Also write an HTML page with a treemap of prefixes.", "FILE")
    ] = None,
    dump_refs: DumpRefs = False,
    rate: Rate = 100.0,
    max_requests: MaxRequests = 20_000,
    price: PriceText = None,
    time_zone: namespaces.TimeZone = "UTC",
    outputs: Annotated[Outputs, options.documents("storage")],
    opening: SessionOptions,
    timeouts: TimeoutOptions,
) -> int:
    paid, zone = None if price is None else price_of(price), parse_zone(time_zone)
    if compare is not None and compare[0] == compare[1]:
        raise UsageError("--compare names one branch twice", hint="Name two branches.")
    if tree is not None and endpoint:
        raise UsageError(
            "--tree and --endpoint both name servers",
            hint="Remove one of them. The variable LAKEPLAN_TREE counts as --tree.",
        )
    earlier = None if since is None else cast("StorageDocument", read_report(since, "storage", "--since"))
    with (
        TemporaryDirectory(prefix="lakeplan-storage-") as folder,
        stopping(signal.SIGTERM, signal.SIGINT) as stop,
    ):
        if tree is None:
            endpoints = endpoints_of(endpoint, opening.lakectl_config)
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
        )
        document = storage_of_servers(
            endpoints,
            audit_ports(session, storage, stop.is_set),
            settings,
            takes=lambda server, name: takes_repository(repositories, server, name),
            compare=compare,
        )
    rows = document["repositories"]
    if not (rows or document["failed"] or document["unfinished"]):
        raise UsageError(
            "no repository is selected",
            hint="Check the names, and which repositories these credentials may list.",
        )
    if compare is not None and rows and all(row["compared"] is None for row in rows):
        raise UsageError(
            "no repository has both branches of --compare", hint="Check their names and the repositories."
        )
    if earlier is not None:
        document = with_growth(document, earlier)
    if tree is not None:
        document = with_owners(document, session.tree.owner_of)
    document = with_costs(document, session.tree, "repositories", price=paid)
    if html is not None:
        from lakeplan.output.storage_page import render_storage_page

        write_file(html, render_storage_page(outputs.shown(document)))
    return outputs.emit(document, render_storage, code=exit_code_of(document))

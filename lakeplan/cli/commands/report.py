"""``lakeplan report``: histories from servers or namespaces, curves from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

from lakeplan.api import read_plan
from lakeplan.cli import namespaces, options
from lakeplan.cli.console import redacted_message, say, stderr, stdout
from lakeplan.cli.namespaces import parse_zone
from lakeplan.cli.options import argument, command, option
from lakeplan.cli.outputs import STANDARD_OUTPUT, write_html
from lakeplan.cli.wiring import Session, SessionOptions
from lakeplan.errors import ExitCode, LakeplanError, UsageError
from lakeplan.output.redact import redacted
from lakeplan.output.report import render_report
from lakeplan.output.text import size
from lakeplan.plan.page import MAX_DETAILED, History, report_page_document, shown_repositories
from lakeplan.review.selection import read_all_refs, targeted
from lakeplan.simulation.inputs import read_refs_dump
from lakeplan.simulation.runners import Runners
from lakeplan.stores.open import NamespaceReader, open_namespace
from lakeplan.tree.schemas import read_document
from lakeplan.values.plan import Plan, RepositoryPlan
from lakeplan.values.progress import Progress
from lakeplan.values.units import count_of
from lakeplan.values.urls import is_digest

if TYPE_CHECKING:
    from lakeplan.simulation.curve import CurveInput, CurveRequest


HOW_NAMESPACE = "Use --namespace server/name=URL"


@dataclass(frozen=True)
class Sources:
    """The sources of histories: namespaces (``urls`` by key), else the servers of a session, else nowhere.
    ``time_zone`` is that of the namespaces' server."""

    urls: Mapping[str, str] = field(default_factory=dict)
    session: Session | None = None
    endpoint_url: str | None = None
    region: str | None = None
    time_zone: str = "UTC"

    def namespace(self, key: str) -> NamespaceReader:
        """Raises what opening it raises."""
        return open_namespace(self.urls[key], endpoint_url=self.endpoint_url, region=self.region)


def read_histories(
    sources: Sources, repositories: Sequence[RepositoryPlan], progress: Progress, *, read_only: bool
) -> tuple[dict[str, History], list[str]]:
    """The history of each repository by key, and a sentence about each that could not be read. A namespace
    gives the history of its refs dump, a server the present one."""
    histories: dict[str, History] = {}
    unread: list[str] = []
    zone = parse_zone(sources.time_zone)
    asked = [r for r in repositories if r.key in sources.urls or sources.session is not None]
    with progress.task("reading histories", len(asked)) as step:
        for repository in asked:
            try:
                if repository.key in sources.urls:
                    namespace = sources.namespace(repository.key)
                    _, refs = read_refs_dump(namespace)
                    history = History(refs, f"the refs dump of {namespace.url}", zone)
                else:
                    assert sources.session is not None
                    history = _live(sources.session, repository, read_only=read_only)
                if not len(history.graph):  # building the graph raises for a damaged history
                    raise LakeplanError(
                        "the repository's history has no commits", hint="Run the command again."
                    )
                histories[repository.key] = history
            except LakeplanError as error:
                hint = f" ({error.hint})" if error.hint else ""
                unread.append(f"{repository.key}: no commit graph: {error.message}{hint}")
            step()
    return histories, unread


def _live(session: Session, repository: RepositoryPlan, *, read_only: bool) -> History:
    """Raises LakeplanError if the server is not the plan's, or has a different repository of that name."""
    config = session.tree.servers.get(repository.server)
    if config is None or config.endpoint_url != repository.endpoint_url:
        raise LakeplanError(
            f"the tree has no server {repository.server!r} at the address in the plan",
            hint="Use the tree that the plan was created from.",
        )
    reader = session.reader(repository.server)
    stored = reader.get_repository(repository.name)
    planned = any((repository.creation_date, repository.storage_namespace))
    if planned and not repository.is_of(stored.creation_date, stored.storage_namespace):
        raise LakeplanError(
            "the repository was deleted and created again after the plan was created",
            hint="Run `lakeplan plan` again.",
        )
    refs, blind_to = read_all_refs(reader, repository.name, read_only=read_only)
    zone = timezone.utc if config.time_zone == "UTC" else ZoneInfo(config.time_zone)
    listed = tuple(reader.list_branches(repository.name))
    return History(refs, f"the server {repository.server}", zone, blind_to, listed)


def namespace_urls(given: Sequence[str], repositories: Sequence[RepositoryPlan]) -> dict[str, str]:
    """The URLs of ``--namespace`` options by repository: ``URL`` alone if the page is about one repository,
    otherwise ``server/name=URL``. Raises UsageError."""
    keys = {r.key for r in repositories}
    urls: dict[str, str] = {}
    for text in given:
        name, equals, url = text.partition("=")
        if not equals or "://" in name:
            if len(keys) != 1:
                raise UsageError(
                    f"--namespace {text} does not specify which of the {len(keys):,} repositories the URL"
                    " belongs to",
                    hint=HOW_NAMESPACE,
                )
            name, url = next(iter(keys)), text
        named = [key for key in keys if name in (key, key.partition("/")[2])]
        if len(named) != 1:
            raise UsageError(
                f"--namespace {text}: repository {name!r} is not in this plan", hint=HOW_NAMESPACE
            )
        if named[0] in urls:
            raise UsageError(
                f"--namespace was specified twice for {named[0]}", hint="Pass one URL for each repository."
            )
        if "://" not in url:
            raise UsageError(
                f"--namespace {url!r} is not a URL", hint="Use file:///…, s3://… or https://…blob…"
            )
        urls[named[0]] = url
    return urls


def read_curve(path: Path) -> Mapping[str, Any]:
    """A curve as ``lakeplan curve --format json`` writes it. Raises LakeplanError that names the file."""
    hint = "Run `lakeplan curve REPO --horizon 90d --format json --out FILE` to create one."
    document: Mapping[str, Any] = read_document(path, "curve", "the curve", hint=hint, error=LakeplanError)
    return document


MAX_CURVES = 5
"""A curve reads every range of its repository."""
HORIZON_DAYS = 90


@dataclass(frozen=True)
class Curves:
    """``computed`` has curves by repository key. ``failed`` has a sentence about each that could not be
    computed. ``left_out`` names the repositories beyond ``MAX_CURVES``."""

    computed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: Sequence[str] = ()
    left_out: Sequence[str] = ()


def compute_curves(
    plan: Plan,
    repositories: Sequence[RepositoryPlan],
    histories: Mapping[str, History],
    sources: Sources,
    runners: Runners,
    progress: Progress,
) -> Curves:
    """Curves of the proposed rules (of the stored ones where none are proposed) at the plan's moment."""
    from lakeplan.simulation.curve import CurveRequest, curve

    computed: dict[str, Mapping[str, Any]] = {}
    failed, left_out = [], []
    wanted = [r for r in repositories if r.key in histories and (r.after or r.before) is not None]
    for repository in wanted[:MAX_CURVES]:
        history = histories[repository.key]
        rules = repository.after or repository.before
        assert rules is not None
        request = CurveRequest(rules, plan.as_of, history.zone, (), None, HORIZON_DAYS)
        try:
            given = _given(request, repository, history, sources)
            computed[repository.key] = curve(request, given, runners, progress)
        except LakeplanError as error:
            failed.append(f"{repository.key}: no retention curve: {error.message}")
    if len(wanted) > MAX_CURVES:
        rest = ", ".join(r.key for r in wanted[MAX_CURVES:][:MAX_CURVES])
        left_out.append(
            f"the page has no retention curves for {rest}, because the limit is {MAX_CURVES} curves; use"
            " --target to select repositories"
        )
    return Curves(computed, failed, left_out)


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


EXAMPLE = "For example, run `lakeplan report plan.json --html report.html`."
NO_GRAPH = (
    "commit graphs and the ages of branches, because the plan file has no history. Read the history from the"
    " servers with -C DIR, or from a namespace with --namespace server/name=URL"
)
ADDS_GRAPHS = "add them with -C DIR or --namespace URL"
NO_CURVE = "retention curves. Compute them with --with-curves, which needs a history, or add one with --curve"


@command(without="no_color")
def report(
    *,
    plan_file: Annotated[Path | None, argument("Plan file.", "[PLAN]")] = None,
    html: Annotated[Path | None, option("File to write, or - for standard output.", "FILE")] = None,
    tree: Annotated[
        Path | None, option("Read the history from the servers of this tree.", "DIR", names=("-C", "--tree"))
    ] = None,
    namespace: Annotated[
        list[str] | None,
        option("Read a repository's history from its storage namespace. Repeatable.", "[REPO=]URL"),
    ] = None,
    curve: Annotated[
        list[Path] | None, option("JSON output of `lakeplan curve`. Repeatable.", "FILE")
    ] = None,
    no_graph: Annotated[bool, option("Leave out the commit graph.")] = False,
    with_curves: Annotated[
        bool, option("Compute retention curves. Reads every range of each repository.")
    ] = False,
    target: options.Targets = None,
    read_only: options.ReadOnly = False,
    endpoint_url: namespaces.EndpointUrl = None,
    region: namespaces.Region = None,
    time_zone: namespaces.TimeZone = "UTC",
    opening: SessionOptions,
    runners: options.RunnerOptions,
    progress: options.ProgressOptions,
    redact_paths: bool,
    quiet: bool,
) -> int:
    """Write a plan as an HTML page with impact, timeline, curves, branches and the commit graph.

    The page is a single file, and loads nothing from the network. It contains the data of the plan file. To
    add the commit graph and the ages of branches, read the history from the servers of a tree (-C DIR) or
    from a storage namespace (--namespace). To add retention curves, compute them (--with-curves) or pass the
    output of `lakeplan curve` (--curve).

    \b
    Examples:
      lakeplan report plan.json --html report.html
      lakeplan report plan.json --html report.html -C .
      lakeplan report plan.json --html report.html --namespace s3://bucket/repo
      lakeplan report plan.json --html report.html -C . --with-curves
      lakeplan report plan.json --html report.html --curve curve.json
    """
    if plan_file is None:
        raise UsageError("no plan file was given", hint=EXAMPLE)
    if html is None:
        raise UsageError("--html FILE is required", hint=EXAMPLE)
    plan = read_plan(plan_file)
    targets = [r.key for r in targeted(plan, target or (), plan_file)]
    shown = shown_repositories(plan, targets)
    urls = namespace_urls(namespace or (), shown)
    curves = [read_curve(path) for path in curve or ()]
    if with_curves and (no_graph or (tree is None and not urls)):
        raise UsageError(
            "--with-curves needs the commit history of each repository",
            hint="Run without --no-graph and with -C DIR or --namespace URL, or use --curve FILE.",
        )
    session = None
    if tree is not None and not no_graph:
        session = opening.session(tree, runners=runners)
        runners = session.runners
    sources = Sources({} if no_graph else urls, session, endpoint_url, region, time_zone)
    drawn = shown[:MAX_DETAILED]
    histories, unread = read_histories(sources, drawn, progress, read_only=read_only)
    made = Curves()
    if with_curves:
        made = compute_curves(plan, drawn, histories, sources, runners, progress)
    failed = [*unread, *made.failed]
    missing = [*failed, *made.left_out]
    if shown and not (histories or unread):
        missing.append(NO_GRAPH)
    if not (curves or made.computed or made.failed):
        missing.append(NO_CURVE)
    document = report_page_document(
        plan,
        targets=targets,
        histories=histories,
        curves=[*curves, *made.computed.values()],
        other_names={
            **{url: key for key, url in urls.items()},
            **{str(curve["repository"]): key for key, curve in made.computed.items()},
        },
        missing=missing,
    )
    text = render_report(redacted(document) if redact_paths else document)
    write_html(html, text)
    for words in failed:
        say(stderr(), f"warning: {redacted_message(words)}")
    if html != STANDARD_OUTPUT and not quiet:
        could_have = shown and tree is None and not urls and not no_graph
        graphs = f"{len(document['graphs'])} with a commit graph{f' ({ADDS_GRAPHS})' if could_have else ''}"
        say(stdout(), f"{html}: {size(len(text.encode()))}, {count_of(len(shown), 'repository')}, {graphs}")
    return ExitCode.PARTLY_DONE if failed else ExitCode.OK

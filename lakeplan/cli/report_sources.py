"""Where ``lakeplan report`` gets what a plan file does not hold: histories from servers or namespaces, curves
from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import jsonschema

from lakeplan.adapters.storage import open_namespace
from lakeplan.app.gather import read_all_refs
from lakeplan.app.report_page import History
from lakeplan.cli.namespaces import parse_zone
from lakeplan.cli.wiring import Session
from lakeplan.config.schemas import load_schema
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.limits import TooLarge, parse_json, read_file, why_unreadable
from lakeplan.model.plan import RepositoryPlan
from lakeplan.ports.progress import Progress
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation.inputs import read_refs_dump

HOW_NAMESPACE = "--namespace server/name=URL"


@dataclass
class Histories:
    """By key; ``failed`` says in words what could not be read, and why."""

    found: dict[str, History] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sources:
    """Where histories are read: namespaces (``urls`` by key), else the servers of a session, else nowhere.
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
) -> Histories:
    """Each from its namespace as the refs dump has it, or as its server has it now. One that cannot be read
    does not keep the page from showing the rest."""
    histories = Histories()
    zone = parse_zone(sources.time_zone)
    asked = [r for r in repositories if r.key in sources.urls or sources.session is not None]
    with progress.task("reading histories", len(asked)) as step:
        for repository in asked:
            try:
                if repository.key in sources.urls:
                    namespace = sources.namespace(repository.key)
                    _, refs = read_refs_dump(namespace)
                    found = History(refs, f"the refs dump of {namespace.url}", zone)
                else:
                    assert sources.session is not None
                    found = _live(sources.session, repository, read_only=read_only)
                if not len(found.graph):  # asking raises for a damaged one: the page goes without it
                    raise LakeplanError("its history has no commits", hint="read its refs again")
                histories.found[repository.key] = found
            except LakeplanError as error:
                hint = f" ({error.hint})" if error.hint else ""
                histories.failed.append(f"{repository.key}: no commit graph: {error.message}{hint}")
            step()
    return histories


def _live(session: Session, repository: RepositoryPlan, *, read_only: bool) -> History:
    """Raises LakeplanError when the server is not the plan's, or has another repository of that name."""
    config = session.tree.servers.get(repository.server)
    if config is None or config.endpoint_url != repository.endpoint_url:
        raise LakeplanError(
            f"the tree has no server {repository.server!r} at the plan's address", hint="use the plan's tree"
        )
    reader = session.reader(repository.server)
    found = reader.get_repository(repository.name)
    planned = any((repository.creation_date, repository.storage_namespace))
    if planned and not repository.is_of(found.creation_date, found.storage_namespace):
        raise LakeplanError("the repository was deleted and made again since the plan", hint="plan again")
    refs, blind_to = read_all_refs(reader, repository.name, read_only=read_only)
    zone = timezone.utc if config.time_zone == "UTC" else ZoneInfo(config.time_zone)
    listed = tuple(reader.list_branches(repository.name))
    return History(refs, f"the server {repository.server}", zone, blind_to, listed)


def namespace_urls(given: Sequence[str], repositories: Sequence[RepositoryPlan]) -> dict[str, str]:
    """Key → URL of ``--namespace`` options: ``URL`` alone where the page is about one repository, else
    ``server/name=URL``. Raises UsageError."""
    keys = {r.key for r in repositories}
    urls: dict[str, str] = {}
    for text in given:
        name, equals, url = text.partition("=")
        if not equals or "://" in name:
            if len(keys) != 1:
                raise UsageError(
                    f"--namespace {text}: which of {len(keys):,} repositories is it?", hint=HOW_NAMESPACE
                )
            name, url = next(iter(keys)), text
        named = [key for key in keys if name in (key, key.partition("/")[2])]
        if len(named) != 1:
            raise UsageError(
                f"--namespace {text}: {name!r} is not a repository that this page shows", hint=HOW_NAMESPACE
            )
        if named[0] in urls:
            raise UsageError(f"--namespace is given twice for {named[0]}", hint="give one URL for each")
        if "://" not in url:
            raise UsageError(f"--namespace {url!r} is no URL", hint="file:///…, s3://… or https://…blob…")
        urls[named[0]] = url
    return urls


def read_curve(path: Path) -> Mapping[str, Any]:
    """A curve as ``lakeplan curve --format json`` writes it. Raises LakeplanError that names the file."""
    hint = "make one with: lakeplan curve REPO --horizon 90d --format json --out FILE"
    try:
        document = parse_json(read_file(path))
        jsonschema.validate(document, load_schema("curve"))
    except (OSError, TooLarge) as error:
        raise LakeplanError(
            f"cannot read the curve: {why_unreadable(error)}", where=str(path), hint=hint
        ) from None
    except ValueError:
        raise LakeplanError(
            "not a whole curve (it is cut or is not JSON)", where=str(path), hint=hint
        ) from None
    except jsonschema.ValidationError as error:
        raise LakeplanError(
            f"not a curve of this version: {error.message[:200]}", where=str(path), hint=hint
        ) from None
    found: Mapping[str, Any] = document
    return found

"""Uncommitted addresses, file by file, with a token to go on at."""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from lakeplan.formats.addresses import normalize
from lakeplan.model.objects import Entry
from lakeplan.model.repository import Repository
from lakeplan.sandbox.messages import bad_request
from lakeplan.sandbox.service import Service


@dataclass(frozen=True)
class Mark:
    """Where a run goes on: at a path of a branch; "" is the beginning."""

    run_id: str
    branch: str
    path: str


@dataclass(frozen=True)
class Found:
    """Addresses relative to the namespace and epoch seconds; ``next`` when there is more."""

    addresses: list[str]
    creation_dates: list[int]
    next: Mark | None


def collect(service: Service, repository: Repository, mark: Mark) -> Found:
    """The next addresses of a run: of every branch, hidden ones too, as many as a file may hold."""
    addresses: list[str] = []
    dates: list[int] = []
    for branch, entry in _staged(service, repository):
        if (branch, entry.path) < (mark.branch, mark.path):
            continue
        address = normalize(entry.address, entry.address_type, repository.storage_namespace)
        if address is None:
            continue
        if len(addresses) == service.options.max_uncommitted_per_file:
            return Found(addresses, dates, Mark(mark.run_id, branch, entry.path))
        addresses.append(address)
        dates.append(entry.last_modified_us // 1_000_000)
    return Found(addresses, dates, None)


def write_token(mark: Mark) -> str:
    return urlsafe_b64encode(json.dumps(asdict(mark)).encode()).decode()


def read_token(token: str) -> Mark:
    """Raises ApiError 400 for what is none of ours."""
    try:
        return Mark(**json.loads(urlsafe_b64decode(token.encode())))
    except (ValueError, TypeError, binascii.Error):
        raise bad_request("invalid continuation token") from None


def _staged(service: Service, repository: Repository) -> Iterator[tuple[str, Entry]]:
    """All that is staged, also what equals the HEAD's object (a diff would not show it): reading the branch
    gives the staged address."""
    for branch in service.records.branches(repository.id, show_hidden=True):
        for _, entry in sorted(service.staging.changes(repository.id, branch.id).items()):
            if entry is not None:
                yield branch.id, entry

"""Where an entry's bytes are: relative to its namespace, or anywhere the sandbox can reach."""

from __future__ import annotations

from lakeplan.formats.addresses import normalize
from lakeplan.model.objects import AddressType, Entry
from lakeplan.model.repository import Repository
from lakeplan.sandbox.messages import ApiError
from lakeplan.sandbox.namespaces import SCHEME
from lakeplan.sandbox.service import Service


def full_address(service: Service, repository: Repository, entry: Entry) -> str:
    """The entry's URL."""
    if entry.address_type is AddressType.FULL:
        return entry.address
    return service.namespace(repository).full_address(entry.address)


def read_object(service: Service, repository: Repository, entry: Entry) -> bytes | None:
    """The bytes of an entry, or None when they are gone."""
    relative = normalize(entry.address, entry.address_type, repository.storage_namespace)
    if relative is not None:
        return service.namespace(repository).read(relative)
    folder, _, name = entry.address.rpartition("/")
    return service.namespaces.open(folder).read(name)


def stored_form(repository: Repository, physical_address: str) -> tuple[str, AddressType]:
    """How a server stores an address that a client stages: its own ones as relative.

    Raises ApiError 400 for an address on storage that this server does not have.
    """
    relative = normalize(physical_address, AddressType.FULL, repository.storage_namespace)
    if not physical_address.startswith(SCHEME):
        raise ApiError(400, "physical address is not valid for block adapter: local")
    if relative is not None:
        return relative, AddressType.RELATIVE
    return physical_address, AddressType.FULL

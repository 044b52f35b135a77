"""Which object of the namespace an entry's address means."""

from __future__ import annotations

from dataclasses import dataclass

from lakeplan.formats.addresses import normalize
from lakeplan.formats.namespace import DATA_PREFIX, is_candidate_key


@dataclass(frozen=True)
class Addresses:
    """``namespaces``: every URL under which the namespace is known to be addressed.

    ``alias_base`` is the last part of the URL it is read at when the server's own URL is not known, else
    None. A full address elsewhere may then still mean an object here, and protects it: when in doubt, keep.
    """

    namespaces: tuple[str, ...]
    alias_base: str | None = None

    def inside(self, address: str, address_type: int) -> str | None:
        """The address relative to the namespace, or None when no known URL has it inside."""
        for namespace in self.namespaces:
            relative = normalize(address, address_type, namespace)
            if relative is not None:
                return relative
        return None

    def aliases(self, address: str) -> list[str]:
        """Keys that a full address elsewhere may mean: what follows its last ``/data/`` (with ``data/``),
        and what follows each ``/<alias_base>/``."""
        if self.alias_base is None:
            return []
        found: dict[str, None] = {}
        _, data, tail = address.rpartition("/" + DATA_PREFIX)
        if data:
            found[DATA_PREFIX + tail] = None
        part = f"/{self.alias_base}/"
        at = address.find(part) if self.alias_base else -1
        while at >= 0:
            found[address[at + len(part) :]] = None
            at = address.find(part, at + 1)
        return [key for key in found if is_candidate_key(key)]


def known_as(read_url: str, storage_namespace: str | None) -> Addresses:
    """For a namespace read at ``read_url`` that its server calls ``storage_namespace`` (None: not said)."""
    read_url = read_url.rstrip("/")
    if storage_namespace is not None:
        return Addresses((storage_namespace, read_url))
    return Addresses((read_url,), alias_base=read_url.rpartition("/")[2])

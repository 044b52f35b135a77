"""Which objects of the namespace an entry's address means, or may mean."""

from __future__ import annotations

from dataclasses import dataclass

from lakeplan.formats.addresses import folder_names, is_usual_key, is_usual_url, normalize, possible_keys
from lakeplan.model.objects import AddressType


@dataclass(frozen=True)
class Addresses:
    """``namespaces``: every URL under which the namespace is known to be addressed. A full address elsewhere,
    or in an unusual spelling, may still mean an object here, and protects it: when in doubt, keep."""

    namespaces: tuple[str, ...]

    def meaning(self, address: str, address_type: int) -> tuple[str | None, list[str]]:
        """The key that the address means for certain (None: none, as far as is known), and others that it may
        mean."""
        if address_type == AddressType.RELATIVE:
            key: str | None = address
        else:
            known = (normalize(address, address_type, namespace) for namespace in self.namespaces)
            key = next((found for found in known if found is not None), None)
        relative = key == address
        if key is not None and (is_usual_key(key) if relative else is_usual_url(key)):
            return key, []
        others = possible_keys(address, folder_names(self.namespaces))
        if relative:
            return key, [other for other in others if other != key]
        return None, others

    def protected(self, address: str, address_type: int) -> list[str]:
        """Every key that the address means or may mean."""
        key, others = self.meaning(address, address_type)
        return others if key is None else [key, *others]

    def foreign(self, address: str, address_type: int) -> tuple[str | None, list[str]]:
        """As ``meaning``, of an entry of another repository. What is relative (or, in old entries, no URI) is
        in the other one's own namespace, unless a store lets it lead out of there: ``../``, or a URL."""
        if address_type != AddressType.RELATIVE and "://" in address:
            return self.meaning(address, AddressType.FULL)
        if is_usual_key(address):
            return None, []
        return None, possible_keys(f"//{address}", folder_names(self.namespaces))

    def staged(self, address: str) -> list[str]:
        """Every key that an address of a run of uncommitted addresses may mean. The server writes full ones
        that begin with the namespace as relative: a query or an escape may still be one of a URL."""
        found = self.protected(address, AddressType.BY_PREFIX)
        if not is_usual_url(address):
            found += possible_keys(address, folder_names(self.namespaces))
        return list(dict.fromkeys(found))


def known_as(read_url: str, storage_namespace: str | None) -> Addresses:
    """For a namespace read at ``read_url`` that its server calls ``storage_namespace`` (None: not said)."""
    read_url = read_url.rstrip("/")
    return Addresses((read_url,) if storage_namespace is None else (storage_namespace, read_url))

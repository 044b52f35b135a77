"""Addresses of entries, made comparable: relative to the storage namespace, or outside it."""

from __future__ import annotations

import re

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_RELATIVE = 1


def normalize(address: str, address_type: int, storage_namespace: str) -> str | None:
    """The address relative to ``storage_namespace`` (as the server spells it), or None when it is outside.

    Relative addresses are keys and stay byte for byte what they are: ``..``, leading slashes and percent
    signs have no meaning in a key. A full address inside the namespace gives its relative form
    (shared/lakefs/format.md); the comparison is of text, as the server's and the official collector's is.
    Old entries (type 0), and full ones without a scheme, count as relative unless they are URIs: taking
    such an address for one of the namespace protects the object, the other way round would not.
    """
    if address_type == _RELATIVE:
        return address
    if not _URI.match(address):
        return address
    inside = prefix_of(storage_namespace)
    if address.startswith(inside) and len(address) > len(inside):
        return address[len(inside) :]
    return None


def prefix_of(storage_namespace: str) -> str:
    """What every full address inside the namespace begins with: the namespace and the slash that ends it, so
    that ``s3://bucket/ns-other`` is not inside ``s3://bucket/ns``. A second slash is part of the keys."""
    return storage_namespace if storage_namespace.endswith("/") else storage_namespace + "/"

"""Addresses of entries, made comparable: relative to the storage namespace, or outside it.

A server resolves full addresses as URLs: the query is dropped, escapes are decoded where that loses nothing,
user information is dropped, and the case of the scheme means nothing. S3 gateways over a file system and the
local store also clean ``//``, ``.`` and ``..``, in relative addresses too. lakeplan does not decide which of
these a server and its store do: an address in an unusual spelling may mean every key that any of them makes
of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import unquote

from lakeplan.formats.namespace import DATA_PREFIX, is_candidate_key

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_RELATIVE = 1
_CUT = re.compile(r"[?#].*", re.DOTALL)
_UNUSUAL_KEY = re.compile(r"//|(?:^|/)\.{1,2}(?:/|$)|^/|/$")
_UNUSUAL_URL = re.compile(r"[%?#\\\x00-\x1f\x7f]")
MAX_KEY_LENGTH = 4096
"""Longer keys exist in no store."""


def normalize(address: str, address_type: int, storage_namespace: str) -> str | None:
    """The address relative to ``storage_namespace`` (as the server spells it), or None when it is outside.

    Relative addresses are keys and stay byte for byte what they are. A full address inside the namespace
    gives its relative form (shared/lakefs/format.md). The comparison is of text, as the server's is when it
    stores one, and as the official collector's is. Old entries (type 0), and full ones without a scheme,
    count as relative unless they are URIs: taking such an address for one of the namespace protects the
    object, the other way round would not.
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


def is_usual_key(key: str) -> bool:
    """Whether every store takes the key for what it is: no empty and no dot segments."""
    return _UNUSUAL_KEY.search(key) is None


def is_usual_url(tail: str) -> bool:
    """Whether the end of a full address means itself for every server and store: a usual key without a
    query, a fragment, escapes, backslashes and control characters."""
    return is_usual_key(tail) and _UNUSUAL_URL.search(tail) is None


@lru_cache(maxsize=1024)
def folder_names(namespaces: tuple[str, ...]) -> tuple[str, ...]:
    """The last part of each namespace, in every spelling: whatever the host and the scheme, a full address of
    an object has it just before the key."""
    found = {
        form.rstrip("/").rpartition("/")[2]
        for namespace in namespaces
        for form in _forms(_after_scheme(namespace))
    }
    return tuple(sorted(found - {""}))


def possible_keys(address: str, folders: Iterable[str]) -> list[str]:
    """Keys that an address in an unusual spelling, or at a place that is not known, may mean: what follows
    each ``/data/`` (with ``data/``) and each ``/<folder>/`` of ``folder_names``, in every spelling of it."""
    found: dict[str, None] = {}
    markers = [("/" + DATA_PREFIX, DATA_PREFIX), *((f"/{name}/", "") for name in folders)]
    for form in _forms(_after_scheme(address)):
        if not _URI.match(address):
            found[form[1:]] = None
        for marker, front in markers:
            at = form.rfind(marker)
            while at >= 0 and len(form) - at <= MAX_KEY_LENGTH:
                found[front + form[at + len(marker) :]] = None
                at = form.rfind(marker, 0, at + len(marker) - 1)
    return [key for key in found if is_candidate_key(key)]


def _after_scheme(address: str) -> str:
    """Host and path as one path, or the key, with one slash in front."""
    uri = _URI.match(address)
    return "/" + (address[uri.end() :] if uri else address)


def _forms(path: str) -> list[str]:
    """Every reading of a path whose first part may be a host: with the container as user information
    (``abfss``), with the bucket as the host's first label, and what servers and stores clean."""
    host, slash, rest = path[1:].partition("/")
    labels = {
        host.lower(),
        *(part for part in re.split("[@:]", host)),
        host.rpartition("@")[2].partition(".")[0],
    }
    forms = {path, *(f"/{label}{slash}{rest}" for label in labels if label)}
    if is_usual_url(path[1:]) and "@" not in host:
        return sorted(forms)
    for _ in range(2):  # what is decoded may have to be cut and cleaned again
        for change in (_cut, _decoded, _backslashes, _cleaned, _stripped):
            forms |= {change(form) for form in forms}
    return sorted(form.encode(errors="surrogateescape").decode(errors="backslashreplace") for form in forms)


def _cut(form: str) -> str:
    return _CUT.sub("", form)


def _decoded(form: str) -> str:
    return unquote(form, errors="surrogateescape")


def _backslashes(form: str) -> str:
    return form.replace("\\", "/")


def _cleaned(form: str) -> str:
    """Without empty and dot segments."""
    parts: list[str] = []
    for part in form.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _stripped(form: str) -> str:
    return form.rstrip("/ ")

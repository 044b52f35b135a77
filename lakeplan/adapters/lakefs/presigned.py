"""Where a server's presigned addresses may lead: to the repository's storage, and nowhere else.

Whoever answers for the server could name any host that this machine reaches: a neighbour of the CI runner, or
the service that hands out a machine's credentials.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from lakeplan.model.urls import BadUrl, WebUrl, parse_bucket_url, parse_signed_url, parse_web_url, scheme_of

_AWS = re.compile(
    r"(?:(?P<bucket>[a-z0-9.-]+)\.)?s3(?:[.-](?:dualstack\.)?[a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?", re.ASCII
)
_GOOGLE = "storage.googleapis.com"
_AZURE = re.compile(
    r"[a-z0-9]{3,24}\.blob\.core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)", re.ASCII
)


def may_follow(target: str, *, server: str, namespace: str, bound: Sequence[str] = ()) -> bool:
    """Whether a redirect to ``target`` leads to the storage of ``namespace``: the server itself, a
    bound storage address (``bound``), or the vendor's own host for this bucket or account, by HTTPS."""
    try:
        found = parse_signed_url(target)
        own = [parse_web_url(url) for url in (server, *bound) if scheme_of(url) in ("http", "https")]
        bucket = _bucket(namespace)
    except BadUrl:
        return False
    for place in own:
        host = f"{bucket}.{place.host}"
        if found.origin == place.origin or (bucket and _with_host(place, host).origin == found.origin):
            return True
    return found.scheme == "https" and found.port is None and _is_vendors(found, target, namespace, bucket)


def _is_vendors(found: WebUrl, target: str, namespace: str, bucket: str) -> bool:
    if not bucket:
        try:
            place = parse_web_url(namespace)
        except BadUrl:
            return False
        return found.origin == place.origin and _AZURE.fullmatch(place.host) is not None
    parts = [unquote(part) for part in re.split(r"[?#]", target.partition("://")[2])[0].split("/")]
    if "." in parts or ".." in parts:
        # Programs remove such parts before the request, and so request another bucket.
        return False
    first = parts[1] if len(parts) > 1 else ""
    if scheme_of(namespace) == "gs":
        return found.host == f"{bucket}.{_GOOGLE}" or (found.host == _GOOGLE and first == bucket)
    match = _AWS.fullmatch(found.host)
    return match is not None and (match["bucket"] or first) == bucket


def _bucket(namespace: str) -> str:
    """ "" for a namespace that has none."""
    if scheme_of(namespace) not in ("s3", "gs"):
        return ""
    return parse_bucket_url(namespace, {"s3", "gs"}).bucket


def _with_host(place: WebUrl, host: str) -> WebUrl:
    return WebUrl(place.scheme, host, place.port, ())

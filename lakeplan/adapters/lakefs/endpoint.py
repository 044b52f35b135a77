"""Addresses of lakeFS servers: one form of a URL, however people write it."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from lakeplan.errors import CredentialsError

API_PATH = "/api/v1"
DEFAULT_PORTS = {"http": 80, "https": 443}


def normalise_endpoint(url: str, *, what: str = "") -> str:
    """``scheme://host[:port][/path]``: lower-case host, no default port, no ``/api/v1``, no final slash.

    Two URLs with the same result are the same server. Raises CredentialsError for what is no http(s) URL,
    and for one that carries a user, a password, a query or a fragment; their text is not repeated. ``what``
    names what the URL is of, for the message ("server prod").
    """
    text = url.strip()
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise CredentialsError("the endpoint URL cannot be read", hint="https://lakefs.example.com") from None
    scheme = parts.scheme.lower()
    host = _host(parts)
    if scheme not in DEFAULT_PORTS or not host:
        raise CredentialsError(
            "an endpoint URL is http:// or https:// and a host",
            where=what,
            hint="https://lakefs.example.com",
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise CredentialsError(
            "an endpoint URL carries no user, password, query or fragment",
            where=what or f"{scheme}://{host}",
            hint="credentials come from the environment",
        )
    path = parts.path.rstrip("/")
    path = path.removesuffix(API_PATH).rstrip("/")
    shown_port = "" if port is None or port == DEFAULT_PORTS[scheme] else f":{port}"
    return f"{scheme}://{host}{shown_port}{path}"


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").lower().rstrip(".")
    return f"[{host}]" if ":" in host else host

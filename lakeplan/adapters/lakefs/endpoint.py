"""Addresses of lakeFS servers: one form of a URL, however people write it."""

from __future__ import annotations

from lakeplan.errors import CredentialsError
from lakeplan.model.urls import BadUrl, parse_web_url

API_PATH = "/api/v1"


def normalise_endpoint(url: str, *, what: str = "") -> str:
    """``scheme://host[:port][/path]``: lower-case host, no default port, no ``/api/v1``, no final slash.

    Two URLs with the same result are the same server. Raises CredentialsError for what is no http(s) URL,
    and for one that carries a user, a password, a query or a fragment; their text is not repeated. ``what``
    names what the URL is of, for the message ("server prod").
    """
    try:
        found = parse_web_url(url.strip())
    except BadUrl as error:
        raise CredentialsError(
            f"the endpoint URL cannot be used: {error}",
            where=what,
            hint="for example https://lakefs.example.com",
        ) from None
    return found.url.removesuffix(API_PATH)

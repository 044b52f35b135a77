"""Who a server says it is, and what its clock shows: one GET of ``config/version``."""

from __future__ import annotations

import email.utils
import re
from datetime import datetime, timezone

from lakeplan.adapters.lakefs.answers import parse_json
from lakeplan.adapters.lakefs.client import connection_of
from lakeplan.adapters.lakefs.secret import Credentials
from lakeplan.adapters.lakefs.transport import Clock, RetryPolicy, Timeouts, Transport
from lakeplan.model.desired import ServerConfig
from lakeplan.model.server import ServerIdentity

VERSION_ONLY = re.compile(r"GET /config/version")
OPERATION = "read the server's version"


def identify(
    server: ServerConfig,
    credentials: Credentials,
    *,
    timeouts: Timeouts | None = None,
    retries: RetryPolicy | None = None,
    clock: Clock | None = None,
) -> ServerIdentity:
    """Raises ServerError. The clock is that of whatever answered (the ``Date`` header, whole seconds), which
    may be a proxy in front of the server."""
    transport = Transport(connection_of(server, credentials, timeouts, retries, clock, VERSION_ONLY))
    response = transport.request("GET", "config", "version", operation=OPERATION)
    version, context = parse_json(
        response,
        lambda fields: (fields.text("version"), fields.text("version_context", "")),
        transport=transport,
        operation=OPERATION,
    )
    return ServerIdentity(version, context, _date(response.headers.get("Date", "")))


def _date(text: str) -> datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return found.replace(tzinfo=timezone.utc) if found.tzinfo is None else found

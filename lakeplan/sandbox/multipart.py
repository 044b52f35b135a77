"""Forms with a file in them, as lakectl and the SDKs upload."""

from __future__ import annotations

import re

from lakeplan.sandbox.messages import bad_request

_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')
_NAME = re.compile(rb'\bname="([^"]*)"')
_TYPE = re.compile(rb"^content-type:\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)


def read_part(body: bytes, content_type: str, name: str) -> tuple[bytes, str]:
    """(bytes, content type) of the part with this name; the type is "" when the part has none.

    Raises ApiError 400 when there is no such part.
    """
    boundary = _BOUNDARY.search(content_type)
    if boundary:
        # Every delimiter is a line of its own; the first has no line before it.
        for part in (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode())[1:]:
            head, separator, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
            found = _NAME.search(head)
            if separator and found and found[1].decode(errors="replace") == name:
                kind = _TYPE.search(head.replace(b"\r\n", b"\n"))
                return data, kind[1].decode(errors="replace") if kind else ""
    raise bad_request(f'request body has an error: no part "{name}" in the form')

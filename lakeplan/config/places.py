"""The URL of a tree's state: which kinds there are, and what is wrong with one."""

from __future__ import annotations

from lakeplan.model.urls import (
    BadUrl,
    parse_bucket_url,
    parse_folder_url,
    parse_local_url,
    parse_web_url,
    scheme_of,
)

_FILE = "file://"


def relative_folder(url: str) -> str | None:
    """``x`` of ``file://x``, which is a folder of the tree; None for any other URL."""
    if url[: len(_FILE)].lower() != _FILE or url[len(_FILE) :].startswith(("/", "localhost/")):
        return None
    return url[len(_FILE) :]


def why_no_state(url: str) -> str | None:
    """What is wrong with the URL, without repeating it; None when nothing is."""
    relative = relative_folder(url)
    try:
        if relative is not None:
            parse_local_url(f"local://{relative}")
        elif (scheme := scheme_of(url)) == "s3":
            parse_bucket_url(url)
        elif scheme in ("http", "https"):
            parse_web_url(url)
        else:
            parse_folder_url(url)
    except BadUrl as error:
        return str(error)
    return None

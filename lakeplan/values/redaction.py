"""Short digests in place of object paths and storage URLs, for logs and comments that anybody may read.

Stable: the same path of the same repository is always the same digest, so that two lines can be compared.
No secrecy: who can guess a path can compute its digest.
"""

from __future__ import annotations

import hashlib
import re

MARK = "path-"
_DIGEST = re.compile(rf"{MARK}[0-9a-f]{{8}}(?:/[0-9a-f]{{8}})*/?")


def path_digest(scope: str, path: str) -> str:
    """``raw/2026/`` as ``path-3f2a91c0/77ab12de/``: a digest a folder, each of the whole path down to it, so
    that what lies in another still does. ``scope`` is ``server/name``. A URL is one digest."""
    if "://" in path:
        return MARK + _short(scope, path)
    folders = path.split("/")
    shown = [_short(scope, "/".join(folders[: depth + 1])) for depth in range(len(folders))]
    if not folders[-1]:
        shown[-1] = ""  # a prefix still ends in a slash
    return MARK + "/".join(shown) if path else ""


def is_digest(text: str) -> bool:
    """Whether it is what ``path_digest`` gave."""
    return _DIGEST.fullmatch(text) is not None


def _short(scope: str, path: str) -> str:
    return hashlib.sha256(f"{scope}\0{path}".encode("utf-8", "surrogatepass")).hexdigest()[:8]

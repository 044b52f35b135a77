"""Storage namespaces on disk: ``local://NAME`` is the folder NAME of the sandbox's directory."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from lakeplan.formats.namespace import DUMMY_KEY, ROOT_DUMMY_KEY
from lakeplan.sandbox.messages import bad_request

SCHEME = "local://"
_DUMMY = b"written by the lakeplan sandbox to see whether it can write here"


class Namespace:
    """One storage namespace. Keys are relative to it, with ``/`` between parts; writes are atomic."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def path(self, key: str) -> Path:
        """The file of a key. Raises ApiError when the key leads out of the namespace."""
        path = self.folder / key
        if not key or not Path(os.path.normpath(path)).is_relative_to(self.folder):
            raise bad_request("bad path traversal blocked")
        return path

    def write(self, key: str, data: bytes) -> None:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.parent / f".{secrets.token_hex(8)}.unfinished"
        unfinished.write_bytes(data)
        unfinished.replace(path)

    def write_once(self, key: str, data: bytes) -> None:
        """For files that are named by their content: what is there already stays."""
        if not self.path(key).is_file():
            self.write(key, data)

    def read(self, key: str) -> bytes | None:
        """The bytes, or None when nothing is there."""
        try:
            return self.path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def full_address(self, key: str) -> str:
        """The URL of a key, as answers of the API show it."""
        return f"{self.url.rstrip('/')}/{key}"

    @property
    def in_use(self) -> bool:
        return any(self.path(key).is_file() for key in (DUMMY_KEY, ROOT_DUMMY_KEY))

    def claim(self) -> None:
        """Marks the namespace as in use, as a lakeFS server does."""
        self.write(DUMMY_KEY, _DUMMY)


class Namespaces:
    """All namespaces under one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()

    def open(self, url: str) -> Namespace:
        """The namespace of a URL. Raises ApiError 400 for what cannot be one of the sandbox's."""
        if not url.startswith(SCHEME):
            raise bad_request(f"failed to match required regex ^{SCHEME}: invalid namespace")
        parts = [part for part in url[len(SCHEME) :].split("/") if part]
        if not parts or any(part.startswith(".") for part in parts):
            raise bad_request(f"{url}: invalid namespace")
        return Namespace(url, self._directory.joinpath(*parts))

"""Storage namespaces on disk, links to their files, and the trees of objects in them."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from lakeplan.formats.namespace import DUMMY_KEY, ROOT_DUMMY_KEY, metadata_key
from lakeplan.formats.ranges import read_metarange, read_range, write_metarange, write_ranges
from lakeplan.sandbox.graph import Tree, in_order
from lakeplan.sandbox.messages import ApiError, bad_request
from lakeplan.values.objects import Entry

SCHEME = "local://"
_DUMMY = b"written by the lakeplan sandbox to see whether it can write here"


class Namespace:
    """One storage namespace. Keys are relative to it, with ``/`` between parts. Writes are atomic."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def path(self, key: str) -> Path:
        """The file of a key. Raises ApiError when the key leads outside the namespace."""
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
        """Writes a file that is named by its content, unless it exists."""
        if not self.path(key).is_file():
            self.write(key, data)

    def read(self, key: str) -> bytes | None:
        """The bytes, or None if the file does not exist."""
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


PRESIGNED_PATH = "/_presigned"


class Presigner:
    """Signs (repository, key, expiry). The secret and its links end with the process."""

    def __init__(self, secret: bytes, seconds: int) -> None:
        self._secret = secret
        self._seconds = seconds

    def link(self, base_url: str, repository: str, key: str, now: int) -> str:
        """A URL on the server at ``base_url``."""
        expires = now + self._seconds
        query = urlencode({"expires": expires, "signature": self._sign(repository, key, expires)})
        return f"{base_url}{PRESIGNED_PATH}/{quote(repository)}/{quote(key)}?{query}"

    def allows(self, repository: str, key: str, expires: str, signature: str, now: int) -> bool:
        """Whether a link was signed here and still works."""
        if not expires.isdecimal() or int(expires) < now:
            return False
        return hmac.compare_digest(self._sign(repository, key, int(expires)), signature)

    def _sign(self, repository: str, key: str, expires: int) -> str:
        text = f"{repository}\n{key}\n{expires}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


_CACHED_ENTRIES = 1_000_000


class Trees:
    """Trees by metarange id. The last used ones are kept in memory. Callers must not change a tree.

    Only used inside a transaction, so it needs no lock of its own.
    """

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, str], Tree] = OrderedDict()

    def load(self, namespace: Namespace, meta_range_id: str) -> Tree:
        """The objects of a metarange by path; "" is the empty tree of a repository's first commit.

        Raises ApiError 410 when one of its files is missing.
        """
        if not meta_range_id:
            return {}
        key = (str(namespace.folder), meta_range_id)
        if key not in self._cache:
            self._remember(key, self._read(namespace, meta_range_id))
        self._cache.move_to_end(key)
        return self._cache[key]

    def save(self, namespace: Namespace, tree: Tree) -> str:
        """Writes ranges and metarange of a tree and returns the metarange's id."""
        infos = []
        for info, data in write_ranges(tree[path] for path in in_order(tree)):
            namespace.write_once(metadata_key(info.id), data)
            infos.append(info)
        meta_range_id, data = write_metarange(infos)
        namespace.write_once(metadata_key(meta_range_id), data)
        self._remember((str(namespace.folder), meta_range_id), tree)
        return meta_range_id

    def _read(self, namespace: Namespace, meta_range_id: str) -> Mapping[str, Entry]:
        tree: dict[str, Entry] = {}
        for info in read_metarange(_file(namespace, meta_range_id), name=meta_range_id):
            for entry in read_range(_file(namespace, info.id), name=info.id):
                tree[entry.path] = entry
        return tree

    def _remember(self, key: tuple[str, str], tree: Tree) -> None:
        self._cache[key] = tree
        self._cache.move_to_end(key)
        while len(self._cache) > 1 and sum(map(len, self._cache.values())) > _CACHED_ENTRIES:
            self._cache.popitem(last=False)


def _file(namespace: Namespace, id: str) -> bytes:
    data = namespace.read(metadata_key(id))
    if data is None:
        raise ApiError(410, "No data")
    return data

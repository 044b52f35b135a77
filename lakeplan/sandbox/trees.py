"""Committed trees: metaranges and ranges of a namespace, read and written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from lakeplan.formats.namespace import metadata_key
from lakeplan.formats.range_writer import write_metarange, write_ranges
from lakeplan.formats.ranges import read_metarange, read_range
from lakeplan.model.objects import Entry
from lakeplan.sandbox.merging import Tree, in_order
from lakeplan.sandbox.messages import ApiError
from lakeplan.sandbox.namespaces import Namespace

_CACHED_ENTRIES = 1_000_000


class Trees:
    """Trees by metarange id, the last used ones kept in memory. Nobody may change a tree that was given out.

    Only used inside a transaction, so it needs no lock of its own.
    """

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, str], Tree] = OrderedDict()

    def load(self, namespace: Namespace, meta_range_id: str) -> Tree:
        """The objects of a metarange by path; "" is the empty tree of a repository's first commit.

        Raises ApiError 410 when a file of it is gone.
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

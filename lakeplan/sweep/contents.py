"""Summarises a mark for the person who approves it, from its parts, whose checksums are verified. Compares
the mark with the plan's forecast. For ``explain``, finds the marks that name an object, and what their sweeps
did to it. Reads only.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakeplan.errors import FormatError, LakeplanError, StorageNotFound
from lakeplan.formats.marks import KEPT_BY, LAST_COMMIT_US, MODIFIED_US, read_results
from lakeplan.formats.namespace import part_id, quarantine_prefix, result_key, sweep_prefix
from lakeplan.retention.rules import to_us
from lakeplan.simulation.runners import ahead
from lakeplan.state.store import read_applied, read_forecast
from lakeplan.stores.open import NamespaceReader, StateReader
from lakeplan.sweep.documents import (
    AgeRow,
    ClassName,
    ContentsRow,
    ForecastRow,
    KeeperName,
    KeeperRow,
    LastCommitRow,
    ObjectRow,
    ObjectsDocument,
    PrefixRow,
    TraceRow,
    TraceState,
    TreeRow,
)
from lakeplan.sweep.mark_record import Approval, Mark
from lakeplan.sweep.ports import recorded_marks
from lakeplan.sweep.records import (
    StoredMark,
    newest_attempts,
    read_approval,
    read_mark_index,
    read_marked,
    read_stored,
    read_summary,
)
from lakeplan.values.records import moment_of, utc_text
from lakeplan.values.simulation import Amount, MarkClass, Part, Status, deleted_classes

READ_AHEAD = 8
DAY_US = 86_400_000_000
AGES = (7, 30, 90, 365)
"""Days at which one group of ages ends and the next begins."""
MOST_PREFIXES = 10_000
MOST_COMMITS = 1_000
MOST_KEEPERS = 1_000
MOST_OBJECTS = 1_000_000
"""The most objects in a list."""
OBJECTS_FORMAT: Final = "lakeplan.mark-objects/v1"
TREE_DEPTH = 8
"""The greatest depth of a folder in a page's tree."""
Amounts = dict[tuple[object, ...], Amount]


def marked_tables(
    store: NamespaceReader, mark: Mark, parts: Sequence[Part], step: Callable[[], None] = lambda: None
) -> Iterator[pa.Table]:
    """The rows of parts, with a few parts read ahead. Raises as ``read_marked``."""
    with ThreadPoolExecutor(READ_AHEAD) as pool:
        for _, fetched in ahead(parts, lambda part: read_marked(store, mark.mark_id, part), pool, READ_AHEAD):
            yield fetched()
            step()


def read_contents(
    store: NamespaceReader, mark: Mark, *, depth: int, step: Callable[[], None] = lambda: None
) -> ContentsRow:
    """Amounts by class, by prefix of ``depth`` folders, by age, by last commit and by what keeps objects.
    ``step`` is called after each part. Raises as ``read_marked``."""
    return _totals(store, mark, depth, step).document()


def contents_digest(mark_digest: str, contents: ContentsRow) -> str:
    """The digest of the contents as shown to a person, which an approval records."""
    shown = {key: value for key, value in contents.items() if key != "digest"}
    text = json.dumps({"mark": mark_digest, "contents": shown}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_prefixes(store: NamespaceReader, mark: Mark) -> list[TreeRow]:
    """The largest folders of every depth up to ``TREE_DEPTH``, with all folders above them. Each counts all
    objects below it."""
    return _totals(store, mark, TREE_DEPTH).tree()


def _totals(
    store: NamespaceReader, mark: Mark, depth: int, step: Callable[[], None] = lambda: None
) -> _Totals:
    totals = _Totals(mark, depth)
    for table in marked_tables(store, mark, (*mark.marked.going, *mark.marked.kept), step):
        totals.add(table)
    return totals


@dataclass
class _Totals:
    """Sums over the parts of a mark."""

    mark: Mark
    depth: int
    prefixes: Amounts = field(default_factory=dict)
    """By prefix (None: no path is known), and whether the objects would be deleted."""
    commits: Amounts = field(default_factory=dict)
    ages: Amounts = field(default_factory=dict)
    keepers: Amounts = field(default_factory=dict)
    """By class and keeper."""

    def add(self, table: pa.Table) -> None:
        going = [kind.value for kind in deleted_classes(self.mark.settings.never_committed)]
        goes = pc.is_in(table["class"], pa.array(going, pa.string()))
        columns = {"goes": goes, "size": table["size_bytes"], "prefix": prefixes_of(table, self.depth)}
        _sum(self.prefixes, pa.table(columns), ("prefix", "goes"))
        self._add_going(table.filter(goes))
        self._add_kept(table.filter(pc.invert(goes)))

    def _add_going(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        size, last, at = table["size_bytes"], table["last_commit_id"], table[LAST_COMMIT_US]
        _sum(self.commits, pa.table({"size": size, "id": last, "at": at}), ("id", "at"))
        age = pc.subtract(to_us(self.mark.marked_at), table[MODIFIED_US])
        group = pa.array([0] * table.num_rows, pa.int64())
        for number, days in enumerate(AGES, 1):
            group = pc.if_else(pc.greater_equal(age, days * DAY_US), number, group)
        _sum(self.ages, pa.table({"size": size, "group": group}), ("group",))

    def _add_kept(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        by = table[KEPT_BY].combine_chunks()
        rows = pc.list_parent_indices(by)
        each = table.select(["class", "size_bytes"]).take(rows)
        columns = {"size": each["size_bytes"], "class": each["class"], "by": pc.list_flatten(by)}
        _sum(self.keepers, pa.table(columns), ("class", "by"))

    def document(self) -> ContentsRow:
        prefixes = self._prefix_rows(self.prefixes)
        commits = [
            LastCommitRow(commit_id=id, created=_moment(at), **amount.to_row())
            for (id, at), amount in cast("dict[tuple[str | None, int | None], Amount]", self.commits).items()
            if id is not None
        ]
        commits.sort(key=lambda row: (-row["size_bytes"], -row["objects"], row["commit_id"]))
        keepers = self._keeper_rows()
        return {
            "depth": self.depth,
            "classes": {kind.value: self.mark.marked.amount(kind).to_row() for kind in MarkClass},
            "prefixes": prefixes[:MOST_PREFIXES],
            "more_prefixes": max(len(prefixes) - MOST_PREFIXES, 0),
            "ages": self._age_rows(),
            "last_commits": commits[:MOST_COMMITS],
            "more_last_commits": max(len(commits) - MOST_COMMITS, 0),
            "kept_by": keepers[:MOST_KEEPERS],
            "more_kept_by": max(len(keepers) - MOST_KEEPERS, 0),
            "forecast": None,
        }

    def tree(self) -> list[TreeRow]:
        amounts: Amounts = {}
        for (prefix, goes), amount in self.prefixes.items():
            for folder in [prefix] if prefix is None else _folders(cast(str, prefix)):
                amounts[folder, goes] = amounts.get((folder, goes), Amount()) + amount
        rows = self._prefix_rows(amounts)
        # A folder is never smaller than those below it, so the largest include all folders above them.
        # Objects without a path come last: folders belong to the row of depth 0 before them.
        named = sorted(rows[:MOST_PREFIXES], key=lambda row: (row["prefix"] is None, row["prefix"] or ""))
        return [{**row, "depth": (row["prefix"] or "").count("/")} for row in named]

    def _prefix_rows(self, amounts: Amounts) -> list[PrefixRow]:
        pairs = cast("dict[tuple[str | None, bool], Amount]", amounts)
        rows = [
            PrefixRow(
                prefix=prefix,
                goes=pairs.get((prefix, True), Amount()).to_row(),
                kept=pairs.get((prefix, False), Amount()).to_row(),
            )
            for prefix in dict.fromkeys(prefix for prefix, _ in pairs)
        ]
        return sorted(rows, key=_largest_first)

    def _age_rows(self) -> list[AgeRow]:
        limits: list[int | None] = [0, *AGES, None]
        return [
            AgeRow(from_days=cast(int, limits[number]), to_days=limits[number + 1], **amount.to_row())
            for (number,), amount in sorted(cast("dict[tuple[int], Amount]", self.ages).items())
        ]

    def _keeper_rows(self) -> list[KeeperRow]:
        rows: list[KeeperRow] = [
            {**keeper_name(by), "class": kind, **amount.to_row()}
            for (kind, by), amount in cast("dict[tuple[ClassName, str], Amount]", self.keepers).items()
        ]
        return sorted(rows, key=lambda r: (-r["size_bytes"], -r["objects"], r["kind"], r["name"], r["class"]))


def keeper_name(by: str) -> KeeperName:
    """Return the kind and name of what keeps an object, from the text in a part: a kind, a blank and a
    name."""
    kind, _, name = by.partition(" ")
    if kind == "hold" and name.startswith("prefix "):
        return {"kind": kind, "name": "prefix", "prefix": name.removeprefix("prefix ")}
    return {"kind": kind, "name": name, "prefix": None}


def list_objects(
    store: NamespaceReader,
    mark: Mark,
    *,
    classes: Sequence[ClassName] = (),
    prefix: str | None = None,
    step: Callable[[], None] = lambda: None,
) -> ObjectsDocument:
    """The objects of these classes (by default, those that would be deleted) with a path that begins with
    ``prefix``, at most ``MOST_OBJECTS``. Raises as ``read_marked``."""
    wanted = list(classes) or [kind.value for kind in deleted_classes(mark.settings.never_committed)]
    objects: list[ObjectRow] = []
    more = 0
    for table in marked_tables(store, mark, (*mark.marked.going, *mark.marked.kept), step):
        some = table.filter(pc.is_in(table["class"], pa.array(wanted, pa.string())))
        if prefix is not None:
            paths = some["paths"].to_pylist()
            begins = [any(path.startswith(prefix) for path in of_one or ()) for of_one in paths]
            some = some.filter(pa.array(begins, pa.bool_()))
        room = MOST_OBJECTS - len(objects)
        objects += map(_object_row, some.slice(0, room).to_pylist())
        more += max(some.num_rows - room, 0)
    return {
        "format": OBJECTS_FORMAT,
        "mark_id": mark.mark_id,
        "repository": mark.key,
        "storage_namespace": mark.storage_namespace,
        "classes": wanted,
        "prefix": prefix,
        "objects": sorted(objects, key=lambda row: (row["paths"], row["address"])),
        "more": more,
    }


def _object_row(row: Mapping[str, Any]) -> ObjectRow:
    kept_by = row[KEPT_BY]
    return {
        "address": row["address"],
        "paths": row["paths"] or [],
        "class": row["class"],
        "size_bytes": row["size_bytes"],
        "modified": _moment(row[MODIFIED_US]),
        "last_commit_id": row["last_commit_id"],
        "last_commit_created": _moment(row[LAST_COMMIT_US]),
        "kept_by": None if kept_by is None else [keeper_name(by) for by in kept_by],
    }


def prefixes_of(table: pa.Table, depth: int) -> pa.ChunkedArray:
    """The folder of each object's first path, at most ``depth`` folders deep. Null without a path."""
    paths = table["paths"]
    first = pc.list_element(pc.list_slice(paths, 0, 1, return_fixed_size_list=True), 0)
    return pc.replace_substring_regex(first, rf"(?s)^((?:[^/]*/){{0,{depth}}}).*$", r"\1")


def _folders(prefix: str) -> Iterable[str]:
    """The folder and all folders above it, from the top (``""``) down."""
    at = -1
    yield ""
    while (at := prefix.find("/", at + 1)) >= 0:
        yield prefix[: at + 1]


def _sum(amounts: Amounts, table: pa.Table, keys: Sequence[str]) -> None:
    grouped = table.group_by(list(keys)).aggregate([("size", "count"), ("size", "sum")])
    values = [grouped[key].to_pylist() for key in keys]
    counts, sizes = grouped["size_count"].to_pylist(), grouped["size_sum"].to_pylist()
    for *key, count, size in zip(*values, counts, sizes, strict=True):
        amounts[tuple(key)] = amounts.get(tuple(key), Amount()) + Amount(count, size)


def _largest_first(row: PrefixRow) -> tuple[int, int, int, str]:
    goes, kept = row["goes"], row["kept"]
    return -goes["size_bytes"], -goes["objects"], -kept["size_bytes"], row["prefix"] or ""


def _moment(us: int | None) -> str | None:
    return None if us is None else utc_text(moment_of(us))


def forecast_of(state: StateReader, mark: Mark) -> ForecastRow | None:
    """The forecast of the plan that set the mark's rules, compared with the mark. None without a readable
    record of it."""
    try:
        forecast, applied = read_forecast(state, mark.key), read_applied(state, mark.key)
    except FormatError:
        return None
    if forecast is None or applied is None or not forecast.expire:
        return None
    record, _ = applied
    if record.get("run_id") != forecast.run_id or record.get("etag") != mark.rules.etag:
        return None
    at, marked = mark.looked_at, mark.marked.amount(MarkClass.NEWLY_EXPIRED)
    least = next((amount for moment, amount in reversed(forecast.expire) if moment <= at), None)
    most = next((amount for moment, amount in forecast.expire if moment >= at), None)
    differs: Literal["more", "fewer", "no"] = "no"
    if most is not None and (marked.objects > most.objects or marked.size_bytes > most.size_bytes):
        differs = "more"
    elif least is not None and marked.objects < least.objects:
        differs = "fewer"
    return {
        "plan_digest": forecast.plan_digest,
        "as_of": utc_text(forecast.expire[0][0]),
        "least": None if least is None else least.to_row(),
        "most": None if most is None else most.to_row(),
        "found": marked.to_row(),
        "differs": differs,
    }


# ---- the marks that name an object, for explain
MOST_MARKS = 20
"""The marks of a repository that are searched, newest first."""
MOST_PARTS = 500
"""The most files that are read, in all marks together."""


def trace(
    store: NamespaceReader, state: StateReader, repository: str, addresses: Collection[str]
) -> tuple[dict[str, list[TraceRow]], list[str]]:
    """The marks of ``server/name`` that name these addresses, by address, newest first; and notes about marks
    that were not searched."""
    rows: dict[str, list[TraceRow]] = {address: [] for address in addresses}
    notes: list[str] = []
    left = MOST_PARTS
    ids = list(_marks_of(state, repository))
    if len(ids) > MOST_MARKS:
        notes.append(f"only the newest {MOST_MARKS} of {len(ids):,} marks were searched")
    for mark_id, digest in ids[:MOST_MARKS]:
        try:
            stored = read_stored(store, mark_id, digest=digest)
            parts = (*stored.mark.marked.going, *stored.mark.marked.kept)
            if len(parts) > left:
                notes.append(
                    f"mark {mark_id} was not searched, because it has too many files ({len(parts):,})"
                )
                continue
            left -= len(parts)
            for address, row in _of_mark(store, state, stored, rows):
                rows[address].append(row)
        except StorageNotFound:
            notes.append(f"mark {mark_id} is no longer in the namespace")
        except LakeplanError as error:
            notes.append(f"mark {mark_id} cannot be read: {error.message}")
    return rows, notes


def has_marks(state: StateReader, repository: str) -> bool:
    """Whether the state records a mark of ``server/name``."""
    return next(_marks_of(state, repository), None) is not None


def _marks_of(state: StateReader, repository: str) -> Iterator[tuple[str, str]]:
    for mark_id in recorded_marks(state):
        try:
            index = read_mark_index(state, mark_id)
        except FormatError:
            continue
        if index is not None and index.repository == repository:
            yield mark_id, index.digest


def _of_mark(
    store: NamespaceReader, state: StateReader, stored: StoredMark, wanted: Collection[str]
) -> Iterator[tuple[str, TraceRow]]:
    mark = stored.mark
    approval = read_approval(state, stored)
    going = {kind.value for kind in deleted_classes(mark.settings.never_committed)}
    attempts = newest_attempts(store, mark.mark_id)
    summary = read_summary(store, mark.mark_id)
    parts = (*mark.marked.going, *mark.marked.kept)
    for part, table in zip(parts, marked_tables(store, mark, parts), strict=True):
        names = table.column("address").to_pylist()
        for at in [at for at, name in enumerate(names) if name in wanted]:
            row = table.slice(at, 1).to_pylist()[0]
            ended: tuple[TraceState, str] = ("kept", "")
            if row["class"] in going:
                ended = _end(store, stored, part, attempts, row["address"], approval)
            restore = None
            if ended[0] == "quarantined":
                path = f" --path {shlex.quote(row['paths'][0])}" if row["paths"] else ""
                restore = f"lakeplan sweep restore {mark.mark_id}{path}"
            yield (
                row["address"],
                {
                    "mark_id": mark.mark_id,
                    "marked_at": utc_text(mark.marked_at),
                    "mark_class": row["class"],
                    "kept_by": [keeper_name(by) for by in row[KEPT_BY] or ()],
                    "state": ended[0],
                    "why": ended[1],
                    "approved_by": None if approval is None else approval.by,
                    "approved_at": None if approval is None else approval.at,
                    "approval_reason": None if approval is None else approval.reason,
                    "swept_at": None if summary is None else summary["at"],
                    "restore": restore,
                },
            )


def _end(
    store: NamespaceReader,
    stored: StoredMark,
    part: Part,
    attempts: Mapping[str, int],
    address: str,
    approval: Approval | None,
) -> tuple[TraceState, str]:
    mark_id = stored.mark.mark_id
    attempt = attempts.get(part_id(part.name))
    if attempt is None:
        return ("marked" if approval is None else "approved"), ""
    key = result_key(sweep_prefix(mark_id), part.name, attempt)
    status, why = read_results(store.read(key), name=f"{store.url}/{key}").get(
        address, (Status.FAILED, "the record of the sweep does not list this object")
    )
    if status is not Status.DELETED:
        return ("saved" if status is Status.SAVED else "failed"), why
    if stored.mark.settings.mode != "quarantine":
        return "deleted", why
    copy = quarantine_prefix(mark_id) + address
    there = any(copied.key == copy for copied in store.list_objects(copy))
    return ("quarantined" if there else "purged"), why

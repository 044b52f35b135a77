"""One namespace in Spark: reads it once, and answers everything else from what is kept of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import pyspark
from pyspark.sql import SparkSession
from pyspark.storagelevel import StorageLevel

from lakeplan.core.retention import by_date, to_us
from lakeplan.errors import LakeplanError
from lakeplan.ports.range_cache import RangeCache
from lakeplan.ports.storage import NamespaceReader
from lakeplan.simulation import objects as frames
from lakeplan.simulation import tables
from lakeplan.simulation.addresses import known_as
from lakeplan.simulation.blocks import Question
from lakeplan.simulation.columns import OBJECTS, PREFIXES, RULE_SET, Column
from lakeplan.simulation.counted import classes_in, counted, few_objects_in, objects_in
from lakeplan.simulation.document import MAX_ROWS, Json, ObjectSide, ObjectsOf, summary
from lakeplan.simulation.few import going_table, prefix_table
from lakeplan.simulation.holdings import branch_totals
from lakeplan.simulation.inputs import NamespaceMetadata
from lakeplan.simulation.output import write_summary
from lakeplan.simulation.prepare import Prepared
from lakeplan.simulation.reading import Source
from lakeplan.simulation.request import SimulateRequest
from lakeplan.simulation.rulesets import bits_of
from lakeplan.simulation.schemas import LAST_COMMITS
from lakeplan.simulation.totals import ObjectClass, totals_of
from lakeplan.simulation.writing import FewRows, Rows, is_few, rows_of


class NamespaceJob:
    """Use as a context: what is kept in Spark goes with it. ``read`` comes first. Where a cache knows most of
    the namespace, making one reads the little that it does not."""

    def __init__(
        self,
        session: SparkSession,
        request: SimulateRequest,
        namespace: NamespaceReader,
        prepared: Prepared,
        cache: RangeCache | None = None,
    ) -> None:
        self._session = session
        self._request = request
        self._prepared = prepared
        self._url = namespace.url
        self._bits = bits_of(request.rule_sets)
        self._listing = prepared.listing is not None
        self._classes: list[ObjectClass] = []
        source = Source(
            name=namespace.url,
            metadata=NamespaceMetadata(namespace),
            addresses=known_as(namespace.url, request.storage_namespace),
            namespace=namespace,
            young_from_us=to_us(request.as_of) - request.min_age_seconds * 1_000_000,
        )
        self._counted = counted(
            session,
            prepared.items,
            [(source, [Question(0, bits.server) for bits in self._bits])],
            entries=[prepared.collected.entries],
            listing=self._listing,
            cache=cache,
        )

    def __enter__(self) -> NamespaceJob:
        self._counted.frame.persist(StorageLevel.MEMORY_AND_DISK)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # after an error the session may be gone; it ends with the run anyway
            self._counted.frame.unpersist()

    def read(self) -> None:
        """Reads everything once. Raises the error of a file that cannot be read, by its name."""
        classes = classes_in(self._counted).get(0, [])
        if isinstance(classes, LakeplanError):
            raise classes
        self._classes = classes

    def document(self) -> Json:
        """The summary; nothing is written."""
        return self._summary(self._side(self._going()[1]() if self._goes else None))

    def write(self, folder: Path) -> Json:
        """All tables and the summary, into an existing folder; returns the summary."""
        several = len(self._bits) > 1
        graph, judged = self._prepared.history.graph, self._prepared.judged
        tables.write(folder / "commits", tables.commits(graph, judged))
        prefixes = None
        if self._goes:
            going, by_prefix = self._going()
            with ThreadPoolExecutor(1) as pool:
                # Arrow does either without Python's lock
                coming = pool.submit(by_prefix)
                going.write(folder / "objects", self._names(OBJECTS), sort="address")
                prefixes = coming.result()
            prefixes.write(folder / "prefixes", self._names(PREFIXES), sort="prefix")
        else:
            tables.write_empty(folder / "objects", OBJECTS, with_rule_set=several)
            tables.write_empty(folder / "prefixes", PREFIXES, with_rule_set=several)
        side = self._side(prefixes)
        held = {name: of.branches for name, of in side.by_rule_set.items()}
        tables.write(folder / "branches", tables.branches(judged, held))
        document = self._summary(side)
        write_summary(folder, document)
        return document

    @property
    def _goes(self) -> int:
        """How many objects go, over all rule sets."""
        return sum(totals_of(self._classes, bits, listing=self._listing).goes.objects for bits in self._bits)

    def _going(self) -> tuple[Rows, Callable[[], Rows]]:
        """What goes, and what gives the same by prefix."""
        graph = self._prepared.history.graph
        wanted = {item.last for item in self._prepared.collected.items}
        last = {at: graph.ids[commit] for commit, at in enumerate(by_date(graph)) if at in wanted}
        if is_few(self._goes):
            objects = few_objects_in(self._counted)
            table = going_table(objects, last, self._bits, self._listing)
            return FewRows(table), lambda: FewRows(prefix_table(table))
        last_commits = self._session.createDataFrame(list(last.items()), LAST_COMMITS)
        going = frames.going(objects_in(self._counted), last_commits, self._bits, listing=self._listing)
        by_prefix = frames.by_prefix(going, "rule_set", "all_paths")
        return rows_of(going.drop("all_paths")), lambda: rows_of(by_prefix)

    def _names(self, columns: Sequence[Column]) -> list[str]:
        return [column.name for column in columns] + ([RULE_SET.name] if len(self._bits) > 1 else [])

    def _summary(self, side: ObjectSide) -> Json:
        prepared = self._prepared
        return summary(self._request, self._url, prepared.history, prepared.judged, side)

    def _side(self, prefixes: Rows | None) -> ObjectSide:
        prepared, by_rule_set = self._prepared, {}
        names = [column.name for column in PREFIXES]
        for n, (bits, judged) in enumerate(zip(self._bits, prepared.judged, strict=True)):
            held = branch_totals(
                self._classes,
                prepared.collected.holder_sets,
                n,
                len(judged.branches.names),
                listing=self._listing,
            )
            totals = totals_of(self._classes, bits, listing=self._listing)
            largest = prefixes.largest(bits.name, names, MAX_ROWS) if prefixes is not None else []
            by_rule_set[bits.name] = ObjectsOf(totals, held, largest)
        versions = {"pyspark": pyspark.__version__, "java": self._java()}
        return ObjectSide(prepared.staged, prepared.collected, self._listing, by_rule_set, versions)

    def _java(self) -> str:
        jvm = self._session.sparkContext._jvm
        return str(jvm.java.lang.System.getProperty("java.version")) if jvm is not None else ""

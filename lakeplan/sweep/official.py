"""``sweep run`` with ``sweep.engine: lakefs-spark-client``: lakeFS's own job deletes, under lakeplan's rules.

In one run, that job would delete objects that nobody reviewed. So it runs twice, in the documented way. First
it only marks, and its mark may name only objects of the approved mark. After another inspection it sweeps
that mark, without marking again. It only logs what a store refused (lakefs/retention.md), so every object is
requested by GET afterwards. A mark that was refused is made unusable, because anybody could sweep it without
approval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from lakeplan.errors import FormatError, GateRefused, LakeplanError, StalePlan, StorageError
from lakeplan.formats.collector import UnifiedRun, read_deleted, read_summary
from lakeplan.formats.marks import end_of, write_results
from lakeplan.formats.namespace import OFFICIAL_FILE, begun_key, mark_prefix, result_key, sweep_prefix
from lakeplan.review.run import Run
from lakeplan.simulation.requests import DeleteRequest, DeleteSettings, RoundEnd
from lakeplan.stores.open import SweepStore
from lakeplan.sweep.mark import collector_runs
from lakeplan.sweep.mark_record import MARK_AGAIN, Mark
from lakeplan.sweep.ports import Site, SweepPorts
from lakeplan.sweep.records import StoredMark, marked_addresses, noted_runs, official_run, read_marked
from lakeplan.sweep.rules import check_collectable, check_engine, min_age_seconds
from lakeplan.sweep.run import SweepEnd, run_sweep
from lakeplan.values.progress import in_parallel
from lakeplan.values.records import json_line
from lakeplan.values.repository import StoredObject
from lakeplan.values.simulation import Part, PartResult, Status
from lakeplan.values.sweep import CHANGED, GONE, Deletion, Versions
from lakeplan.values.units import count_of


@dataclass(frozen=True)
class CollectorJob:
    """One run of lakeFS's job. With ``mark_id`` "" it only marks; otherwise it only deletes the objects of
    its own mark of that id. It keeps objects younger than ``min_age_seconds`` (1 or more: 0 means the job's
    default, a day)."""

    repository: str
    min_age_seconds: int
    mark_id: str = ""


class Collector(Protocol):
    def check(self) -> None:
        """Raises LakeplanError for settings with which the job must not be started."""

    def run(self, job: CollectorJob, *, keep: Callable[[], None], stop: Callable[[], bool]) -> None:
        """Runs the job to its end. ``keep`` is called every few minutes to renew a lease, and ends the job
        when it raises. ``stop`` is called often. Raises LakeplanError when the job failed or was stopped,
        with its last output lines without secrets. What it did until then is unknown."""


THREADS = 32
"""Requests at the same time."""
NOT_MARKED = "the official collector did not mark it"
STILL_THERE = "still exists after the official collector's run"
NOT_FINISHED = (
    "not deleted: other objects of the mark must be kept, and the official collector cannot skip them"
)


def run_official(
    site: Site, stored: StoredMark, ports: SweepPorts, run: Run, collector: Collector
) -> SweepEnd:
    """As ``run_sweep``. Raises GateRefused when the mark keeps objects that the collector would delete, and
    UsageError for settings that it does not support."""
    check_engine(stored.mark.settings, stored.mark.where)
    check_collectable(stored.mark)
    collector.check()
    sweeper = OfficialSweeper(site, stored.mark, collector, ports)
    try:
        return run_sweep(site, stored, replace(ports, sweeper=sweeper), run)
    finally:
        sweeper.close()


def withdraw(site: Site, mark: Mark) -> None:
    """Makes the collector's marks for this mark unusable, when the sweep was aborted. Raises StorageError."""
    for run_id in noted_runs(site.store, mark.mark_id):
        site.store.delete([UnifiedRun(run_id).summary_key], versions=Versions.MARKER)


@dataclass
class OfficialSweeper:
    """Implements ``Sweeper`` by lakeFS's own job. The first round marks, the second sweeps. ``run_sweep``
    inspects before each."""

    _site: Site
    _mark: Mark
    _collector: Collector
    _ports: SweepPorts

    def __post_init__(self) -> None:
        self._store = self._site.store
        self._where = self._mark.where
        self._run: UnifiedRun | None = None
        self._addresses: frozenset[str] = frozenset()

    def delete_objects(
        self,
        store: SweepStore,
        objects: Sequence[StoredObject],
        settings: DeleteSettings,
        *,
        before_each: Callable[[], None],
    ) -> list[Deletion]:
        """Implements the port. The collector deletes only objects of its marks, so lakeplan deletes these."""
        return self._ports.sweeper.delete_objects(store, objects, settings, before_each=before_each)

    def delete(self, request: DeleteRequest) -> RoundEnd:
        """Implements the port. Raises GateRefused or StalePlan when it may not continue; nothing was deleted
        then."""
        if (begun := self._recorded()) is not None:
            return self._continue(begun, request)
        self._check_look(request)
        if self._run is None:
            self._have_marked(request)
            return RoundEnd((), prepared=True)
        self._addresses = self._checked(self._run)  # read again, because the job reads it again too
        self._check_unchanged(request)
        self._begin(self._run, request)
        run, self._run = self._run, None
        return self._sweep(run, request)

    def close(self) -> None:
        """Makes a mark of the collector that was not swept unusable."""
        if self._run is not None:
            self._retract(self._run)
            self._run = None

    # ---- before anything is deleted
    def _check_look(self, request: DeleteRequest) -> None:
        if request.saved:
            address, why = next(iter(sorted(request.saved.items())))
            raise GateRefused(
                f"{count_of(len(request.saved), 'marked object')} must be kept ({address}: {why}), but the"
                " official collector cannot skip objects",
                where=self._where,
                hint=MARK_AGAIN,
            )
        if why := self._kept_now(request):
            raise GateRefused(
                f"the mark contains objects that must be kept now, because they were {why}",
                where=self._where,
                hint=f"{MARK_AGAIN} Or, if the objects need not be kept, undo what keeps them and run this"
                " command again.",
            )

    def _check_unchanged(self, request: DeleteRequest) -> None:
        """Raises GateRefused when objects were written again: the job deletes by address alone."""
        if changed := self._changed(request):
            raise GateRefused(
                f"{count_of(len(changed), 'marked object was', 'marked objects were')} written again after"
                f" the mark was created ({min(changed)}), but the official collector deletes by address"
                " alone",
                where=self._where,
                hint=MARK_AGAIN,
            )

    def _changed(self, request: DeleteRequest) -> dict[str, str]:
        """The objects of the collector's mark that changed since the approved mark listed them, and why."""
        changed: dict[str, str] = {}
        for part in request.parts:
            request.keep()
            known = {key: of for key, of in self._versions(part).items() if key in self._addresses}
            for key, stored in self._store.find(sorted(known)).items():
                if stored.version != known[key] or stored.modified_us >= request.settings.cutoff_us:
                    changed[key] = CHANGED
        return changed

    def _kept_now(self, request: DeleteRequest) -> str:
        """Return why objects that were never committed must be kept now, or "" if the mark names none of
        them."""
        return request.keep_never_committed if self._mark.collects else ""

    def _have_marked(self, request: DeleteRequest) -> None:
        """Runs the collector to mark, and checks that its mark names only approved objects."""
        for run_id in noted_runs(self._store, self._mark.mark_id):
            self._retract(UnifiedRun(run_id))  # left by a run that was killed before it could do so
        before = set(collector_runs(self._site))
        try:
            self._collector.run(self._job(), keep=request.keep, stop=self._ports.stop)
        except BaseException:
            # The job may have finished a mark. Note it, so that ``close`` makes it unusable.
            with suppress(LakeplanError):
                self._run = self._note(self._only_new(before))
            raise
        self._run = self._note(self._only_new(before))
        self._addresses = self._checked(self._run)

    def _note(self, run: UnifiedRun) -> UnifiedRun:
        """Records the run beside the mark, so that it does not count as another collector's."""
        runs = [*noted_runs(self._store, self._mark.mark_id), run.run_id]
        key = mark_prefix(self._mark.mark_id) + OFFICIAL_FILE
        self._store.put(key, json_line({"runs": runs}))
        return run

    def _begin(self, run: UnifiedRun, request: DeleteRequest) -> None:
        """Records that objects may be deleted from now on, for ``sweep abort`` too."""
        prefix = sweep_prefix(self._mark.mark_id)
        for part in request.parts:
            self._store.put(begun_key(prefix, part.name), b"{}\n")
        self._store.create(prefix + OFFICIAL_FILE, json_line({"run_id": run.run_id}))

    def _only_new(self, before: set[str]) -> UnifiedRun:
        new = sorted(set(collector_runs(self._site)) - before - {self._mark.mark_id})
        if len(new) == 1:
            return UnifiedRun(new[0])
        raise StalePlan(
            f"the collector wrote {len(new)} reports, but one was expected"
            + (f" ({', '.join(new[:3])}): another collector ran in the meantime" if new else ""),
            where=self._where,
            hint="Make sure that no other collector runs, then run `lakeplan sweep mark` again.",
        )

    def _checked(self, run: UnifiedRun) -> frozenset[str]:
        """The addresses in the collector's mark. Raises GateRefused when one of them was not approved."""
        named = self._named_by(run)
        if foreign := named.difference(marked_addresses(self._store, self._mark)):
            raise GateRefused(
                f"the official collector would delete {count_of(len(foreign), 'object')} outside the approved"
                f" mark, such as {min(foreign)}",
                where=self._where,
                hint="Run `lakeplan sweep mark` again and compare the marks, or use sweep.engine: builtin.",
            )
        return named

    # ---- deleting
    def _continue(self, begun: UnifiedRun, request: DeleteRequest) -> RoundEnd:
        """Continues a sweep that an earlier run began. If an object is needed again or was written again,
        nothing more is deleted, and what became of every object is recorded."""
        self._addresses = self._checked(begun)
        request = replace(request, saved=self._changed(request) | dict(request.saved))
        if not request.saved and not self._kept_now(request):
            return self._sweep(begun, request)
        end = self._record_all(request, NOT_FINISHED)
        if not end.problem:
            self._retract(begun)
        return end

    def _sweep(self, run: UnifiedRun, request: DeleteRequest) -> RoundEnd:
        if self._addresses:
            try:
                self._collector.run(self._job(run.run_id), keep=request.keep, stop=self._ports.stop)
            except LakeplanError as error:
                # Some objects may be gone already. The next run finishes the sweep of the same mark.
                return RoundEnd((), _problem_of(error))
        return self._record_all(request, STILL_THERE)

    def _record_all(self, request: DeleteRequest, reason: str) -> RoundEnd:
        results: list[PartResult] = []
        try:
            for part in request.parts:
                request.keep()
                results.append(self._record(part, request.saved, reason))
        except LakeplanError as error:
            return RoundEnd(results, _problem_of(error))
        return RoundEnd(results)

    def _record(self, part: Part, saved: Mapping[str, str], reason: str) -> PartResult:
        """Records what became of a part. Objects that the collector was to delete are requested one by one,
        the others are listed. ``reason``: why an object still exists."""
        keys, sizes = self._rows(part)
        marked = [key for key in keys if key in self._addresses]
        there = self._store.find(sorted(set(keys) - self._addresses))
        status = {
            key: (Status.SAVED, saved.get(key, NOT_MARKED)) if key in there else (Status.DELETED, GONE)
            for key in keys
        }
        for key, gone in zip(marked, in_parallel(self._store.is_gone, marked, THREADS), strict=True):
            kept = (Status.SAVED, saved[key]) if key in saved else (Status.FAILED, reason)
            status[key] = (Status.DELETED, "") if gone else kept
        data = write_results(status, dict(zip(keys, sizes, strict=True)), verified=len(marked))
        self._store.put(result_key(sweep_prefix(self._mark.mark_id), part.name), data)
        return end_of(part.name, data)

    # ---- reports and records
    def _job(self, mark_id: str = "") -> CollectorJob:
        age = min_age_seconds(cutoff=self._mark.cutoff, now=self._ports.now())
        return CollectorJob(self._mark.repository, age, mark_id)

    def _recorded(self) -> UnifiedRun | None:
        """The collector's mark whose sweep has begun."""
        run_id = official_run(self._store, self._mark.mark_id)
        return None if run_id is None else UnifiedRun(run_id)

    def _named_by(self, run: UnifiedRun) -> frozenset[str]:
        where = f"{self._store.url}/{run.summary_key}"
        summary = read_summary(self._store.read(run.summary_key), name=where)
        if not summary.success:
            raise FormatError("the report belongs to a run that failed", where=where, hint=MARK_AGAIN)
        named = frozenset(address for data in self._files(run) for address in data)
        if len(named) != summary.objects:
            raise FormatError(
                f"the report states {count_of(summary.objects, 'object')}, but its files list {len(named):,}",
                where=where,
                hint=MARK_AGAIN,
            )
        return named

    def _files(self, run: UnifiedRun) -> Iterator[list[str]]:
        folder = f"{run.prefix}deleted/"
        for stored in self._store.list_objects(folder):
            name = f"{self._store.url}/{stored.key}"
            if stored.key.endswith(".parquet"):
                yield read_deleted(self._store.read(stored.key), name=name)
            elif _is_data(stored.key.removeprefix(folder)):
                raise FormatError(
                    "the collector's mark contains an unexpected file: its name does not end in .parquet, but"
                    " Spark would still read it",
                    where=name,
                    hint=MARK_AGAIN,
                )

    def _rows(self, part: Part) -> tuple[list[str], list[int]]:
        table = read_marked(self._store, self._mark.mark_id, part)
        return table.column("address").to_pylist(), table.column("size_bytes").to_pylist()

    def _versions(self, part: Part) -> dict[str, int]:
        """The versions of objects in the approved mark, by address."""
        table = read_marked(self._store, self._mark.mark_id, part)
        pairs = zip(table.column("address").to_pylist(), table.column("version").to_pylist(), strict=True)
        return dict(pairs)

    def _retract(self, run: UnifiedRun) -> None:
        """Deletes the summary of a collector's mark, without which the job does not sweep it. A failure here
        must not hide the reason of the refusal."""
        with suppress(StorageError):
            self._store.delete([run.summary_key], versions=Versions.MARKER)


def _is_data(path: str) -> bool:
    """Whether Spark reads a file below its input folder: no part of the path begins with ``_`` or ``.``, and
    it is not the marker of a folder."""
    hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
    return bool(path) and not path.endswith("/") and not hidden


def _problem_of(error: LakeplanError) -> str:
    return error.message + (f"\n{error.hint}" if error.hint else "")

"""Reads the records of runs in the state (``history/<run id>.json``): who did what, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, Literal, TypedDict

from lakeplan.errors import FormatError, LakeplanError, StalePlan, UsageError
from lakeplan.review.ceiling import CLOCK_SKEW
from lakeplan.review.differences import diff_rules, diff_setting
from lakeplan.review.run import Run, merged_later
from lakeplan.stores.open import StateReader
from lakeplan.values import records
from lakeplan.values.desired import SettingItem, SettingKind, item_body, items_from_body
from lakeplan.values.documents import decode, encode
from lakeplan.values.plan import NOT_IN_DOCUMENT
from lakeplan.values.progress import in_parallel
from lakeplan.values.rules import ActionName, GcRules, RulesBody, rules_from_body

HISTORY_FORMAT: Final = "lakeplan.history/v1"
LAST = "last"
_PREFIX = "history/"
_WORST_FIRST = ("failed", "uncertain", "pending", "applied", "already")


class ServerBefore(TypedDict):
    """The settings that the server stored before, in lakeFS's form."""

    body: Mapping[str, object] | list[object] | None


@dataclass(frozen=True)
class SettingStep:
    """The policies or object rules of one repository. ``RunStep`` has its GC rules. Empty means none.
    ``found`` is what was read after a write that did not end as planned, with the API's form under
    ``body``."""

    kind: SettingKind
    status: str
    message: str = ""
    replaced: bool = False
    before: tuple[SettingItem, ...] = ()
    after: tuple[SettingItem, ...] = ()
    found: ServerBefore | None = None


@dataclass(frozen=True)
class RunStep:
    """One repository of a run. ``replaced``: the run recorded the GC rules that it was about to replace, in
    ``before`` and ``after`` (None: no rules). ``status`` is the worst status of the rules and ``settings``:
    applied, already, failed, uncertain, or pending if the run was killed. ``found`` is as in a
    ``SettingStep``."""

    repository: str
    status: str
    message: str = ""
    replaced: bool = False
    before: GcRules | None = None
    after: GcRules | None = None
    settings: tuple[SettingStep, ...] = field(default=(), metadata=NOT_IN_DOCUMENT)
    found: ServerBefore | None = None
    mark_id: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers of branches or objects by outcome, for a run that writes no rules."""
    branches: Mapping[str, BranchStep] = field(default_factory=dict, metadata=NOT_IN_DOCUMENT)

    @property
    def replaced_any(self) -> bool:
        """Whether the run recorded anything that it was about to replace."""
        return self.replaced or any(setting.replaced for setting in self.settings)


@dataclass(frozen=True)
class BranchStep:
    """A branch that a run was about to delete or restore: its HEAD at that time, and the outcome."""

    head: str
    outcome: str


@dataclass(frozen=True)
class RunRecord:
    """One run. ``finished_at`` is None if it was killed or is still running. ``plan_digest`` and
    ``plan_as_of`` are those of the plan or mark that it followed, or "" and None without one. ``tree_dirty``
    and ``tree_digest`` are None, and ``ci``, ``approver`` and ``tree_name`` are empty, if they are not
    known."""

    run_id: str
    command: str
    by: Mapping[str, Any]
    started_at: datetime
    finished_at: datetime | None = None
    tree_commit: str | None = None
    plan_digest: str = ""
    plan_as_of: datetime | None = None
    allowed: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()
    force: bool = False
    steps: tuple[RunStep, ...] = field(default=(), metadata=NOT_IN_DOCUMENT)
    tree_dirty: bool | None = None
    tree_digest: str | None = None
    ci: Mapping[str, str] = field(default_factory=dict)
    approver: Mapping[str, str] = field(default_factory=dict)
    tree_name: str = field(default="", metadata=NOT_IN_DOCUMENT)
    end: str = field(default="", metadata=NOT_IN_DOCUMENT)
    """Of an apply that applied no version of the tree: ``stale``, ``refused``, ``failed`` or ``refresh``."""

    @property
    def kind(self) -> str:
        return self.command.partition(" ")[0]


@dataclass(frozen=True)
class Runs:
    """Runs, newest first. ``damaged`` are the keys of records that cannot be read."""

    runs: tuple[RunRecord, ...]
    damaged: tuple[str, ...] = ()


PLANNING = timedelta(days=1)
"""A run's id is made before it plans. It may begin to write up to this long after that."""
KINDS = ("apply", "import", "branches", "sweep")
"""The first word of the commands that leave a record."""


@dataclass(frozen=True)
class RunFilter:
    """Selects runs of a ``repository`` (name or ``server/name``) that began at ``since`` or later, have one
    of these ``kinds``, and are of the ``tree`` with this name or have no known name. A field without a value
    selects all runs."""

    repository: str | None = None
    since: datetime | None = None
    kinds: frozenset[str] = frozenset()
    tree: str = ""

    def has(self, run: RunRecord) -> bool:
        names = (name for step in run.steps for name in (step.repository, step.repository.partition("/")[2]))
        named = self.repository is None or self.repository in names
        late = self.since is None or run.started_at >= self.since
        own = not self.tree or run.tree_name in ("", self.tree)
        return named and late and own and (not self.kinds or run.kind in self.kinds)


ALL = RunFilter()


def list_runs(state: StateReader, wanted: RunFilter = ALL, *, limit: int | None = None) -> Runs:
    """Return the newest ``limit`` runs, or all."""
    damaged: list[str] = []
    runs = tuple(islice(each_run(state, wanted, damaged), limit))
    return Runs(runs, tuple(damaged))


def each_run(state: StateReader, wanted: RunFilter, damaged: list[str]) -> Iterator[RunRecord]:
    """Yield runs, newest first. A record is read when its run is needed. The keys of records that cannot be
    read are added to ``damaged``."""
    for run_id in reversed(_run_ids(state)):
        began = began_at(run_id)
        if wanted.since and began and began < wanted.since - PLANNING:
            return
        try:
            run = _read(state, run_id)
        except LakeplanError:
            damaged.append(f"{_PREFIX}{run_id}.json")
            continue
        if wanted.has(run):
            yield run


@dataclass(frozen=True)
class RunSince:
    """A run and the time in its id. ``record`` is None if the record, which has this key, is damaged."""

    began: datetime
    record: RunRecord | None
    key: str


def runs_since(state: StateReader, moment: datetime) -> list[RunSince]:
    """Return the runs that began at a moment or later, newest first. Older runs are not read."""
    runs = []
    for run_id in reversed(_run_ids(state)):
        began = began_at(run_id) or moment
        if began < moment.replace(microsecond=0):
            break
        try:
            record = _read(state, run_id)
        except LakeplanError:
            record = None
        runs.append(RunSince(began, record, f"{_PREFIX}{run_id}.json"))
    return runs


MOST_RUNS = 10_000
_AT_ONCE = 16
"""Records that are read at the same time, because an inspection before a deletion must not take long."""


def check_newest(state: StateReader, run: Run, where: str) -> None:
    """Raises StalePlan if an apply had a newer version of the run's tree: if it began later than the run, or
    after another run with the run's version. The run would not know what it added, such as holds."""
    newer: RunRecord | None = None
    damaged: list[str] = []
    for run_id, one in _without_repeats(islice(_read_ahead(state, run), MOST_RUNS)):
        if one is None:
            damaged.append(f"{_PREFIX}{run_id}.json")
            continue
        if one.tree_name != run.tree_name or one.tree_digest is None:
            continue
        is_same = one.tree_digest == run.tree_digest or (
            # Some machines have other line ends.
            one.tree_commit == run.tree_commit and one.tree_dirty is run.tree_dirty is False
        )
        # An old job that is refused, still runs or only refreshes patterns does not make its tree the newest.
        if newer is None and one.kind == "apply" and one.end not in ("stale", "refresh"):
            if is_same and one.finished_at and not one.end:
                break
            newer = None if is_same else one
        if newer is not None and (is_same or newer.run_id > run.run_id):
            raise StalePlan(
                f"run {newer.run_id} has applied a newer version of the tree, which may protect more",
                where=where,
                hint="Run the command again with the newest tree. If that is this tree, apply it first.",
            )
    if damaged:
        raise StalePlan(
            f"the record {damaged[0]} in the state is damaged, and may be that of an apply of a newer tree",
            where=where,
            hint="Apply the newest tree, or move the record elsewhere. Then run the command again.",
        )


def _read_ahead(state: StateReader, run: Run) -> Iterator[tuple[str, RunRecord | None]]:
    """Yield the ids and records of runs, newest first, without steps, or None for a damaged record. Those
    that have ended are read once, because ``run`` checks them before each of its deletions."""

    def read(run_id: str) -> RunRecord | None:
        with suppress(LakeplanError):
            return replace(_read(state, run_id), steps=())
        return None

    ids = _run_ids(state)[::-1]
    for at in range(0, len(ids), _AT_ONCE):
        some = ids[at : at + _AT_ONCE]
        unread = [run_id for run_id in some if run_id not in run.ended]
        new = dict(zip(unread, in_parallel(read, unread, _AT_ONCE) if unread else (), strict=True))
        run.ended.update({run_id: one for run_id, one in new.items() if one and one.finished_at})
        yield from ((run_id, new[run_id] if run_id in new else run.ended[run_id]) for run_id in some)


def _without_repeats(
    runs: Iterator[tuple[str, RunRecord | None]],
) -> Iterator[tuple[str, RunRecord | None]]:
    """Omit each apply of a plan that an earlier run with the same tree has applied, and each of a pull
    request that was merged before that of an earlier run: an old job that runs again or late does not make
    its tree the newest."""
    ahead = deque[tuple[str, RunRecord | None]]()
    while found := ahead.popleft() if ahead else next(runs, None):
        run_id, one = found
        if one is not None and one.kind == "apply" and one.plan_digest and one.plan_as_of:
            planned = one.plan_as_of - CLOCK_SKEW
            while not ahead or (began_at(ahead[-1][0]) or planned) >= planned:
                if (older := next(runs, None)) is None:
                    break
                ahead.append(older)
            applies = (
                r for _, r in ahead if r and r.kind == "apply" and not r.end and r.tree_name == one.tree_name
            )
            plan = (one.plan_digest, one.tree_digest)
            if any((r.plan_digest, r.tree_digest) == plan or merged_later(r.ci, one.ci) for r in applies):
                continue
        yield run_id, one


def find_run(state: StateReader, name: str) -> RunRecord:
    """Return the run with an id or a unique beginning of an id, or the ``last`` run. Raises UsageError if no
    run or several runs match, and LakeplanError if the record is damaged."""
    ids = _run_ids(state)
    named = (
        ids[-1:] if name == LAST else [i for i in ids if i == name] or [i for i in ids if i.startswith(name)]
    )
    if len(named) != 1:
        what = f"no run {name!r} is recorded" if not named else f"{len(named)} run ids begin with {name!r}"
        raise UsageError(what, hint="Run `lakeplan history` to list the runs.")
    return _read(state, named[0])


def find_change(state: StateReader, name: str) -> RunRecord:
    """Like ``find_run``, but ``last`` is the newest run that replaced something, so that it can be rolled
    back. A damaged record is an error, because it may be the record of that run."""
    if name != LAST:
        return find_run(state, name)
    for run_id in reversed(_run_ids(state)):
        run = _read(state, run_id)
        if any(step.replaced_any for step in run.steps):
            return run
    raise UsageError(
        "no recorded run replaced any rules or policies", hint="Run `lakeplan history` to list the runs."
    )


def with_retried(state: StateReader, run: RunRecord) -> RunRecord:
    """Return the run, completed with the values that earlier, interrupted runs of the same plan replaced:
    where it found a value already as planned, the value from before the first of these runs. Raises
    LakeplanError for a damaged record in between, which may belong to one of them."""
    whole = all(step.replaced and all(s.replaced for s in step.settings) for step in run.steps)
    if run.command != "apply" or not run.plan_digest or whole:
        return run
    steps = {step.repository: step for step in run.steps}
    for run_id in reversed([i for i in _run_ids(state) if i < run.run_id]):
        began = began_at(run_id)
        if began is not None and run.plan_as_of is not None and began < run.plan_as_of.replace(microsecond=0):
            break  # older than the plan
        earlier = _read(state, run_id)
        if earlier.plan_digest == run.plan_digest:
            for step in earlier.steps:
                if step.repository in steps:
                    steps[step.repository] = _retried(steps[step.repository], step)
    return replace(run, steps=tuple(steps.values()))


def _retried(step: RunStep, earlier: RunStep) -> RunStep:
    """Return a step with the values that an earlier run replaced. Runs are merged from the newest to the
    oldest: if both replaced a value, the earlier run has the original value."""
    settings = {setting.kind: setting for setting in step.settings}
    for setting in earlier.settings:
        if setting.replaced and setting.kind in settings:
            newer = settings[setting.kind]
            settings[setting.kind] = replace(setting, after=newer.after if newer.replaced else setting.after)
    step = replace(step, settings=tuple(settings.values()))
    if not earlier.replaced:
        return step
    after = step.after if step.replaced else earlier.after
    return replace(step, replaced=True, before=earlier.before, after=after)


def began_at(run_id: str) -> datetime | None:
    """Return the time at the beginning of a run id (UTC, to the second), or None if there is none."""
    try:
        return datetime.strptime(f"{run_id[: len('20260301T000000')]}Z", "%Y%m%dT%H%M%S%z")
    except ValueError:
        return None


def _run_ids(state: StateReader) -> list[str]:
    """Return all run ids, oldest first. Each begins with the time of the run."""
    keys = state.list_keys(_PREFIX)
    return sorted(k.removeprefix(_PREFIX).removesuffix(".json") for k in keys if k.endswith(".json"))


def _read(state: StateReader, run_id: str) -> RunRecord:
    key = f"{_PREFIX}{run_id}.json"
    stored = state.read(key)
    if stored is None:
        raise LakeplanError("the record of the run no longer exists", where=key)
    what, hint = "the record of this run", "Inspect the repositories to see what it changed."
    record = records.read_record(stored.data, RUN, what=what, where=key, hint=hint)
    try:
        return _parse(run_id, record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{what} is damaged", where=key, hint=hint, detail=repr(error)) from None


RUN = records.record(
    {"command": records.text, "by": records.record({}), "started_at": records.moment},
    {
        "plan_digest": records.text,
        "plan_as_of": records.any_moment,
        "tree_dirty": records.flag,
        "tree_digest": records.text,
        "tree_name": records.text,
        "end": records.text,
        "ci": records.map_of(records.text),
        "approver": records.map_of(records.text),
        "finished_at": records.moment,
        "tree_commit": records.text,
        "allowed": records.list_of(records.text),
        "overridden": records.list_of(records.text),
        "force": records.flag,
        "repositories": records.map_of(records.record({})),
    },
)


def _parse(run_id: str, record: Any) -> RunRecord:
    known = {key: value for key, value in record.items() if value is not None}
    run: RunRecord = decode({**known, "run_id": run_id}, RunRecord)
    steps = tuple(_step(k, v) for k, v in sorted(record.get("repositories", {}).items()))
    return replace(run, steps=steps, tree_name=record.get("tree_name") or "", end=record.get("end") or "")


_FACTS = records.record(
    {},
    {
        "mark_id": records.text,
        "counts": records.map_of(records.count),
        "branches": records.map_of(records.record({"head": records.text, "outcome": records.text})),
    },
)


def _step(repository: str, values: Any) -> RunStep:
    settings = tuple(_setting(kind, values[kind.value]) for kind in SettingKind if kind.value in values)
    # A run that wrote only policies has no status for GC rules.
    statuses = [s.status for s in settings] + ([str(values["status"])] if "status" in values else [])
    status = min(statuses, key=_WORST_FIRST.index) if settings else str(values["status"])
    message = str(values.get("message", "")) or next((s.message for s in settings if s.message), "")
    if "before" not in values:
        _FACTS(values, "")
        return RunStep(
            repository,
            status,
            message,
            settings=settings,
            mark_id=values.get("mark_id") or "",
            counts=values.get("counts") or {},
            branches={
                name: BranchStep(row["head"], row["outcome"])
                for name, row in (values.get("branches") or {}).items()
            },
        )
    before, after = (_rules(values[key]) for key in ("before", "after"))
    return RunStep(repository, status, message, True, before, after, settings, values.get("found"))


def _setting(kind: SettingKind, values: Any) -> SettingStep:
    status, message = str(values["status"]), str(values.get("message", ""))
    if "before" not in values:
        return SettingStep(kind, status, message)
    before, after = (items_from_body(kind, values[key] or ()) for key in ("before", "after"))
    return SettingStep(kind, status, message, True, before, after, values.get("found"))


def _rules(body: Any) -> GcRules | None:
    return None if body is None else rules_from_body(body)


class ChangedDays(TypedDict):
    path: str
    before: int | None
    after: int | None


class ChangedItem(TypedDict):
    item: str
    action: ActionName
    before: Mapping[str, str]
    after: Mapping[str, str]


class ChangedSetting(TypedDict):
    """``SettingStep``, as lakeFS has the items."""

    setting: Literal["branch_lifecycle", "object_lifecycle"]
    status: str
    message: str
    replaced: bool
    before: list[dict[str, object]]
    after: list[dict[str, object]]
    found: ServerBefore | None
    changes: list[ChangedItem]


class BranchRow(TypedDict):
    branch_id: str
    head: str
    outcome: str


class RunRepository(TypedDict):
    """``RunStep``, as lakeFS has the rules."""

    repository: str
    status: str
    message: str
    replaced: bool
    before: RulesBody | None
    after: RulesBody | None
    found: ServerBefore | None
    changes: list[ChangedDays]
    settings: list[ChangedSetting]
    mark_id: str
    counts: Mapping[str, int]
    branches: list[BranchRow]


class RunRow(TypedDict):
    """``RunRecord``."""

    run_id: str
    command: str
    by: Mapping[str, object]
    started_at: str
    finished_at: str | None
    tree_commit: str | None
    tree_dirty: bool | None
    tree_digest: str | None
    ci: Mapping[str, str]
    approver: Mapping[str, str]
    plan_digest: str
    plan_as_of: str | None
    allowed: list[str]
    overridden: list[str]
    force: bool
    repositories: list[RunRepository]


class HistoryDocument(TypedDict):
    """The document of ``schemas/history.v1.json``."""

    format: Literal["lakeplan.history/v1"]
    runs: list[RunRow]
    damaged: list[str]


def history_document(runs: Sequence[RunRecord], damaged: Sequence[str] = ()) -> HistoryDocument:
    """Return runs as plain JSON data (``schemas/history.v1.json``)."""
    return {"format": HISTORY_FORMAT, "runs": [_run(r) for r in runs], "damaged": list(damaged)}


def _run(run: RunRecord) -> RunRow:
    row: RunRow = encode(run)
    return {**row, "repositories": [_step_document(s) for s in run.steps]}


def _step_document(step: RunStep) -> RunRepository:
    row: RunRepository = encode(step)
    return {
        **row,
        "changes": encode(diff_rules(step.before, step.after)),
        "settings": [
            {
                "setting": s.kind.value,
                "status": s.status,
                "message": s.message,
                "replaced": s.replaced,
                "before": [item_body(item) for item in s.before],
                "after": [item_body(item) for item in s.after],
                "found": s.found,
                "changes": encode(diff_setting(s.before, s.after)),
            }
            for s in step.settings
        ],
        "branches": [
            {"branch_id": name, "head": branch.head, "outcome": branch.outcome}
            for name, branch in step.branches.items()
        ],
    }

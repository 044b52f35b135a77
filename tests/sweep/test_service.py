"""What the sweep commands do for several repositories, by figures alone; whole sweeps are in test_many,
test_purge and test_automatic. The search for a lost mark is in test_lost_mark_search."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from lakeplan.errors import (
    ExitCode,
    GateRefused,
    LakeplanError,
    LeaseHeld,
    ReadOnlyRepository,
    ServerUnreachable,
    StalePlan,
    StorageError,
    UsageError,
)
from lakeplan.review.gates import GateOverrides
from lakeplan.review.run import Run
from lakeplan.review.selection import Selection
from lakeplan.sweep import service as module
from lakeplan.sweep.mark import Made, MarkOptions
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.records import StoredMark
from lakeplan.sweep.rules import MARK_MAX_AGE_SECONDS
from lakeplan.sweep.service import (
    AutomaticEnd,
    MarkReport,
    check_allowed,
    marks_document,
    open_mark,
    purge_all,
    quarantines,
    shown_by,
    stage_of,
    sweep_marks,
)
from lakeplan.values.plan import Bit
from lakeplan.values.records import utc_text
from lakeplan.values.shown_records import Records, object_digests, packed
from lakeplan.values.simulation import Amount, MarkClass, Part
from lakeplan.values.sweep import SweepSettings
from tests.memory import MemoryState
from tests.sweep.test_official import NOW, a_mark

DAY = timedelta(days=1)
READ_ONLY = ReadOnlyRepository("read-only")


def mark_of(key: str = "prod/lake", amounts: dict[MarkClass, int] | None = None, **settings: Any) -> Mark:
    server, _, repository = key.partition("/")
    amounts = {MarkClass.BACKLOG: 2} if amounts is None else amounts
    chosen = SweepSettings(**{"automatic": True, **settings})
    return replace(a_mark(amounts), server=server, repository=repository, settings=chosen)


def allowing(*flags: str) -> GateOverrides:
    return GateOverrides(frozenset(flags), (), date(2026, 11, 21))


def run(run_id: str = "r1") -> Run:
    return Run(run_id, {"user": "ann"}, lambda: NOW, lambda _: False)


def desired(key: str, **sweep: Any) -> Any:
    server, _, name = key.partition("/")
    return SimpleNamespace(server=server, name=name, key=key, sweep=SweepSettings(**sweep))


MARK_OF_A = mark_of("prod/a")
MADE: dict[str, Made] = {
    "prod/a": MARK_OF_A,
    "prod/b": "nothing expired",
    "prod/c": READ_ONLY,
    "prod/d": StalePlan("no"),
}


class DescribeAMarkReport:
    def it_separates_marks_what_needs_none_and_failures(self) -> None:
        report = MarkReport(MADE)
        assert report.marks == [MARK_OF_A]
        assert report.skipped == {"prod/b": "nothing expired", "prod/c": "read-only"}
        assert report.failed == {"prod/d": MADE["prod/d"]}

    @pytest.mark.parametrize(
        ("keys", "code"),
        [
            ("abc", ExitCode.OK),
            ("", ExitCode.OK),
            ("ad", ExitCode.PARTLY_DONE),
            ("bd", ExitCode.PARTLY_DONE),
            ("cd", ExitCode.PARTLY_DONE),
            ("d", ExitCode.STALE),
        ],
    )
    def it_exits_with_what_failed_beside_what_did_not(self, keys: str, code: int) -> None:
        assert MarkReport({f"prod/{key}": MADE[f"prod/{key}"] for key in keys}).exit_code == code

    def it_exits_with_the_code_of_several_errors_if_they_have_the_same(self) -> None:
        errors: dict[str, Made] = {"prod/a": StalePlan("a"), "prod/b": StalePlan("b")}
        assert MarkReport(errors).exit_code == ExitCode.STALE
        assert MarkReport(errors | {"prod/c": LakeplanError("no")}).exit_code == ExitCode.ERROR

    def it_becomes_a_document_with_the_times_of_each_mark(self) -> None:
        document = marks_document(MarkReport(MADE))
        assert {key: value for key, value in document.items() if key != "marks"} == {
            "format": "lakeplan.marks/v1",
            "skipped": {"prod/b": "nothing expired", "prod/c": "read-only"},
            "failed": {"prod/d": {"message": "no", "where": "", "hint": ""}},
        }
        (mark,) = document["marks"]
        opens = NOW + timedelta(seconds=MARK_OF_A.settings.settle_seconds)
        assert mark == {
            **MARK_OF_A.to_document(),
            "sweep_from": utc_text(opens),
            "sweep_until": utc_text(NOW + timedelta(seconds=MARK_MAX_AGE_SECONDS)),
        }

    def it_is_swept_no_sooner_than_it_was_made(self) -> None:
        mark = replace(MARK_OF_A, lowered_at=NOW - 365 * DAY)
        assert marks_document(MarkReport({"prod/a": mark}))["marks"][0]["sweep_from"] == utc_text(NOW)


@dataclass
class Case:
    """Calls that the module makes of others, with the answers given here."""

    wanted: list[Any] = field(default_factory=lambda: [desired("prod/a"), desired("prod/b")])
    failed: dict[str, LakeplanError] = field(default_factory=dict)
    unopened: dict[str, LakeplanError] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree: Any = SimpleNamespace(servers={"prod": SimpleNamespace(name="prod")})
        self.ports: Any = SimpleNamespace(state=MemoryState(), now=lambda: NOW)
        self.selection = Selection()
        self.run = run()

    def select(self, tree: Any, selection: Any, ports: Any) -> Any:
        assert (tree, selection, ports) == (self.tree, self.selection, self.ports)
        return self.wanted, self.failed

    def other_servers(self, server: Any, tree: Any, ports: Any) -> str:
        assert (tree, ports) == (self.tree, self.ports)
        self.others.append(server.name)
        return f"all but {server.name}"

    def open_site(self, desired: Any, tree: Any, ports: Any, others: Any = None) -> Any:
        assert (tree, ports) == (self.tree, self.ports)
        if desired.key in self.unopened:
            raise self.unopened[desired.key]
        neighbours = others and others(SimpleNamespace(name=desired.server))
        return SimpleNamespace(key=desired.key, desired=desired, neighbours=neighbours, store="store")

    def make_marks(self, sites: Any, ports: Any, run: Any) -> Any:
        assert (ports, run) == (self.ports, self.run)
        self.calls += sites
        for site, _ in sites:
            yield site, self.made.get(site.key, f"mark of {site.key}")

    def mark_all(self, overrides: GateOverrides | None = None) -> MarkReport:
        ids = iter(["m1", "m2", "m3"])
        return module.mark_all(
            self.tree,
            self.selection,
            self.ports,
            self.run,
            settings=lambda sweep: replace(sweep, max_objects=5),
            overrides=overrides or allowing(),
            new_mark_id=lambda: next(ids),
        )


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    made = Case()
    for name in ("select", "other_servers", "open_site", "make_marks"):
        monkeypatch.setattr(module, name, getattr(made, name))
    return made


class DescribeMarking:
    def it_marks_each_repository_with_the_options_of_the_command(self, case: Case) -> None:
        case.wanted = [desired("prod/a"), desired("prod/b", margin_seconds=7)]
        assert case.mark_all(allowing("a=tag-loss")).made == {
            "prod/a": "mark of prod/a",
            "prod/b": "mark of prod/b",
        }
        assert [(site.key, options) for site, options in case.calls] == [
            ("prod/a", MarkOptions("m1", SweepSettings(max_objects=5), allowing("a=tag-loss"))),
            (
                "prod/b",
                MarkOptions("m2", SweepSettings(margin_seconds=7, max_objects=5), allowing("a=tag-loss")),
            ),
        ]

    def it_asks_the_other_servers_once_for_all_repositories_of_a_server(self, case: Case) -> None:
        case.mark_all()
        assert [site.neighbours for site, _ in case.calls] == ["all but prod"] * 2
        assert case.others == ["prod"]

    def it_reports_what_could_not_be_opened_beside_the_others(self, case: Case) -> None:
        case.failed = {"dev/x": ServerUnreachable("no answer")}
        case.unopened = {"prod/a": StorageError("no bucket")}
        case.made = {"prod/b": StalePlan("no")}
        report = case.mark_all()
        assert report.made == {**case.failed, **case.unopened, **case.made}
        assert [site.key for site, _ in case.calls] == ["prod/b"]

    def it_refuses_an_override_of_a_repository_that_is_not_selected(self, case: Case) -> None:
        case.failed = {"dev/x": ServerUnreachable("no answer")}
        case.mark_all(allowing("x=tag-loss", "a=tag-loss"))
        with pytest.raises(UsageError, match="other is not in this run"):
            case.mark_all(allowing("other=tag-loss"))

    def it_refuses_an_override_of_several_repositories_at_once(self, case: Case) -> None:
        with pytest.raises(UsageError, match="--allow tag-loss"):
            case.mark_all(allowing("tag-loss"))
        assert case.calls == []


class DescribeAnOverrideByName:
    def it_is_of_one_repository(self) -> None:
        keys = ["prod/a", "prod/b", "dev/b"]
        check_allowed(frozenset({"a=tag-loss", "prod/b=tag-loss", "dev/b=tag-loss"}), keys)
        check_allowed(frozenset({"tag-loss"}), ["prod/a"])
        check_allowed(frozenset({"tag-loss"}), [])

    def it_names_every_repository_that_it_could_mean(self) -> None:
        with pytest.raises(
            UsageError, match="does not specify a repository, but 12 repositories are selected"
        ) as caught:
            check_allowed(frozenset({"tag-loss"}), [f"prod/r{n}" for n in range(12)])
        flags = [f"--allow prod/r{n}=tag-loss" for n in range(10)]
        assert f": {' '.join(flags)}." in caught.value.hint

    def it_says_that_a_name_is_on_several_servers(self) -> None:
        with pytest.raises(
            UsageError, match=r"b=tag-loss matches 2 repositories on different servers$"
        ) as caught:
            check_allowed(frozenset({"b=tag-loss"}), ["prod/a", "prod/b", "dev/b"])
        assert "--allow prod/b=tag-loss --allow dev/b=tag-loss" in caught.value.hint


def it_opens_the_repository_that_the_state_names_for_a_mark(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def repository_of(state: object, mark_id: str) -> str:
        assert (state, mark_id) == (case.ports.state, "m1")
        return "prod/b"

    def select_one(tree: object, repository: str) -> Any:
        assert tree is case.tree
        return desired(repository)

    def load_mark(site: Any, state: object, mark_id: str) -> str:
        assert (site.key, state, mark_id) == ("prod/b", case.ports.state, "m1")
        return "stored"

    for replaced in (repository_of, select_one, load_mark):
        monkeypatch.setattr(module, replaced.__name__, replaced)
    site, stored = open_mark(case.tree, "m1", case.ports)
    assert (site.key, stored) == ("prod/b", "stored")


class DescribeListingQuarantines:
    @pytest.fixture
    def listed(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, datetime]]:
        listed = []

        def list_quarantines(site: Any, *, older_than: datetime) -> list[str]:
            listed.append((site.key, older_than))
            return [f"{site.key} 1", f"{site.key} 2"]

        monkeypatch.setattr(module, "list_quarantines", list_quarantines)
        return listed

    def list_all(self, case: Case, older_than: datetime) -> list[Any]:
        return quarantines(case.tree, case.selection, case.ports, older_than=older_than)

    def it_lists_those_that_are_older_than_both_ages(
        self, case: Case, listed: list[tuple[str, datetime]]
    ) -> None:
        case.wanted = [
            desired("prod/a", quarantine_age_seconds=86400),
            desired("prod/b", quarantine_age_seconds=3 * 86400),
        ]
        found = self.list_all(case, NOW - 2 * DAY)
        assert found == ["prod/a 1", "prod/a 2", "prod/b 1", "prod/b 2"]
        assert listed == [("prod/a", NOW - 2 * DAY), ("prod/b", NOW - 3 * DAY)]

    def it_lists_nothing_while_a_repository_cannot_be_read(
        self, case: Case, listed: list[tuple[str, datetime]]
    ) -> None:
        case.failed = {"dev/x": ServerUnreachable("no answer")}
        with pytest.raises(ServerUnreachable):
            self.list_all(case, NOW)
        case.failed, case.unopened = {}, {"prod/b": StorageError("no bucket")}
        with pytest.raises(StorageError):
            self.list_all(case, NOW)
        assert listed == []


def purged(key: str, **more: Any) -> Any:
    row = {"repository": key, "deleted": 3, "kept": 2, "failed": 0, "needed": 0, "problem": ""}
    return row | more


@dataclass
class Purges:
    """Purges of quarantines ``server/name mark``, with these results. ``Amount()``: no copy is left."""

    results: dict[str, Any]
    state: MemoryState = field(default_factory=MemoryState)
    pending: list[Any] = field(default_factory=list)

    def purge(self, one: Any, ports: Any, run: Any, *, older_than: datetime) -> Any:
        assert (ports.state, run.run_id, older_than) == (self.state, "r1", NOW)
        self.pending.append(self.history()["repositories"][one.site.key])
        result = self.results[f"{one.site.key} {one.mark_id}"]
        if isinstance(result, LakeplanError):
            raise result
        return result

    def run(self) -> tuple[Any, int]:
        old: list[Any] = []
        for name, result in self.results.items():
            key, _, mark_id = name.partition(" ")
            amount = result if isinstance(result, Amount) else Amount(1, 1)
            old.append(SimpleNamespace(site=SimpleNamespace(key=key), mark_id=mark_id, amount=amount))
        ports: Any = SimpleNamespace(state=self.state)
        return purge_all(old, ports, run(), older_than=NOW, option="30d")

    def history(self) -> Any:
        return json.loads(self.state.records["history/r1.json"].data)


class DescribePurging:
    @pytest.fixture
    def purges(self, monkeypatch: pytest.MonkeyPatch) -> Purges:
        made = Purges({"prod/a m1": purged("prod/a")})
        monkeypatch.setattr(module, "purge", made.purge)
        return made

    def it_reports_what_was_purged_and_what_was_refused(self, purges: Purges) -> None:
        refused = GateRefused("needed again", hint="restore it")
        purges.results = {"prod/b m2": refused, **purges.results}
        document, code = purges.run()
        assert code == ExitCode.PARTLY_DONE
        assert document == {
            "format": "lakeplan.purge/v1",
            "older_than": "30d",
            "quarantines": [purged("prod/a")],
            "refused": [
                {
                    "repository": "prod/b",
                    "mark_id": "m2",
                    "message": "needed again",
                    "hint": "restore it",
                }
            ],
        }

    @pytest.mark.parametrize(
        ("results", "code"),
        [
            ([], ExitCode.OK),
            ([purged("prod/a")], ExitCode.OK),
            ([purged("prod/a", needed=1)], ExitCode.PARTLY_DONE),
            ([purged("prod/a", failed=1)], ExitCode.PARTLY_DONE),
            ([purged("prod/a"), purged("prod/a", problem="stopped")], ExitCode.PARTLY_DONE),
            ([GateRefused("no")], ExitCode.REFUSED),
            ([GateRefused("no"), GateRefused("no")], ExitCode.REFUSED),
            ([GateRefused("no"), StalePlan("no")], ExitCode.ERROR),
            ([GateRefused("no"), purged("prod/a")], ExitCode.PARTLY_DONE),
        ],
    )
    def it_exits_with_0_only_when_all_is_purged(self, purges: Purges, results: list[Any], code: int) -> None:
        purges.results = {f"prod/a m{n}": result for n, result in enumerate(results)}
        assert purges.run()[1] == code

    def it_is_in_the_history_before_anything_is_deleted(self, purges: Purges) -> None:
        purges.results["prod/a m2"] = purged("prod/a")
        purges.run()
        first, second = purges.pending
        assert first == {"status": "pending", "mark_id": "m1"}
        assert (second["status"], second["mark_id"]) == ("pending", "m1, m2")

    def it_is_not_done_without_the_history(
        self, purges: Purges, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*args: object, **more: object) -> str:
            raise StorageError("no permission")

        monkeypatch.setattr(purges.state, "write", refuse)
        document, code = purges.run()
        assert (purges.pending, document["quarantines"], code) == ([], [], ExitCode.ERROR)
        assert len(caplog.messages) == 1
        purges.results, _ = {}, caplog.clear()
        purges.run()
        assert caplog.messages == [], "nothing to record"

    def it_adds_up_the_quarantines_of_a_repository(self, purges: Purges) -> None:
        purges.results |= {"prod/a m2": purged("prod/a", deleted=4, kept=0), "prod/b m3": purged("prod/b")}
        purges.run()
        history = purges.history()
        assert (history["command"], history["finished_at"]) == ("sweep purge", NOW.isoformat())
        assert history["repositories"] == {
            "prod/a": {
                "status": "applied",
                "mark_id": "m1, m2",
                "counts": {"deleted": 7, "kept": 2, "failed": 0},
            },
            "prod/b": {
                "status": "applied",
                "mark_id": "m3",
                "counts": {"deleted": 3, "kept": 2, "failed": 0},
            },
        }

    @pytest.mark.parametrize(
        "bad", [purged("prod/a", failed=1), purged("prod/a", problem="stopped"), GateRefused("no")]
    )
    def it_fails_a_repository_for_any_of_its_quarantines(self, purges: Purges, bad: Any) -> None:
        purges.results = {"prod/a m0": bad, **purges.results, "prod/b m3": purged("prod/b")}
        purges.run()
        steps = purges.history()["repositories"]
        assert {key: step["status"] for key, step in steps.items()} == {
            "prod/a": "failed",
            "prod/b": "applied",
        }

    def it_records_the_end_of_purges_that_left_no_copy(
        self, purges: Purges, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorded: list[Any] = []

        def record(one: Any, ports: Any, run: Run) -> None:
            recorded.append((one.mark_id, ports.state, run.run_id))
            raise LeaseHeld("another run may be purging it")

        monkeypatch.setattr(module, "record_empty", record)
        purges.results = {"prod/a m0": Amount(), **purges.results}
        document, code = purges.run()
        assert recorded == [("m0", purges.state, "r1")]
        assert (document["quarantines"], document["refused"], code) == ([purged("prod/a")], [], ExitCode.OK)

    def it_records_why_a_quarantine_was_refused(self, purges: Purges) -> None:
        purges.results = {"prod/a m1": GateRefused("needed again")}
        purges.run()
        step = purges.history()["repositories"]["prod/a"]
        assert (step["status"], step["mark_id"]) == ("failed", "m1")
        assert "needed again" in step["message"]


def it_knows_how_far_an_unfinished_sweep_is(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = {("site", "20260331T120000Z-0123abcd")}
    monkeypatch.setattr(module, "is_begun", lambda *args: args in begun)
    state, site, mark_id = MemoryState(), "site", "20260331T120000Z-0123abcd"

    def stage() -> str:
        return stage_of(site, state, mark_id)  # type: ignore[arg-type]

    assert stage() == "begun"
    begun.clear()
    assert stage() == "marked"
    state.write(f"sweep/approvals/{mark_id}.json", b"{}", if_version=None)
    assert stage() == "approved"


class DescribeWhatAPlanShowed:
    def it_is_what_expires_at_once_and_the_backlog(self) -> None:
        parts = [
            (object_digests("prod/a", [name]), int(bit))
            for name, bit in (("now", Bit.NOW), ("backlog", Bit.BACKLOG), ("week", Bit.WEEK))
        ]
        records = Records(packed(parts))
        unread, shown = SimpleNamespace(read=lambda: None), SimpleNamespace(read=lambda: records)
        plan: Any = SimpleNamespace(
            repositories=[
                SimpleNamespace(key=key, impact=SimpleNamespace(shown=each))
                for key, each in (("prod/b", None), ("prod/c", unread), ("prod/a", shown))
            ]
        )
        found = shown_by(plan)
        assert [*found] == ["prod/a"]
        assert set(found["prod/a"]) == set(object_digests("prod/a", ["now", "backlog"]))


def swept(**more: Any) -> Any:
    return {"failed": {"objects": 0}, "finished": True, "came_back": 0} | more


class DescribeAnAutomaticEnd:
    def it_separates_sweeps_failures_and_what_waits(self) -> None:
        error = GateRefused("no")
        end = AutomaticEnd({"prod/a": swept(), "prod/b": error, "prod/c": "awaiting approval"})
        assert end.swept == [swept()]
        assert end.failed == {"prod/b": error}
        assert end.waiting == {"prod/c": "awaiting approval"}

    @pytest.mark.parametrize(
        ("ends", "code"),
        [
            ([], 0),
            ([swept(), "awaiting approval"], 0),
            ([swept(), swept(failed={"objects": 1})], 3),
            ([swept(finished=False)], 3),
            ([swept(came_back=1)], 3),
            ([swept(came_back=None)], 3),
            ([GateRefused("no"), swept(finished=False)], 4),
            ([LakeplanError("no"), StalePlan("no"), swept()], 5),
        ],
    )
    def it_exits_with_the_worst_result(self, ends: list[Any], code: int) -> None:
        assert AutomaticEnd({f"prod/{n}": end for n, end in enumerate(ends)}).exit_code == code


@dataclass
class Automatic:
    """Marks that are swept automatically. ``parts``: class and address of the objects of each."""

    mark: Mark = field(default_factory=mark_of)
    parts: list[list[tuple[str, str]]] = field(default_factory=lambda: [[("backlog", "x"), ("backlog", "y")]])
    shown: list[str] | None = field(default_factory=lambda: ["x", "y"])
    now: datetime = NOW + DAY
    error: LakeplanError | None = None
    done: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree: Any = object()
        self.ports: Any = SimpleNamespace(state=object(), now=lambda: self.now)
        self.overrides = allowing("tag-loss")
        self.site: Any = SimpleNamespace(store=object(), desired=desired("prod/lake", settle_seconds=86400))

    def sweep(self) -> Any:
        (end,) = self.sweep_all([self.mark]).values()
        return end

    def sweep_all(self, marks: list[Mark]) -> Any:
        shown = {}
        if self.shown is not None:
            digests = object_digests("prod/lake", self.shown)
            shown["prod/lake"] = Records(packed([(digests, int(Bit.NOW))])).of(Bit.NOW)
        numbers = iter(range(9))
        end = sweep_marks(
            MarkReport({mark.key: mark for mark in marks}),
            self.tree,
            self.ports,
            shown=shown,
            overrides=self.overrides,
            new_run=lambda: run(f"r{next(numbers)}"),
            new_official_id=lambda: f"o{next(numbers)}",
        )
        return end.results

    # ---- what it calls
    def open_mark(self, tree: Any, mark_id: str, ports: Any) -> Any:
        assert (tree, mark_id, ports) == (self.tree, "m1", self.ports)
        if self.error is not None:
            raise self.error
        going = tuple(Part(str(n), len(rows), 1, "") for n, rows in enumerate(self.parts))
        marked = replace(self.mark.marked, going=going)
        self.stored = StoredMark(replace(self.mark, marked=marked), "d1")
        return self.site, self.stored

    def read_marked(self, store: Any, mark_id: str, part: Part) -> Any:
        assert (store, mark_id) == (self.site.store, "m1")
        rows = self.parts[int(part.name)]
        columns = {"class": [kind for kind, _ in rows], "address": [address for _, address in rows]}
        return SimpleNamespace(column=lambda name: SimpleNamespace(to_pylist=lambda: columns[name]))

    def approve(self, site: Any, stored: Any, state: Any, run: Run, **more: Any) -> None:
        assert (site, stored, state) == (self.site, self.stored, self.ports.state)
        assert more == {"reason": module.REASON, "overrides": self.overrides, "automatic": True}
        self.done.append(("approve", run.run_id))

    def run_sweep(self, site: Any, stored: Any, ports: Any, run: Run) -> str:
        assert (site, stored, ports) == (self.site, self.stored, self.ports)
        self.done.append(("run", run.run_id))
        return "swept"

    def finish(self, site: Any, swept: Any, ports: Any, run: Run, *, run_id: str) -> Any:
        assert (site, swept, ports) == (self.site, "swept", self.ports)
        self.done.append(("finish", run.run_id, run_id))
        return {"document": 1}


class DescribeSweepingAutomatically:
    @pytest.fixture
    def automatic(self, monkeypatch: pytest.MonkeyPatch) -> Automatic:
        made = Automatic()
        for name in ("open_mark", "read_marked", "approve", "run_sweep", "finish"):
            monkeypatch.setattr(module, name, getattr(made, name))
        return made

    def it_approves_and_sweeps_what_the_plan_showed(self, automatic: Automatic) -> None:
        assert automatic.sweep() == {"document": 1}
        assert automatic.done == [("approve", "r0"), ("run", "r0"), ("finish", "r0", "o1")]

    def it_passes_over_a_mark_that_deletes_nothing(self, automatic: Automatic) -> None:
        empty = mark_of("prod/empty", {MarkClass.AT_RISK: 1})
        assert automatic.sweep_all([empty, automatic.mark]) == {"prod/lake": {"document": 1}}

    @pytest.mark.parametrize(
        "change",
        [
            {"automatic": False},
            {"engine": "lakefs-spark-client"},
            {"amounts": {MarkClass.BACKLOG: 2, MarkClass.NEVER_COMMITTED: 1}, "never_committed": "collect"},
        ],
    )
    def it_leaves_to_a_person_what_no_plan_can_approve(
        self, automatic: Automatic, change: dict[str, Any]
    ) -> None:
        automatic.mark = mark_of(**change)
        assert "awaiting approval" in automatic.sweep()
        assert automatic.done == []

    def it_takes_both_classes_of_expired_objects(self, automatic: Automatic) -> None:
        automatic.mark = mark_of(amounts={MarkClass.BACKLOG: 1, MarkClass.NEWLY_EXPIRED: 1})
        automatic.parts = [[("backlog", "x")], [("newly_expired", "y")]]
        assert automatic.sweep() == {"document": 1}

    def it_leaves_to_a_person_a_part_with_an_object_that_was_never_committed(
        self, automatic: Automatic
    ) -> None:
        automatic.parts = [[("never_committed", "x")], [("backlog", "y")]]
        assert "never committed" in automatic.sweep()
        assert automatic.done == []

    @pytest.mark.parametrize(
        ("shown", "count"), [(["x", "w"], 1), (["x"], 1), (["v", "w"], 0), ([], 0), (None, 0)]
    )
    def it_leaves_to_a_person_what_the_plan_did_not_show_whole(
        self, automatic: Automatic, shown: list[str] | None, count: int
    ) -> None:
        automatic.parts = [[("backlog", "x")], [("backlog", "y")]]
        automatic.shown = shown
        waits = automatic.sweep()
        assert "awaiting approval: 2 objects" in waits
        assert f"the plan showed only {count} of them." in waits
        assert automatic.done == []

    def it_approves_a_mark_that_has_not_settled_and_does_not_sweep_it(self, automatic: Automatic) -> None:
        automatic.now = NOW + DAY - timedelta(seconds=1)
        assert "2026-11-22 00:00 UTC" in automatic.sweep()
        assert automatic.done == [("approve", "r0")]

    def it_reports_an_error_of_one_mark(self, automatic: Automatic) -> None:
        automatic.error = StalePlan("changed")
        assert automatic.sweep() is automatic.error

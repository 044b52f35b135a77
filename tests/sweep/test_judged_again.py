"""Settings that were tightened after an approval, and gates that are judged again before every round."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from lakeplan.errors import FormatError, GateRefused, StalePlan, UsageError
from lakeplan.formats.namespace import begun_key
from lakeplan.output.sweep import render_sweep
from lakeplan.simulation.requests import DeleteRequest, RoundEnd
from lakeplan.sweep.judge import approve
from lakeplan.sweep.mark_record import Mark
from lakeplan.sweep.run import HELD_AGAIN, NEVER_NOW
from lakeplan.values.simulation import Status
from tests.sweeping.lake import LakeRepository
from tests.sweeping.world import SweepWorld


@pytest.fixture
def mark(world: SweepWorld, repo: LakeRepository) -> Mark:
    """An approved mark that names two of four objects."""
    mark = world.mark()
    world.approve(mark)
    return mark


def an_orphan(world: SweepWorld, repo: LakeRepository) -> str:
    """An old object that no commit and no branch ever held."""
    address = repo.upload("lost.bin", b"lost")
    repo.delete("lost.bin")
    repo.touch(address, age_hours=100)
    return address


class DescribeSettingsTightenedAfterTheApproval:
    @pytest.mark.parametrize(
        "change",
        [
            {"min_age": "365d"},
            {"min_age": "25h"},
            {"mode": "quarantine"},
            {"engine": "lakefs-spark-client"},
        ],
    )
    def it_refuses_a_mark_that_was_made_for_less_care(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark, change: dict[str, Any]
    ) -> None:
        before = repo.stored()
        world.sweep |= change
        with pytest.raises(StalePlan, match=f"sweep.{next(iter(change))} in the tree") as caught:
            world.run(mark)
        assert caught.value.hint == "Run `lakeplan sweep mark` again."
        assert before <= repo.stored()

    def it_reports_the_settings_that_it_kept_to(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark
    ) -> None:
        world.sweep |= {"verify": "all", "quarantine_age": "9d"}
        document = world.finish(world.run(mark))
        used, came_from = document["settings"], document["settings_from"]
        assert (used["verify"], used["quarantine_age_seconds"]) == ("all", 9 * 86400)
        assert {name for name, of in came_from.items() if of == "tree"} == {
            "verify",
            "quarantine_age_seconds",
        }
        assert came_from.keys() == used.keys()
        shown = io.StringIO()
        console = Console(file=shown, width=120)
        render_sweep(document, console)
        assert (
            "changed since the approval: sweep.quarantine_age is 9 d 0 h, sweep.verify is all"
            in shown.getvalue()
        )

    def it_refuses_current_versions_only_after_a_mark_of_all_versions(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        world.sweep["versions"] = "all"
        mark = world.mark()
        world.approve(mark)
        world.sweep["versions"] = "marker"
        with pytest.raises(StalePlan, match=r"sweep\.versions"):
            world.run(mark)

    def it_refuses_the_approval_too(self, world: SweepWorld, repo: LakeRepository) -> None:
        mark = world.mark()
        world.sweep["min_age"] = "48h"
        with pytest.raises(StalePlan, match=r"sweep\.min_age"):
            world.approve(mark)

    def it_keeps_what_was_never_committed(self, world: SweepWorld, repo: LakeRepository) -> None:
        orphan = an_orphan(world, repo)
        world.sweep["never_committed"] = "collect"
        mark = world.mark()
        world.approve(mark)
        assert orphan in world.going(mark)
        world.sweep["never_committed"] = "keep"
        end = world.run(mark)
        assert world.ends(mark)[orphan] == ("saved", NEVER_NOW)
        assert orphan in repo.stored()
        assert end.amount(Status.DELETED).objects == 2

    def it_asks_for_every_deleted_object_again(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark
    ) -> None:
        world.sweep["verify"] = "all"
        asked: list[bool] = []
        inner = world.sweeper.delete

        def delete(request: Any) -> Any:
            asked.append(request.settings.verify_all)
            return inner(request)

        world.sweeper.delete = delete  # type: ignore[method-assign]
        world.run(mark)
        assert asked == [True]

    def it_waits_for_a_longer_settle(self, world: SweepWorld, repo: LakeRepository, mark: Mark) -> None:
        world.sweep["settle"] = "24h"
        with pytest.raises(GateRefused, match="retention was shortened less than"):
            world.run(mark)
        world.lake.clock.advance(hours=24)
        assert world.run(mark).amount(Status.DELETED).objects == 2

    def it_keeps_what_a_wider_margin_keeps(self, world: SweepWorld, repo: LakeRepository, mark: Mark) -> None:
        world.sweep["margin"] = "300d"
        end = world.run(mark)
        assert (end.amount(Status.SAVED).objects, end.amount(Status.DELETED).objects) == (2, 0)

    def it_leaves_what_a_person_chose_for_the_mark(self, world: SweepWorld, repo: LakeRepository) -> None:
        orphan = an_orphan(world, repo)
        world.chosen = lambda settings: replace(settings, never_committed="collect")
        mark = world.mark()
        world.approve(mark)
        world.run(mark)
        assert world.ends(mark)[orphan] == ("deleted", "")

    def it_keeps_by_days_that_were_raised_in_the_tree_alone(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark
    ) -> None:
        world.gc = {"default_retention_days": 7, "branches": [{"pattern": "ma*", "retention_days": 60}]}
        world.run(mark)
        assert set(world.ends(mark).values()) == {("saved", HELD_AGAIN)}

    def it_keeps_by_days_that_were_raised_on_the_server(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark
    ) -> None:
        repo.set_rules(60)
        world.run(mark)
        assert set(world.ends(mark).values()) == {("saved", HELD_AGAIN)}

    def it_deletes_nothing_once_the_tree_clears_the_rules(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark
    ) -> None:
        before = repo.stored()
        world.entry, world.gc = "repo1", "clear"
        with pytest.raises(GateRefused, match="gc: clear"):
            world.run(mark)
        with pytest.raises(GateRefused, match="gc: clear"):
            world.mark()
        assert before <= repo.stored()

    def it_asks_a_person_once_nothing_is_automatic_any_more(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        world.sweep["automatic"] = True
        mark, site = world.mark(), world.site()
        stored = world.stored(mark)
        arguments = (site, stored, world.state, world.run_of())
        approve(*arguments, reason="automatic", overrides=world.gate_overrides, automatic=True)
        world.sweep["automatic"] = False
        with pytest.raises(GateRefused, match=r"sweep\.automatic is now false"):
            world.run(mark)
        world.approve(mark)
        assert world.run(mark).amount(Status.DELETED).objects == 2


class DescribeGatesJudgedAgain:
    @pytest.mark.parametrize(
        ("safety", "sweep", "gate"),
        [
            ({"max_expired_objects_percent": 1}, {}, "expired-objects"),
            ({"max_expired_bytes": 1}, {}, "expired-bytes"),
            ({}, {"max_objects": 1}, "sweep-limit"),
            ({}, {"max_bytes": 1}, "sweep-limit"),
        ],
    )
    def it_refuses_what_a_tightened_limit_refuses(
        self,
        world: SweepWorld,
        repo: LakeRepository,
        mark: Mark,
        safety: dict[str, Any],
        sweep: dict[str, Any],
        gate: str,
    ) -> None:
        before = repo.stored()
        world.safety |= safety
        world.sweep |= sweep
        with pytest.raises(GateRefused, match=gate):
            world.run(mark)
        assert before <= repo.stored()
        world.allowed = frozenset({gate})
        world.approve(mark)
        assert world.run(mark).amount(Status.DELETED).objects == 2

    def it_keeps_to_the_approval_when_a_limit_was_widened(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        """What nobody approved under the wide limit is judged by the narrow one."""
        world.safety["max_expired_objects_percent"] = 1
        world.overrides = [override("expired-objects")]
        mark = world.mark()
        world.approve(mark)
        world.overrides = []
        world.safety["max_expired_objects_percent"] = 100
        with pytest.raises(GateRefused, match="the limit is 1"):
            world.run(mark)

    def it_does_not_count_an_override_that_expired(self, world: SweepWorld, repo: LakeRepository) -> None:
        world.safety["max_expired_objects_percent"] = 1
        today = world.now().date()
        world.overrides = [override("expired-objects", expires=str(today))]
        mark = world.mark()
        world.approve(mark)
        world.lake.clock.advance(days=1)
        with pytest.raises(GateRefused, match="expired-objects"):
            world.run(mark)
        world.overrides = [override("expired-objects", expires=str(today + timedelta(days=1)))]
        assert world.run(mark).amount(Status.DELETED).objects == 2

    def it_opens_a_gate_for_the_repository_that_is_named(
        self, world: SweepWorld, repo: LakeRepository
    ) -> None:
        world.sweep["max_objects"] = 1
        mark = world.mark()
        world.allowed = frozenset({"prod/repo2=sweep-limit"})
        with pytest.raises(UsageError, match="prod/repo2 is not in this run") as caught:
            world.approve(mark)
        assert "--allow prod/repo1=sweep-limit" in caught.value.hint
        world.allowed = frozenset({"repo1=sweep-limit"})
        assert world.sweep_of(mark)["deleted"]["objects"] == 2

    def it_counts_allow_until_the_limit_is_tightened(self, world: SweepWorld, repo: LakeRepository) -> None:
        world.safety["max_expired_objects_percent"] = 20
        world.allowed = frozenset({"expired-objects"})
        mark = world.mark()
        world.approve(mark)
        world.safety["max_expired_objects_percent"] = 10
        with pytest.raises(GateRefused, match="the limit is 10"):
            world.run(mark)
        world.safety["max_expired_objects_percent"] = 20
        assert world.run(mark).amount(Status.DELETED).objects == 2

    def it_judges_the_grace_period_that_the_server_has_now(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark
    ) -> None:
        world.grace_seconds = 10 * 86_400
        with pytest.raises(GateRefused, match="min-age"):
            world.run(mark)

    @pytest.mark.parametrize(("percent", "deleted"), [(50, 2), (49, 1)])
    def it_judges_the_whole_mark_in_every_round(
        self, world: SweepWorld, repo: LakeRepository, percent: float, deleted: int
    ) -> None:
        """Two of four old objects are 50 %. Once one is gone, the other is 33 % of three."""
        world.marker.rows = 1
        world.sweeper.parts_a_round = 1
        mark = world.mark()
        assert (mark.to_delete.objects, mark.candidates.objects) == (2, 4)
        world.approve(mark)
        world.stop = lambda: world.sweeper.rounds == 1
        assert world.run(mark).amount(Status.DELETED).objects == 1
        world.stop = lambda: False
        world.safety["max_expired_objects_percent"] = percent
        if deleted == 2:
            assert world.run(mark).amount(Status.DELETED).objects == 2
        else:
            with pytest.raises(GateRefused, match="expired-objects"):
                world.run(mark)
            assert len(world.ends(mark)) == 1

    @pytest.mark.parametrize(("what", "why"), [("removed", "not approved"), ("edited", "was replaced")])
    def it_stops_before_the_next_round_once_the_approval_is_not_the_same(
        self, world: SweepWorld, repo: LakeRepository, what: str, why: str
    ) -> None:
        world.marker.rows = world.sweeper.parts_a_round = 1
        mark = world.mark()
        world.approve(mark)
        (path,) = (world.folder / "state").rglob(f"approvals/{mark.mark_id}*")

        def change(number: int) -> None:
            if what == "removed":
                path.unlink()
            else:
                record = json.loads(path.read_bytes())
                path.write_text(json.dumps({**record, "reason": "another one"}))

        world.sweeper.after_round = change
        end = world.run(mark)
        assert (end.inspections, end.amount(Status.DELETED).objects, end.pending.objects) == (1, 1, 1)
        assert why in end.problem

    def it_deletes_nothing_if_the_approval_is_removed_during_an_inspection(
        self, world: SweepWorld, mark: Mark, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also the first one, which may read other repositories for hours."""
        (path,) = (world.folder / "state").rglob(f"approvals/{mark.mark_id}*")
        held_again = world.marker.held_again

        def inspect(*arguments: Any, **more: Any) -> Any:
            path.unlink(missing_ok=True)
            return held_again(*arguments, **more)

        monkeypatch.setattr(world.marker, "held_again", inspect)
        with pytest.raises(GateRefused, match="not approved"):
            world.run(mark)
        assert not world.ends(mark)

    def it_reports_a_sweep_that_it_stops_in_the_middle_of_the_first_part(
        self, world: SweepWorld, repo: LakeRepository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A slow store, or ``sweep.rate``: no part has a record after ten minutes."""
        mark = world.mark()
        world.approve(mark)
        (path,) = (world.folder / "state").rglob(f"approvals/{mark.mark_id}*")

        def delete(request: DeleteRequest) -> RoundEnd:
            world.site().store.create(begun_key(request.prefix, mark.marked.going[0].name), b"{}")
            (repo.folder / min(world.going(mark))).unlink()
            world.lake.clock.advance(hours=1)
            path.unlink()
            return RoundEnd(())

        monkeypatch.setattr(world.sweeper, "delete", delete)
        end = world.run(mark)
        assert (end.finished, end.pending.objects, end.came_back) == (False, 2, None)
        assert "not approved" in end.problem
        assert world.finish(end)["finished"] is False

    def it_refuses_an_approval_that_does_not_say_what_it_was_judged_by(
        self, world: SweepWorld, repo: LakeRepository, mark: Mark
    ) -> None:
        (path,) = (world.folder / "state").rglob(f"approvals/{mark.mark_id}*")
        record = json.loads(path.read_bytes())
        del record["judged"]
        path.write_text(json.dumps(record))
        with pytest.raises(FormatError, match="another version of lakeplan"):
            world.run(mark)


def override(gate: str, **more: Any) -> dict[str, Any]:
    return {"repository": "*", "gate": gate, "reason": "a test", "expires": "2099-12-31", **more}

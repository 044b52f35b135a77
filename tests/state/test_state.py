"""Leases, history and last-applied records."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.errors import LeaseHeld, StorageError, WriteConflict
from lakeplan.state.store import (
    LEASE_GRACE,
    Lease,
    RunJournal,
    Sighting,
    known_repositories,
    read_baseline,
    record_applied,
    repository_key,
    write_baseline,
)
from lakeplan.values.rules import GcRules

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def lease(
    state, holder: str = "me", now: datetime = NOW, gone: bool = False, confirmed: datetime | None = None
) -> Lease:
    return Lease(
        state, "prod/analytics", {"user": holder}, lambda: now, lambda _: gone, lambda: confirmed or now
    )


@contextmanager
def losing_the_answer_of(request: str, state, monkeypatch, error=None):
    """The store acts, and its answer does not arrive."""
    act = getattr(state, request)

    def lose(*arguments, **more):
        act(*arguments, **more)
        raise error or StorageError("timed out")

    with monkeypatch.context() as patch:
        patch.setattr(state, request, lose)
        yield


class DescribeLease:
    def it_holds_a_repository_and_lets_go(self, state):
        with lease(state):
            assert state.list_keys("leases/") == [repository_key("leases", "prod/analytics")]
        assert state.list_keys("leases/") == []

    def it_does_not_lose_what_a_run_did_when_it_cannot_be_released(self, state, monkeypatch, caplog):
        def fail(key, *, if_version):
            raise StorageError("cannot be used: No space left on device")

        with lease(state):
            monkeypatch.setattr(state, "delete", fail)
        assert "prod/analytics: the lease could not be released" in caplog.text
        assert "No space left" in caplog.text

    def it_is_released_by_a_second_request(self, state, monkeypatch, caplog):
        held = lease(state).__enter__()
        delete, failures = state.delete, [StorageError("timed out")]

        def fail_once(key, *, if_version):
            if failures:
                raise failures.pop()
            delete(key, if_version=if_version)

        monkeypatch.setattr(state, "delete", fail_once)
        held.__exit__()
        assert (state.list_keys("leases/"), caplog.text) == ([], "")

    def it_does_not_say_that_it_blocks_others_when_only_the_answer_was_lost(self, state, monkeypatch, caplog):
        with lease(state) as held:
            pass
        held.__enter__()
        with losing_the_answer_of("delete", state, monkeypatch):
            held.__exit__()
        assert (state.list_keys("leases/"), caplog.text) == ([], "")

    def it_is_still_held_after_an_answer_was_lost(self, state, monkeypatch):
        held = lease(state).__enter__()
        held.now = lambda: NOW + timedelta(seconds=60)
        with losing_the_answer_of("write", state, monkeypatch), pytest.raises(StorageError, match="timed"):
            held.renew()
        held.now = lambda: NOW + timedelta(seconds=120)
        held.renew()
        held.now = lambda: NOW + timedelta(seconds=180)
        with losing_the_answer_of("write", state, monkeypatch), pytest.raises(StorageError, match="timed"):
            held.renew()
        held.__exit__()
        assert state.list_keys("leases/") == []

    def it_is_lost_to_another_run_after_an_answer_was_lost(self, state, monkeypatch):
        held = lease(state).__enter__()
        with losing_the_answer_of("write", state, monkeypatch), pytest.raises(StorageError, match="timed"):
            held.renew()
        with lease(state, "other", gone=True):
            with pytest.raises(LeaseHeld, match="took it over"):
                held.renew()
            held.__exit__()
            assert state.list_keys("leases/") == [repository_key("leases", "prod/analytics")]

    @pytest.mark.parametrize("error", [StorageError("timed out"), KeyboardInterrupt()], ids=repr)
    @pytest.mark.parametrize("before", [None, "other"])
    def it_blocks_nobody_when_the_answer_to_its_first_write_was_lost(self, state, monkeypatch, error, before):
        if before is not None:
            lease(state, before).__enter__()
        with losing_the_answer_of("write", state, monkeypatch, error), pytest.raises(type(error)):
            lease(state, gone=True).__enter__()
        assert state.list_keys("leases/") == []

    def it_leaves_the_lease_of_another_run_when_its_first_write_failed(self, state, monkeypatch):
        def fail(key, data, *, if_version):
            with monkeypatch.context() as patch:
                patch.setattr(state, "write", write)
                lease(state, "other").__enter__()
            raise StorageError("timed out")

        write = state.write
        monkeypatch.setattr(state, "write", fail)
        with pytest.raises(StorageError, match="timed out"):
            lease(state).__enter__()
        assert json.loads(state.read(repository_key("leases", "prod/analytics")).data)["holder"] == {
            "user": "other"
        }

    def it_keeps_a_second_writer_out(self, state):
        with lease(state), pytest.raises(LeaseHeld, match="user me"), lease(state, "other"):
            pass

    def it_is_taken_over_when_it_expired(self, state):
        first = lease(state)
        first.__enter__()
        over = NOW + timedelta(seconds=121) + LEASE_GRACE
        for soon in (over - timedelta(seconds=2), NOW + timedelta(seconds=121)):
            with pytest.raises(LeaseHeld), lease(state, "other", soon):
                pass  # the other machine's clock may be behind this one's
        with pytest.raises(LeaseHeld), lease(state, "other", NOW + timedelta(hours=25), confirmed=NOW):
            pass  # this machine's clock is ahead
        with lease(state, "other", over):
            held = json.loads(state.read(repository_key("leases", "prod/analytics")).data)
            assert held["holder"] == {"user": "other"}
            first.__exit__()  # the late one must not delete what is not its own
            assert state.list_keys("leases/")

    def it_is_taken_over_when_its_process_is_gone(self, state):
        lease(state).__enter__()
        with lease(state, "other", gone=True):
            pass
        assert state.list_keys("leases/") == []

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"cut {",
            b"[]",
            b"{}",
            b'{"until": 5}',
            b'{"until": "2020-01-01T00:00:00"}',
            b'{"until": "9999-12-31T23:59:59Z"}',
            b'{"until": "0001-01-01T00:00:00+14:00"}',
        ],
    )
    def it_counts_a_damaged_record_as_held_and_names_it(self, state, data):
        key = repository_key("leases", "prod/analytics")
        state.write(key, data, if_version=None)
        with pytest.raises(LeaseHeld, match=key):
            lease(state).__enter__()
        assert state.read(key).data == data

    def it_loses_the_race_for_a_conditional_put(self, state):
        mine = lease(state)
        original = state.write

        def somebody_first(key, data, *, if_version):
            state.write = original
            original(key, b'{"holder": {}, "until": "2026-01-01T00:01:00Z"}', if_version=None)
            raise WriteConflict("another writer was first", where=key)

        state.write = somebody_first
        with pytest.raises(LeaseHeld):
            mine.__enter__()


def it_remembers_what_was_applied(state):
    for rules in (GcRules(7, {"main": 9}), None):
        record_applied(state, "prod/a b", rules, config_hash="h", run_id="r", at=NOW)
    record_applied(state, "prod/analytics", GcRules(1), config_hash="h", run_id="r", at=NOW)
    assert known_repositories(state) == {"prod/a b", "prod/analytics"}
    record = json.loads(state.read(repository_key("applied", "prod/a b")).data)
    assert (record["etag"], record["body"], record["at"]) == ("absent", None, "2026-01-01T00:00:00Z")


def it_stores_the_history_after_every_step(state):
    history = RunJournal(state, "run-1", {"command": "apply"})
    history.save()
    history.step("prod/a", status="pending")
    assert json.loads(state.read("history/run-1.json").data)["repositories"]["prod/a"]["status"] == "pending"
    history.step("prod/a", status="applied")
    assert json.loads(state.read("history/run-1.json").data)["repositories"]["prod/a"]["status"] == "applied"


def it_records_further_steps_after_an_answer_was_lost(state, monkeypatch):
    history = RunJournal(state, "run-1", {"command": "apply"})
    with losing_the_answer_of("write", state, monkeypatch), pytest.raises(StorageError, match="timed out"):
        history.step("prod/a", status="pending")
    history.step("prod/a", status="applied")
    assert json.loads(state.read("history/run-1.json").data)["repositories"]["prod/a"]["status"] == "applied"


def it_never_overwrites_the_history_of_another_run(state):
    RunJournal(state, "run-1", {}).save()
    with pytest.raises(WriteConflict):
        RunJournal(state, "run-1", {}).save()


def it_replaces_no_observation_by_an_older_one(state) -> None:
    newer, older = (
        Sighting(None, "h", run, at, "apply") for run, at in (("b", NOW), ("a", NOW - timedelta(1)))
    )
    write_baseline(state, "prod/lake", {"gc": newer})
    write_baseline(state, "prod/lake", {"gc": older, "branch_lifecycle": older})
    assert read_baseline(state, "prod/lake")[0] == {"gc": newer, "branch_lifecycle": older}

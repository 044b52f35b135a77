"""Single checks of the doctor."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.adapters.state.folder import FolderState
from lakeplan.app.doctor import Result, check_clock, check_flavour, check_state
from lakeplan.app.doctor_repositories import stored_nonsense
from lakeplan.errors import StorageDenied
from lakeplan.model.rules import GcRules
from lakeplan.model.server import ServerIdentity

NOW = datetime(2026, 3, 31, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("seconds", "result", "text"),
    [
        (0, Result.OK, "agrees"),
        (60, Result.OK, "60 s ahead of"),
        (-61, Result.WARN, "61 s behind"),
        (3600, Result.WARN, "3600 s ahead of"),
        (-3601, Result.FAIL, "3601 s behind"),
    ],
)
def it_judges_a_clock(seconds, result, text):
    check = check_clock("server prod", NOW + timedelta(seconds=seconds), NOW)
    assert check.result is result
    assert text in check.message


def it_does_not_guess_a_clock():
    assert check_clock("server prod", None, NOW).result is Result.WARN


@pytest.mark.parametrize(
    ("context", "engine", "result"),
    [
        ("lakeFS", "none", Result.OK),
        ("lakeFS", "server", Result.FAIL),
        ("lakeFS-Enterprise", "server", Result.OK),
    ],
)
def it_holds_the_edition_against_the_tree(context, engine, result):
    assert check_flavour("x", ServerIdentity("1.60.0", context, None), engine).result is result


def results(state, purpose="apply"):
    return {c.name: c.result for c in check_state(lambda: state, purpose, key="doctor/x.json")}


def it_proves_that_a_store_refuses_the_second_writer(tmp_path):
    state = FolderState(str(tmp_path))
    assert set(results(state).values()) == {Result.OK}
    assert state.list_keys() == []


def it_finds_a_store_that_lets_everybody_write(tmp_path):
    class Careless(FolderState):
        def write(self, key, data, *, if_version):
            current = self.read(key)
            return super().write(key, data, if_version=current.version if current else None)

    found = results(Careless(str(tmp_path)))
    assert found["conditional writes"] is Result.FAIL
    assert found["deletable"] is Result.OK


def it_finds_a_store_that_can_only_be_read(tmp_path):
    class Denied(FolderState):
        def write(self, key, data, *, if_version):
            raise StorageDenied("no permission to write")

    assert results(Denied(str(tmp_path)))["writable"] is Result.FAIL
    assert results(Denied(str(tmp_path)), "plan") == {"readable": Result.OK}


def it_lists_nonsense_and_leaves_sense_alone():
    assert list(stored_nonsense(GcRules(1, {"main": 36500}), {"main"})) == []
    found = list(stored_nonsense(GcRules(-2147483648, {"a": 0, "b": 36501}), {"a"}))
    assert len(found) == 4
    assert list(stored_nonsense(GcRules(1, {"gone": 1}), None)) == []

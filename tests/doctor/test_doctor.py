"""Single checks of the doctor."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from lakeplan.doctor.doctor import check_clock, check_facts, check_flavour, check_state, probe
from lakeplan.doctor.repositories import Check, summed
from lakeplan.errors import StorageDenied
from lakeplan.stores.folder import FolderState, FolderStore
from lakeplan.stores.open import open_sweep_store
from lakeplan.values.repository import ServerIdentity
from lakeplan.values.sweep import Deletion, StoreFacts, Versions

NOW = datetime(2026, 3, 31, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("seconds", "result", "text"),
    [
        (0, "ok", "agrees"),
        (60, "ok", "60 s ahead of"),
        (-61, "warn", "61 s behind"),
        (300, "warn", "300 s ahead of"),
        (-301, "fail", "301 s behind"),
    ],
)
def it_judges_a_clock(seconds, result, text):
    check = check_clock(NOW + timedelta(seconds=seconds), NOW)
    assert check.result == result
    assert text in check.message


def it_does_not_guess_a_clock():
    assert check_clock(None, NOW).result == "warn"


@pytest.mark.parametrize(
    ("context", "engine", "result"),
    [
        ("lakeFS", "none", "ok"),
        ("lakeFS", "server", "fail"),
        ("lakeFS-Enterprise", "server", "ok"),
    ],
)
def it_holds_the_edition_against_the_tree(context, engine, result):
    assert check_flavour(ServerIdentity("1.60.0", context, None), engine).result == result


def results(state, purpose="apply"):
    checks = check_state(lambda: state, purpose, key="doctor/x.json", read_only=False)
    return {check.name: check.result for check in checks}


def it_proves_that_a_store_refuses_the_second_writer(tmp_path):
    state = FolderState(str(tmp_path))
    assert set(results(state).values()) == {"ok"}
    assert state.list_keys() == []


def it_finds_a_store_that_lets_everybody_write(tmp_path):
    class Careless(FolderState):
        def write(self, key, data, *, if_version):
            current = self.read(key)
            return super().write(key, data, if_version=current.version if current else None)

    found = results(Careless(str(tmp_path)))
    assert found["conditional writes"] == "fail"
    assert found["deletable"] == "ok"


def it_finds_a_store_that_can_only_be_read(tmp_path):
    class Denied(FolderState):
        def write(self, key, data, *, if_version):
            raise StorageDenied("no permission to write")

    assert results(Denied(str(tmp_path)))["writable"] == "fail"
    assert results(Denied(str(tmp_path)), "plan") == {"readable": "ok"}


def it_takes_the_worst_of_many_repositories_and_says_where():
    ok, warn, fail = (Check("x", result, result, "do") for result in ("ok", "warn", "fail"))
    assert summed({"a": [ok], "b": [ok]}) == [Check("x", "ok", "on 2 repositories")]
    assert summed({"a": [ok]}) == [Check("x", "ok", "ok")]
    assert summed({"a": [warn], "b": [fail], "c": [ok]}) == [Check("x", "fail", "fail (on b)", "do")]
    assert summed({"a": [ok], "b": [Check("y", "ok", "fine")]})[1] == Check("y", "ok", "fine")


class DescribeProbe:
    def probe(self, store):
        return {f.name: f for f in probe(store, Versions.MARKER, "token", datetime.now(timezone.utc))}

    def it_leaves_nothing_behind(self, tmp_path):
        found = self.probe(open_sweep_store(f"file://{tmp_path}"))
        assert {f.result for f in found.values()} == {"ok"}
        assert list(found) == [
            "write objects",
            "read objects",
            "store's clock",
            "copy objects",
            "delete objects",
        ]
        assert not [p for p in tmp_path.rglob("*") if p.is_file()]

    @pytest.mark.parametrize(
        ("method", "name"), [("create", "write objects"), ("read", "read objects"), ("copy", "copy objects")]
    )
    def it_names_what_is_denied_and_cleans_up(self, tmp_path, monkeypatch, method, name):
        def denied(*_):
            raise StorageDenied("no permission")

        monkeypatch.setattr(FolderStore, method, denied)
        found = self.probe(FolderStore(str(tmp_path)))
        assert [f.name for f in found.values() if f.result == "fail"] == [name]
        assert "s3:" in found[name].hint
        assert not [p for p in tmp_path.rglob("*") if p.is_file()]

    def it_believes_only_what_it_sees_deleted(self, tmp_path, monkeypatch):
        class Sly(FolderStore):
            def delete(self, keys, *, versions):
                return [Deletion(key) for key in keys]

        assert "still exists" in self.probe(Sly(str(tmp_path)))["delete objects"].message
        monkeypatch.setattr(Sly, "delete", lambda self, keys, versions: [Deletion(k, "Locked") for k in keys])
        assert self.probe(Sly(str(tmp_path)))["write objects"].result == "fail"  # the file is still there

    def it_compares_what_it_reads(self, tmp_path, monkeypatch):
        monkeypatch.setattr(FolderStore, "read", lambda self, key: b"another")
        found = self.probe(FolderStore(str(tmp_path)))
        assert "differs from what lakeplan wrote" in found["read objects"].message

    def it_sees_a_store_whose_clock_is_wrong(self, tmp_path):
        store = open_sweep_store(f"file://{tmp_path}")
        later = datetime.now(timezone.utc) + timedelta(hours=2)
        found = {f.name: f for f in probe(store, Versions.MARKER, "t", later)}
        assert found["store's clock"].result == "fail"


@pytest.mark.parametrize(
    ("facts", "versions", "results"),
    [
        (StoreFacts(versioned=False, soft_delete=False), Versions.MARKER, ["ok", "ok"]),
        (StoreFacts(versioned=True, soft_delete=False), Versions.MARKER, ["warn", "ok"]),
        (StoreFacts(versioned=True, soft_delete=False), Versions.ALL, ["ok", "ok"]),
        (StoreFacts(versioned=None, soft_delete=None), Versions.MARKER, ["warn", "warn"]),
        (StoreFacts(versioned=False, soft_delete=True), Versions.ALL, ["ok", "fail"]),
    ],
)
def it_says_what_a_store_does_with_deleted_data(tmp_path, monkeypatch, facts, versions, results):
    monkeypatch.setattr(FolderStore, "facts", lambda self: facts)
    found = list(check_facts(FolderStore(str(tmp_path)), versions))
    assert [f.name for f in found] == ["versions", "soft delete"]
    assert [f.result for f in found] == results
    assert all(f.hint for f in found if f.result != "ok")

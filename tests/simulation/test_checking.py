"""What a real server recorded, checked and surveyed: against counts that use none of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from lakeplan.fleet.judging import Bit, destroyed, expired
from lakeplan.formats.collector import read_uncommitted
from lakeplan.formats.namespace import is_candidate_key, normalize
from lakeplan.formats.ranges import read_metarange, read_range
from lakeplan.retention.rules import DocumentedRule
from lakeplan.simulation.checking import StepChecker, StepSurveyor
from lakeplan.simulation.inputs import NamespaceMetadata, read_history
from lakeplan.simulation.listings import find_run
from lakeplan.simulation.requests import Facts, PresenceRequest, SurveyRequest
from lakeplan.simulation.runners import Runners
from lakeplan.stores.open import SweepStore, open_sweep_store
from lakeplan.values.rules import GcRules
from tests.simulation.namespaces import SERVER_URL, History, Snapshot, Stored, entry, full, write_namespace
from tests.sweeping.stores import folder_store

pytestmark = pytest.mark.golden
LOST = {"risk-2": 25}
"""Objects that the official collector had deleted by then, although the documented rule keeps them."""
CASES = ("history-1", "history-2", "risk-1", "risk-2")


class Recorded:
    """A recorded namespace, with what each commit names read entry by entry."""

    def __init__(self, name: str, found: Any) -> None:
        self.name = name
        self.case: Mapping[str, Any] = found.case
        self.store: SweepStore = open_sweep_store(str(found.namespace))
        self.graph = read_history(self.store).graph
        self.collector = self.case["official_collector"]
        body = self.collector["rules"]
        self.rules = GcRules(
            body["default_retention_days"],
            {b["branch_id"]: b["retention_days"] for b in body["branches"] or ()},
        )
        self.as_of = datetime.fromtimestamp(self.collector["as_of"], tz=timezone.utc)
        self.namespace = str(self.case["repository"]["storage_namespace"])
        flags = DocumentedRule(self.graph, self.rules).active(self.as_of, timezone.utc)
        self.documented = {id for id, flag in zip(self.graph.ids, flags, strict=True) if flag}
        self.metaranges = dict(zip(self.graph.ids, self.graph.meta_range_ids, strict=True))

    def named(self, commits: Iterable[str]) -> dict[str, int]:
        """Sizes of what these commits name inside the namespace, by key."""
        found: dict[str, int] = {}
        read = NamespaceMetadata(self.store).read_metadata
        ranges: set[str] = set()
        for metarange in {self.metaranges[commit] for commit in commits} - {""}:
            ranges |= {info.id for info in read_metarange(read("meta_range", metarange), name=metarange)}
        for id in ranges:
            for one in read_range(read("range", id), name=id):
                key = normalize(one.address, one.address_type, self.namespace)
                if key is not None:
                    found[key] = one.size
        return found

    def stored(self) -> dict[str, int]:
        return {one.key: one.size for one in self.store.list_objects()}


@pytest.fixture(params=CASES)
def recorded(request: pytest.FixtureRequest, golden_case: Any) -> Recorded:
    return Recorded(request.param, golden_case(request.param))


def it_finds_object_by_object_what_kept_commits_lack(recorded: Recorded, runners: Runners) -> None:
    """risk-2 was swept by the official collector, which took what the documented rule keeps."""
    facts: dict[str, Facts] = {}
    for position, (id, metarange) in enumerate(recorded.metaranges.items()):
        if metarange and id in recorded.documented:
            facts[metarange] = facts.get(metarange, Facts()) | Facts(1, position)
    found = StepChecker(runners.open).presence(PresenceRequest(recorded.store, recorded.namespace, facts))
    named, stored = recorded.named(recorded.documented), recorded.stored()
    lost = named.keys() - stored.keys()
    assert found.named.objects == len(named)
    assert found.named.size_bytes == sum(named.values())
    assert {one.address for one in found.objects} == lost
    assert (found.lacking.objects, found.resized.objects, found.damaged) == (len(lost), 0, ())
    assert len(lost) == LOST.get(recorded.name, 0)


@pytest.mark.parametrize("kept", [0, 1])
def it_names_what_a_kept_commit_lacks_whichever_commit_is_read_first(
    runners: Runners, tmp_path: Path, kept: int
) -> None:
    """Commits that nothing keeps are read too, because they may name objects below a held prefix."""
    entries = (entry("a", "data/p/1"), full("a", f"{SERVER_URL}/data/p/1"))
    commits = [Snapshot(f"c{n}", 1, (), (one, entry("audit/b", "data/p/2"))) for n, one in enumerate(entries)]
    write_namespace(tmp_path, History(commits, {"main": "c0", "dev": "c1"}, {"data/p/2": Stored()}))
    store = folder_store(tmp_path)
    graph = read_history(store).graph
    facts = {id: Facts(int(n == kept), n) for n, id in enumerate(graph.meta_range_ids)}
    found = StepChecker(runners.open).presence(PresenceRequest(store, SERVER_URL, facts, ("audit/",)))
    assert [one.address for one in found.objects] == ["data/p/1"]


def it_predicts_what_the_official_collector_marks(recorded: Recorded) -> None:
    server = recorded.collector["active_commits"]
    facts: dict[str, Facts] = {}
    for position, (id, metarange) in enumerate(recorded.metaranges.items()):
        mask = Bit.ALL | (Bit.SERVER if id in server else 0)
        mask |= Bit.DOCUMENTED if id in recorded.documented else 0
        if metarange:
            facts[metarange] = facts.get(metarange, Facts()) | Facts(int(mask), position)
    as_of_us = int(recorded.as_of.timestamp() * 1_000_000)
    staged = find_run(recorded.store, as_of_us=as_of_us, max_age_seconds=10**9).files
    found = StepSurveyor(Runners("local").open).survey(
        SurveyRequest(
            name="golden",
            storage_namespace=recorded.namespace,
            metadata=NamespaceMetadata(recorded.store),
            metaranges=facts,
            namespace=recorded.store,
            young_from_us=as_of_us + 10**12,
            staged=staged,
        )
    )
    stored, named = recorded.stored(), recorded.named(recorded.metaranges)
    kept, documented = recorded.named(server), recorded.named(recorded.documented)
    held = {address for key in staged for address in read_uncommitted(recorded.store.read(key), name=key)}
    going = {key for key in named.keys() & stored.keys() - kept.keys() - held if is_candidate_key(key)}
    assert expired(found.classes, Bit.SERVER, listed=True).objects == len(going)
    assert expired(found.classes, Bit.SERVER, listed=True, among=Bit.DOCUMENTED).objects == len(
        going & documented.keys()
    )
    lost = {key for key in documented.keys() - stored.keys() if is_candidate_key(key)}
    assert destroyed(found.classes).objects == len(lost)
    marked = set(recorded.collector["deleted"])
    assert going & marked == {key for key in marked if key in named and key in stored}

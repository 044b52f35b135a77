"""Judges every deletion and every write in the moment it has its effect, and every report against what is
there. See ``truth.py`` for what must be kept."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

import pyarrow.parquet as pq

from lakeplan.sandbox.messages import Request, Response
from tests.chaos.pins import PinWatcher
from tests.chaos.sightings import Sighting, Sightings
from tests.chaos.truth import DAY_US, PIN, Days, bare, days_of, held_commits, in_force, lowers, stands
from tests.chaos.world import REPOSITORY, ChaosWorld, Process, Watcher, days_in, keys_of

HOUR_US = 3_600_000_000
UNITS = {"s": 1_000_000, "m": 60_000_000, "h": HOUR_US, "d": DAY_US}
BRANCHES = f"/api/v1/repositories/{REPOSITORY}/branches"
BRANCH = re.compile(rf"{BRANCHES}/([^/]+)")
DIFF = re.compile(rf"{BRANCHES}/([^/]+)/diff")
PULLS = f"/api/v1/repositories/{REPOSITORY}/pulls"
PROTECTION = f"/api/v1/repositories/{REPOSITORY}/settings/branch_protection"
FRESH_US = 20_000_000
"""Pull requests are at most 15 seconds old when a branch is deleted; and a retry."""
RULES = f"/api/v1/repositories/{REPOSITORY}/settings/gc_rules"
DUMP = f"/api/v1/repositories/{REPOSITORY}/refs/dump"
FOREIGN_DUMP = re.compile(r"/api/v1/repositories/([^/]+)/refs/dump")
PREPARE = f"/api/v1/repositories/{REPOSITORY}/gc/prepare_uncommited"
QUARANTINE = "_lakeplan/quarantine/"
DEFAULTS = {
    "min_age": "24h",
    "settle": "24h",
    "margin": "26h",
    "quarantine_age": "14d",
    "never_committed": "keep",
    "mode": "delete",
}


class Violation(AssertionError):
    """Something was lost, or a report is not true."""


def span_us(text: str) -> int:
    """``24h`` in microseconds."""
    return int(text[:-1]) * UNITS[text[-1]]


@dataclass
class Born:
    """When a branch was made and last written, by the server's clock, in microseconds."""

    made: int
    written: int
    head: str


@dataclass
class Checker(Watcher):
    """``lowered_us``: when lakeplan itself last lowered the stored rules. ``deletions`` counts objects,
    copies and branches; ``swept`` are addresses whose deletion was right when it happened,
    ``restored`` those that were ever copied back."""

    world: ChaosWorld
    done: Counter[str] = field(default_factory=Counter)
    born: dict[str, Born] = field(default_factory=dict)
    ledger_lost: bool = False
    """Whether a record of branches was ever lost, or an older one put back."""
    sightings: Sightings = field(default_factory=Sightings)
    lowered_us: int | None = None
    held_once: dict[str, set[str]] = field(default_factory=dict)
    _missed: dict[str, int] = field(default_factory=dict)
    """Since when a hold that once kept commits is known to be out of the tree."""
    found: Violation | None = None
    deletions: int = 0
    swept: set[str] = field(default_factory=set)
    restored: set[str] = field(default_factory=set)
    exemptions: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By branch: from when to when it was exempt, as far as the state still knows."""
    deleted_branch: str = ""
    """The last one that lakeplan deleted."""

    def violation(self, text: str) -> Violation:
        """Remembered, too: nobody can swallow it."""
        self.found = self.found or Violation(text)
        return self.found

    def __post_init__(self) -> None:
        self.pins = PinWatcher(self.world, only_pins=False)
        self.world.watcher = self
        self.world.wire.heard = self.heard

    # ---- what is held
    def held(self, process: Process | None = None) -> dict[str, str]:
        """Address → why it must not be deleted, by everything that is known now, and by the tree that a
        process read."""
        found, world = self._held_here(process), self.world
        for (other,) in world.wire.rows("SELECT id FROM repositories WHERE id != ?", REPOSITORY):
            found |= world.truth.foreign(other, REPOSITORY)
        return found

    def _held_here(self, process: Process | None) -> dict[str, str]:
        """The same, without what other repositories hold."""
        world = self.world
        tree = process.tree if process is not None else {"holds": world.holds, "sweep": world.sweep}
        days = world.tree_days if process is None else days_in(tree["gc"])
        once = [c for h in tree["holds"] if self._in_force(h) for c in self.held_once.get(_name(h), ())]
        margin = span_us({**DEFAULTS, **tree["sweep"]}["margin"])
        return world.truth.held(REPOSITORY, days, tree["holds"], once, margin)

    def _in_force(self, hold: Mapping[str, Any]) -> bool:
        return in_force(hold, self.world.lake.clock().date())

    def expired(self) -> set[str]:
        """The objects that a plan with its backlog reports: everything stored that nothing holds."""
        return set(self.world.truth.stored(REPOSITORY)) - set(self.held())

    def ended(self, process: Process) -> None:
        """A process inspected the repository to the end: what holds kept then is known from here on, for as
        long as they are in the tree and in force."""
        found = process.doing.pop("holds", None)
        if found is not None:
            for name, commits in found.items():
                self._missed.pop(name, None)
                self.held_once[name] = commits | self.held_once.get(name, set())

    def _forget_holds(self, process: Process) -> None:
        """An expired hold keeps nothing more. One that is out of the tree keeps what it kept for a day since
        an inspection first missed it, and that inspection need not come to its end."""
        in_force = {_name(hold): self._in_force(hold) for hold in process.tree["holds"]}
        now = self.world.truth.now_us()
        for name in [name for name in self.held_once if not in_force.get(name)]:
            missed = self._missed.setdefault(name, now)
            if name in in_force or now - missed >= DAY_US:
                del self.held_once[name], self._missed[name]

    def _named_by_holds(self, process: Process) -> dict[str, set[str]]:
        history, holds = self.world.truth.history(REPOSITORY), process.tree["holds"]
        return {_name(hold): held_commits(history, hold) for hold in holds if self._in_force(hold)}

    # ---- the store
    def before_store(self, name: str, args: tuple[Any, ...], expected: Mapping[str, Any] | None) -> None:
        if name == "copy":
            self._copies(*args[:2])
        if name == "delete":
            keys = [key for key in keys_of(args) if expected is None or self._is_still(expected.get(key))]
            data = [key for key in keys if key.startswith("data/")]
            stored = self.world.truth.stored(REPOSITORY) if data else {}
            if there := [key for key in data if key in stored]:
                self._deletes(there, stored)
            copies = [key for key in keys if key.startswith(QUARANTINE)]
            if copies:
                self._purges(copies)

    def before_listing(self, process: Process) -> None:
        """A mark is measured against what is stored and old enough when it lists, not when it starts."""
        settings = {**DEFAULTS, **process.tree["sweep"]}
        oldest = self.world.truth.now_us() - span_us(settings["min_age"])
        stored = self.world.truth.stored(REPOSITORY)
        process.doing["candidates"] = sum(at < oldest for at in stored.values())

    def _is_still(self, found: Any) -> bool:
        """Whether an object is what a conditional deletion expects: the store refuses others."""
        path = self.world.truth.file(REPOSITORY, found.key) if found is not None else None
        if path is None or not path.is_file():
            return False
        facts = path.stat()
        return (facts.st_mtime_ns // 1000, facts.st_size) == (found.modified_us, found.size)

    def _copies(self, source: str, target: str) -> None:
        if target.startswith("data/") and target in self.world.truth.stored(REPOSITORY):
            raise self.violation(f"restore overwrites {target}, which is there")
        if target.startswith("data/"):
            self.restored.add(target)

    def _deletes(self, keys: list[str], stored: Mapping[str, int]) -> None:
        """Data of the repository is about to be deleted."""
        process = self._process()
        if process.inspected is None:
            raise self.violation("data is deleted by a process that inspected nothing")
        self.ended(process)
        held = self.held(process)
        self._not_held(keys, held, process.inspected)
        for tree in (process.tree, process.doing.get("approved", process.tree)):
            self._settings_allow(keys, stored, tree)
            self._gates(tree, process)
        if unseen := set(keys) - process.doing.get("shown", set(keys)):
            raise self.violation(f"{len(unseen)} objects are deleted by themselves that no plan showed")
        self.swept |= set(keys)
        self._count("objects deleted", len(keys))

    def _not_held(self, keys: Iterable[str], held: Mapping[str, str], inspected: Mapping[str, str]) -> None:
        for key in keys:
            # what nothing held at the inspection, and something does now, no tool can know of
            if key in held and key in inspected:
                raise self.violation(f"{key} is deleted, though it is kept by {held[key]}")

    def _settings_allow(
        self, keys: Sequence[str], stored: Mapping[str, int], tree: Mapping[str, Any]
    ) -> None:
        """Raises unless the tree of a process, or of its approval, allows the deletion."""
        settings, now = {**DEFAULTS, **tree["sweep"]}, self.world.truth.now_us()
        if tree["gc"] == "clear":
            raise self.violation("data is deleted, though the tree clears the rules")
        committed = self.world.truth.ever_committed(REPOSITORY)
        for key in keys:
            if now - stored[key] < span_us(settings["min_age"]):
                hours = (now - stored[key]) / HOUR_US
                raise self.violation(
                    f"{key} is deleted, {hours:.1f} hours old; min_age: {settings['min_age']}"
                )
            if settings["never_committed"] == "keep" and key not in committed:
                raise self.violation(f"{key} is deleted, though the tree keeps what was never committed")
            if settings["mode"] == "quarantine" and not self._copy_of(key):
                raise self.violation(
                    f"{key} is deleted, though the tree wants it in quarantine, and no copy is"
                )
        if self.lowered_us is not None and now - self.lowered_us < span_us(settings["settle"]):
            raise self.violation("data is deleted before sweep.settle has passed since rules were lowered")

    def _gates(self, tree: Mapping[str, Any], process: Process) -> None:
        settings, mark = {**DEFAULTS, **tree["sweep"]}, process.doing.get("mark")
        if mark is None or process.doing.get("allowed"):
            return
        total, candidates = mark["going"], mark["candidates"]
        if total > settings.get("max_objects", 10_000_000):
            raise self.violation(
                f"{total} objects of a mark are deleted; the tree allows {settings['max_objects']}"
            )
        percent = tree["safety"].get("max_expired_objects_percent", 30)
        if candidates and 100 * total > percent * candidates:
            raise self.violation(
                f"{total} of {candidates} objects are deleted; the tree allows {percent} percent"
            )

    def _copy_of(self, key: str) -> bool:
        root = self.world.lake.handle.namespace_folder(REPOSITORY)
        data = (root / key).read_bytes()
        return any(
            (f / key).is_file() and (f / key).read_bytes() == data for f in root.glob(f"{QUARANTINE}*")
        )

    def _purges(self, keys: Iterable[str]) -> None:
        """Copies are about to be deleted: what is kept and has no original is lost for good."""
        process = self._process()
        age, held = span_us({**DEFAULTS, **process.tree["sweep"]}["quarantine_age"]), self.held(process)
        stored = self.world.truth.stored(REPOSITORY)
        for key in keys:
            file = self.world.truth.file(REPOSITORY, key)
            if not file.is_file():
                continue
            if self.world.truth.now_us() - file.stat().st_mtime_ns // 1000 < age:
                raise self.violation(f"{key} is purged before sweep.quarantine_age has passed")
            address = key.removeprefix(QUARANTINE).partition("/")[2]
            known = process.inspected is None or address in process.inspected
            if address in held and address not in stored and known:
                raise self.violation(
                    f"the last copy of {address} is purged, though it is kept by {held[address]}"
                )
            self._count("copies purged", 1)

    # ---- the server
    def heard(self, request: Request, response: Response) -> None:
        """Everybody's requests: when branches were made, and when their HEADs moved. Of uncommitted data that
        is gone again nobody can know."""
        if request.method == "GET" or response.status >= 300:
            return
        now = self.world.truth.now_us()
        heads = self.world.truth.heads(REPOSITORY)
        for name in self.born.keys() - heads.keys():
            del self.born[name]
        for name, head in heads.items():
            known = self.born.setdefault(name, Born(now, now, head))
            if known.head != head:
                known.written, known.head = now, head

    def after_server(self, process: Process, request: Request) -> None:
        """No write of lakeplan's makes a collection keep less by its pins."""
        if request.method == "POST" and request.path == BRANCHES:
            made = json.loads(request.body)["name"]
            process.doing.setdefault("made", {})[made] = self.world.truth.heads(REPOSITORY).get(made)
        self.pins.after_server(process, request)
        if self.pins.problems:
            raise self.violation(self.pins.problems[0])

    def before_server(self, process: Process, request: Request) -> None:
        self.pins.before_server(process, request)
        if request.method == "POST" and request.path == PREPARE:
            process.inspected = self._held_here(process)
            for known in process.dumped.values():
                process.inspected |= known
        if (other := FOREIGN_DUMP.fullmatch(request.path)) and other[1] != REPOSITORY:
            process.dumped[other[1]] = self.world.truth.foreign(other[1], REPOSITORY)
            if process.inspected is not None:
                process.inspected |= process.dumped[other[1]]
        if request.path == DUMP and process.inspected is not None:
            process.doing["holds"] = self._named_by_holds(process)
            self._forget_holds(process)
        branch = BRANCH.fullmatch(request.path)
        if request.method == "DELETE" and branch is not None:
            self._deletes_branch(process, branch[1])
        if request.path == RULES and request.method in ("PUT", "DELETE"):
            self._writes_rules(process, request)

    def told(self, process: Process, request: Request, response: Response) -> None:
        """Records the branches and rules that a process reads, and when."""
        if request.path == RULES and request.method != "GET" and response.status < 300:
            process.doing["acknowledged"] = True
        if request.method != "GET" or response.status not in (200, 404):
            return
        now, there = self.world.truth.now_us(), response.status == 200
        if request.path == RULES:
            process.read["rules"] = bare(days_of(json.loads(response.body))) if there else None
        elif there and (branch := BRANCH.fullmatch(request.path)):
            born = self.born.get(branch[1], Born(0, 0, ""))
            head = json.loads(response.body)["commit_id"]
            process.read[branch[1]] = (head, now - born.made, now - born.written, now)
        elif there and (diff := DIFF.fullmatch(request.path)):
            process.read[f"staged on {diff[1]}"] = bool(json.loads(response.body)["results"])
        elif there and request.path == BRANCHES and request.query.get("show_hidden") == ["true"]:
            heads = {one["id"]: one["commit_id"] for one in json.loads(response.body)["results"]}
            process.doing.setdefault("sighting", Sighting(now, heads))
        elif there and request.path == PROTECTION:
            process.read["protected"] = [rule["pattern"] for rule in json.loads(response.body)]
        elif there and request.path == PULLS:
            found = json.loads(response.body)["results"]
            process.read["pulls"] = ({one["source_branch"] for one in found}, now)

    def _writes_rules(self, process: Process, request: Request) -> None:
        before = bare(self.world.truth.days(REPOSITORY))
        if "rules" not in process.read:
            raise self.violation(f"rules are written over {before} by a process that has not read them again")
        del process.read["rules"]
        after: Days | None = days_of(json.loads(request.body)) if request.method == "PUT" else None
        if lowers(before, bare(after)):
            self.lowered_us = self.world.truth.now_us()
        process.doing["wrote rules"] = True
        self.done["rules written"] += 1

    def _deletes_branch(self, process: Process, name: str) -> None:
        """Judged by what the process was told since its last try: between the last reading and the deletion
        no tool can know, because lakeFS has no conditional deletion."""
        history = self.world.truth.history(REPOSITORY)
        if name not in history.branches or name == "main":
            return
        if PIN.fullmatch(name):  # judged by the watcher of pins
            self._count("pins deleted", 1)
            return
        read = process.read.pop(name, None)
        if read is None:
            raise self.violation(f"branch {name} is deleted by a process that has not read it again")
        head, age, idle, read_at = read
        # a branch made again between two runs may look like the one before
        sighting, now = process.doing["sighting"], self.world.truth.now_us()
        seen = self.sightings.ages(name, sighting, history, now)
        age, idle = max(age, seen[0]), max(idle, seen[1])
        if self._may_assume(process):
            since_commit = now - history.commits[head].made_us
            age, idle = max(age, since_commit), max(idle, since_commit)
        # After a lost answer, a branch made again at the same HEAD looks like one that was not deleted.
        if process.doing.get("heads", {}).get(name) != head:
            self._old_enough(name, age, idle, process.tree["policies"])
            self._announced(name, head, span_us(process.tree["notice_period"]))
        for hold in process.tree["holds"]:
            if self._in_force(hold) and fnmatchcase(name, hold.get("branch", "")):
                raise self.violation(f"branch {name} is deleted, though {hold} holds it")
        if process.read.pop(f"staged on {name}", True):
            raise self.violation(f"branch {name} is deleted, with uncommitted data that was not read again")
        if any(fnmatchcase(name, pattern) for pattern in process.read.get("protected", ["*"])):
            raise self.violation(f"branch {name} is deleted, though a protection rule matches it, or unread")
        pulls, at = process.read.get("pulls", (set(), 0))
        if name in pulls:
            raise self.violation(f"branch {name} is deleted, though a pull request is open")
        if read_at - at > FRESH_US:
            raise self.violation(f"branch {name} is deleted by pull requests that were read long before")
        self._is_on_record(name, head)
        process.doing.setdefault("heads", {})[name] = head
        self.deleted_branch = name
        self.sightings.forget(name)
        self._count("branches deleted", 1)
        if any(stands(other, head) and history.branches[other] == head for other in history.branches):
            self.done["branches deleted at a pin"] += 1

    def exempted(self, name: str, until: datetime | None) -> None:
        """Records an exemption from now on, or its end (None)."""
        now, known = self.world.truth.now_us(), self.exemptions.get(name, [])
        ended = [(begin, min(end, now)) for begin, end in known]
        more = [] if until is None else [(now, int(until.timestamp() * 1_000_000))]
        self.exemptions[name] = [*ended, *more]
        self.done["exemptions"] += 1

    def _announced(self, name: str, head: str, period: int) -> None:
        """Whether a notice was given long enough ago and nobody exempted the branch since. An exemption
        of the last seconds may be overlooked."""
        now = self.world.truth.now_us()
        known = [one for one in self.exemptions.get(name, ()) if one[0] < now - FRESH_US]
        if any(end > now for _, end in known):
            raise self.violation(f"branch {name} is deleted, though it is exempt")
        if not period:
            return
        told = self.world.channel.accepted.get((name, head), ())
        if not any(now - at >= period - UNITS["s"] and all(end <= at for _, end in known) for at in told):
            raise self.violation(f"branch {name} is deleted at {head[:8]}, and nobody was told in time")
        self.done["branches deleted after a notice"] += 1

    def after_state(self, process: Process, name: str, key: str) -> None:
        if name == "write" and key.startswith("branches/"):
            deleted = process.doing.get("heads", {})
            history = self.world.truth.history(REPOSITORY)
            self.sightings.store(process.doing["sighting"], deleted, history)

    def _is_on_record(self, name: str, head: str) -> None:
        """Before a branch is deleted, undo knows its HEAD."""
        for key, record in self.world.memory.records.items():
            if key.startswith("deletions/"):
                row = json.loads(record.data)["branches"].get(name)
                if row is not None and row["head"] == head:
                    return
        raise self.violation(f"branch {name} is deleted, and no record names its HEAD {head[:8]}")

    def _may_assume(self, process: Process) -> bool:
        """Whether the tree lets the date of a HEAD stand for its branch's: not in a first run, and never once
        a record of branches was lost."""
        records = self.world.memory.records
        known = any(key.startswith("branches/") for key in records)
        return known and not self.ledger_lost and process.tree["assume_created"] == "head_commit"

    def _old_enough(self, name: str, age: int, idle: int, policies: Iterable[Mapping[str, Any]]) -> None:
        for policy in policies:
            # the ledger and the server's dates are whole seconds
            if all(
                span_us(policy[key]) <= since + UNITS["s"]
                for key, since in (("max_age", age), ("max_idle_age", idle))
                if key in policy
            ):
                return
        raise self.violation(f"branch {name} is deleted; it is {age / HOUR_US:.1f} hours old")

    # ---- reports
    def going(self, mark_id: str) -> set[str]:
        """Addresses that a mark would delete, out of its files."""
        folder = self.world.lake.handle.namespace_folder(REPOSITORY) / f"_lakeplan/marks/{mark_id}/going"
        return {a for f in folder.glob("*") for a in pq.read_table(f).column("address").to_pylist()}

    def check_sweep(self, mark_id: str, document: Mapping[str, Any], process: Process) -> None:
        """Checks that a finished sweep reports every object as the store shows it."""
        if not document["finished"]:
            return
        stored, held = self.world.truth.stored(REPOSITORY), self.held(process)
        going, told = self.going(mark_id), document["deleted"]["objects"]
        gone = going - set(stored)
        # what it deleted may have been restored since, by this mark or by another one
        if not len(gone) <= told <= len(gone | (going & self.restored)):
            raise self.violation(f"the report of {mark_id} says {told} deleted; {len(gone)} are gone")
        # what is needed only since the last inspection nobody can know of
        back = {
            key for key in gone if key in held and (process.inspected is None or key in process.inspected)
        }
        if document["came_back"] is not None and document["came_back"] < len(back):
            raise self.violation(
                f"the report of {mark_id} says {document['came_back']} came back; {len(back)} have no data"
            )

    def check_restore(self, document: Mapping[str, Any], before: set[str]) -> None:
        came = (set(self.world.truth.stored(REPOSITORY)) - before) & self.going(document["mark_id"])
        if document["restored"] != len(came):
            raise self.violation(f"restore says {document['restored']} came back; {len(came)} did")

    def check_purge(self, documents: Iterable[Mapping[str, Any]], deleted: int) -> None:
        told = sum(document["deleted"] for document in documents)
        if told != deleted:
            raise self.violation(f"purge says {told} copies were deleted; {deleted} are gone")

    def check_branches(self, report: Any, process: Process) -> None:
        """Checks that a run deleted exactly what it reports, at the reported HEADs."""
        heads: dict[str, str] = process.doing.get("heads", {})
        for repository in report.repositories:
            told = {e.outlook.id: e.outlook.facts.commit_id for e in repository.branches if _is_deleted(e)}
            unsure = {e.outlook.id for e in repository.branches if e.maybe_deleted}
            if repository.failure is None and heads.keys() - unsure != told.keys() - unsure:
                raise self.violation(f"branches run deleted {sorted(heads)}, and says {sorted(told)}")
            for name in told.keys() & heads.keys():
                if told[name] != heads[name]:
                    raise self.violation(
                        f"branches run deleted {name} at {heads[name]}, and says {told[name]}"
                    )

    def check_undo(self, report: Any, process: Process) -> None:
        """A restored branch was created at its HEAD. Others may have committed to it since."""
        made = process.doing.get("made", {})
        for repository in report.repositories:
            for one in repository.branches:
                if one.outcome.value == "restored" and made.get(one.branch_id) != one.deletion.head:
                    raise self.violation(
                        f"undo says that it created {one.branch_id} at {one.deletion.head}, and it did not"
                    )

    def check_apply(self, report: Any, process: Process) -> None:
        """``applied`` is what it read last; what it wrote and the server stores is not reported as failed,
        nor as uncertain when the server had said that it took the write."""
        tree, stored = days_in(process.tree["gc"]), bare(self.world.truth.days(REPOSITORY))
        for one in report.results:
            end = one.outcome.value
            if one.setting != "gc":
                continue
            if end == "applied" and (read := process.read.get("rules", "unread")) != tree:
                raise self.violation(f"apply says it wrote {tree}, and read {read}")
            known = end == "failed" or (end == "uncertain" and "acknowledged" in process.doing)
            if "the rules and new pins were written" in one.message:
                continue
            if known and stored == tree and "wrote rules" in process.doing:
                raise self.violation(f"apply wrote {tree}, and says {end}: {one.message}")

    def check_all_there(self) -> None:
        """Checks that everything held is stored, unless it was deleted while nothing held it."""
        stored = self.world.truth.stored(REPOSITORY)
        for address, why in self.held().items():
            if address.startswith("data/") and address not in stored and address not in self.swept:
                raise self.violation(f"{address} has no data, though it is kept by {why}")

    def _count(self, what: str, number: int) -> None:
        process = self._process()
        self.done[what] += number
        self.deletions += number
        process.doing["deletes"] = process.doing.get("deletes", 0) + number

    def _process(self) -> Process:
        assert self.world.process is not None, "somebody deletes outside of a process"
        return self.world.process


def _is_deleted(end: Any) -> bool:
    return bool(end.outcome.value == "deleted")


def _name(hold: Mapping[str, Any]) -> str:
    return json.dumps({k: v for k, v in hold.items() if k in ("branch", "tag", "commit")}, sort_keys=True)

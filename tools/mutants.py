"""Mutation tests of what decides about deletion: `make mutants`, run by the tool's own virtual environment.

mutmut writes the mutants of a module of ``MODULES``. The tests beside it are collected once, and run in a
fork for each mutant, so that nothing that one mutant cached is left for the next. This prints the share of
killed mutants for each module and every survivor, and fails when a module is below the threshold.

Only tests by example count: random ones cost the most, and kill by chance.

Not run and not counted: texts for people (messages, hints) and the ``strict=`` of ``zip``, which only a bug
in the caller reaches. Equivalent mutants, which no test can kill, are listed in tools/equivalent_mutants.yaml
with the reason; they may be at most 3 % of a module's mutants, and one that no longer survives is an error.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml
from mutmut.__main__ import create_mutants
from mutmut.configuration import config
from mutmut.mutation import trampoline
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, setup_source_paths

ROOT = Path(__file__).parents[1]
MUTANTS = ROOT / "mutants"
RESULTS = MUTANTS / "results"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.yaml"
THRESHOLD = 95.0
MOST_EQUIVALENT = 3.0

MODULES = {
    "branches/consequences": ["tests/branches/test_consequences.py", "tests/branches/test_stale.py"],
    "branches/deleting": ["tests/branches/test_deleter.py", "tests/branches/test_deleting.py"],
    "branches/keepers": [
        "tests/branches/test_keepers.py",
        "tests/branches/test_staged.py",
        "tests/branches/test_holds.py",
    ],
    "branches/ledger": ["tests/branches/test_ledger.py"],
    "branches/announce": ["tests/branches/test_announcing.py", "tests/branches/test_notices.py"],
    "branches/notices": ["tests/branches/test_notice_rules.py"],
    "branches/pin_records": ["tests/branches/test_pin_records.py", "tests/branches/test_pin_release.py"],
    "branches/pins": ["tests/branches/test_pins.py", "tests/branches/test_pin_steps.py"],
    "branches/verdicts": [
        "tests/branches/test_verdicts.py",
        "tests/branches/test_documented.py",
        "tests/branches/test_fates.py",
    ],
    "formats/sstable": [
        "tests/formats/sstable/test_reader.py",
        "tests/formats/sstable/test_writer.py",
        "tests/formats/sstable/test_checksum.py",
    ],
    "formats/sstable_blocks": [
        "tests/formats/sstable/test_block.py",
        "tests/formats/sstable/test_checksum.py",
        "tests/formats/sstable/test_reader.py",
        "tests/formats/sstable/test_writer.py",
    ],
    "lakefs/transport": [
        "tests/lakefs/test_client.py",
        "tests/lakefs/test_dump.py",
        "tests/lakefs/test_faults.py",
        "tests/lakefs/test_pace.py",
        "tests/lakefs/test_transport.py",
    ],
    "plan/apply": ["tests/plan/test_apply.py", "tests/plan/test_write.py"],
    "plan/impact": ["tests/plan/test_verdicts.py"],
    "retention/graph": [
        "tests/retention/test_server.py",
        "tests/retention/test_documented.py",
        "tests/retention/test_graph.py",
        "tests/retention/test_metaranges.py",
    ],
    "retention/keep": [
        "tests/retention/test_keep.py",
        "tests/retention/test_keepers.py",
        "tests/retention/test_named.py",
        "tests/retention/test_protectors.py",
    ],
    "retention/patterns": ["tests/retention/test_globs.py", "tests/retention/test_patterns.py"],
    "retention/rules": [
        "tests/branches/test_consequences.py",
        "tests/retention/test_curve.py",
        "tests/retention/test_documented.py",
        "tests/retention/test_limits.py",
        "tests/retention/test_server.py",
        "tests/retention/test_strongest.py",
    ],
    "review/ceiling": [
        "tests/review/test_ceiling.py",
        "tests/review/test_details.py",
        "tests/review/test_replanned.py",
    ],
    "review/claims": ["tests/review/test_claims.py"],
    "review/differences": [
        "tests/review/test_ceiling.py",
        "tests/review/test_diff.py",
        "tests/review/test_difference.py",
    ],
    "review/gates": ["tests/review/test_gates.py", "tests/review/test_run_gates.py"],
    "review/strictness": [
        "tests/review/test_strictness.py",
        "tests/review/test_weakened_settings.py",
        "tests/review/test_weaker_later.py",
    ],
    "simulation/listings": [
        "tests/simulation/test_inventory.py",
        "tests/simulation/test_marking.py",
        "tests/simulation/test_steps.py",
        "tests/simulation/test_stored.py",
    ],
    "simulation/marking": ["tests/simulation/test_marking.py"],
    "simulation/verdicts": [
        "tests/simulation/test_impact.py",
        "tests/simulation/test_run.py",
        "tests/simulation/test_verdicts.py",
    ],
    "state/clocks": ["tests/state/test_clocks.py"],
    "stores/s3": ["tests/stores/test_s3_copying.py", "tests/stores/test_s3_deleting.py"],
    "sweep/deleting": [
        "tests/sweep/deleting/test_batches.py",
        "tests/sweep/deleting/test_deleting.py",
        "tests/sweep/deleting/test_going_on.py",
        "tests/sweep/deleting/test_quarantine.py",
    ],
    "sweep/hold_records": ["tests/sweep/test_hold_records.py"],
    "sweep/inspection": ["tests/sweep/test_inspection.py", "tests/sweep/test_needed.py"],
    "sweep/judge": ["tests/sweep/test_judge.py"],
    "sweep/neighbours": ["tests/sweep/test_neighbours.py"],
    "sweep/observed_rules": ["tests/sweep/test_observed_rules.py"],
    "sweep/ports": ["tests/sweep/test_ports.py"],
    "sweep/purge": ["tests/sweep/test_purge.py"],
    "sweep/restore": ["tests/sweep/test_restore.py"],
    "sweep/rules": [
        "tests/sweep/test_gates.py",
        "tests/sweep/test_official.py",
        "tests/sweep/test_overlap.py",
        "tests/sweep/test_pacing.py",
        "tests/sweep/test_settling.py",
    ],
    "sweep/service": ["tests/sweep/test_lost_mark_search.py", "tests/sweep/test_service.py"],
    "values/declare": [
        "tests/values/test_declare.py",
        "tests/review/test_strictness.py",
        "tests/review/test_weakened_settings.py",
        "tests/tree/test_schema_defaults.py",
    ],
}
"""What decides about deletion, and the tests that must notice every change of it."""
ONLY = {
    "branches/deleting": r"ǁDeleterǁ|ǁReviewedBranchǁ|\.x_(is_held_elsewhere|_moved|_after_lost)__",
    "plan/apply": r"\.x_(check|_check_gates|check_again|_(in_order|later_branches|moved|not_done)"
    r"|narrowed|_plan_gates|_refusals|refuse_more|_refuses|_stale|_stale_plan|_with_rules)__",
    "simulation/listings": r"ǁStagedRunǁ|\.x_(?!parse_inventory_url|open_inventory|_manifest|_place_of)",
    "stores/s3": r"ǁS3(Copier|Deleter)ǁ|\.x_",
}
"""The functions of a module that are run and counted, if not all: the others delete nothing, or only whole
runs test them."""
AT_IMPORT = (
    "lakeplan.branches.notices.x__record_of__",
    *(
        f"lakeplan.values.declare.x_{name}__"
        for name in (
            "words",
            "or_unlimited",
            "strictest_first",
            "neutral",
            "unordered",
            "setting",
            "settings_of",
        )
    ),
)
"""Functions that run when their module is imported: their mutants are imported anew."""
NO_TESTS = "spark or golden or hypothesis"
NO_NAMES = "(may_be_killed or a_killed_run or random_lives or has_no_method_that_writes)"
"""Marks and names of tests that are left out: slow ones, those that kill by chance, and one that would count
mutants among methods."""
PYTEST = (
    *("-q", "-s", "--assert=plain", "--tb=no", "--rootdir=.", "--basetemp=tmp"),
    *("-p", "no:xdist", "-p", "no:cacheprovider", "-m", f"not ({NO_TESTS})", "-k", f"not {NO_NAMES}"),
)
CPU_SECONDS = 60
"""Of the tests without a mutant. A mutant gets ``MORE_CPU`` times what they took: beyond, it never ends."""
MORE_CPU = 3
MEMORY = 4 << 30
WALL_SECONDS = 600
MORE_WALL = 20
"""Of what the tests took without a mutant, and a minute more: then a mutant only waits, and never ends."""
SURVIVED, FAILED, NEVER_ENDED = 0, 1, 2

TEXT = re.compile(r"""(?<!\w)[rf]*("[^"]* [^"]*"|'[^']* [^']*')|\bNone\b""")
FOR_PEOPLE = re.compile(r"\b(hint|where|message|what)=[^,()]*(\([^()]*\))?[^,()]*,?")
STRICT = re.compile(r",? ?strict=\w+|(?<=[\w)\]]), (?=\))")


@dataclass(frozen=True)
class Mutant:
    name: str
    code: int | None
    removed: str
    added: str

    @property
    def function(self) -> str:
        return re.sub(r"__mutmut_\d+$", "", self.name)

    @property
    def counts(self) -> bool:
        """Whether it changes more than a text for people or the ``strict=`` of ``zip``."""
        if self.removed.startswith(("raise ", "_log.", "log.")):
            return False
        removed, added = (
            STRICT.sub("", FOR_PEOPLE.sub("", TEXT.sub("T", line))) for line in (self.removed, self.added)
        )
        return re.sub(r"[\s,]", "", removed) != re.sub(r"[\s,]", "", added)

    def kind(self, equivalents: dict[tuple[str, str, str], str]) -> str:
        if not self.counts:
            return "not counted"
        if self.code in (FAILED, NEVER_ENDED):
            return "killed"
        if self.code != SURVIVED:
            return "not run"
        return "equivalent" if (self.function, self.removed, self.added) in equivalents else "survived"


def changed(name: str, path: str) -> tuple[str, str]:
    """The lines that a mutant of a file removes and adds, white space folded."""
    lines = get_diff_for_mutant(name, path=path).splitlines()[2:]
    removed, added = (" ".join(line[1:].strip() for line in lines if line[:1] == sign) for sign in "-+")
    return removed, added


def results_of(module: str) -> Path:
    return RESULTS / f"{module.replace('/', '.')}.json"


def read_results(module: str) -> list[Mutant]:
    path = results_of(module)
    return [Mutant(**each) for each in json.loads(path.read_text())] if path.exists() else []


def in_fork(
    mutant: str,
    tests: Callable[[], bool],
    cpu_seconds: int = CPU_SECONDS,
    wall_seconds: int = WALL_SECONDS,
) -> int:
    """The fate of a mutant. ``tests`` returns whether all passed."""
    pid = os.fork()
    if not pid:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.alarm(wall_seconds)
        trampoline.set_mutant_under_test(mutant)
        code = FAILED
        try:
            code = SURVIVED if tests() else FAILED
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else NEVER_ENDED


class RunInForks:
    """A plugin of pytest: the collected tests once without a mutant, then for each those that call its
    function. The fast ones run first, and before them the one that killed the last mutant, which is often one
    of the same line."""

    def __init__(self, mutants: list[str], store: Callable[[dict[str, int]], None]) -> None:
        self._mutants = mutants
        self._store = store

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = list(session.items)
        notes = MUTANTS / "notes"

        called: set[str] = set()
        trampoline.record_trampoline_hit = lambda name, caller=None: called.add(name)

        def passes(chosen: Sequence[pytest.Item]) -> bool:
            took, calls = {}, {}
            for item, after in zip(chosen, [*chosen, None][1:], strict=True):
                called.clear()
                start = time.process_time()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                took[item.nodeid] = time.process_time() - start
                calls[item.nodeid] = [*called]
                if session.testsfailed:
                    notes.write_text(json.dumps({"killer": item.nodeid}))
                    return False
            notes.write_text(json.dumps({"took": took, "calls": calls, "modules": [*sys.modules]}))
            return True

        start = time.monotonic()
        if session.testsfailed or not items or in_fork("stats", lambda: passes(items)) != SURVIVED:
            pytest.exit("the tests do not pass without a mutant", returncode=1)
        wall_seconds = min(WALL_SECONDS, 60 + int(MORE_WALL * (time.monotonic() - start)))
        took, calls, modules = json.loads(notes.read_text()).values()
        for module in modules:  # once here, and not in every fork
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        gc.freeze()
        items.sort(key=lambda item: took[item.nodeid])
        for mutant in self._mutants:
            notes.unlink(missing_ok=True)
            function = mutant.rpartition("__mutmut_")[0]
            chosen = [item for item in items if function in calls[item.nodeid]]
            cpu_seconds = 1 + int(MORE_CPU * sum(took[item.nodeid] for item in chosen))
            self._store({mutant: in_fork(mutant, partial(passes, chosen), cpu_seconds, wall_seconds)})
            killer = json.loads(notes.read_text()).get("killer") if notes.exists() else None
            items.sort(key=lambda item: item.nodeid != killer)
        return True


def run(module: str, *, survivors: bool) -> None:
    """Runs the mutants of one module, or those that survived the last run, and stores the results. In a
    separate process: mutmut keeps its state in globals, and nothing of lakeplan may be imported yet."""
    os.chdir(ROOT)
    path = f"lakeplan/{module}.py"
    shutil.rmtree(MUTANTS / "tests", ignore_errors=True)
    for made in (MUTANTS / path, MUTANTS / f"{path}.meta"):
        made.unlink(missing_ok=True)
    MUTANTS.mkdir(exist_ok=True)
    config().only_mutate = [path]
    copy_src_dir()
    copy_also_copy_files()
    setup_source_paths()
    create_mutants(1)
    names = json.loads((MUTANTS / f"{path}.meta").read_text())["exit_code_by_key"]
    mutants = [name for name in names if re.search(ONLY.get(module, ""), name)]
    changes = {mutant: changed(mutant, path) for mutant in mutants}
    known = {m.name: m for m in read_results(module) if survivors and m.code in (FAILED, NEVER_ENDED)}
    done = {name: m.code for name, m in known.items() if changes.get(name) == (m.removed, m.added)}
    left = [m for m in mutants if m not in done and Mutant(m, None, *changes[m]).counts]
    os.chdir(MUTANTS)
    RESULTS.mkdir(exist_ok=True)

    def store(codes: dict[str, int]) -> None:
        """At once: an interrupted run is continued with --survivors."""
        done.update(codes)
        results = [Mutant(mutant, done.get(mutant), *changes[mutant]) for mutant in mutants]
        results_of(module).write_text(json.dumps([asdict(mutant) for mutant in results]))

    command = [*PYTEST, *MODULES[module]]
    for mutant in [m for m in left if m.startswith(AT_IMPORT)]:
        store({mutant: in_fork(mutant, lambda: pytest.main([*command, "-x"]) == 0)})
    left = [mutant for mutant in left if mutant not in done]
    code = pytest.main(command, plugins=[RunInForks(left, store)])
    if code:
        sys.exit(code)


def known_equivalent() -> dict[tuple[str, str, str], str]:
    """(function, removed, added) to the reason."""
    listed = yaml.safe_load(EQUIVALENT.read_text()) if EQUIVALENT.exists() else None
    return {(each["function"], each["removed"], each["added"]): each["reason"] for each in listed or ()}


def report(modules: list[str]) -> bool:
    """Prints the results. Returns whether every module reaches the threshold."""
    equivalents = known_equivalent()
    fine = True
    rows = []
    for module in modules:
        results = read_results(module)
        kinds = [(mutant.kind(equivalents), mutant) for mutant in results]
        n = Counter(kind for kind, _ in kinds)
        for kind, mutant in kinds:
            if kind in {"survived", "not run"}:
                print(f"{kind}: {mutant.name}\n  - {mutant.removed}\n  + {mutant.added}")
        listed = {key for key in equivalents if key[0].startswith(f"lakeplan.{module.replace('/', '.')}.")}
        for stale in listed - {(m.function, m.removed, m.added) for kind, m in kinds if kind == "equivalent"}:
            print(f"listed as equivalent, but did not survive: {': '.join(stale)}")
            fine = False
        judged = n["killed"] + n["survived"]
        score = 100 * n["killed"] / max(1, judged)
        share = 100 * n["equivalent"] / max(1, judged + n["equivalent"])
        fine = fine and not n["not run"] and score >= THRESHOLD
        fine = fine and (share <= MOST_EQUIVALENT or n["equivalent"] <= 1)
        rows.append([module, *(str(n[kind]) for kind in KINDS), f"{score:.1f}%" if judged else "no results"])
    print()
    for row in [["module", *KINDS, "score"], *rows]:
        print(f"{row[0]:28}" + "".join(f"{cell:>13}" for cell in row[1:]))
    return fine


KINDS = ["killed", "survived", "equivalent", "not counted", "not run"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="parts of module names, such as retention/patterns")
    parser.add_argument("--report", action="store_true", help="report the last run without running mutants")
    parser.add_argument("--survivors", action="store_true", help="run only survivors of the last run")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(options.one, survivors=options.survivors)
        return 0
    modules = [m for m in MODULES if not options.modules or any(part in m for part in options.modules)]
    for module in () if options.report else modules:
        print(f"{module} ...", file=sys.stderr, flush=True)
        again = ["--survivors"] if options.survivors else []
        command = [sys.executable, "-P", __file__, "--one", module, *again]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(done.stdout[-3000:])
            results_of(module).unlink(missing_ok=True)
    return 0 if report(modules) else 1


if __name__ == "__main__":
    sys.exit(main())

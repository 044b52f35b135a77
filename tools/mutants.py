"""Mutation tests of what decides about deletion: `make mutants`, run by the tool's own virtual environment.

mutmut changes one thing at a time in a module of ``MODULES`` and runs the tests beside it. This prints the
share of killed mutants for each module and every survivor, and fails when a module is below the threshold.

Only tests by example count: random ones cost the most, and kill by chance.

Not counted: texts for people (messages, hints) and the ``strict=`` of ``zip``, which only a bug in the caller
reaches. Equivalent mutants, which no test can kill, are listed in tools/equivalent_mutants.yaml with the
reason; they may be at most 3 % of a module's mutants, and one that no longer survives is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from mutmut.__main__ import _run as run_mutmut
from mutmut.configuration import ForkServerWarmup, config
from mutmut.mutation.diff_apply import get_diff_for_mutant

ROOT = Path(__file__).parents[1]
MUTANTS = ROOT / "mutants"
RESULTS = MUTANTS / "results"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.yaml"
THRESHOLD = 95.0
MOST_EQUIVALENT = 3.0

MODULES = {
    "core/globs": ["core/test_globs.py"],
    "core/strictness": ["core/test_strictness.py"],
    "core/planning/ceiling": ["core/planning/test_ceiling.py"],
    "core/planning/gates": ["core/planning/test_gates.py", "core/planning/test_run_gates.py"],
    "core/sweep/gates": ["core/sweep/test_gates.py"],
    "core/sweep/keep": ["core/sweep/test_keep.py"],
    "core/sweep/settling": ["core/sweep/test_settling.py"],
    "core/lifecycle/keepers": ["core/lifecycle/test_keepers.py"],
    "core/lifecycle/ledger": ["core/lifecycle/test_ledger.py"],
    "core/lifecycle/verdicts": ["core/lifecycle/test_verdicts.py", "core/lifecycle/test_documented.py"],
    "core/retention/documented": ["core/retention/test_documented.py"],
    "core/retention/edges": ["core/retention/test_server.py", "core/retention/test_documented.py"],
    "core/retention/graph": ["core/retention/test_graph.py"],
    "core/retention/keepers": ["core/retention/test_keepers.py"],
    "core/retention/limits": ["core/retention/test_limits.py"],
    "core/retention/metaranges": ["core/retention/test_metaranges.py"],
    "core/retention/server": ["core/retention/test_server.py"],
    "core/retention/strongest": ["core/retention/test_strongest.py"],
    "app/clocks": ["app/test_clocks.py"],
    "app/sweep/judge": ["app/sweep/test_judge.py"],
    "app/sweep/purge": ["app/sweep/test_quarantine.py"],
    "app/sweep/restore": ["app/sweep/test_quarantine.py"],
    "sweep/deleting": ["sweep/test_deleting.py"],
    "adapters/lakefs/faults": ["adapters/lakefs/test_faults.py"],
    "formats/sstable/block": ["formats/sstable/test_reader.py", "formats/sstable/test_bombs.py"],
    "formats/sstable/reader": ["formats/sstable/test_reader.py", "formats/sstable/test_bombs.py"],
}
"""What decides about deletion, and the tests that must notice every change of it."""
BUILT_AT_IMPORT = {"core/strictness"}
"""Modules whose functions run when they are imported: each of their mutants needs to be imported anew."""

KILLED = {1, 3, 24, -24, 36, 152}
"""Exit codes of mutmut: a test failed, or ran far longer than it should."""
SURVIVED = {0, 5, 33}
"""The tests passed, or none reaches the function."""

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
        if self.removed.startswith(("raise ", "_log.")):
            return False
        removed, added = (
            STRICT.sub("", FOR_PEOPLE.sub("", TEXT.sub("T", line))) for line in (self.removed, self.added)
        )
        return re.sub(r"[\s,]", "", removed) != re.sub(r"[\s,]", "", added)

    def kind(self, equivalents: dict[tuple[str, str, str], str]) -> str:
        if self.code in KILLED:
            return "killed"
        if self.code not in SURVIVED:
            return "not run"
        if not self.counts:
            return "not counted"
        return "equivalent" if (self.function, self.removed, self.added) in equivalents else "survived"


def changed(name: str) -> tuple[str, str]:
    """The lines that a mutant removes and adds, white space folded."""
    lines = get_diff_for_mutant(name).splitlines()[2:]
    removed, added = (" ".join(line[1:].strip() for line in lines if line[:1] == sign) for sign in "-+")
    return removed, added


def results_of(module: str) -> Path:
    return RESULTS / f"{module.replace('/', '.')}.json"


def read_results(module: str) -> list[Mutant]:
    path = results_of(module)
    return [Mutant(**each) for each in json.loads(path.read_text())] if path.exists() else []


def run(module: str, *, survivors: bool) -> None:
    """Runs the mutants of one module, or those that survived the last run, and stores the results. In a
    process of its own: mutmut keeps its state in globals."""
    os.chdir(ROOT)
    path = f"lakeplan/{module}.py"
    before = {mutant.name: mutant for mutant in read_results(module)}
    names = [name for name, mutant in before.items() if mutant.code not in KILLED and mutant.counts]
    shutil.rmtree(MUTANTS / "tests", ignore_errors=True)
    for made in (MUTANTS / path, MUTANTS / "mutmut-stats.json"):
        made.unlink(missing_ok=True)
    config().only_mutate = [path]
    config().pytest_add_cli_args_test_selection = [f"tests/{test}" for test in MODULES[module]]
    if module in BUILT_AT_IMPORT:
        config().forkserver_warmup = ForkServerWarmup.NONE
    run_mutmut(names if survivors else [], 1)
    codes = json.loads((MUTANTS / f"{path}.meta").read_text())["exit_code_by_key"]
    if survivors:
        codes = {name: codes[name] if name in names else before[name].code for name in codes}
    results = [Mutant(name, code, *changed(name)) for name, code in codes.items()]
    RESULTS.mkdir(exist_ok=True)
    results_of(module).write_text(json.dumps([asdict(mutant) for mutant in results], indent=1))


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
        counted = n["killed"] + n["survived"]
        score = 100 * n["killed"] / max(1, counted)
        share = 100 * n["equivalent"] / max(1, counted + n["equivalent"])
        fine = fine and not n["not run"] and score >= THRESHOLD
        fine = fine and (share <= MOST_EQUIVALENT or n["equivalent"] <= 1)
        rows.append([module, *(str(n[kind]) for kind in KINDS), f"{score:.1f}%" if counted else "no results"])
    print()
    for row in [["module", *KINDS, "score"], *rows]:
        print(f"{row[0]:28}" + "".join(f"{cell:>13}" for cell in row[1:]))
    return fine


KINDS = ["killed", "survived", "equivalent", "not counted", "not run"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="parts of the names of modules, such as core/globs")
    parser.add_argument("--report", action="store_true", help="do not run; report the last run")
    parser.add_argument("--survivors", action="store_true", help="run only what survived the last run")
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

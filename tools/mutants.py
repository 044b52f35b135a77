"""Mutation tests of what decides about deletion: `make mutants`, run by the tool's own virtual environment.

mutmut changes one thing at a time in the modules that `[tool.mutmut]` of pyproject.toml names and runs the
tests that reach it. This prints the share of killed mutants for each module and every survivor, and fails
when a module is below the threshold.

Not counted: texts for people (messages, hints) and the `strict=` of `zip`, which only a bug in the caller
reaches. Equivalent mutants, which no test can kill, are listed in tools/equivalent_mutants.yaml with the
reason; they may be at most 3 % of a module's mutants, and one that no longer survives is an error.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from mutmut.mutation.diff_apply import get_diff_for_mutant

ROOT = Path(__file__).parents[1]
MUTANTS = ROOT / "mutants"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.yaml"
THRESHOLD = 95.0
MOST_EQUIVALENT = 3.0
SURVIVED = {0, 5, 33}
"""Exit codes of mutmut: the tests passed, or no test reaches the function."""
NOT_RUN = {None, 2, 34}
FOR_PEOPLE = re.compile(r"""\b(hint|where|message|what)=|f?"[^"]*[a-z,:;] [^"]*"|\braise \w+\(|^\s*_log\.""")
STRICT = re.compile(r"\bzip\(.*(strict=|, \))")


@dataclass
class Module:
    killed: int = 0
    not_counted: int = 0
    not_run: int = 0
    equivalent: list[str] = field(default_factory=list)
    survivors: list[tuple[str, str]] = field(default_factory=list)

    @property
    def counted(self) -> int:
        return self.killed + len(self.survivors)

    @property
    def score(self) -> float:
        return 100 * self.killed / self.counted if self.counted else 100.0

    @property
    def share_equivalent(self) -> float:
        return 100 * len(self.equivalent) / max(1, self.counted + len(self.equivalent))


def changed(mutant: str) -> tuple[str, str]:
    """The lines that a mutant removes and adds, white space folded."""
    lines = get_diff_for_mutant(mutant).splitlines()[2:]
    removed, added = ("".join(f" {line[1:].strip()}" for line in lines if line[:1] == sign) for sign in "-+")
    return removed.strip(), added.strip()


def known_equivalent() -> dict[tuple[str, str, str], str]:
    """(function, removed, added) to the reason."""
    listed = yaml.safe_load(EQUIVALENT.read_text()) if EQUIVALENT.exists() else None
    return {(e["function"], e["removed"], e["added"]): e["reason"] for e in listed or ()}


def read_results(wanted: str) -> tuple[dict[str, Module], set[tuple[str, str, str]]]:
    """The results by module, and the listed equivalents that did not survive."""
    modules: dict[str, Module] = defaultdict(Module)
    equivalents = known_equivalent()
    stale = {key for key in equivalents if wanted in key[0]}
    for meta in sorted(MUTANTS.rglob("*.py.meta")):
        path = str(meta.relative_to(MUTANTS)).removesuffix(".meta")
        for mutant, code in json.loads(meta.read_text())["exit_code_by_key"].items():
            if wanted not in mutant:
                continue
            module = modules[path]
            if code in NOT_RUN:
                module.not_run += 1
                continue
            if code not in SURVIVED:
                module.killed += 1
                continue
            removed, added = changed(mutant)
            function = re.sub(r"__mutmut_\d+$", "", mutant)
            key = (function, removed, added)
            if FOR_PEOPLE.search(removed) or STRICT.search(removed):
                module.not_counted += 1
            elif key in equivalents:
                stale.discard(key)
                module.equivalent.append(mutant)
            else:
                module.survivors.append((mutant, f"{removed}  =>  {added}"))
    return modules, stale


def report(modules: dict[str, Module], stale: set[tuple[str, str, str]]) -> bool:
    """Prints the results. Returns whether every module reaches the threshold."""
    for module in modules.values():
        for mutant, change in module.survivors:
            print(f"survived: {mutant}\n    {change}")
    print(f"\n{'module':55}{'killed':>8}{'survived':>9}{'equivalent':>11}{'not counted':>12}{'score':>8}")
    fine = True
    for path, module in modules.items():
        numbers = f"{module.killed:>8}{len(module.survivors):>9}{len(module.equivalent):>11}"
        print(f"{path:55}{numbers}{module.not_counted:>12}{module.score:>7.1f}%")
        if module.not_run:
            print(f"    {module.not_run} mutants were not run")
        fine = fine and not module.not_run and module.score >= THRESHOLD
        fine = fine and (module.share_equivalent <= MOST_EQUIVALENT or len(module.equivalent) <= 1)
    for function, removed, added in sorted(stale):
        print(f"listed as equivalent, but did not survive: {function}: {removed} => {added}")
    return fine and not stale and bool(modules)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="part of the names of mutants, such as core.globs")
    parser.add_argument("--report", action="store_true", help="do not run; report the last run")
    parser.add_argument("--jobs", default="2")
    options = parser.parse_args()
    if not options.report:
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", options.jobs]
        names = [f"*{options.only}*"] if options.only else []
        subprocess.run([*command, *names], cwd=ROOT, check=False)
    return 0 if report(*read_results(options.only)) else 1


if __name__ == "__main__":
    sys.exit(main())

"""``make house``: the measurements that keep the package easy to take over. Fails when one is missed."""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "lakeplan"
LINES, MODULES, MEDIAN, LONGEST = 46_000, 260, (120, 250), 600
FUNCTION_LINES, PARAMETERS = 60, 7
SHOWN = 10
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    path: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(PACKAGE.parent))

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def functions(self) -> Iterator[Function]:
        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def modules() -> list[Module]:
    """All modules with code. A module that has only a docstring does not count."""
    found = [Module(path, path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]
    return [module for module in found if len(ast.parse(module.text).body) > 1]


def is_command(module: Module) -> bool:
    """Its signatures are options of the command line."""
    return module.path.is_relative_to(PACKAGE / "cli" / "commands")


def code_lines(function: Function) -> int:
    """Of its body: neither signature nor docstring."""
    first = function.body[1:2] if ast.get_docstring(function) else function.body[:1]
    return 0 if not first else (function.end_lineno or 0) - first[0].lineno + 1


def parameters(function: Function) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def measured(every: list[Module]) -> Iterator[tuple[str, str, list[str]]]:
    """Each measurement: its name, its value, and what exceeds its limit."""
    total = sum(module.lines for module in every)
    yield "lines", f"{total:,} of at most {LINES:,}", [f"{total - LINES:,} too many"] * (total > LINES)
    count = len(every)
    yield "modules", f"{count} of at most {MODULES}", [f"{count - MODULES} too many"] * (count > MODULES)
    median = round(statistics.median(module.lines for module in every))
    low, high = MEDIAN
    yield "median module", f"{median} lines, {low} to {high}", ["outside"] * (not low <= median <= high)
    long = sorted((m for m in every if m.lines > LONGEST), key=lambda m: -m.lines)
    yield "longest module", f"{LONGEST} lines", [f"{m.name}: {m.lines}" for m in long]
    functions = [(m, each) for m in every for each in m.functions()]
    long_ones = [
        f"{m.name}:{f.lineno}: {f.name} has {code_lines(f)}"
        for m, f in functions
        if code_lines(f) > FUNCTION_LINES
    ]
    yield "longest function", f"{FUNCTION_LINES} lines", long_ones
    wide = [
        f"{m.name}:{f.lineno}: {f.name} has {parameters(f)}"
        for m, f in functions
        if parameters(f) > PARAMETERS and not is_command(m)
    ]
    yield "parameters", f"at most {PARAMETERS}", wide


def main() -> int:
    missed = False
    # What is missed comes last, where a reader of many lines looks.
    for name, value, misses in sorted(measured(modules()), key=lambda one: bool(one[2])):
        missed |= bool(misses)
        print(f"{'MISSED' if misses else 'kept  '}  {name}: {value}")
        for each in misses[:SHOWN]:
            print(f"          {each}")
        if len(misses) > SHOWN:
            print(f"          and {len(misses) - SHOWN} more")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

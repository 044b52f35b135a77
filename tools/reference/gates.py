"""``gates.md``: every gate, out of the list that the program judges by."""

from __future__ import annotations

from lakeplan.values.gates import GATES, Gate
from tools.reference.markdown import GENERATED, code, table
from tools.reference.settings import SECTIONS, keys_of

_HEAD = f"""{GENERATED}

# Gates

A gate refuses a plan, an apply, a branch run or a sweep that would delete too much, or whose effects are
unknown. The command then exits with code 4. [Concepts](concepts.md#gates) explains how to
override a gate."""


def gates_page() -> str:
    """The page as it is in ``docs``."""
    rows = [
        (code(gate.name), gate.when, ", ".join(gate.refuses), _settings(gate), _overridden(gate))
        for gate in GATES.values()
    ]
    head = ("gate", "condition", "applies to", "settings (default)", "overridden with")
    return f"{_HEAD}\n\n{table(head, rows)}\n"


def _settings(gate: Gate) -> str:
    defaults = {key.path: key.default for section in SECTIONS for key in keys_of(section)}
    shown = ((code(path), defaults[path]) for path in gate.settings)
    return ", ".join(f"{path} ({default})" if default else path for path, default in shown)


def _overridden(gate: Gate) -> str:
    ceiling = "" if gate.max_ends is None else f" (`max` in {gate.unit})"
    return f"`overrides`{ceiling}{', `--allow`' if gate.allow else ''}"

"""``--allow GATE``: names of gates, checked."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated

import typer

from lakeplan.errors import UsageError
from lakeplan.values.gate_names import GATES


def gate_names() -> list[str]:
    return list(GATES)


AllowHere = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        help="Override this gate, at a terminal only. Name the repository when the gate affects several."
        " Repeatable.",
        metavar="[REPOSITORY=]GATE",
        autocompletion=gate_names,
    ),
]
"""Of commands that write. ``lakeplan plan`` has its own, which only previews."""


def check_gate_names(names: Sequence[str] | None) -> frozenset[str]:
    """The gates to override, each as it was given. Raises UsageError on a name that is no gate, with the
    nearest one."""
    for given in names or ():
        repository, separator, name = given.rpartition("=")
        if separator and not repository:
            raise UsageError(f"--allow {given!r} names no repository", hint=f"write --allow {name}")
        if name not in GATES:
            near = difflib.get_close_matches(name, GATES, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise UsageError(f"unknown gate {name!r}", hint=f"{meant}the gates are {', '.join(GATES)}")
    return frozenset(names or ())

"""``--allow GATE``: names of gates, checked."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from lakeplan.core.planning.gates import GATES
from lakeplan.errors import UsageError


def check_gate_names(names: Sequence[str] | None) -> frozenset[str]:
    """The gates to open. Raises UsageError on a name that is no gate, with the nearest one."""
    for name in names or ():
        if name not in GATES:
            near = difflib.get_close_matches(name, GATES, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise UsageError(f"unknown gate {name!r}", hint=f"{meant}the gates are {', '.join(GATES)}")
    return frozenset(names or ())

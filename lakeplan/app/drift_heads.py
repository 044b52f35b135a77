"""Branch → HEAD, recorded at every drift where a server's own job deletes branches.

The one thing that drift writes, and only to the state: with it ``lifecycle undo`` can make a branch again
that the job deleted. What cannot be recorded is a note; drift itself goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakeplan.app.lifecycle.memory import forget_seen, record_heads, seen_last
from lakeplan.app.run import HeadsReader, Run
from lakeplan.core.lifecycle.verdicts import takes
from lakeplan.errors import LakeplanError
from lakeplan.model.desired import DesiredRepository, PoliciesDesired
from lakeplan.model.lifecycle import Policy
from lakeplan.ports.lakefs import LakeFSReader
from lakeplan.ports.storage import StateWriter


@dataclass(frozen=True)
class HeadPorts:
    """Where heads are read from and recorded; nothing else of drift can write. ``useless`` says why records
    would be of no use, if so: then none is made."""

    branches: Callable[[str], HeadsReader]
    state: StateWriter
    run: Run
    useless: str = ""


def record_server_heads(desired: DesiredRepository, reader: LakeFSReader, ports: HeadPorts) -> str:
    """Records the HEAD of every branch that a policy of the tree or of the server names, unless the newest
    record says the same. Returns why it could not be done, or ""."""
    try:
        policies = _policies(desired, reader)
        if not policies:
            return ""
        live = ports.branches(desired.server).list_live(desired.name)
        named = [branch for branch in live if any(takes(policy, branch.id) for policy in policies)]
        if seen_last(ports.state, desired.key) != {b.id: (b.commit_id, b.hidden) for b in named}:
            record_heads(ports.state, desired.key, named, ports.run)
    except LakeplanError as error:
        return f"{desired.key}: the HEADs of its branches could not be recorded for undo: {error}"
    try:
        forget_seen(ports.state, desired.key, ports.run.now())
    except LakeplanError as error:
        return f"{desired.key}: old records of HEADs could not be removed: {error}"
    return ""


def _policies(desired: DesiredRepository, reader: LakeFSReader) -> Sequence[Policy]:
    """Both: the job follows those that are stored, and an apply may push the tree's at any time."""
    wanted = desired.branch_lifecycle
    stored = reader.get_policies(desired.name).items or ()
    return (*(wanted.policies if isinstance(wanted, PoliciesDesired) else ()), *stored)

"""The safety gates, declared once. Completion, overrides, the schema and ``docs/gates.md`` read this list.

``review/gates.py`` judges those of plans and of branch runs, ``sweep/rules.py`` those of marks.
"""

from __future__ import annotations

from dataclasses import dataclass

PLANS, BRANCH_RUNS, SWEEPS = "plans and applies", "branch runs", "sweeps"
"""What gates refuse."""


@dataclass(frozen=True)
class Gate:
    """One gate. ``when`` completes "It refuses when". ``settings`` are the keys of the tree that it is judged
    by. ``unit`` is the unit of its figures. ``max_ends`` is what ``max`` of an override may end in ("" for a
    bare number); with None an override takes no ``max``. ``allow`` is whether ``--allow`` overrides it
    too."""

    name: str
    when: str
    refuses: tuple[str, ...] = (PLANS,)
    settings: tuple[str, ...] = ()
    unit: str = ""
    max_ends: str | None = None
    allow: bool = True


EXPIRED_OBJECTS = Gate(
    "expired-objects",
    "the percentage of currently kept objects that the plan would cause to expire exceeds the threshold",
    refuses=(PLANS, SWEEPS),
    settings=("safety.max_expired_objects_percent",),
    unit="percent",
    max_ends="%",
)
EXPIRED_BYTES = Gate(
    "expired-bytes",
    "the number of bytes that the plan would cause to expire exceeds the threshold",
    refuses=(PLANS, SWEEPS),
    settings=("safety.max_expired_bytes",),
    unit="bytes",
    max_ends="B",
)
TAG_LOSS = Gate(
    "tag-loss",
    "a tag would lose data, either under the rules or after `branches run` deletes the branch that"
    " keeps the data",
    refuses=(PLANS, BRANCH_RUNS),
    settings=("safety.on_tag_loss",),
    unit="tags",
    max_ends="",
)
AT_RISK = Gate(
    "at-risk",
    "the server would delete objects that the documented rule keeps",
    settings=("safety.on_server_divergence",),
    unit="objects",
    max_ends="",
)
ADOPTION = Gate("adoption", "a glob matches a repository for the first time")
CLEAR = Gate("clear", "the plan would remove all rules or policies of a repository")
UNKNOWN_IMPACT = Gate(
    "unknown-impact", "it is unknown which data would expire, or the plan adds or changes object rules"
)
CHECK = Gate(
    "check",
    "one of the tree's checks refuses the plan, fails, or did not run on the plan that is being applied",
    settings=("checks",),
)
UNMANAGED = Gate(
    "unmanaged",
    "the servers have repositories without an entry in the tree",
    settings=("unmanaged",),
    unit="repositories",
    max_ends="",
)
DELETED_BRANCHES = Gate(
    "deleted-branches",
    "policies would delete more branches than the threshold allows, either in the server's own job because"
    " of the plan, or in one `branches run`",
    refuses=(PLANS, BRANCH_RUNS),
    settings=("safety.max_deleted_branches",),
    unit="branches",
    max_ends="",
)
HELD_BRANCH = Gate(
    "held-branch",
    "a server's own policies would delete a held branch, or a branch whose deletion would make held data"
    " unreachable",
    settings=("holds",),
    unit="branches",
)
PINS = Gate(
    "pins",
    "the number of pins in a repository would exceed the threshold",
    settings=("pins.max",),
    unit="pins",
    max_ends="",
)
MIN_AGE = Gate(
    "min-age",
    "`sweep.min_age` is shorter than the server's grace period",
    refuses=(SWEEPS,),
    settings=("sweep.min_age",),
    unit="seconds",
)
SWEEP_LIMIT = Gate(
    "sweep-limit",
    "a mark contains more objects or bytes than one sweep may delete",
    refuses=(SWEEPS,),
    settings=("sweep.max_objects", "sweep.max_bytes"),
)
UNREAD_NEIGHBOURS = Gate(
    "unread-neighbours",
    "a sweep cannot determine whether another repository has data in the swept repository's storage",
    refuses=(SWEEPS,),
    unit="neighbours",
    allow=False,
)
MISSING_METADATA = Gate(
    "missing-metadata",
    "a commit of another repository lacks metadata, so a sweep cannot determine which objects it uses",
    refuses=(SWEEPS,),
    allow=False,
)

GATES = {gate.name: gate for gate in tuple(globals().values()) if isinstance(gate, Gate)}
"""Every gate above by its name, in this order."""

WHOLE_PLAN = "plan"
"""The scope of a gate that does not concern a single repository."""

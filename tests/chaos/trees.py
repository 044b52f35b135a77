"""Random edits of a tree, as people push them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from tests.chaos.users import BRANCHES, PATHS
from tests.chaos.world import REPOSITORY, ChaosWorld

SWEEP: dict[str, tuple[Any, ...]] = {
    "mode": ("delete", "quarantine"),
    "never_committed": ("keep", "collect"),
    "min_age": ("24h", "24h", "48h", "10d"),
    "settle": ("0s", "0s", "0s", "24h"),
    "margin": ("0s", "0s", "26h"),
    "verify": ("sample", "all"),
    "versions": ("marker", "all"),
    "quarantine_age": ("24h", "24h", "14d"),
    "max_objects": (1_000,) * 6 + (3, 1),
}
PERCENT = (100,) * 5 + (60, 20, 1)
DAYS = (3, 3, 7, 14, 30)
Edit = tuple[str, Callable[[], None]]
"""What was changed, and what takes it back."""


def first_tree(world: ChaosWorld, random: Random) -> None:
    world.sweep = {name: random.choice(values[:2]) for name, values in SWEEP.items()}
    world.safety = {"max_expired_objects_percent": 100, "max_deleted_branches": 20}
    world.policies = [_policy(random)]
    world.branch_settings = {"notice_period": random.choice(("0s", "24h"))}


def ask_for_pins(world: ChaosWorld, random: Random) -> None:
    """Pins need rules that the tree manages."""
    world.pins = random.choice(({"tags": ["v*"]}, {"tags": ["*"], "at_risk": True}, {"at_risk": True}))
    world.gc = {"default_retention_days": random.choice((7, 30, 90))}
    if random.random() < 0.5:
        kept = {"min_commits": random.choice((2, 3)), "keep": {"weekly": 2}}
        world.gc["branches"] = [{"branch_id": "main", "retention_days": random.choice(DAYS), **kept}]


def tighten(world: ChaosWorld, random: Random) -> Edit:
    """Asks for more care than before, as somebody does who sees what was approved."""
    before = world.sweep, world.safety, world.gc

    def undo() -> None:
        world.sweep, world.safety, world.gc = before

    sweep: dict[str, Any] = {
        "mode": "quarantine",
        "never_committed": "keep",
        "min_age": "10d",
        "settle": "24h",
        "margin": "26h",
        "max_objects": 1,
    }
    kind = random.choice((*sweep, *sweep, "safety", "safety", "safety", "gc"))
    if kind == "safety":
        world.safety = {**world.safety, "max_expired_objects_percent": 1}
    elif kind == "gc":
        world.gc = random.choice(("clear", {"default_retention_days": 90}))
    else:
        world.sweep = {**world.sweep, kind: sweep[kind]}
    return f"{kind} is tightened", undo


def hold_branch(world: ChaosWorld, name: str) -> Edit:
    """Holds one branch more."""
    before = world.holds

    def undo() -> None:
        world.holds = before

    hold = {"branch": name, "reason": "legal"}
    world.holds = [*(one for one in before if _named(one) != _named(hold)), hold]
    return f"{hold} is held", undo


def edit_days(world: ChaosWorld, random: Random) -> None:
    world.gc = _gc(random)


def edit_tree(world: ChaosWorld, random: Random) -> str:
    """Changes one thing; what, in a few words."""
    kinds = ["sweep", "sweep", "safety", "gc", "gc", "holds", "holds", "policies", "lifecycle"]
    if world.safety["max_expired_objects_percent"] < 100:
        kinds += ["safety"] * 4  # nothing is deleted until it is raised again
    if world.gc == "clear":
        kinds += ["gc"] * 4
    kind = random.choice(kinds)
    if kind == "sweep":
        name = random.choice(sorted(SWEEP))
        world.sweep = {**world.sweep, name: random.choice(SWEEP[name])}
        return f"sweep {name}: {world.sweep[name]}"
    if kind == "safety":
        world.safety = {**world.safety, "max_expired_objects_percent": random.choice(PERCENT)}
        return f"safety {world.safety}"
    if kind == "gc":
        edit_days(world, random)
        return f"gc {world.gc}"
    if kind == "holds":
        hold = _hold(world, random)
        others = [h for h in world.holds if _named(h) != _named(hold)]
        world.holds = [] if others and random.random() < 0.5 else [*others, hold]
        return f"holds {world.holds}"
    if kind == "policies":
        world.policies = [_policy(random)]
        return f"policies {world.policies}"
    world.branch_settings = {
        "assume_created": random.choice(("never", "never", "head_commit")),
        "notice_period": random.choice(("0s", "24h", "24h", "3d")),
    }
    return f"lifecycle {world.branch_settings}"


def _gc(random: Random) -> Any:
    if random.random() < 0.05:
        return "clear"
    own = [{"branch_id": random.choice(BRANCHES), "retention_days": random.choice(DAYS)}]
    return {"default_retention_days": random.choice(DAYS), "branches": own if random.random() < 0.5 else []}


def _policy(random: Random) -> dict[str, Any]:
    which = random.choice(
        ({"max_age": "3d"}, {"max_age": "1d"}, {"max_idle_age": "2d"}, {"max_idle_age": "1d"})
    )
    return {"id": "features", "patterns": ["feature-*", "fix"], **which}


def _hold(world: ChaosWorld, random: Random) -> dict[str, Any]:
    history = world.truth.history(REPOSITORY)
    named: list[dict[str, Any]] = [
        *({"branch": random.choice(sorted(history.branches))} for _ in range(2)),
        {"commit": random.choice(sorted(history.commits))},
        {"prefix": random.choice(PATHS).partition("/")[0] + "/"},
    ]
    if history.tags:
        named.append({"tag": random.choice(sorted(history.tags))})
    hold: dict[str, Any] = {**random.choice(named), "reason": "legal"}
    if random.random() < 0.5:
        day = world.lake.clock().date() + timedelta(days=random.choice((-1, 2, 20)))
        hold["until"] = day.isoformat()
    return hold


def _named(hold: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in hold.items() if key not in ("until", "reason")}

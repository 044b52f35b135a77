"""Resolves a repository from its merged settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakeplan.retention.patterns import BRANCH_NAMES, safe_spellings, share_a_name, unsafe_class
from lakeplan.tree.checks import holds
from lakeplan.tree.layers import (
    CLEAR,
    CLEARED,
    POLICIES_BLOCK,
    Conflict,
    FlatPath,
    Item,
    Merged,
    Naming,
    Value,
    to_document,
)
from lakeplan.tree.yaml import NodePath, Problems, show_path
from lakeplan.values.declare import parse_settings
from lakeplan.values.desired import (
    BranchRule,
    Cleared,
    DesiredRepository,
    GcDesired,
    GcSetting,
    ObjectRulesDesired,
    ObjectRulesSetting,
    PoliciesDesired,
    PoliciesSetting,
    Safety,
    Source,
)
from lakeplan.values.pins import ANY_PIN, PINS, PREFIX, Kept, PinSettings
from lakeplan.values.records import json_digest
from lakeplan.values.settings import BRANCH_SETTINGS, BranchSettings, ObjectRule, Policy
from lakeplan.values.sweep import SWEEP, SweepSettings
from lakeplan.values.units import parse_count, parse_duration


def _object_rules(block: Any, sources: Mapping[str, Source]) -> ObjectRulesSetting:
    if block is None:
        return None
    if block == CLEAR:
        return Cleared.CLEAR
    # The keys of an item are the names of a rule's fields.
    rules = tuple(ObjectRule(**{**item, "branches": tuple(item["branches"])}) for item in block["rules"])
    places = [sources[f"/object_lifecycle/rules/{n}/expire_after_days"] for n in range(len(rules))]
    return ObjectRulesDesired(rules, min(places))


def _policies(block: Any, sources: Mapping[str, Source]) -> PoliciesSetting:
    items: Any = CLEAR if block == CLEAR else block.get("policies")
    if items is None:
        return None
    if items == CLEAR:
        return Cleared.CLEAR
    places = tuple(sources[f"/{POLICIES_BLOCK}/policies/{n}/patterns"] for n in range(len(items)))
    return PoliciesDesired(tuple(_policy(item) for item in items), places, min(places))


def _policy(item: Mapping[str, Any]) -> Policy:
    def duration(key: str) -> int | None:
        return parse_duration(item[key]) if key in item else None

    return Policy(
        id=item.get("id"),
        patterns=tuple(item["patterns"]),
        max_age_seconds=duration("max_age"),
        max_idle_seconds=duration("max_idle_age"),
        description=item.get("description", ""),
    )


def why_no_engine(server: str, engine: str) -> str | None:
    """Return why a server with this engine cannot have policies, or None if it can."""
    if engine != "none":
        return None
    return (
        f"nothing would enforce this because servers.{server}.branch_lifecycle.engine is none; set it to"
        " server (lakeFS Enterprise deletes the branches) or to lakeplan (`lakeplan branches run` deletes"
        " them)"
    )


def why_ambiguous(pattern: str) -> str | None:
    """Return why ``engine: server`` does not support a pattern, or None if all servers read it alike."""
    part = unsafe_class(pattern)
    if part is None:
        return None
    safe = ", ".join(f'"{spelling}"' for spelling in safe_spellings(pattern))
    write = f"write {safe}" if safe else "write several simpler patterns"
    return f"lakeFS servers disagree about the meaning of {part} in the pattern {pattern!r}; {write}"


def why_deletes_pins(pattern: str) -> str | None:
    """Return why a repository with pins and ``engine: server`` must not have a pattern, or None."""
    if not share_a_name(pattern, ANY_PIN, BRANCH_NAMES):
        return None
    return (
        f"the pattern {pattern!r} matches pins ({PREFIX}*), so the server would delete them; write patterns"
        " that exclude pins"
    )


def build(
    server: str, name: str, naming: Naming, merged: Merged, safety: Safety, *, tree: str = ""
) -> DesiredRepository:
    """Return the resolved repository. The merged settings must be complete (``check_complete``)."""
    document, sources = to_document(merged)
    owner, policies = document.get("owner"), document.get(POLICIES_BLOCK, {})
    settings = {} if policies == CLEAR else parse_settings(BRANCH_SETTINGS, policies)
    return DesiredRepository(
        server=server,
        name=name,
        entry=naming.entry.key,
        gc=_gc(document.get("gc"), sources),
        config_hash=json_digest(document),
        resolved=document,
        values=sources,
        owner=owner if isinstance(owner, str) else None,
        safety=safety,
        source=naming.entry.source,
        branch_lifecycle=_policies(policies, sources),
        branch_settings=BranchSettings(**settings),
        object_lifecycle=_object_rules(document.get("object_lifecycle"), sources),
        holds=holds(document),
        sweep=SweepSettings(**parse_settings(SWEEP, document.get("sweep", {}))),
        tree=tree,
        pins=PinSettings(**parse_settings(PINS, document.get("pins", {}))),
    )


def _gc(block: Any, sources: Mapping[str, Source]) -> GcSetting:
    if block is None:
        return None
    if block == CLEAR:
        return Cleared.CLEAR
    rules = []
    for index, item in enumerate(block.get("branches", ())):
        is_pattern = "pattern" in item
        source = sources[f"/gc/branches/{index}/retention_days"]
        name = item["pattern" if is_pattern else "branch_id"]
        rules.append(BranchRule(name, is_pattern, item["retention_days"], source, _kept(name, item)))
    return GcDesired(block["default_retention_days"], tuple(rules), sources["/gc/default_retention_days"])


def _kept(name: str, item: Mapping[str, Any]) -> Kept | None:
    counts = {key: parse_count(count) for key, count in item.get("keep", {}).items()}
    kept = Kept(name, parse_count(item.get("min_commits", 0)), **counts)
    return None if kept == Kept(name) else kept


def check_complete(merged: Merged, path: NodePath, problems: Problems) -> None:
    """Add a problem for every managed block that lacks a required key."""
    for at, text, where in _incomplete(merged):
        problems.add(at, (*path, show_path(where)), text)


def _incomplete(merged: Merged) -> Iterator[tuple[Source, str, FlatPath]]:
    values = merged.values
    if "gc" in merged.blocks and ("gc",) not in values and ("gc", "default_retention_days") not in values:
        text = "gc has no default_retention_days after merging, but lakeFS rules require it"
        yield merged.blocks["gc"], text, ("gc",)
    if "pins" in merged.blocks and ("gc", "default_retention_days") not in values and _asks_for_pins(values):
        text = "pins require GC rules that the tree manages, because each pin has a rule; add a `gc` block"
        yield merged.blocks["pins"], text, ("pins",)
    for block, key, needs in (
        ("branch_lifecycle", "policies", ("patterns",)),
        ("object_lifecycle", "rules", ("branches", "prefix", "expire_after_days")),
    ):
        items: dict[Item, dict[str, Source]] = {}
        for path, value in values.items():
            if path[:2] == (block, key) and len(path) == 4 and isinstance(path[2], Item):
                items.setdefault(path[2], {})[str(path[3])] = value.source
        if block in merged.blocks and CLEARED[block] not in values and not items:
            text = (
                f"{block} has no {key} after merging; to remove all {key} from the server, write `{block}:"
                " clear`"
            )
            yield merged.blocks[block], text, (block,)
        for item, fields in items.items():
            at = next(iter(fields.values()))
            for need in needs:
                if need not in fields:
                    yield at, f"the key {need} is missing", (block, key, item)
            if block == "branch_lifecycle" and not {"max_age", "max_idle_age"} & fields.keys():
                yield at, "a policy needs max_age or max_idle_age (or both)", (block, key, item)


def _asks_for_pins(values: Mapping[FlatPath, Value]) -> bool:
    """Return whether the ``pins`` block requires any: ``max``, ``false`` and empty lists do not."""
    return any(path[0] == "pins" and path[1] != "max" and value.value for path, value in values.items())


def requires_pins(values: Mapping[FlatPath, Value]) -> bool:
    """Return whether the ``pins`` block or a rule of a branch requires pins."""
    newest = (
        path[:2] == ("gc", "branches") and path[3:4] in (("min_commits",), ("keep",)) for path in values
    )
    return _asks_for_pins(values) or any(newest)


def conflict_text(conflict: Conflict, one: str, other: str) -> str:
    """Return the text of a conflict between two equally specific entries."""
    return (
        f"{one!r} and {other!r} are equally specific and disagree about {show_path(conflict.path)}"
        f" ({conflict.one.source} and {conflict.other.source}): set it in only one of them, or in an entry"
        " that is more specific than both"
    )

"""From merged settings to ``DesiredRepository``, and what a merged configuration must have to be complete."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from lakeplan.config.entries import Naming
from lakeplan.config.layers import CLEAR, FlatPath, Item
from lakeplan.config.merge import Conflict, Merged, to_document
from lakeplan.config.object_rules import object_rules_setting
from lakeplan.config.policies import lifecycle_settings, policies_setting
from lakeplan.config.problems import Path, Problems
from lakeplan.config.sweeping import holds, sweep_settings
from lakeplan.model.desired import (
    BranchRule,
    Cleared,
    DesiredRepository,
    GcDesired,
    GcSetting,
    Safety,
    Source,
)


def config_hash(resolved: Mapping[str, object]) -> str:
    """SHA-256 (hex) of the canonical JSON of a resolved configuration."""
    text = json.dumps(resolved, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def build(server: str, name: str, naming: Naming, merged: Merged, safety: Safety) -> DesiredRepository:
    """The resolved repository. The merged settings must be complete (``check_complete``)."""
    document, sources = to_document(merged)
    owner = document.get("owner")
    return DesiredRepository(
        server=server,
        name=name,
        entry=naming.entry.key,
        gc=_gc(document, sources),
        config_hash=config_hash(document),
        resolved=document,
        values=sources,
        owner=owner if isinstance(owner, str) else None,
        safety=safety,
        source=naming.entry.source,
        branch_lifecycle=policies_setting(document, sources),
        lifecycle=lifecycle_settings(document),
        object_lifecycle=object_rules_setting(document, sources),
        holds=holds(document),
        sweep=sweep_settings(document),
    )


def _gc(document: Mapping[str, Any], sources: Mapping[str, Source]) -> GcSetting:
    block = document.get("gc")
    if block is None:
        return None
    if block == CLEAR:
        return Cleared.CLEAR
    rules = []
    for index, item in enumerate(block.get("branches", ())):
        is_pattern = "pattern" in item
        source = sources[f"/gc/branches/{index}/retention_days"]
        name = item["pattern" if is_pattern else "branch_id"]
        rules.append(BranchRule(name, is_pattern, item["retention_days"], source))
    return GcDesired(block["default_retention_days"], tuple(rules), sources["/gc/default_retention_days"])


def check_complete(merged: Merged, path: Path, problems: Problems) -> None:
    """Adds a problem for every managed block that lacks what it cannot do without."""
    for at, text, where in _incomplete(merged):
        problems.add(at, (*path, *_path_of(where)), text)


def _incomplete(merged: Merged) -> Iterator[tuple[Source, str, FlatPath]]:
    values = merged.values
    if "gc" in merged.blocks and ("gc",) not in values and ("gc", "default_retention_days") not in values:
        text = "gc resolves without default_retention_days: lakeFS rules cannot do without it"
        yield merged.blocks["gc"], text, ("gc",)
    for block, key, needs in (
        ("branch_lifecycle", "policies", ("patterns",)),
        ("object_lifecycle", "rules", ("branches", "prefix", "expire_after_days")),
    ):
        items: dict[Item, dict[str, Source]] = {}
        for path, value in values.items():
            if path[:2] == (block, key) and len(path) == 4 and isinstance(path[2], Item):
                items.setdefault(path[2], {})[str(path[3])] = value.source
        if block in merged.blocks and (block,) not in values and not items:
            text = f"{block} resolves without {key}: write `clear` to remove what the server has"
            yield merged.blocks[block], text, (block,)
        for item, fields in items.items():
            at = next(iter(fields.values()))
            for need in needs:
                if need not in fields:
                    yield at, f"the key {need} is missing", (block, key, item)
            if block == "branch_lifecycle" and not {"max_age", "max_idle_age"} & fields.keys():
                yield at, "a policy needs max_age or max_idle_age (or both)", (block, key, item)


def conflict_text(conflict: Conflict, one: str, other: str) -> str:
    """Words for two equally specific entries that disagree."""
    return (
        f"{one!r} and {other!r} are equally specific and disagree about "
        f"{describe(conflict.path)} ({conflict.one.source} and {conflict.other.source}): "
        "let one of them name it, or add an entry that is more specific than both"
    )


def describe(path: FlatPath) -> str:
    """A flat path in words: ``gc.branches[main].retention_days``."""
    text = ""
    for part in path:
        if isinstance(part, Item):
            text += f"[{part.name}]"
        else:
            text += f".{part}" if text else part
    return text


def _path_of(path: FlatPath) -> Path:
    return (describe(path),)

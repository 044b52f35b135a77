"""Resolves a repository from its merged settings, and checks several profiles and entries together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, groupby
from typing import Any

from lakeplan import limits
from lakeplan.retention.patterns import (
    BRANCH_NAMES,
    REPOSITORY_NAMES,
    Budget,
    is_glob,
    matches,
    safe_spellings,
    share_a_name,
    specificity,
    unsafe_class,
    witness,
)
from lakeplan.tree.checks import holds
from lakeplan.tree.layers import (
    CLEAR,
    CLEARED,
    MAX_PROFILE_DEPTH,
    POLICIES_BLOCK,
    Conflict,
    Directory,
    Entry,
    FlatPath,
    Item,
    Layer,
    Merged,
    Naming,
    Value,
    disagreements,
    find_cycle,
    profile_depths,
    to_document,
    touches,
)
from lakeplan.tree.structure import nearest, suggestion
from lakeplan.tree.yaml import ListNode, MapNode, Node, NodePath, Problems, show_path, text_of
from lakeplan.values.declare import parse_settings
from lakeplan.values.desired import (
    BRANCH_SETTINGS,
    BranchRule,
    BranchSettings,
    Cleared,
    DesiredRepository,
    GcDesired,
    GcSetting,
    ObjectRule,
    ObjectRulesDesired,
    ObjectRulesSetting,
    Override,
    PoliciesDesired,
    PoliciesSetting,
    Policy,
    Safety,
    ServerConfig,
    Source,
)
from lakeplan.values.gates import GATES
from lakeplan.values.pins import ANY_PIN, PINS, PREFIX, Kept, PinSettings
from lakeplan.values.records import json_digest
from lakeplan.values.sweep import OFFICIAL_ENGINE, SWEEP, SweepSettings, unknown_to_official
from lakeplan.values.units import parse_amount, parse_count, parse_date, parse_duration
from lakeplan.values.urls import BadUrl, parse_web_url


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


_MOST_GLOBS = 10
"""The maximum number of globs that an example name may avoid, because more take too long. A plan finds
anything that is missed here."""


def check_profiles(profiles: Mapping[str, Layer], problems: Problems) -> set[str]:
    """Check ``use`` of profiles for unknown names and cycles, and return the profiles that cannot be used."""
    bad = {
        name
        for name, profile in profiles.items()
        if _missing(profile.use, profiles, ("profiles", name, "use"), problems)
    }
    deep = [name for name, depth in profile_depths(profiles).items() if depth > MAX_PROFILE_DEPTH]
    cyclic: set[str] = set()
    for name in deep:
        cycle = find_cycle(profiles, name)
        if cycle and name not in cyclic:
            names = [name, *(str(v.value) for v in cycle)]
            cyclic.update(names)
            text = f"these profiles use each other in a cycle: {' → '.join(names)}"
            problems.add(cycle[0].source, ("profiles", name, "use"), text)
    for name in deep if not cyclic else ():
        text = f"a chain of profiles that `use` each other exceeds the limit of {MAX_PROFILE_DEPTH} profiles"
        problems.add(profiles[name].use[0].source, ("profiles", name, "use"), text)
    return bad | set(deep)


def _missing(use: Iterable[Value], profiles: Mapping[str, Layer], path: NodePath, problems: Problems) -> bool:
    is_missing = False
    for index, value in enumerate(use):
        name = str(value.value)
        if name in profiles:
            continue
        is_missing = True
        hint = suggestion(name, profiles) if profiles else "the tree has no profiles"
        problems.add(value.source, (*path, index), f"there is no profile {name!r}; {hint}")
    return is_missing


def check_duplicates(entries: Iterable[Entry], problems: Problems) -> list[Entry]:
    """Return the first entry for each name. Every further entry is a problem that names both places."""
    first: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        known = first.setdefault((entry.server, entry.name), entry)
        if known is not entry:
            text = f"{entry.server}/{entry.name} has two entries; the other is at {known.source}"
            problems.add(entry.source, ("repositories", entry.key), text)
    return list(first.values())


def check_managed(entries: Iterable[Entry], directory: Directory, problems: Problems) -> None:
    """Check that ``manages`` includes every repository that an entry names exactly."""
    for entry in entries:
        if not entry.is_glob and not directory.may_manage(entry.server, entry.name):
            text = (
                f"{entry.server}/{entry.name} is outside `manages`; add it there, or move the entry to the"
                " tree that manages it"
            )
            problems.add(entry.source, ("repositories", entry.key), text)


def check_names_of_servers(
    entries: Iterable[Entry], directory: Directory, servers: Mapping[str, ServerConfig], problems: Problems
) -> None:
    """Check that no repository has entries under two names of the same server. Each command would use only
    one of them, and could delete data that the other one holds."""
    budget = Budget()
    of_server: dict[str, list[Entry]] = {}
    for entry in entries:
        of_server.setdefault(entry.server, []).append(entry)
    names: dict[str, list[str]] = {}
    for name in of_server:
        names.setdefault(_address(servers[name]), []).append(name)
    for one, other in (pair for same in names.values() for pair in combinations(same, 2)):
        pairs = ((e, other, of_server[other]) for e in of_server[one])
        known = directory.exact_names(one)
        back = ((e, one, of_server[one]) for e in of_server[other] if not e.is_glob and e.name not in known)
        for entry, server, theirs in (*pairs, *back):
            clash = _also_named(entry, server, theirs, directory, budget)
            if clash is not None:
                text = (
                    f"{one} and {other} are two names for the same server, and {clash[0].key!r} at"
                    f" {clash[0].source} also matches the repository {clash[1]!r}; keep only one of the two"
                    " entries"
                )
                problems.add(entry.source, ("repositories", entry.key), text)


def _address(server: ServerConfig) -> str:
    try:
        return parse_web_url(server.endpoint_url).url.removesuffix("/api/v1")
    except BadUrl:
        return server.name  # this is already a problem


def _also_named(
    entry: Entry, server: str, theirs: Iterable[Entry], directory: Directory, budget: Budget
) -> tuple[Entry, str] | None:
    """Return the entry of another server name for the same repository, and the repository. Of two overlapping
    globs, only the first is a problem."""
    if not entry.is_glob:
        budget.spend(1 + len(directory.globs(server)))
        naming = directory.naming(server, entry.name)
        return None if naming is None else (naming.entry, entry.name)
    for glob in theirs:
        budget.spend(1)
        if glob.is_glob and _may_overlap(glob.name, entry.name):
            example = witness([glob.name, entry.name], [], REPOSITORY_NAMES, budget)
            if example is not None:
                return glob, example
    return None


def check_entries(
    entries: Iterable[Entry],
    directory: Directory,
    bad_profiles: set[str],
    servers: Mapping[str, ServerConfig],
    problems: Problems,
) -> None:
    """Check the profiles and resolved settings of entries, the engines of their servers, and conflicts
    between globs."""
    usable: list[Entry] = []
    unsound: set[int] = set()
    for entry in entries:
        path: NodePath = ("repositories", entry.key)
        missing = _missing(entry.layer.use, directory.profiles, (*path, "use"), problems)
        if missing or entry.broken or any(str(v.value) in bad_profiles for v in entry.layer.use):
            unsound.add(id(entry))
        else:
            usable.append(entry)
    budget, values = Budget(), 0
    for entry in usable:
        name = _example(entry, directory, budget) if entry.is_glob else entry.name
        naming = directory.naming(entry.server, name) if name else None
        if naming is None or any(id(e) in unsound for e in naming.entries):
            continue
        merged = _check_resolved(entry, naming, directory, problems)
        values += len(merged.values)
        if values > limits.RESOLVED_VALUES:
            problems.add(entry.source, ("repositories", entry.key), too_many_values())
            return
        _check_engine(entry, merged, servers[entry.server].branch_lifecycle_engine, problems)
        _check_official(entry, merged, problems)
    for _, globs in groupby(sorted((e for e in usable if e.is_glob), key=_rank), key=_rank):
        for one, other in combinations(list(globs), 2):
            _check_pair(one, other, directory, problems, budget)


def too_many_values() -> str:
    return (
        f"the repositories exceed the limit of {limits.RESOLVED_VALUES:,} values in total,"
        " including values from globs and profiles; list fewer repositories or fewer rules"
    )


def _check_engine(entry: Entry, merged: Merged, engine: str, problems: Problems) -> None:
    path: NodePath = ("repositories", entry.key, POLICIES_BLOCK)
    why = why_no_engine(entry.server, engine)
    if POLICIES_BLOCK in merged.blocks and why:
        problems.add(merged.blocks[POLICIES_BLOCK], path, why)
    for at, value in merged.values.items() if engine == "server" else ():
        if (
            at[:2] == (POLICIES_BLOCK, "policies")
            and at[-1] == "patterns"
            and isinstance(value.value, Iterable)
        ):
            for pattern in map(str, value.value):
                pins = why_deletes_pins(pattern) if requires_pins(merged.values) else None
                for why in filter(None, (why_ambiguous(pattern), pins)):
                    problems.add(value.source, path, why)


def _check_official(entry: Entry, merged: Merged, problems: Problems) -> None:
    """Check for settings that lakeFS's own collector does not support. A mark checks the rest (protected
    tags, objects at risk)."""
    engine = merged.values.get(("sweep", "engine"))
    if engine is None or engine.value != OFFICIAL_ENGINE:
        return
    for at, value in merged.values.items():
        if at[0] != "sweep":
            continue
        key = str(at[1])
        if why := unknown_to_official(key, value.value):
            text = f"sweep.engine {OFFICIAL_ENGINE} does not support {key} {value.value}: {why}"
            problems.add(value.source, ("repositories", entry.key, "sweep", key), text)
    if "holds" in merged.blocks and to_document(merged)[0].get("holds"):
        text = (
            f"sweep.engine {OFFICIAL_ENGINE} does not support holds and would delete data under a hold; use"
            " the engine builtin"
        )
        problems.add(engine.source, ("repositories", entry.key, "sweep", "engine"), text)


def _example(entry: Entry, directory: Directory, budget: Budget) -> str | None:
    """Return a name that a glob matches. If possible, no other glob matches it that does not match all names
    of this glob, because other names would lack the settings of such a glob."""
    budget.spend(len(directory.globs(entry.server)))
    others = [
        e.name
        for e in directory.globs(entry.server)
        if e is not entry
        and _may_overlap(e.name, entry.name)
        and specificity(e.name) <= specificity(entry.name)
    ]
    partial = [
        other
        for other in others[:_MOST_GLOBS]
        if witness([entry.name], [other], REPOSITORY_NAMES, budget) is not None
    ]
    alone = witness([entry.name], partial, REPOSITORY_NAMES, budget) if partial else None
    return alone or witness([entry.name], [], REPOSITORY_NAMES, budget)


def _rank(entry: Entry) -> tuple[str, tuple[int, int, int, int]]:
    return (entry.server, specificity(entry.name))


def _check_resolved(entry: Entry, naming: Naming, directory: Directory, problems: Problems) -> Merged:
    path: NodePath = ("repositories", entry.key)
    if entry.is_glob:
        # More specific globs that match the example name are omitted, because other names lack their
        # settings.
        rank = specificity(entry.name)
        weaker = tuple(e for e in naming.globs if specificity(e.name) <= rank)
        merged = directory.merged(Naming(weaker, None))
        check_complete(merged, path, problems)
        return merged
    merged = directory.merged(naming)
    check_complete(merged, path, problems)
    for where, value in merged.idle_removals:
        if entry.layer.values.get(where) is value:
            text = f"no inherited item is called {show_path(where)}, so there is nothing to remove"
            problems.add(value.source, path, text)
    return merged


def _check_pair(one: Entry, other: Entry, directory: Directory, problems: Problems, budget: Budget) -> None:
    """Check that two equally specific globs disagree only if no name matches both, or if a more specific glob
    decides the value for every such name."""
    budget.spend(1)
    if not _may_overlap(one.name, other.name):
        return
    conflicts = list(disagreements(one.layer, other.layer))
    uses = [tuple(v.value for v in e.layer.use) for e in (one, other)]
    if all(uses) and uses[0] != uses[1]:
        example = witness([one.name, other.name], [], REPOSITORY_NAMES, budget)
        if example:
            text = (
                f"{one.key!r} and {other.key!r} both match {example!r} and are equally specific, but use"
                " different profiles; list all profiles in one of them, and remove `use` from the other"
            )
            problems.add(other.layer.use[0].source, ("repositories", other.key, "use"), text)
    rank = specificity(one.name)
    for conflict in conflicts:
        budget.spend(len(directory.globs(one.server)))
        stronger = [
            e.name
            for e in directory.globs(one.server)
            if specificity(e.name) > rank
            and touches(e.layer, conflict.path)
            and _may_overlap(e.name, one.name)
            and _may_overlap(e.name, other.name)
        ]
        if example := witness([one.name, other.name], stronger, REPOSITORY_NAMES, budget):
            text = f"{conflict_text(conflict, one.key, other.key)}; both match {example!r}"
            problems.add(conflict.other.source, ("repositories", other.key, show_path(conflict.path)), text)


def _may_overlap(one: str, other: str) -> bool:
    """Return whether two globs may match the same name, by the text before and after their wildcards."""

    def ends(pattern: str) -> tuple[str, str]:
        cut = [i for i, c in enumerate(pattern) if c in "*?["]
        last = max((i for i, c in enumerate(pattern) if c in "*?]"), default=len(pattern))
        return pattern[: cut[0]], pattern[last + 1 :]

    (head, tail), (other_head, other_tail) = ends(one), ends(other)
    return (head.startswith(other_head) or other_head.startswith(head)) and (
        tail.endswith(other_tail) or other_tail.endswith(tail)
    )


def check_overrides(
    items: Iterable[tuple[NodePath, Override]], entries: Iterable[Entry], problems: Problems
) -> None:
    """Check that an override names a repository of the tree, or ``*`` for the whole plan."""
    known, budget = list(entries), Budget()
    for path, item in items:
        if item.repository == "*" or any(_names_entry(item.repository, e, budget) for e in known):
            continue
        close = nearest(item.repository, [e.name for e in known if not e.is_glob])
        hint = f": did you mean {close}?" if close else ""
        text = f"the tree has no entry for {item.repository!r}{hint}"
        problems.add(item.source, (*path, "repository"), text)


def _names_entry(repository: str, entry: Entry, budget: Budget) -> bool:
    budget.spend(1)
    server, slash, name = repository.rpartition("/")
    if slash and not matches(entry.server, server):
        return False
    if not is_glob(name):
        return entry.covers(name)
    if not entry.is_glob:
        return matches(entry.name, name)
    return witness([name, entry.name], [], REPOSITORY_NAMES, budget) is not None


def read_overrides(root: MapNode, problems: Problems) -> Iterator[tuple[NodePath, Override]]:
    """Yield well-formed items with their paths. The caller checks whether their repositories exist."""
    node = root.items.get("overrides")
    for index, item in enumerate(node.items if isinstance(node, ListNode) else ()):
        path: NodePath = ("overrides", index)
        if not isinstance(item, MapNode):
            continue
        repository, gate = text_of(item.items.get("repository")), text_of(item.items.get("gate"))
        if repository is None or gate is None:
            continue
        if gate not in GATES:
            text = f"there is no gate {gate!r}; use one of {', '.join(GATES)}"
            problems.add(item.items["gate"].source, (*path, "gate"), text)
            continue
        ceiling = problems.parsed(item, "max", path, parse_amount, None)
        if ceiling is not None and (why := _why_no_ceiling(gate, item.items["max"])):
            problems.add(item.items["max"].source, (*path, "max"), why)
        expires = problems.parsed(item, "expires", path, parse_date, None)
        if expires is None:
            continue  # missing or invalid, which is already a problem
        reason = text_of(item.items.get("reason")) or ""
        if reason and not reason.strip():
            problems.add(item.items["reason"].source, (*path, "reason"), "the reason is blank")
        yield path, Override(repository, gate, ceiling, reason, expires, item.source)


def _why_no_ceiling(gate: str, node: Node) -> str | None:
    """Return why ``max`` does not have the unit of its gate. For example, 5TB for a percentage would be no
    limit."""
    unit, ending = GATES[gate].unit, GATES[gate].max_ends
    if ending is None:
        return f"the {gate} gate does not compare a single number, so it does not support `max`"
    text = text_of(node)
    if text is None or text[-1].isdigit() or (ending and text.endswith(ending)):
        return None
    return f"the {gate} gate counts {unit}; specify `max` in {unit}"

"""Checks of several profiles and entries together: duplicates, conflicts, and resolved settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, groupby

from lakeplan import limits
from lakeplan.retention.patterns import REPOSITORY_NAMES, Budget, is_glob, matches, specificity, witness
from lakeplan.tree.layers import (
    MAX_PROFILE_DEPTH,
    POLICIES_BLOCK,
    Directory,
    Entry,
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
from lakeplan.tree.policies import (
    check_complete,
    conflict_text,
    requires_pins,
    why_ambiguous,
    why_deletes_pins,
    why_no_engine,
)
from lakeplan.tree.structure import nearest, suggestion
from lakeplan.tree.yaml import NodePath, Problems, show_path
from lakeplan.values.desired import Override, ServerConfig
from lakeplan.values.sweep import OFFICIAL_ENGINE, unknown_to_official
from lakeplan.values.urls import BadUrl, parse_web_url

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
        text = (
            f"a chain of profiles that `use` each other has more than the limit of {MAX_PROFILE_DEPTH}"
            " profiles"
        )
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
        f"the repositories have more than the limit of {limits.RESOLVED_VALUES:,} values in total,"
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

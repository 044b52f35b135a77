"""Globs over names of branches and repositories, and rules whose branches are patterns."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from itertools import product

from lakeplan import limits
from lakeplan.values.desired import BranchRule, GcDesired
from lakeplan.values.rules import GcRules

_ALNUM = string.ascii_lowercase + string.digits
_MAX_POSITIONS = 100_000


@dataclass(frozen=True)
class NameRule:
    """Which names are allowed: their characters, those that may come first, and their length."""

    what: str
    first: str
    rest: str
    shortest: int
    longest: int | None

    def allows(self, name: str) -> bool:
        return (
            len(name) >= self.shortest
            and (self.longest is None or len(name) <= self.longest)
            and name[0] in self.first
            and all(c in self.rest for c in name)
        )


BRANCH_NAMES = NameRule(
    "branch", _ALNUM + string.ascii_uppercase + "_", _ALNUM + string.ascii_uppercase + "_-", 1, None
)
REPOSITORY_NAMES = NameRule("repository", _ALNUM, _ALNUM + "-", 3, 63)


def is_glob(text: str) -> bool:
    return any(c in text for c in "*?[")


def matches(name: str, pattern: str) -> bool:
    """Whether a name matches a glob. Case matters, on every system."""
    return _compiled(pattern)(name) is not None


@lru_cache(maxsize=4_096)
def _compiled(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """The compiled pattern. fnmatch caches only a few hundred, and compiling a long one takes
    milliseconds."""
    return re.compile(translate(pattern)).match


def names_repository(pattern: str, server: str, name: str) -> bool:
    """Whether a glob names a repository: by its name alone, or as ``server/name``. ``prod*`` is no repository
    of a server ``prod``."""
    of_server, slash, of_name = pattern.rpartition("/")
    return matches(name, of_name) and (not slash or matches(server, of_server))


_TOKEN = re.compile(r"\[!?+\]?+[^\]]*\]|.", re.DOTALL)


@lru_cache(maxsize=10_000)
def tokens(pattern: str) -> tuple[str, ...]:
    """The ``*``, ``?``, ``[…]`` and single characters of a glob. A ``[`` that is never closed is a character,
    as in fnmatch. Several ``*`` in a row are one."""
    parts: list[str] = []
    for token in _TOKEN.findall(pattern):
        if token != "*" or parts[-1:] != ["*"]:
            parts.append(token)
    return tuple(parts)


def _is_class(token: str) -> bool:
    return len(token) > 1


def _fits(letter: str, part: str) -> bool:
    """Whether a letter is this character, or matches this ``[…]``."""
    return fnmatchcase(letter, part) if _is_class(part) else letter == part


def specificity(pattern: str) -> tuple[int, int, int, int]:
    """A key that orders globs from the least to the most specific: by more literal characters, then more
    ``[…]``, then more ``?``, then fewer ``*``."""
    parts = tokens(pattern)
    stars, singles = parts.count("*"), parts.count("?")
    classes = sum(map(_is_class, parts))
    return (len(parts) - stars - singles - classes, classes, singles, -stars)


@lru_cache(maxsize=10_000)
def why_nothing(pattern: str, rule: NameRule) -> str | None:
    """Return why a glob can match no name, or None if it can."""
    for part in tokens(pattern):
        if part in ("*", "?"):
            continue
        if part.startswith("[^"):
            return f"{part} does not exclude these characters; write [!{part[2:]} instead"
        if not any(fnmatchcase(c, part) for c in rule.rest) or (part == "["):
            return _why_no_character(part, rule)
    if not _is_possible(tokens(pattern), rule):
        return f"no {rule.what} name can have this form"
    return None


def pattern_problem(pattern: str, why_not: Callable[[str], str | None]) -> str | None:
    """Return the problem of a pattern in a tree, or None. ``why_not`` returns why a pattern can match
    nothing."""
    if len(pattern) > limits.GLOB_CHARACTERS:
        most = limits.GLOB_CHARACTERS
        return f"a pattern may have at most {most:,} characters, but this one has {len(pattern):,}"
    why = why_not(pattern)
    return f"the pattern {pattern!r} cannot match anything: {why}" if why else None


def _is_possible(parts: Sequence[str], rule: NameRule) -> bool:
    """Whether some name matches the tokens. Each token matches some character of names."""
    singles = [part for part in parts if part != "*"]
    if len(singles) == len(parts) and len(singles) < rule.shortest:
        return False
    full = rule.longest is not None and len(singles) >= rule.longest
    if full and len(singles) != rule.longest:
        return False
    if parts[0] == "*" and not full:
        return True  # the * matches any first character
    return any(fnmatchcase(c, singles[0]) for c in rule.first)


def why_no_branch(pattern: str) -> str | None:
    return why_nothing(pattern, BRANCH_NAMES)


def why_no_repository(pattern: str) -> str | None:
    return why_nothing(pattern, REPOSITORY_NAMES)


def why_no_tag(pattern: str) -> str | None:
    """Return why a glob can match no tag, or None. Tags may have nearly any character except those that
    lakeFS refuses (``/ ^ : ? * [ \\`` and white space)."""
    for part in tokens(pattern):
        if part.startswith("[^"):
            return f"{part} does not exclude these characters; write [!{part[2:]} instead"
        if part == "[":
            return "the [ has no closing ]"
        if part in "/^:\\" or part.isspace():
            return f"a tag name cannot contain {part!r}"
    return None


_SAFE_CLASS = re.compile(r"\[(?:[0-9A-Za-z_]-[0-9A-Za-z_]|[0-9A-Za-z_]+)\]")
_MOST_SPELLINGS = 12


def _is_unsafe(token: str) -> bool:
    return token.startswith("[") and not _SAFE_CLASS.fullmatch(token)


def unsafe_class(pattern: str) -> str | None:
    """The first ``[…]`` that the two glob dialects of lakeFS read differently, or unclosed ``[``, or None if
    they agree.

    Go's ``path.Match`` negates with ``^``, and a ``-`` outside a range is an error. gobwas negates with
    ``!``, and reads several ranges, or a range beside characters, differently. A list of letters, digits and
    ``_``, and a single range, mean the same to both."""
    return next(filter(_is_unsafe, tokens(pattern)), None)


def safe_spellings(pattern: str) -> tuple[str, ...]:
    """Patterns that both dialects read alike, and that together match the branches that ``pattern`` matches
    here. Empty if there would be too many."""
    choices = [_safe_parts(t) if _is_unsafe(t) else [t] for t in tokens(pattern)]
    if math.prod(map(len, choices)) > _MOST_SPELLINGS:
        return ()
    spellings = ("".join(parts) for parts in product(*choices))
    return tuple(dict.fromkeys(p for p in spellings if why_nothing(p, BRANCH_NAMES) is None))


def _safe_parts(token: str) -> list[str]:
    """The characters of branch names that a ``[…]`` matches, as single ranges, one list and ``-``."""
    members = [c for c in BRANCH_NAMES.rest if fnmatchcase(c, token)]
    parts: list[str] = []
    rest: list[str] = []
    for alphabet in (string.digits, string.ascii_uppercase, string.ascii_lowercase):
        for run in "".join(c if c in members else " " for c in alphabet).split():
            if len(run) > 2:
                parts.append(f"[{run[0]}-{run[-1]}]")
            else:
                rest += run
    rest += ["_"] if "_" in members else []
    parts += [rest[0]] if len(rest) == 1 else [f"[{''.join(rest)}]"] if rest else []
    return parts + (["-"] if "-" in members else [])


def _why_no_character(part: str, rule: NameRule) -> str:
    if part == "[":
        return "the [ has no closing ]"
    if _is_class(part):
        return f"{part} does not match any character that a {rule.what} name can contain"
    if part in "{},":
        return (
            f"a {rule.what} name cannot contain {part!r}; write several patterns instead of an {{a,b}} group"
        )
    return f"a {rule.what} name cannot contain {part!r}"


def share_a_name(one: str, other: str, rule: NameRule) -> bool:
    """Whether some name matches both globs, for names without a maximal length. Takes a step for each
    character of ``one``, on numbers of as many bits as ``other`` has characters, so no glob makes it slow."""
    a, b = tokens(one), tokens(other)
    letters = {part: _letters(part, rule) for part in (*a, *b)}
    if not all(letters.values()):
        return False
    # rows[i] has bit j when one name leads to position i of ``a`` and to position j of ``b``
    rows = [0] * (len(a) + 1)
    for i, j in product(range(min(len(a), 1 + (a[:1] == ("*",)))), range(min(len(b), 1 + (b[:1] == ("*",))))):
        if letters[a[i]] & letters[b[j]] & set(rule.first):
            rows[i + (a[i] != "*")] |= 1 << (j + (b[j] != "*"))
    stars = sum(1 << j for j, part in enumerate(b) if part == "*")
    fits = {part: sum(1 << j for j, of_b in enumerate(b) if letters[part] & letters[of_b]) for part in {*a}}
    for i, part in enumerate(a):
        row = rows[i] | (rows[i] & stars) << 1
        if part == "*":  # matches any part of what is left of ``b``: leads to all positions from the first on
            rows[i + 1] = -(row & -row)
        else:
            rows[i + 1] |= (row & fits[part]) << 1 | (row & stars)
    return bool((rows[-1] | (rows[-1] & stars) << 1) >> len(b) & 1)


@lru_cache(maxsize=10_000)
def _letters(part: str, rule: NameRule) -> frozenset[str]:
    """The characters of names that a token matches."""
    if part in ("*", "?"):
        return frozenset(rule.rest)
    return frozenset(c for c in rule.rest if _fits(c, part))


class TooManyGlobs(ValueError):
    """Globs may overlap in more ways than can be compared."""


@dataclass
class Budget:
    """The steps that a comparison of many globs may take. ``spend`` raises TooManyGlobs if none are left."""

    left: int = limits.GLOB_STEPS

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooManyGlobs


def witness(
    include: Sequence[str], exclude: Iterable[str], rule: NameRule, budget: Budget | None = None
) -> str | None:
    """A shortest name that matches every glob of ``include`` and none of ``exclude``, or None.

    Walks all globs at once, over classes of characters that all of them treat alike, with one position in
    each included glob and all positions in each excluded one. If that takes too many steps, the answer is a
    name that may match ``exclude`` (callers treat it as a conflict, which is safe), or the first glob itself.
    """
    wanted = [tokens(p) for p in include]
    unwanted = [tokens(p) for p in exclude]
    letters = _representatives([*wanted, *unwanted], rule)
    start: _State = ((0,) * len(wanted), tuple(_closure({0}, p) for p in unwanted))
    level: dict[_State, str] = {start: ""}
    visited: set[tuple[_State, int]] = {(start, 0)}
    longest = rule.longest if rule.longest is not None else rule.shortest + sum(map(len, wanted))
    for length in range(longest + 1):
        following: dict[_State, str] = {}
        for state, name in level.items():
            if length >= rule.shortest and _accepts(state, wanted, unwanted):
                return name
            if len(visited) * (len(wanted) + len(unwanted)) > _MAX_POSITIONS:
                return witness(include, [], rule, budget) if unwanted else include[0]
            if budget is not None:
                budget.spend(1)
            for letter in letters if length else [c for c in letters if c in rule.first]:
                for after in _steps(state, wanted, unwanted, letter):
                    key = (after, min(length + 1, rule.shortest))
                    if key not in visited:
                        visited.add(key)
                        following[after] = name + letter
        level = following
    return None


_State = tuple[tuple[int, ...], tuple[frozenset[int], ...]]


def _accepts(state: _State, wanted: Sequence[Sequence[str]], unwanted: Sequence[Sequence[str]]) -> bool:
    inside = all(len(p) in _closure({at}, p) for at, p in zip(state[0], wanted, strict=True))
    return inside and not any(len(p) in at for at, p in zip(state[1], unwanted, strict=True))


def _steps(
    state: _State, wanted: Sequence[Sequence[str]], unwanted: Sequence[Sequence[str]], letter: str
) -> Iterator[_State]:
    """The states after one more character, for every choice of a next position in each included glob."""
    choices = [_step(_closure({at}, p), p, letter) for at, p in zip(state[0], wanted, strict=True)]
    rest = tuple(_closure(_step(at, p, letter), p) for at, p in zip(state[1], unwanted, strict=True))
    for positions in product(*choices):
        yield positions, rest


def _representatives(patterns: Sequence[Sequence[str]], rule: NameRule) -> list[str]:
    """One character of each class of characters that all tokens treat alike."""
    kinds = sorted({part for p in patterns for part in p})
    letters_of: dict[tuple[bool, ...], str] = {}
    for letter in rule.rest:
        signature = (letter in rule.first, *(_fits(letter, kind) for kind in kinds))
        letters_of.setdefault(signature, letter)
    return list(letters_of.values())


def _closure(positions: Iterable[int], parts: Sequence[str]) -> frozenset[int]:
    """The positions, and those after each ``*`` there, which may match nothing."""
    reached = set(positions)
    for position in positions:
        while position < len(parts) and parts[position] == "*":
            position += 1
            reached.add(position)
    return frozenset(reached)


def _step(positions: Iterable[int], parts: Sequence[str], letter: str) -> set[int]:
    after: set[int] = set()
    for position in positions:
        if position >= len(parts):
            continue
        part = parts[position]
        if part == "*":
            after.add(position)
        elif part == "?" or _fits(letter, part):
            after.add(position + 1)
    return after


@dataclass(frozen=True)
class Lowered:
    """An exact rule that keeps a branch for fewer days than a pattern that matches it would."""

    exact: BranchRule
    pattern: BranchRule


@dataclass(frozen=True)
class Expansion:
    """The result of expanding patterns. ``rules`` are those that the server is to store. ``by_branch`` has
    the rule that gave each branch its days. ``unmatched`` are patterns that match no branch. ``unknown`` are
    exact rules for branches that do not exist (they are stored too, as lakeFS allows)."""

    rules: GcRules
    by_branch: Mapping[str, BranchRule]
    lowered: tuple[Lowered, ...]
    unmatched: tuple[BranchRule, ...]
    unknown: tuple[BranchRule, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for reviewers. Unknown branches are left to the caller, which may have expanded over only
        some of the branches."""
        lowered = tuple(
            f"{low.exact.source}: the rule of branch {low.exact.name!r} keeps {low.exact.retention_days}"
            f" days, fewer than the {low.pattern.retention_days} days of the pattern {low.pattern.name!r} "
            f"({low.pattern.source})"
            for low in self.lowered
        )
        unmatched = tuple(f"{r.source}: the pattern {r.name!r} matches no branch" for r in self.unmatched)
        return lowered + unmatched


def expand(gc: GcDesired, branches: Iterable[str]) -> Expansion:
    """The exact rules for every branch that some rule names or matches. They are written even if their days
    equal the default, which may change. Of two patterns with equal days, the first by name counts."""
    names = sorted(set(branches))
    exact = {rule.name: rule for rule in gc.branches if not rule.is_pattern}
    patterns = sorted((r for r in gc.branches if r.is_pattern), key=lambda r: (-r.retention_days, r.name))
    by_branch: dict[str, BranchRule] = dict(exact)
    lowered: list[Lowered] = []
    matched: set[str] = set()
    for name in names:
        fitting = [rule for rule in patterns if matches(name, rule.name)]
        matched.update(rule.name for rule in fitting)
        if not fitting:
            continue
        largest = fitting[0]
        result = by_branch.setdefault(name, largest)
        if result is exact.get(name) and result.retention_days < largest.retention_days:
            lowered.append(Lowered(result, largest))
    days = {name: rule.retention_days for name, rule in by_branch.items()}
    return Expansion(
        rules=GcRules(gc.default_retention_days, days),
        by_branch=dict(sorted(by_branch.items())),
        lowered=tuple(lowered),
        unmatched=tuple(rule for rule in patterns if rule.name not in matched),
        unknown=tuple(rule for name, rule in sorted(exact.items()) if name not in set(names)),
    )

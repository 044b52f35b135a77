from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan import limits
from lakeplan.retention.patterns import (
    BRANCH_NAMES,
    REPOSITORY_NAMES,
    Budget,
    NameRule,
    TooManyGlobs,
    is_glob,
    matches,
    names_repository,
    pattern_problem,
    safe_spellings,
    share_a_name,
    specificity,
    tokens,
    unsafe_class,
    why_no_branch,
    why_no_repository,
    why_no_tag,
    why_nothing,
    witness,
)

TINY = NameRule("thing", "ab", "ab-", 1, 4)
EVERY = [
    n for length in range(1, 5) for n in ("".join(c) for c in product("ab-", repeat=length)) if TINY.allows(n)
]
GLOBS = st.lists(
    st.sampled_from(["*", "?", "a", "b", "-", "[ab]", "[!a]", "[a-b]", "[-]", "[", "]", "!"]), max_size=5
).map("".join)


@given(GLOBS, GLOBS)
def it_knows_whether_two_globs_share_a_name(one: str, other: str) -> None:
    endless = replace(TINY, longest=None)
    shared = one and other and witness([one, other], [], endless)
    assert share_a_name(one, other, endless) == bool(shared)


def it_knows_of_all_small_globs_whether_two_share_a_name() -> None:
    """A shortest shared name has at most four characters: two globs of three tokens, each with a ``*``."""
    endless = replace(TINY, longest=None)
    small = ["".join(p) for length in range(4) for p in product(["*", "?", "a", "[!a]"], repeat=length)]
    names = {
        glob: {n for n in EVERY if fnmatchcase(n, glob)} for glob in [*small, "-", "-*", "b-", "x*", "[x]"]
    }
    for one, other in product(names, repeat=2):
        assert share_a_name(one, other, endless) == bool(names[one] & names[other]), (one, other)


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("a**b?", ("a", "*", "b", "?")),
        ("[abc]x", ("[abc]", "x")),
        ("[]a]", ("[]a]",)),
        ("[!]a]", ("[!]a]",)),
        ("[a", ("[", "a")),
        ("[]", ("[", "]")),
        ("[]a", ("[", "]", "a")),
        ("[!]", ("[", "!", "]")),
        ("[[]x", ("[[]", "x")),
        ("", ()),
    ],
)
def it_takes_a_glob_apart(pattern: str, parts: tuple[str, ...]) -> None:
    assert tokens(pattern) == parts


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ("*", "a*"),
        ("a*", "team-*"),
        ("*-prod", "team-*-prod"),
        ("a-*", "a-?"),
        ("a-*", "a-?*"),
        ("a-?", "a-[xy]"),
        ("a*b*", "a*b"),
    ],
)
def it_orders_globs_by_how_much_they_say(weaker: str, stronger: str) -> None:
    assert specificity(weaker) < specificity(stronger)


def it_calls_globs_equal_that_say_as_much() -> None:
    assert specificity("team-*") == specificity("*-prod")


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("ab", True), ("a-b", True), ("a", False), ("abab", False), ("-a", False), ("aé", False), ("-é", False)],
)
def it_allows_names_by_their_length_and_characters(name: str, allowed: bool) -> None:
    assert NameRule("thing", "ab", "ab-", 2, 3).allows(name) is allowed


def it_allows_any_length_where_no_longest_is_named() -> None:
    assert NameRule("thing", "ab", "ab-", 1, None).allows("ab" * 1000)


@pytest.mark.parametrize(("text", "glob"), [("a*", True), ("a?", True), ("[a", True), ("X-]", False)])
def it_knows_a_glob_by_its_characters(text: str, glob: bool) -> None:
    assert is_glob(text) is glob


def it_matches_with_case_and_from_end_to_end() -> None:
    assert matches("main", "ma*")
    assert not matches("Main", "ma*")
    assert not matches("a-main", "ma*")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("analytics", True),
        ("a*", True),
        ("prod/analytics", True),
        ("p*/a*", True),
        ("*/analytics", True),
        ("raw", False),
        ("prod", False),
        ("p*s", False),
        ("prod/raw", False),
        ("dev/analytics", False),
        ("analytics/prod", False),
        ("/analytics", False),
        ("prod/", False),
        ("prod/x/analytics", False),
    ],
)
def it_names_a_repository_alone_or_with_its_server(pattern: str, names: bool) -> None:
    assert names_repository(pattern, "prod", "analytics") is names


def it_says_what_is_wrong_with_a_pattern() -> None:
    def why_not(pattern: str) -> str | None:
        return None if pattern.startswith("a") else "no a"

    assert pattern_problem("ab*", why_not) is None
    assert pattern_problem("b*", why_not) == "the pattern 'b*' cannot match anything: no a"
    assert pattern_problem("a" * limits.GLOB_CHARACTERS, why_not) is None
    assert pattern_problem("a" * 5_000, why_not) == (
        f"a pattern may have at most {limits.GLOB_CHARACTERS:,} characters, but this one has 5,000"
    )
    assert pattern_problem("a" * (limits.GLOB_CHARACTERS + 1), why_not)


def it_spends_a_step_for_every_state_and_refuses_without_any_left() -> None:
    budget = Budget(2)
    budget.spend(2)
    assert budget.left == 0
    with pytest.raises(TooManyGlobs):
        budget.spend(1)
    budget = Budget(100)
    assert witness(["ab"], [], TINY, budget) == "ab"
    assert budget.left == 98
    with pytest.raises(TooManyGlobs):
        witness(["ab"], [], TINY, Budget(1))


def it_counts_literals_classes_and_question_marks_apart() -> None:
    assert specificity("ab[cd]?*") == (2, 1, 1, -1)
    assert specificity("[ab][cd]") == (0, 2, 0, 0)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("v*", None),
        ("v{1,2}", None),
        ("X1", None),
        ("[]", "the [ has no closing ]"),
        ("release/1", "a tag name cannot contain '/'"),
        ("a^", "a tag name cannot contain '^'"),
        ("a:", "a tag name cannot contain ':'"),
        ("a\\", "a tag name cannot contain '\\\\'"),
        ("a b", "a tag name cannot contain ' '"),
        ("[a", "the [ has no closing ]"),
        ("v[^1]*", "[^1] does not exclude these characters; write [!1] instead"),
    ],
)
def it_says_why_a_glob_matches_no_tag(pattern: str, why: str | None) -> None:
    assert why_no_tag(pattern) == why


@pytest.mark.parametrize("pattern", ["*", "main", "release-*", "[abc]*", "[!a]?", "__*", "A-1", "[]a]"])
def it_finds_nothing_wrong_with_a_glob_that_can_match(pattern: str) -> None:
    assert why_nothing(pattern, BRANCH_NAMES) is None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("release/*", "a branch name cannot contain '/'"),
        ("a.b", "a branch name cannot contain '.'"),
        ("{a,b}", "a branch name cannot contain '{'; write several patterns instead of an {a,b} group"),
        ("[a", "the [ has no closing ]"),
        ("[z-a]", "[z-a] does not match any character that a branch name can contain"),
        ("[.]", "does not match any character"),
        ("[^a]", "[^a] does not exclude these characters; write [!a] instead"),
        ("a,b", "a branch name cannot contain ','; write several patterns instead of an {a,b} group"),
        ("-*", "no branch name can have this form"),
        ("", "no branch name can have this form"),
        ("é*", "a branch name cannot contain 'é'"),
    ],
)
def it_says_why_a_glob_matches_no_branch(pattern: str, why: str) -> None:
    assert why in (why_nothing(pattern, BRANCH_NAMES) or "")


def it_knows_branches_from_repositories() -> None:
    assert why_no_branch("X_") is None
    assert why_no_branch("a.") == "a branch name cannot contain '.'"
    assert why_no_repository("abc") is None
    assert why_no_repository("X*") == "a repository name cannot contain 'X'"


def it_knows_how_long_a_repositorys_name_is() -> None:
    assert why_nothing("??", REPOSITORY_NAMES) is not None
    assert why_nothing("?" * 63, REPOSITORY_NAMES) is None
    assert why_nothing("?" * 64, REPOSITORY_NAMES) is not None
    assert why_nothing("A*", REPOSITORY_NAMES) is not None


def it_knows_from_its_tokens_alone_whether_a_glob_matches_some_name():
    """As the search for a name does, which takes far longer."""
    rules = (
        NameRule("thing", "ab", "ab-", 2, 3),
        NameRule("thing", "a", "a-", 1, None),
        NameRule("thing", "b", "ab", 3, 3),
    )
    for length in range(5):
        for parts in product("*?a-", repeat=length):
            for rule in rules:
                glob = "".join(parts)
                possible = why_nothing(glob, rule) is None
                hopeless = any(c not in "*?" and c not in rule.rest for c in glob)
                assert possible == (not hopeless and witness([glob], [], rule) is not None), (glob, rule)


def it_finds_a_shortest_name_inside_and_outside_of_small_globs() -> None:
    def globs(parts: list[str], longest: int) -> list[str]:
        return ["".join(p) for length in range(longest + 1) for p in product(parts, repeat=length)]

    long, short = globs(["*", "?", "a", "[!b]"], 3), globs(["*", "?", "a", "-", "[!b]"], 2)
    names = {glob: {name for name in EVERY if fnmatchcase(name, glob)} for glob in [*long, *short]}
    for one, two in product(long, short):
        for include, exclude, fitting in (
            ([one], [two], names[one] - names[two]),
            ([one, two], [], names[one] & names[two]),
        ):
            name = witness(include, exclude, TINY)
            assert (name in fitting) if fitting else name is None, (include, exclude)
            assert name is None or len(name) == min(map(len, fitting))


def it_ignores_what_is_left_out_and_then_names_the_glob_itself_where_it_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lakeplan.retention.patterns._MAX_POSITIONS", 1)
    assert witness(["a*"], ["a"], TINY) == "a"
    monkeypatch.setattr("lakeplan.retention.patterns._MAX_POSITIONS", 0)
    assert witness(["a*"], [], TINY) == "a*"
    assert witness(["a*"], ["a"], TINY) == "a*"
    monkeypatch.setattr("lakeplan.retention.patterns._MAX_POSITIONS", 3)
    budget = Budget(100)
    assert witness(["aa*"], ["b"], TINY, budget) == "aa"
    assert budget.left == 100 - 1 - 2, "one state before it gives up, and two after"


@settings(max_examples=300)
@given(GLOBS)
def it_finds_a_name_exactly_when_there_is_one(pattern: str) -> None:
    name = witness([pattern], [], TINY)
    assert (name is not None) == any(fnmatchcase(n, pattern) for n in EVERY)
    assert name is None or (fnmatchcase(name, pattern) and TINY.allows(name))


@settings(max_examples=300)
@given(GLOBS, GLOBS, st.lists(GLOBS, max_size=2))
def it_finds_a_name_of_two_globs_outside_of_others(one: str, two: str, others: list[str]) -> None:
    def fits(n: str) -> bool:
        inside = fnmatchcase(n, one) and fnmatchcase(n, two)
        return inside and not any(fnmatchcase(n, other) for other in others)

    name = witness([one, two], others, TINY)
    assert (name is not None) == any(map(fits, EVERY))
    assert name is None or fits(name)


@given(GLOBS)
def it_never_complains_about_a_glob_that_matches(pattern: str) -> None:
    if any(fnmatchcase(n, pattern) for n in EVERY) and "[^" not in pattern:
        assert why_nothing(pattern, TINY) is None


@given(st.text("ab-", min_size=1, max_size=5))
def it_takes_a_plain_name_for_itself(name: str) -> None:
    assert not is_glob(name)
    assert tokens(name) == tuple(name)


def it_gives_up_on_a_monster_without_hanging() -> None:
    name = witness(["*a" + "?" * 30, "*b" + "?" * 31], ["*c" + "?" * 29, "*d" + "?" * 28], REPOSITORY_NAMES)
    assert name is not None


def gobwas_class(text: str) -> set[str] | None:
    """What gobwas reads in ``[text]``: one range, or characters; None for what it refuses."""
    negated, text = (True, text[1:]) if text[:1] == "!" else (False, text)
    if len(text) > 1 and text[1] == "-":
        if len(text) != 3:
            return None
        found = {c for c in NAMES if text[0] <= c <= text[2]}
    else:
        found = set(text) & set(NAMES)
    return set(NAMES) - found if negated else found


def path_match_class(text: str) -> set[str] | None:
    """What Go's ``path.Match`` reads in ``[text]``; None for what it refuses."""
    negated, text = (True, text[1:]) if text[:1] == "^" else (False, text)
    found: set[str] = set()
    while text:
        if text[0] == "-":
            return None
        low, high, text = text[0], text[0], text[1:]
        if text[:1] == "-":
            if text[1:2] in ("", "-"):
                return None
            high, text = text[1], text[2:]
        found |= {c for c in NAMES if low <= c <= high}
    return set(NAMES) - found if negated else found


NAMES = BRANCH_NAMES.rest
INSIDE = st.text("ab-z_!^09AZ", min_size=1, max_size=5)


@given(INSIDE)
def it_allows_exactly_the_classes_that_both_dialects_of_lakefs_read_as_it_does(inside: str) -> None:
    here = {c for c in NAMES if matches(c, f"[{inside}]")}
    if unsafe_class(f"[{inside}]x") is None:
        assert gobwas_class(inside) == path_match_class(inside) == here


@given(st.lists(st.one_of(INSIDE.map("[{}]".format), st.sampled_from(["*", "?", "a", "-"])), max_size=3))
def it_spells_a_pattern_so_that_both_dialects_match_the_same_branches(parts: list[str]) -> None:
    pattern = "a" + "".join(parts)
    safe = safe_spellings(pattern)
    assert all(unsafe_class(spelling) is None for spelling in safe)
    if safe:
        for name in (f"a{x}{y}{z}" for x in ("", *"ab-_Z9") for y in ("", *"az-_A0") for z in ("", "a", "-")):
            assert matches(name, pattern) == any(matches(name, spelling) for spelling in safe), name


def it_says_what_to_write_in_place_of_a_class_that_is_read_in_two_ways() -> None:
    assert safe_spellings("[!a]x*") == ("[0-9]x*", "[A-Z]x*", "[b-z]x*", "_x*")
    assert safe_spellings("x[-_]a") == ("x_a", "x-a")
    assert safe_spellings("[a-zA-Z]*") == ("[A-Z]*", "[a-z]*")
    assert safe_spellings("[a-c]x[abc_]*") == ("[a-c]x[abc_]*",)
    assert unsafe_class("[a-c]x[abc_]*") is None
    assert unsafe_class("[a-c]x[!]*") == unsafe_class("[a]x[") == "["
    assert safe_spellings("x[!a][!b][!c]") == ()
    assert safe_spellings("x[ab-]") == ("x[ab]", "x-")
    assert safe_spellings("x[abc-]") == ("x[a-c]", "x-")
    assert safe_spellings("x[ab_-]") == ("x[ab_]", "x-")
    assert safe_spellings("x[!-]") == ("x[0-9]", "x[A-Z]", "x[a-z]", "x_")
    assert len(safe_spellings("[a-zA-Z]" * 2 + "[a-zA-Z0-9]")) == 12
    assert safe_spellings("[a-zA-Z]" * 4) == ()

"""What must hold for any tree: merging is deterministic, and nothing but ConfigError comes out of loading."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakeplan.tree.tree import Tree, load_tree
from lakeplan.tree.yaml import Problem, TreeError
from lakeplan.values.desired import DesiredRepository, GcDesired

HEAD = "apiVersion: lakeplan/v1\nservers: {prod: {endpoint_url: 'https://x.example.com'}}\n"
NAMES = ["aaa", "aab", "bbb", "abc", "xab"]
GLOBS = ["*", "a*", "*b", "aa*", "?bb", "a[ab]*"]
DAYS = st.integers(1, 9)
GC = st.fixed_dictionaries(
    {},
    optional={
        "default_retention_days": DAYS,
        "branches": st.lists(
            st.one_of(
                st.fixed_dictionaries({"branch_id": st.sampled_from("xy"), "retention_days": DAYS}),
                st.fixed_dictionaries({"pattern": st.sampled_from(["x*", "*"]), "retention_days": DAYS}),
            ),
            max_size=2,
            unique_by=lambda item: (item.get("branch_id"), item.get("pattern")),
        ),
    },
).filter(bool)
ENTRY = st.fixed_dictionaries({}, optional={"gc": GC, "use": st.permutations(["p", "q"])})
ENTRIES = st.dictionaries(st.sampled_from(NAMES + GLOBS), ENTRY, max_size=6)
PROFILES = st.fixed_dictionaries(
    {"p": st.fixed_dictionaries({"gc": GC}), "q": st.fixed_dictionaries({"gc": GC})}
)
LACKING = {
    **{f"{letter}*": {"gc": {"default_retention_days": 5}} for letter in "abcdefghijk"},
    "*b": {"gc": {"branches": [{"branch_id": "x", "retention_days": 1}]}},
}
"""So many globs overlap that validation does not find that xab lacks its default days."""


def load(files: dict[str, str]) -> Tree:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        return load_tree(Path(folder), {})


def texts(profiles: object, entries: dict[str, object]) -> dict[str, str]:
    return {
        "lakeplan.yaml": HEAD + yaml.safe_dump({"profiles": profiles}, sort_keys=False),
        "repositories/a.yaml": "apiVersion: lakeplan/v1\n"
        + yaml.safe_dump({"repositories": entries}, sort_keys=False),
    }


def resolve(tree: Tree) -> tuple[list[DesiredRepository], list[str]]:
    try:
        return tree.resolve("prod", NAMES), []
    except TreeError as error:
        return [], [p.text for p in error.items]


def problems(files: dict[str, str]) -> tuple[Problem, ...]:
    try:
        load(files)
    except TreeError as error:
        return error.items
    return ()


def outcome(files: dict[str, str]) -> list[tuple[str, str]] | int:
    try:
        tree = load(files)
    except TreeError as error:
        return len(error.items)
    found, lacking = resolve(tree)
    return [(r.name, r.config_hash) for r in found] or len(lacking)


@settings(max_examples=150, deadline=None)
@given(PROFILES, ENTRIES, st.randoms(use_true_random=False))
def it_resolves_the_same_whatever_the_order_of_entries(
    profiles: object, entries: dict[str, object], shuffle: random.Random
) -> None:
    names = list(entries)
    shuffle.shuffle(names)
    assert outcome(texts(profiles, entries)) == outcome(texts(profiles, {n: entries[n] for n in names}))


@settings(max_examples=150, deadline=None)
@given(PROFILES, ENTRIES)
@example({}, LACKING)
def it_resolves_every_live_repository_of_a_tree_that_validates(
    profiles: object, entries: dict[str, object]
) -> None:
    """A tree that validates never fails later, except where a glob alone lacks its default days."""
    try:
        tree = load(texts(profiles, entries))
    except TreeError:
        assert entries != LACKING
        return
    found, lacking = resolve(tree)
    assert lacking or entries != LACKING
    assert all("gc has no default_retention_days after merging" in text for text in lacking)
    for repository in found:
        assert ("gc" in repository.resolved) == isinstance(repository.gc, GcDesired)
        pointers = set(repository.values)
        assert ("/gc/default_retention_days" in pointers) == ("gc" in repository.resolved)


@settings(max_examples=150, deadline=None)
@given(PROFILES, ENTRIES, st.sampled_from(NAMES))
def it_lets_the_exact_entry_have_the_last_word(
    profiles: object, entries: dict[str, object], name: str
) -> None:
    entries = {**entries, name: {"gc": {"default_retention_days": 77}}}
    try:
        tree = load(texts(profiles, entries))
    except TreeError:
        return
    gc = {r.name: r for r in tree.resolve("prod", [])}[name].gc
    assert isinstance(gc, GcDesired)
    assert gc.default_retention_days == 77


VALID = (Path(__file__).parent / "trees" / "small" / "repositories" / "analytics.yaml").read_text()
ROOT = (Path(__file__).parent / "trees" / "small" / "lakeplan.yaml").read_text()
PACKETS = [
    "~",
    "null",
    "[]",
    "{}",
    "clear",
    "-1",
    "1e9",
    "010",
    "yes",
    "''",
    "*",
    "&a",
    "*a",
    "\n",
    "  ",
    "\t",
    "${X}",
]


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """A valid file with a few places overwritten."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.one_of(st.sampled_from(PACKETS), st.text(max_size=3))) + text[end:]
    return text


@settings(max_examples=250, deadline=None)
@given(damaged(ROOT), damaged(VALID))
def it_raises_nothing_but_problems_with_a_position_in_their_file(root: str, entries: str) -> None:
    files = {"lakeplan.yaml": root, "repositories/analytics.yaml": entries}
    for item in problems(files):
        lines = files[item.source.file].replace("\r\n", "\n").removeprefix("\ufeff").split("\n")
        assert 1 <= item.source.line <= len(lines)
        assert 1 <= item.source.column <= len(lines[item.source.line - 1]) + 1
        assert "\n" not in str(item)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
@pytest.mark.parametrize("file", ["lakeplan.yaml", "repositories/a.yaml", "repositories/r.json"])
def it_survives_any_bytes(file: str, data: bytes) -> None:
    entries = "apiVersion: lakeplan/v1\nrepositories: {data-a: {gc: {file: r.json}}}\n"
    files = {"lakeplan.yaml": HEAD, "repositories/b.yaml": entries, "repositories/r.json": "{}"}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).parent.mkdir(exist_ok=True)
            Path(folder, name).write_text(text)
        Path(folder, file).write_bytes(data)
        with pytest.raises(TreeError):
            load_tree(Path(folder), {})

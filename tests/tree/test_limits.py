"""Trees that were made to take all memory or time."""

from __future__ import annotations

import contextlib
import os
from itertools import pairwise
from pathlib import Path

import pytest

from lakeplan import limits
from lakeplan.errors import ConfigError
from lakeplan.tree.tree import load_tree
from tests.cpu import at_most_cpu_seconds

HEAD = "apiVersion: lakeplan/v1\nservers: {prod: {endpoint_url: 'http://x'}}\n"
CHILD = "apiVersion: lakeplan/v1\nrepositories: {}\n"


def problem_of(folder: Path, text: str = HEAD) -> str:
    """The problem of a tree, found in less than the longest allowed time."""
    (folder / "lakeplan.yaml").write_text(text)
    with at_most_cpu_seconds(10), pytest.raises(ConfigError) as caught:
        load_tree(folder, {})
    return "\n".join(caught.value.problems)


@pytest.mark.slow
def it_stops_comparing_globs_that_all_overlap(tmp_path: Path) -> None:
    for count in (100, 1_000):
        entries = "".join(
            f"  '*a{n:05}*': {{gc: {{default_retention_days: {n % 30 + 3}}}}}\n" for n in range(count)
        )
        assert "overlap in too many ways" in problem_of(tmp_path, HEAD + "repositories:\n" + entries)


def it_stops_looking_for_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TREE_PROBLEMS", 100)
    entries = "".join(f"  lake{n}: {{oops: 1}}\n" for n in range(1_000))
    assert problem_of(tmp_path, HEAD + "repositories:\n" + entries).count("\n") == 99


def names(count: int, form: str, between: str = ", ") -> str:
    return between.join(form.replace("?", f"{n:06}-abcdefgh") for n in range(count))


@pytest.mark.parametrize(
    "text",
    [
        f"notify: {{channels: {{c: {{kind: json, events: [{names(5_000, '{a: x?}')}]}}}}}}\n",
        names(20_000, "defaults?: 1\n", ""),
        f"profiles: {{{names(3_000, 'a?: {}')}}}\nrepositories: {{lake: {{use: [{names(300, 'zyx?')}]}}}}\n",
        f"repositories: {{{names(3_000, 'a?: {}')}}}\noverrides:\n"
        + names(300, "- {repository: zyx?, gate: tag-loss, reason: r, expires: 2030-01-01}", "\n"),
    ],
    ids=["events", "keys", "profiles", "overrides"],
)
def it_explains_very_many_mistakes_in_little_time(tmp_path: Path, text: str) -> None:
    assert problem_of(tmp_path, HEAD + text)


def it_lists_few_of_very_many_names(tmp_path: Path) -> None:
    servers = names(2_000, "s?: {endpoint_url: 'http://x'}")
    text = f"apiVersion: lakeplan/v1\nservers: {{{servers}}}\nrepositories: {{lake: {{}}}}\n"
    assert "s000019-abcdefgh and 1,980 more)" in problem_of(tmp_path, text)


def it_counts_the_text_that_aliases_repeat(tmp_path: Path) -> None:
    text = f"name: &a {'x' * 100_000}\ninclude: [{', '.join(['*a'] * 5_000)}]\n"
    assert "exceeds the limit of 33,554,432 characters" in problem_of(tmp_path, HEAD + text)


def it_limits_the_length_of_a_key(tmp_path: Path) -> None:
    children = ", ".join(f"a{n}: 1" for n in range(500))
    found = problem_of(tmp_path, HEAD + f"profiles:\n  ? {'x' * 100_000}\n  : {{{children}}}\n")
    assert found.endswith("a key may have at most 1,024 characters")


def it_cuts_a_text_that_repeats_a_long_value(tmp_path: Path) -> None:
    text = f"overrides: [{{repository: {'x' * 100_000}, gate: tag-loss, reason: r, expires: 2030-01-01}}]\n"
    assert len(problem_of(tmp_path, HEAD + text)) < 11_000


def patterns(count: int, start: int = 0) -> str:
    return ", ".join(f"feature-{n}-*" for n in range(start, start + count))


class DescribePatterns:
    """Each is compared with every branch."""

    @pytest.mark.parametrize(
        "settings",
        [
            "branch_lifecycle: {exempt: [%s]}",
            "holds: [{branch: '%s', reason: r}]",
            "holds: [{tag: '%s', reason: r}]",
            "gc: {default_retention_days: 7, branches: [{pattern: '%s', retention_days: 9}]}",
            "branch_lifecycle: {policies: [{id: p, patterns: ['%s'], max_age: 9d}]}",
        ],
    )
    def it_limits_their_length(self, tmp_path: Path, settings: str) -> None:
        long = "a" * 1_024 + "*"
        text = HEAD + f"repositories: {{lake: {{{settings % long}}}}}\n"
        assert "a pattern may have at most 1,024 characters, but this one has 1,025" in problem_of(
            tmp_path, text
        )

    def it_limits_the_length_of_repositories_and_protected_tags(self, tmp_path: Path) -> None:
        long = "'" + "a*" * 100_000 + "'"
        assert "at most 1,024 characters" in problem_of(
            tmp_path, HEAD + f"repositories: {{? {long} : {{}}}}\n"
        )
        assert "at most 1,024 characters" in problem_of(
            tmp_path, HEAD + f"safety: {{protected_tags: [{long}]}}\n"
        )

    def it_limits_how_many_an_entry_has(self, tmp_path: Path) -> None:
        text = HEAD + f"repositories: {{lake: {{branch_lifecycle: {{exempt: [{patterns(1_001)}]}}}}}}\n"
        assert problem_of(tmp_path, text).endswith("an entry or profile may have at most 1,000 patterns")
        text = HEAD + f"safety: {{protected_tags: [{patterns(1_001)}]}}\n"
        assert "the list exceeds the limit of 1,000 patterns" in problem_of(tmp_path, text)

    def it_checks_as_many_as_an_entry_may_have(self, tmp_path: Path) -> None:
        text = HEAD + f"repositories: {{lake: {{branch_lifecycle: {{exempt: [{patterns(1_000)}]}}}}}}\n"
        (tmp_path / "lakeplan.yaml").write_text(text)
        with at_most_cpu_seconds(5):
            load_tree(tmp_path, {})

    def it_limits_how_many_a_tree_has(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "TREE_GLOBS", 2_500)
        entries = "".join(
            f"  lake{n}: {{branch_lifecycle: {{exempt: [{patterns(900, 900 * n)}]}}}}\n" for n in range(3)
        )
        text = problem_of(tmp_path, HEAD + "repositories:\n" + entries)
        assert text.endswith("a tree may have at most 2,500 patterns")


class DescribeIncludes:
    @pytest.fixture
    def deep(self, tmp_path: Path) -> Path:
        """A folder in a folder, 40 levels, with 20 folders beside each."""
        folder = tmp_path
        for _ in range(40):
            for n in range(20):
                (folder / f"d{n}").mkdir()
            folder /= "d0"
        return tmp_path

    @pytest.mark.parametrize("pattern", ["/".join(["**"] * 10), "**/d0/**/d0/**/d0/**/d0/**/d0/**/*.yaml"])
    def it_walks_a_tree_a_limited_number_of_times(self, deep: Path, pattern: str) -> None:
        (deep / "lakeplan.yaml").write_text(HEAD + f"include: ['{pattern}']\n")
        # beyond the limit, or walked: both are quick
        with at_most_cpu_seconds(10), contextlib.suppress(ConfigError):
            load_tree(deep, {})

    def it_follows_no_circle_of_links_for_ever(self, tmp_path: Path) -> None:
        for n in range(10):
            (tmp_path / f"link{n}").symlink_to(tmp_path)
        text = HEAD + f"include: ['{'/'.join(['*'] * 20)}.yaml']\n"
        assert "search more than the limit of 200,000" in problem_of(tmp_path, text)

    def it_limits_the_parts_of_a_pattern(self, tmp_path: Path) -> None:
        assert "at most 50 parts" in problem_of(tmp_path, HEAD + f"include: ['{'a/' * 60}x.yaml']\n")

    def it_limits_what_one_folder_holds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "TREE_ENTRIES", 50)
        for n in range(60):
            (tmp_path / f"{n}.yaml").write_text(CHILD)
        assert "the limit of 50 files" in problem_of(tmp_path, HEAD + "include: ['*.yaml']\n")

    def it_reads_all_files_through_two_stars_in_a_row(self, tmp_path: Path) -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        for place in ("x.yaml", "a/x.yaml", "a/b/x.yaml"):
            (tmp_path / place).write_text(CHILD)
        (tmp_path / "lakeplan.yaml").write_text(HEAD + "include: ['**/**/*.yaml']\n")
        assert set(load_tree(tmp_path, {}).files) == {"lakeplan.yaml", "x.yaml", "a/x.yaml", "a/b/x.yaml"}


def it_reads_no_more_values_than_the_limit_of_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 MiB of files have 16 million values of four bytes, which take gigabytes."""
    monkeypatch.setattr(limits, "TREE_NODES", 1000)
    for n in range(30):
        (tmp_path / f"{n}.yaml").write_text(CHILD + f"overrides: [{', '.join('0' * 40)}]\n")
    found = problem_of(tmp_path, HEAD + "include: ['*.yaml']\n")
    assert "the files of the tree exceed the limit of 1,000 values" in found


def it_reads_no_more_than_the_limit_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TREE_BYTES", 20_000)
    for n in range(30):
        (tmp_path / f"r{n}.yaml").write_text(CHILD + "# " + "x" * 1_000 + "\n")
    assert "larger than" in problem_of(tmp_path, HEAD + "include: ['*.yaml']\n")


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghij")),
        "[" * 200_000,
        "{a: " * 200_000,
        "a: 1e999\n",
        "a: " + "9" * 100_000 + "\n",
        "a: " + "9" * 400 + "d\n",
        "? " * 50_000,
        "- " * 200_000,
        "&a " * 50_000 + "\n",
        "!" * 100_000,
        "%" * 100_000,
        "'" + "\\n" * 1_000_000,
    ],
    ids=range(12),
)
def it_refuses_yaml_that_cannot_be_held(tmp_path: Path, text: str) -> None:
    assert problem_of(tmp_path, text)


def it_refuses_a_tree_of_devices_and_huge_files(tmp_path: Path) -> None:
    with open(tmp_path / "huge.yaml", "wb") as sparse:
        sparse.truncate(50 * limits.MIB)
    assert "larger than the limit of 8 MiB" in problem_of(tmp_path, HEAD + "include: ['huge.yaml']\n")
    os.mkfifo(tmp_path / "pipe.json")
    text = HEAD + "repositories: {lake: {gc: {file: pipe.json}}}\n"
    assert "not a regular file" in problem_of(tmp_path, text)


def it_compares_very_many_servers_in_little_time(tmp_path: Path) -> None:
    """Half a million pairs took 10 seconds."""
    servers = names(1_000, "  s?: {endpoint_url: 'http://h?.example'}\n", "")
    entries = names(1_000, "  s?/lake: {}\n", "")
    text = f"apiVersion: lakeplan/v1\nservers:\n{servers}repositories:\n{entries}"
    (tmp_path / "lakeplan.yaml").write_text(text)
    with at_most_cpu_seconds(3):
        load_tree(tmp_path, {})


class DescribeValuesThatManyRepositoriesTakeFromOneProfile:
    rules = names(100, "{branch_id: b?, retention_days: 9}")
    profile = f"profiles: {{p: {{gc: {{default_retention_days: 9, branches: [{rules}]}}}}}}\n"

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "RESOLVED_VALUES", 1_000)

    def it_reads_no_more_of_them_than_the_limit(self, tmp_path: Path) -> None:
        entries = names(10, "  lake-?: {use: [p]}\n", "")
        assert "the limit of 1,000 values" in problem_of(
            tmp_path, f"{HEAD}{self.profile}repositories:\n{entries}"
        )

    def it_resolves_no_more_live_repositories_of_a_glob(self, tmp_path: Path) -> None:
        (tmp_path / "lakeplan.yaml").write_text(
            f"{HEAD}{self.profile}repositories: {{'lake-*': {{use: [p]}}}}\n"
        )
        tree = load_tree(tmp_path, {})
        assert len(tree.resolve("prod", [f"lake-{n}" for n in range(4)])) == 4
        with pytest.raises(ConfigError) as caught:
            tree.resolve("prod", [f"lake-{n}" for n in range(5)])
        assert "the limit of 1,000 values" in "".join(caught.value.problems)

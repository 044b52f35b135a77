"""Reads seed files and reports every mistake with its position."""

from __future__ import annotations

import pytest

from lakeplan.errors import ConfigError
from lakeplan.sandbox import seed_document
from lakeplan.sandbox.seed_document import HELP, read_seed


def seed(*lines):
    """A seed of one repository with these steps."""
    body = "".join(f"      - {line}\n" for line in lines)
    return f"repositories:\n  - name: one\n    steps:\n{body}"


def problems_of(text):
    with pytest.raises(ConfigError) as caught:
        read_seed(text, "seed.yaml")
    assert caught.value.where == "seed.yaml"
    return list(caught.value.problems) or [caught.value.message]


class DescribeGoodFiles:
    def it_reads_its_own_description(self):
        (repository,) = read_seed(HELP, "help")
        kinds = [type(placed.step) for placed in repository.steps]
        assert set(kinds) == set(seed_document.Step.__args__)

    def it_reads_steps_in_order_with_their_places(self):
        text = seed(
            "upload: {branch: main, path: a, size: 4KB}", "commit: {branch: main, message: x, age: 2d}"
        )
        (repository,) = read_seed(text, "seed.yaml")
        assert repository.steps == (
            seed_document.PlacedStep(seed_document.Upload("main", "a", 4000), "seed.yaml:4:9"),
            seed_document.PlacedStep(seed_document.Commit("main", "x", 172_800), "seed.yaml:5:9"),
        )

    def it_has_defaults(self):
        (repository,) = read_seed("repositories:\n  - name: one\n", "f")
        assert repository == seed_document.RepositorySeed("one", "main", None, ())

    def it_numbers_objects_of_a_folder(self):
        (repository,) = read_seed(seed("upload: {branch: main, path: d/, count: 2}"), "f")
        assert repository.steps[0].step.paths == ["d/00000", "d/00001"]


class DescribeMistakes:
    def it_tells_all_of_them_in_the_order_of_the_file(self):
        text = seed(
            "upload: {branch: main, path: a, size: huge}",
            "comit: {branch: main}",
            "commit: {branch: main, mesage: x}",
            "tag: {name: v1}",
        )
        assert problems_of(text) == [
            "seed.yaml:4:47: repositories[0].steps[0].upload.size: must be a size such as 512 or 4KB",
            "seed.yaml:5:9: repositories[0].steps[1]: unknown step `comit`; did you mean `commit`?",
            "seed.yaml:6:17: repositories[0].steps[2].commit: `message` is missing",
            "seed.yaml:6:32: repositories[0].steps[2].commit.mesage: unknown key; did you mean `message`?",
            "seed.yaml:7:14: repositories[0].steps[3].tag: `ref` is missing",
        ]

    @pytest.mark.parametrize(
        ("step", "mistake"),
        [
            ("commit: {branch: main, message: x, age: soon}", "commit.age: must be an age such as 40d"),
            ("commit: {branch: main, message: x, allow_empty: maybe}", "must be true or false"),
            ("commit: {branch: ~, message: x}", "commit.branch: must be a string"),
            ("commit: {branch: [a], message: x}", "commit.branch: must be a string"),
            ("commit: main", "commit: must be a mapping"),
            ("{commit: {}, tag: {}}", "must be one step"),
            ("commit", "must be one step"),
            ("upload: {branch: main, path: a, count: 3}", "with `count`, the path must end in `/`"),
            ("upload: {branch: main, path: a/, count: 0}", "must be a whole number of at least 1"),
            ("merge: {source: a, into: b, strategy: mine}", "must be source-wins or dest-wins"),
            ("gc_rules: {default_retention_days: many}", "must be a whole number"),
            ("gc_rules: {default_retention_days: 1, branches: [main]}", "branches: must be a mapping"),
            ("protect: {patterns: main}", "protect.patterns: must be a list"),
            ("revert: {branch: main, ref: main, parent: 0}", "at least 1"),
            ("tag: {name: a, name: b, ref: main}", "tag.name: appears twice"),
        ],
    )
    def it_says_what_is_wrong(self, step, mistake):
        (problem,) = problems_of(seed(step))
        assert problem.startswith("seed.yaml:4:")
        assert mistake in problem

    def it_refuses_two_repositories_of_one_name(self):
        (problem,) = problems_of("repositories:\n  - name: one\n  - name: one\n")
        assert problem == "seed.yaml:3:5: repositories: two repositories are named one"

    @pytest.mark.parametrize(
        ("text", "mistake"),
        [
            ("", "empty"),
            ("# nothing\n", "empty"),
            ("a: [", "line 1"),
            ("repositories: {a: 1}", "must be a list"),
            ("repo: []", "`repositories` is missing"),
            ("- a", "must be a mapping"),
            ("a: &x [1]\nb: *x", "line 2, column 4: aliases are not supported"),
            ("a: \x00", "the file is not valid YAML"),
        ],
    )
    def it_refuses_what_is_no_seed(self, text, mistake):
        assert any(mistake in problem for problem in problems_of(text))

    def it_constructs_no_python(self):
        problems = problems_of("repositories: !!python/object/apply:os.system ['true']")
        assert problems

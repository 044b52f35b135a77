from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.core import TyperGroup

from lakeplan.cli import click
from lakeplan.cli.main import whole_command
from lakeplan.tree.servers import RESERVED_WORDS
from lakeplan.tree.tree import load_tree
from lakeplan.values.desired import SERVER_SUFFIXES, Price

HEAD = "apiVersion: lakeplan/v1\nservers:\n"


@pytest.mark.parametrize(
    ("servers", "line"),
    [
        ("  prod: {endpoint_url: 'ftp://x'}", "3:24: servers.prod.endpoint_url: the"),
        ("  prod: {endpoint_url: 'https://'}", "3:24: servers.prod.endpoint_url: the"),
        ("  prod: {endpoint_url: 'https://x:y/'}", "3:24: servers.prod.endpoint_url: the port"),
        (
            "  prod: {endpoint_url: 'https://x/?a=b'}",
            "3:24: servers.prod.endpoint_url: a URL must not have a query",
        ),
        (
            "  prod: {endpoint_url: 'http://x', cost_per_gb_month: 2 cents}",
            "3:55: servers.prod.cost_per_gb_month: expected a price such as 0.023 or 0.023 USD",
        ),
        (
            "  prod: {endpoint_url: 'http://x', cost_per_gb_month: -1}",
            "3:55: servers.prod.cost_per_gb_month: ",
        ),
        (
            "  prod: {endpoint_url: 'http://x', cost_per_gb_month: .inf}",
            "3:55: servers.prod.cost_per_gb_month: expected a price",
        ),
        (
            "  prod: {endpoint_url: 'http://x', cost_per_gb_month: 1_000_000_000}",
            "3:55: servers.prod.cost_per_gb_month: expected a price such as 0.023 or 0.023 USD, below 1",
        ),
        ("  prod: {}", "3:9: servers.prod: the key endpoint_url is missing"),
        (
            "  prod: {endpoint_url: 'http://x', time_zone: Mars/Base}",
            "3:47: servers.prod.time_zone: 'Mars/Base' is not a",
        ),
        (
            "  state: {endpoint_url: 'http://x'}",
            "3:3: servers.state: this server's environment variables would begin with LAKEPLAN_STATE_",
        ),
        (
            "  Var-x: {endpoint_url: 'http://x'}",
            "3:3: servers.Var-x: this server's environment variables would begin with LAKEPLAN_VAR_",
        ),
        ("  9x: {endpoint_url: 'http://x'}", "3:3: servers.9x: a server name must begin with a letter"),
        (
            "  a-b: {endpoint_url: 'http://x'}\n  A_b: {endpoint_url: 'http://x'}",
            "4:3: servers.A_b: 'A_b' and 'a-b' would use the same environment variables, LAKEPLAN_A_B_…",
        ),
        (
            "  p: {endpoint_url: 'http://x', branch_lifecycle: {engine: auto}}",
            "3:60: servers.p.branch_lifecycle.engine: expected one of server, lakeplan, none",
        ),
        (
            "  p: {endpoint_url: 'http://x', storages: {'': {type: oss}}}",
            "3:55: servers.p.storages..type: expected one of s3, azure, local, gcs",
        ),
        ("  p: {endpoint_url: 'http://x', storages: {a: {type: local}}}", "3:47: servers.p.storages.a: a"),
        (
            "  p: {endpoint_url: 'http://x', storages: {a: {type: s3, inventory: 's3://b/inv/'}}}",
            "3:69: servers.p.storages.a.inventory: this is not the URL of a manifest.json; write the URL",
        ),
        (
            "  p: {endpoint_url: 'http://x', storages: {a: {type: s3, inventory: 'file:///manifest.json'}}}",
            "3:69: servers.p.storages.a.inventory: ",
        ),
        (
            "  p: {endpoint_url: 'http://x', storages: {a: {type: azure, inventory:"
            " 's3://b/i/manifest.json'}}}",
            "3:72: servers.p.storages.a.inventory: only a storage of type s3 can have an S3 inventory",
        ),
        (
            "  p: {endpoint_url: 'http://x', storages: {a: {type: s3, inventory_max_age: soon}}}",
            "3:77: servers.p.storages.a.inventory_max_age: expected a duration",
        ),
        (
            "  p: {endpoint_url: 'http://x', storages: {a: {type: s3, inventory_max_age: 99999d}}}",
            "3:77: servers.p.storages.a.inventory_max_age: a duration must be at most 36500 days",
        ),
    ],
)
def it_reports_a_server_that_cannot_be_meant(problem: Callable[..., str], servers: str, line: str) -> None:
    assert problem(HEAD + servers + "\n").startswith(f"lakeplan.yaml:{line}")


@pytest.mark.parametrize(
    ("written", "price"),
    [("0.023", Price(0.023)), ("'0.023'", Price(0.023)), ("0.02 EUR", Price(0.02, "EUR")), ("0", Price(0.0))],
)
def it_reads_what_storage_costs(tree: Any, written: str, price: Price) -> None:
    text = HEAD + f"  prod: {{endpoint_url: 'http://x', cost_per_gb_month: {written}}}\n"
    server = tree.load(text).servers["prod"]
    assert server.cost_per_gb_month == price
    assert str(server.cost_source) == "lakeplan.yaml:3:55"


def it_never_repeats_a_password(problem: Callable[..., str]) -> None:
    text = problem(HEAD + "  prod: {endpoint_url: 'https://me:hunter2@x'}\n")
    assert "a URL must not contain a user or password" in text
    assert "hunter2" not in text


class DescribeVariables:
    TREE = HEAD + "  prod: {endpoint_url: 'https://${HOST}:${LAKEPLAN_VAR_PORT}/'}\n"

    def it_reads_only_variables_of_trees(self, tree: Any) -> None:
        environ = {"LAKEPLAN_VAR_HOST": "a.example.com", "LAKEPLAN_VAR_PORT": "8000", "HOST": "evil"}
        assert (
            tree.load(self.TREE, environ=environ).servers["prod"].endpoint_url == "https://a.example.com:8000"
        )

    def it_reports_each_one_that_is_missing(self, tree: Any) -> None:
        found = tree.problems(self.TREE, environ={"HOST": "a.example.com"})
        assert [line.partition(" reads ")[2].partition(",")[0] for line in found] == [
            "the variable LAKEPLAN_VAR_HOST",
            "the variable LAKEPLAN_VAR_PORT",
        ]

    def it_refuses_what_is_no_name(self, problem: Callable[..., str]) -> None:
        assert "is not a valid variable name" in problem(HEAD + "  p: {endpoint_url: 'http://${a b}'}\n")
        assert "a ${ has no closing }" in problem(HEAD + "  p: {endpoint_url: 'http://${a'}\n")


def it_keeps_servers_apart_from_every_option_of_the_command() -> None:
    def variables(command: click.Command) -> set[str]:
        own = {p.envvar for p in command.params if isinstance(p.envvar, str)}
        children = command.commands.values() if isinstance(command, TyperGroup) else ()
        return own.union(*(variables(child) for child in children))

    options = variables(whole_command())
    assert options
    for option in options:
        for suffix in SERVER_SUFFIXES:
            word = option.removeprefix("LAKEPLAN_").removesuffix(f"_{suffix}")
            if option == f"LAKEPLAN_{word}_{suffix}":
                assert word.split("_")[0] in RESERVED_WORDS, f"a server called {word} would set {option}"


class DescribeTwoNamesOfOneServer:
    ROOT = (
        "apiVersion: lakeplan/v1\nservers:\n  prod: {endpoint_url: 'https://Lake.example.com'}\n"
        "  lake: {endpoint_url: 'https://lake.example.com:443/api/v1/'}\n"
        "  other: {endpoint_url: 'https://other.example.com'}\ndefaults: {server: prod}\n"
    )

    @pytest.mark.parametrize(
        ("one", "other", "shared"),
        [
            ("prod/abc1", "lake/abc1", "abc1"),
            ("prod/abc1", "lake/abc*", "abc1"),
            ("prod/abc*", "lake/abc1", "abc1"),
            ("prod/ab-*", "lake/*-c", "ab-c"),
        ],
    )
    def it_refuses_a_repository_that_has_entries_under_both(self, tree, one, other, shared):
        (problem,) = tree.problems(self.ROOT, f"  {one}: {{}}\n  {other}: {{}}\n")
        assert (
            f"prod and lake are two names for the same server, and '{one}' at" in problem
            or f"'{other}' at" in problem
        )
        assert f"also matches the repository '{shared}'" in problem

    @pytest.mark.parametrize(
        "entries", [("prod/abc1", "lake/abc2"), ("prod/abc*", "lake/b*"), ("prod/*", "other/*")]
    )
    def it_takes_names_for_different_repositories(self, tree, entries):
        assert tree.problems(self.ROOT, "".join(f"  {key}: {{}}\n" for key in entries)) == []

    def it_reads_such_a_tree_as_a_base(self, tree):
        root = tree.write(self.ROOT, "  prod/abc1: {}\n  lake/abc1: {}\n")
        assert load_tree(root, {}, is_base=True)

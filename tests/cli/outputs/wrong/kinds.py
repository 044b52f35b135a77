"""Kinds of wrong use: what a command line, a file, a setting or a server may have wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.cli.outputs.site import Site

CLOSED = "http://127.0.0.1:10001"
"""Nobody listens there."""
Uses = Mapping[str, "Wrong"]


@dataclass(frozen=True)
class Wrong:
    """One wrong use. ``code`` is what it has to exit with; ``{url}``, ``{lake}`` and ``{mark}`` stand in a
    line as in a right use."""

    line: str
    code: int = 64
    stage: str = "seeded"
    prepare: Callable[[Site], None] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def no_tree(line: str) -> Uses:
    """A command of a tree, where there is none, and where there is one that does not hold together."""
    return {
        "a folder without a tree": Wrong(f"{line} -C away", 1),
        "a tree with mistakes": Wrong(line, 1, prepare=misspelt),
    }


def no_server(line: str, code: int = 1, stage: str = "seeded") -> Uses:
    """A command that asks a server, which cannot be asked."""
    return {
        "no credentials": Wrong(
            line,
            code,
            stage,
            environment={"LAKEPLAN_PROD_ACCESS_KEY_ID": "", "LAKEPLAN_PROD_SECRET_ACCESS_KEY": ""},
        ),
        "half of the credentials": Wrong(line, code, stage, environment={"LAKEPLAN_PROD_ACCESS_KEY_ID": ""}),
        "credentials of another server": Wrong(
            line, code, stage, environment={"LAKEPLAN_PROD_ENDPOINT_URL": "https://lakefs.example.com"}
        ),
        "a wrong secret": Wrong(
            line, code, stage, environment={"LAKEPLAN_PROD_SECRET_ACCESS_KEY": "wrong-secret"}
        ),
        "a server that does not answer": Wrong(
            line,
            code,
            stage,
            environment={"LAKEPLAN_VAR_SANDBOX_URL": CLOSED, "LAKEPLAN_PROD_ENDPOINT_URL": CLOSED},
        ),
    }


def typing(line: str, option: str = "--ouput x") -> Uses:
    """Options that do not exist, or take no such value."""
    return {
        "an option that does not exist": Wrong(f"{line} {option}"),
        "a log level that does not exist": Wrong(f"{line} --log-level loud"),
    }


def output(line: str) -> Uses:
    return {
        "a format that does not exist": Wrong(f"{line} --format yaml"),
        "two formats for one place": Wrong(f"{line} --format json --format rich"),
        "more files than formats": Wrong(f"{line} --format json --out a.json --out b.json"),
    }


def misspelt(site: Site) -> None:
    site.edit("repositories/analytics.yaml", "retention_days: 28", "retention_day: 28")
    site.edit("repositories/streams.yaml", "retention_days: 100", "retention_days: many")


def not_yaml(site: Site) -> None:
    site.edit("repositories/analytics.yaml", "    use: [standard]", "    use: [standard")


def cut(file: str) -> Callable[[Site], None]:
    """``file`` is the first half of a plan file."""

    def prepare(site: Site) -> None:
        told = site.lakeplan(f"plan --no-simulate --out {file} -q")
        assert told.code == 4, told.err
        whole = (site.tree / file).read_text(encoding="utf-8")
        site.write(file, whole[: len(whole) // 2])

    return prepare

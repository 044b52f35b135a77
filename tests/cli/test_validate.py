from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakeplan.cli.commands.show import show_resolved
from lakeplan.cli.main import run
from lakeplan.cli.outputs import Output, Outputs
from lakeplan.errors import UsageError

SMALL = Path(__file__).parent.parent / "tree" / "trees" / "small"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    (tmp_path / "lakeplan.yaml").write_text(
        "apiVersion: lakeplan/v1\n"
        "servers: {prod: {endpoint_url: 'https://x.example.com'}}\n"
        "unmanaged: wran\n"
        "repositories: {data-a: {gc: }}\n"
    )
    return tmp_path


def it_sums_up_a_valid_tree_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "-C", str(SMALL)]) == 0
    out, err = capsys.readouterr()
    assert out == "The tree is valid: 2 repositories by name and 1 glob on 1 server, in 2 files.\n"
    assert err == ""


def it_prints_nothing_when_quiet_and_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "--tree", str(SMALL), "-q"]) == 0
    assert capsys.readouterr().out == ""


def it_exits_with_1_and_prints_every_problem(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "-C", str(broken)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "the tree has 2 problems" in err
    assert "  lakeplan.yaml:3:12: unmanaged: expected one of ignore, warn, fail" in err
    assert (
        "  lakeplan.yaml:4:25: repositories.data-a.gc: this value is empty; to remove the gc settings from"
        " the server, write `gc: clear`" in err
    )


def it_prints_problems_as_json(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "-C", str(broken), "--format", "json"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["valid"] is False
    assert [(p["file"], p["line"], p["column"], p["path"]) for p in document["problems"]] == [
        ("lakeplan.yaml", 3, 12, "unmanaged"),
        ("lakeplan.yaml", 4, 25, "repositories.data-a.gc"),
    ]
    assert err == ""


def it_prints_a_valid_tree_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "v.json"
    assert run(["validate", "-C", str(SMALL), "--format", "json", "--out", str(target)]) == 0
    assert json.loads(target.read_text()) == {
        "valid": True,
        "files": 2,
        "servers": 1,
        "profiles": 1,
        "repositories": 2,
        "globs": 1,
        "problems": [],
    }
    assert "The tree is valid" in capsys.readouterr().out


def it_refuses_other_formats_as_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "-C", str(SMALL), "--format", "xml"]) == 64
    assert "unknown format 'xml'" in capsys.readouterr().err


def it_says_where_a_tree_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "-C", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "there is no lakeplan.yaml in" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["tree", "repository"])
def it_prints_a_schema(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", name]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def it_refuses_a_schema_that_does_not_ship(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "nope"]) == 64
    assert "unknown schema 'nope'" in capsys.readouterr().err


class DescribeTheResolvedView:
    def it_prints_every_value_with_its_file_and_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        show_resolved(SMALL, "team-a-x", Outputs((Output("rich", None),), no_color=True))
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert lines == [
            ["prod/team-a-x", "entry", "team-a-*,", "repositories/analytics.yaml:24:3"],
            ["gc.default_retention_days", "21", "lakeplan.yaml:12"],
            ["gc.branches[main].branch_id", '"main"', "repositories/analytics.yaml:28"],
            ["gc.branches[main].retention_days", "60", "repositories/analytics.yaml:28"],
        ]

    def it_prints_json_with_every_value(self, capsys: pytest.CaptureFixture[str]) -> None:
        show_resolved(SMALL, "prod/analytics", Outputs((Output("json", None),), no_color=True))
        (repository,) = json.loads(capsys.readouterr().out)["repositories"]
        values = {v["path"]: (v["value"], v["line"]) for v in repository["values"]}
        assert values["gc.branches[release-*].retention_days"] == (90, 11)
        assert values["holds[0].until"] == ("2027-01-01", 22)

    def it_says_which_repository_was_probably_meant(self) -> None:
        with pytest.raises(UsageError, match="the tree has no entry for 'analytisc'") as error:
            show_resolved(SMALL, "analytisc", Outputs((Output("json", None),), no_color=True))
        assert error.value.hint == "Did you mean analytics?"

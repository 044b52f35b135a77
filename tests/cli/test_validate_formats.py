"""``lakeplan validate --format github|junit``."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lakeplan.cli.main import run

GOOD = "apiVersion: lakeplan/v1\nservers: {prod: {endpoint_url: https://lakefs.example.com}}\n"
BAD = GOOD + "safety: {max_expired_bytes: 5 parsecs}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree in a folder of a git repository."""
    folder = tmp_path / "top" / "deploy"
    folder.mkdir(parents=True)
    subprocess.run(["git", "-C", str(tmp_path / "top"), "init", "-q"], check=True, capture_output=True)
    (folder / "lakeplan.yaml").write_text(GOOD)
    return folder


def it_annotates_problems_where_the_host_finds_the_file(tree, capsys):
    (tree / "lakeplan.yaml").write_text(BAD)
    assert run(["validate", "-C", str(tree), "--format", "github"]) == 1
    out, _ = capsys.readouterr()
    assert out.startswith("::error file=deploy/lakeplan.yaml,line=3,col=29,title=lakeplan%3A safety.max")
    assert len(out.splitlines()) == 1


def it_says_nothing_of_a_valid_tree(tree, capsys):
    assert run(["validate", "-C", str(tree), "--format", "github"]) == 0
    assert capsys.readouterr().out == ""


def it_writes_junit_beside_what_people_read(tree, capsys, tmp_path):
    report = tmp_path / "validate.xml"
    assert run(["validate", "-C", str(tree), "--format", "junit", "--out", str(report)]) == 0
    assert "The tree is valid" in capsys.readouterr().out
    assert ET.parse(report).getroot().attrib["failures"] == "0"
    (tree / "lakeplan.yaml").write_text(BAD)
    assert run(["validate", "-C", str(tree), "--format", "junit", "--out", str(report)]) == 1
    assert "parsecs" in capsys.readouterr().err
    (case,) = ET.parse(report).getroot().iter("testcase")
    assert case.attrib["file"] == "deploy/lakeplan.yaml"
    assert case.find("failure") is not None


def it_has_no_comment_of_a_tree(tree, capsys):
    assert run(["validate", "-C", str(tree), "--format", "markdown"]) == 64
    assert "one of rich, json, github, junit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--format", "gihub"], 64, "unknown format 'gihub'"),
        (
            ["--format", "junit", "--format", "github"],
            64,
            "more than one format would be written to standard output",
        ),
        (
            ["--format", "junit", "--out", "a.xml", "--out", "b.xml"],
            64,
            "2 --out options were given, but only 1 --format option",
        ),
        (["--format", "junit", "--out", "/nowhere/a.xml"], 1, "cannot write"),
        (["--junit"], 64, "No such option"),
    ],
)
def it_explains_wrong_use(tree, capsys, arguments, code, words):
    assert run(["validate", "-C", str(tree), *arguments]) == code
    assert words in " ".join(capsys.readouterr().err.split())


def it_annotates_a_tree_that_is_not_there(tmp_path, capsys):
    assert run(["validate", "-C", str(tmp_path), "--format", "github"]) == 1
    assert "::error file=" in capsys.readouterr().out

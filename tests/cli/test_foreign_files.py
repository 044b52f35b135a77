"""Files named on a command line may be devices, pipes, folders, or JSON that no reader survives."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeplan import limits
from lakeplan.api import read_plan, read_rules
from lakeplan.cli.commands.branches import read_reviewed
from lakeplan.cli.commands.fleet import read_report
from lakeplan.cli.commands.report import read_curve
from lakeplan.errors import LakeplanError
from lakeplan.explain.policy_test import read_tests
from lakeplan.sandbox.seed_document import load as load_seed
from tests.cpu import at_most_cpu_seconds

READERS: list[Callable[[Path], object]] = [
    read_plan,
    read_rules,
    read_reviewed,
    read_curve,
    lambda path: read_report(path, "audit", "--resume"),
    lambda path: read_tests([path], path.parent),
]


@pytest.mark.parametrize("read", READERS)
def it_refuses_what_is_no_regular_file(read: Callable[[Path], object], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with at_most_cpu_seconds(5):
        for path in (Path("/dev/zero"), pipe):
            with pytest.raises(LakeplanError, match="not a regular file") as caught:
                read(path)
            assert str(path) in str(caught.value)
        with pytest.raises(LakeplanError):
            read(tmp_path)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, '{"a": 1e999}', "\ud800"])
def it_refuses_json_that_cannot_be_held(read: Callable[[Path], object], text: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(LakeplanError) as caught:
        read(file)
    assert "plan.json" in f"{caught.value} {getattr(caught.value, 'problems', '')}"


PYTHON = re.compile(
    r"object is not|indices must be|NoneType|KeyError|\('|codec|char \d|Expecting|required property"
)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "text",
    ["hello", "[]", "{}", "null", '{"format": "lakeplan.drift/v1"}', '{"format": "lakep', "\ud800", "["],
)
def it_says_what_is_wrong_in_words_and_what_to_do(
    read: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(LakeplanError) as caught:
        read(file)
    said = " ".join([caught.value.message, *getattr(caught.value, "problems", ())])
    assert not PYTHON.search(said), said
    assert caught.value.hint or getattr(caught.value, "problems", "")


@pytest.mark.parametrize(
    ("read", "kind"),
    [(read_plan, "plan"), (read_reviewed, "lifecycle-plan"), (READERS[-2], "audit")],
    ids=["plan", "branch plan", "report"],
)
def it_says_that_a_newer_lakeplan_wrote_it(read: Callable[[Path], object], kind: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(f'{{"format": "lakeplan.{kind}/v2"}}')
    with pytest.raises(LakeplanError, match=f"lakeplan.{kind}/v2, but this version of lakeplan reads .*/v1"):
        read(file)


def it_refuses_a_deep_seed_at_once() -> None:
    with at_most_cpu_seconds(5), pytest.raises(LakeplanError, match="64 levels"):
        load_seed("[" * 1_000_000, "seed.yaml")


@pytest.mark.parametrize("read", READERS)
def it_refuses_a_file_beyond_the_limit(read: Callable[[Path], object], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    with open(file, "wb") as sparse:
        sparse.truncate(300 * limits.MIB)
    with pytest.raises(LakeplanError, match="larger than"):
        read(file)


@pytest.mark.parametrize(
    "text",
    [
        '{"default_retention_days": 7, "branch": [{"branch_id": "main", "retention_days": 90}]}',
        '{"default_retention_days": 90, "default_retention_days": 7}',
        "{}",
    ],
)
def it_imports_no_rules_that_say_something_else_than_they_seem_to(text: str, tmp_path: Path) -> None:
    file = tmp_path / "analytics.json"
    file.write_text(text)
    with pytest.raises(LakeplanError):
        read_rules(file)

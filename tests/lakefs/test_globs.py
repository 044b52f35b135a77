"""Patterns that a server sends: no more and no longer ones than lakeplan can compare with names."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lakeplan.branches.keepers import is_protected
from lakeplan.errors import UnexpectedAnswer
from lakeplan.lakefs.client import LakeFSBranchReader, LakeFSServer
from lakeplan.lakefs.credentials import Credentials
from tests.lakefs.conftest import Answer, Scripted

LONG, MANY, MUCH = ["*a" * 513], ["a"] * 1001, ["*a" * 500] * 66
Read = Callable[[Scripted, Credentials, list[str]], object]


def policies(scripted: Scripted, credentials: Credentials, patterns: list[str]) -> object:
    scripted.script = [Answer(200, {"policies": [{"name_patterns": patterns, "max_age": 60}]})]
    return LakeFSServer.connect(scripted.config(), credentials).get_policies("r")


def object_rules(scripted: Scripted, credentials: Credentials, patterns: list[str]) -> object:
    rule = {"id": "x", "branches": patterns, "prefix": "", "expire_after_days": 7}
    scripted.script = [Answer(200, {"rules": [rule]})]
    return LakeFSServer.connect(scripted.config(), credentials).get_object_rules("r")


def protection(scripted: Scripted, credentials: Credentials, patterns: list[str]) -> object:
    scripted.script = [Answer(200, [{"pattern": pattern} for pattern in patterns])]
    return list(LakeFSBranchReader.connect(scripted.config(), credentials).protected_patterns("r"))


READS = [policies, object_rules, protection]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        (LONG, "exceeds the limit of 1,024 characters"),
        (MANY, "exceeds the limit of 1,000 patterns"),
        (MUCH, "exceed the limit of 65,536 characters in total"),
    ],
)
def it_refuses_more_than_it_can_compare(
    scripted: Scripted, credentials: Credentials, read: Read, patterns: list[str], says: str
) -> None:
    with pytest.raises(UnexpectedAnswer, match=says):
        read(scripted, credentials, patterns)


@pytest.mark.parametrize("read", READS)
def it_reads_patterns_up_to_the_limits(scripted: Scripted, credentials: Credentials, read: Read) -> None:
    assert "*a*a" in str(read(scripted, credentials, ["*a" * 512] * 64))


@pytest.mark.parametrize(
    "pattern", ["*a" * 512, "?*" * 512, "[ab]*" * 200 + "c", "{a*,b*}" * 140, "[" * 1024, "\\*" * 512]
)
def it_compares_no_pattern_for_long(pattern: str) -> None:
    """Each would take an exponential matcher longer than anybody lives."""
    began = time.process_time()
    for number in range(100):
        is_protected("a" * 1000 + str(number), [pattern])
    assert time.process_time() - began < 10

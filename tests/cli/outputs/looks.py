"""Rules for everything that lakeplan prints for people."""

from __future__ import annotations

import re

UNBREAKABLE = re.compile(r"\S{50,}|[\w.-]+://\S+|[/\w.-]+/\S+")
"""A path, a URL or an id that is longer than a line stands on one of its own. So may be longer: a line of
JSON, of XML and of metrics, which programs read, and the command line as it was typed."""
FOR_PROGRAMS = re.compile(r"\s*[\[{}\]\"<#]|lakeplan_|\$ lakeplan ")
NEVER = ("Traceback", "this is a bug in lakeplan", "sandbox-secret", "wrong-secret")


def looks(text: str, width: int) -> list[str]:
    """The problems of an output at that width."""
    problems = [f"this must not be shown: {word}" for word in NEVER if word in text]
    for line in text.splitlines():
        too_long = len(line) > width and not FOR_PROGRAMS.match(line)
        if too_long and not UNBREAKABLE.fullmatch(line.strip()):
            problems.append(f"{len(line)} of {width} columns: {line}")
    return problems

"""GC rules: from lakectl's file, and from what a tree asks for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lakeplan.errors import UsageError
from lakeplan.limits import read_file, why_unreadable
from lakeplan.retention.patterns import expand
from lakeplan.simulation import verdicts
from lakeplan.values.desired import DesiredRepository, GcDesired
from lakeplan.values.rules import GcRules


def read_rules(path: Path | str) -> GcRules:
    """The rules in a file as ``lakectl gc set-config`` takes it.

    Raises UsageError when it cannot be read, ConfigError when it holds no rules.
    """
    try:
        data = read_file(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the rules: {why_unreadable(error)}", where=str(path), hint="name a file of GC rules"
        ) from None
    return verdicts.read_rules(data, name=str(path))


def rules_of(desired: DesiredRepository, branches: Iterable[str] = ()) -> GcRules | None:
    """The rules that a plan would set, patterns expanded over ``branches``. None where the tree does not
    manage them, or clears them (``desired.gc`` tells which)."""
    return expand(desired.gc, branches).rules if isinstance(desired.gc, GcDesired) else None

"""Columns of the output tables: names, types and order as the design has them. No Spark here, so that
``--commits-only`` stays quick; ``schemas/simulate.v1.json`` says the same, and a test compares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """``type`` is a Spark SQL type name."""

    name: str
    type: str
    nullable: bool = False


RULE_SET = Column("rule_set", "string")
"""The last column of every table when two rule sets are compared."""

COMMITS = (
    Column("commit_id", "string"),
    Column("creation_date", "timestamp"),
    Column("branches", "array<string>"),
    Column("branch_count", "int"),
    Column("active", "boolean"),
    Column("active_documented", "boolean"),
    Column("kept_until", "timestamp", nullable=True),
)
OBJECTS = (
    Column("address", "string"),
    Column("size_bytes", "long"),
    Column("paths", "array<string>"),
    Column("last_commit_id", "string", nullable=True),
    Column("reason", "string"),
    Column("at_risk", "boolean"),
)
BRANCHES = (
    Column("branch_id", "string"),
    Column("commits", "long"),
    Column("objects", "long"),
    Column("size_bytes", "long"),
    Column("exclusive_objects", "long"),
    Column("exclusive_bytes", "long"),
)
PREFIXES = (
    Column("prefix", "string"),
    Column("depth", "int"),
    Column("objects", "long"),
    Column("size_bytes", "long"),
)
TABLES = {"commits": COMMITS, "objects": OBJECTS, "branches": BRANCHES, "prefixes": PREFIXES}

MAX_NAMES = 10
"""At most so many branches of a commit, and paths of an object."""
MAX_PREFIX_DEPTH = 5
EXPIRED, NEVER_COMMITTED = "expired", "never_committed"

"""What scripts may build on: load a tree, read plans and histories, judge commits, read ranges, simulate.

Everything named in ``__all__`` is typed, keeps its meaning within a major version, and never writes to a
server. Errors are ``LakeplanError`` and its kinds; each says what, where and what to do. ``docs/api.md`` has
examples that the tests run. All other modules are lakeplan's own and change without notice.
"""

from lakeplan.api.histories import CommitVerdict, judge, read_entries, read_refs
from lakeplan.api.plans import objects_path, read_plan
from lakeplan.api.simulations import simulate
from lakeplan.api.trees import find_repository, load_tree, read_rules, rules_of
from lakeplan.errors import (
    ConfigError,
    ExitCode,
    FormatError,
    LakeplanError,
    SimulationFailed,
    StorageError,
    UsageError,
)
from lakeplan.formats.ranges import read_metarange, read_range
from lakeplan.tree.tree import Tree
from lakeplan.values.desired import DesiredRepository
from lakeplan.values.objects import AddressType, Entry, RangeInfo
from lakeplan.values.plan import Plan, RepositoryPlan
from lakeplan.values.repository import Branch, Commit, Refs, Tag
from lakeplan.values.rules import GcRules

__all__ = [
    "AddressType",
    "Branch",
    "Commit",
    "CommitVerdict",
    "ConfigError",
    "DesiredRepository",
    "Entry",
    "ExitCode",
    "FormatError",
    "GcRules",
    "LakeplanError",
    "Plan",
    "RangeInfo",
    "Refs",
    "RepositoryPlan",
    "SimulationFailed",
    "StorageError",
    "Tag",
    "Tree",
    "UsageError",
    "find_repository",
    "judge",
    "load_tree",
    "objects_path",
    "read_entries",
    "read_metarange",
    "read_plan",
    "read_range",
    "read_refs",
    "read_rules",
    "rules_of",
    "simulate",
]

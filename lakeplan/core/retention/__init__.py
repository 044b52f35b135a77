"""Which commits a server will keep, which the documented rule keeps, why, and until when.

``CommitGraph`` holds the history; ``ServerWalk`` and ``DocumentedRule`` are prepared once per rule set and
asked for any moment; ``branch_sets``, ``kept_by_branch`` and ``why`` say who keeps a commit. Everything is
plain Python over integer arrays, indexed by commit number, and ready for a million commits.
"""

from lakeplan.core.retention.dates import by_date, oldest_first
from lakeplan.core.retention.documented import (
    NEVER_EXPIRES,
    NEVER_KEPT,
    DocumentedRule,
    DocumentedVerdict,
    documented_verdict,
)
from lakeplan.core.retention.edges import all_kept
from lakeplan.core.retention.graph import NO_PARENT, CommitGraph, missing_heads
from lakeplan.core.retention.keepers import (
    NAMES_SHOWN,
    BranchSets,
    Keeper,
    branch_sets,
    kept_by_branch,
    reaching,
    why,
)
from lakeplan.core.retention.limits import expiry_us, limit_us, to_us
from lakeplan.core.retention.metaranges import metarange_masks
from lakeplan.core.retention.server import ServerWalk, server_verdict

__all__ = [
    "NAMES_SHOWN",
    "NEVER_EXPIRES",
    "NEVER_KEPT",
    "NO_PARENT",
    "BranchSets",
    "CommitGraph",
    "DocumentedRule",
    "DocumentedVerdict",
    "Keeper",
    "ServerWalk",
    "all_kept",
    "branch_sets",
    "by_date",
    "documented_verdict",
    "expiry_us",
    "kept_by_branch",
    "limit_us",
    "metarange_masks",
    "missing_heads",
    "oldest_first",
    "reaching",
    "server_verdict",
    "to_us",
    "why",
]

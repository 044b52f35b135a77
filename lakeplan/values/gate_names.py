"""Names of the safety gates, and a sentence that plans and pages share."""

from __future__ import annotations

EXPIRED_OBJECTS = "expired-objects"


EXPIRED_BYTES = "expired-bytes"


TAG_LOSS = "tag-loss"


AT_RISK = "at-risk"


ADOPTION = "adoption"


CLEAR = "clear"


UNKNOWN_IMPACT = "unknown-impact"


UNMANAGED = "unmanaged"


DELETED_BRANCHES = "deleted-branches"
"""Branches that go (``safety.max_deleted_branches``): those that a server's policies newly let go through an
apply, and those that ``branches run`` would delete in one run."""


MIN_AGE = "min-age"
"""``sweep.min_age`` is below the grace period that the server asks for."""


HELD_BRANCH = "held-branch"
"""A server's own policies would delete a branch that a legal hold keeps."""


UNREAD_NEIGHBOURS = "unread-neighbours"
"""It is not known whether another repository has data in the storage that is swept."""


SWEEP_LIMIT = "sweep-limit"
"""A mark names more than ``sweep.max_objects`` or ``sweep.max_bytes``."""


GATES = (
    EXPIRED_OBJECTS,
    EXPIRED_BYTES,
    TAG_LOSS,
    AT_RISK,
    ADOPTION,
    CLEAR,
    UNKNOWN_IMPACT,
    UNMANAGED,
    DELETED_BRANCHES,
    HELD_BRANCH,
    MIN_AGE,
    SWEEP_LIMIT,
    UNREAD_NEIGHBOURS,
)


WHOLE_PLAN = "plan"


STAGED_DATA = "staged data is not read by a plan; it only protects more, so the figures are upper bounds"

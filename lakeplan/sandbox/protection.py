"""Branch protection rules: which branches refuse writes and commits. Deletion they do not refuse."""

from __future__ import annotations

import re
from fnmatch import translate

from lakeplan.model.repository import Repository
from lakeplan.sandbox.messages import ApiError
from lakeplan.sandbox.service import Service
from lakeplan.sandbox.settings import BRANCH_PROTECTION

CANNOT_WRITE = "cannot write to protected branch"
CANNOT_COMMIT = "cannot commit to protected branch"
PROTECTED = "protected branch"


def check_not_protected(service: Service, repository: Repository, branch: str, message: str) -> None:
    """Raises ApiError 403 with ``message`` when a rule's pattern matches the branch."""
    for rule in service.settings.get(repository.id, BRANCH_PROTECTION) or []:
        if re.fullmatch(translate(rule["pattern"]), branch):
            raise ApiError(403, message)

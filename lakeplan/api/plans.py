"""Plan files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakeplan.config.schemas import schema_problem
from lakeplan.errors import LakeplanError
from lakeplan.limits import PLAN_BYTES, read_file, why_unreadable
from lakeplan.model.plan import Plan
from lakeplan.model.plan_document import load_plan


def read_plan(path: Path | str) -> Plan:
    """A plan file that ``lakeplan plan --out FILE`` wrote.

    Raises LakeplanError that names the file when it cannot be read, was edited, or is of another version.
    """
    try:
        text = read_file(path, PLAN_BYTES).decode()
    except (OSError, ValueError) as error:
        reason = why_unreadable(error)
        raise LakeplanError(
            f"cannot read the plan: {reason}", where=str(path), hint="make one with: lakeplan plan --out FILE"
        ) from None
    return load_plan(text, where=str(path), problem=_problem)


def _problem(document: dict[str, Any]) -> str:
    """What the schema finds. Branches are left out, for speed: there may be millions, and all that it says of
    them is that they map texts to texts, which decoding checks as well."""
    repositories = document.get("repositories")
    if isinstance(repositories, list) and all(isinstance(r, dict) for r in repositories):
        document = {**document, "repositories": [_few_branches(r) for r in repositories]}
    return schema_problem("plan", document)


def _few_branches(repository: dict[str, Any]) -> dict[str, Any]:
    branches = repository.get("branches")
    return {**repository, "branches": {}} if isinstance(branches, dict) else repository

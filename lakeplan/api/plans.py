"""Plan files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakeplan.errors import LakeplanError
from lakeplan.limits import PLAN_BYTES, SHOWN_RECORDS, TooLarge, check_text, read_file, why_unreadable
from lakeplan.tree.schemas import schema_problem
from lakeplan.values.plan import Plan
from lakeplan.values.plan_document import beside, load_plan, with_objects
from lakeplan.values.shown_records import RECORD

OBJECTS_BYTES = 2 * SHOWN_RECORDS * RECORD.itemsize


def objects_path(path: Path | str) -> Path:
    """The file beside a plan file, which names the objects that would be deleted when there are many."""
    return Path(f"{path}.objects")


def read_plan(path: Path | str) -> Plan:
    """A plan file that ``lakeplan plan --out FILE`` wrote, with the file beside it where there is one.

    Raises LakeplanError that names the file when it cannot be read, was edited, or is of another version.
    """
    try:
        data = read_file(path, PLAN_BYTES)
        check_text(data)
        text = data.decode()
        del data
    except (OSError, ValueError) as error:
        reason = why_unreadable(error)
        raise LakeplanError(
            f"cannot read the plan: {reason}", where=str(path), hint="make one with: lakeplan plan --out FILE"
        ) from None
    plan = load_plan(text, where=str(path), problem=_problem)
    return _with_objects(plan, objects_path(path)) if beside(plan) else plan


def _with_objects(plan: Plan, path: Path) -> Plan:
    """Without the file the plan can still be shown; what compares its objects says that they are missing."""
    try:
        return with_objects(plan, read_file(path, OBJECTS_BYTES))
    except FileNotFoundError:
        return plan
    except (OSError, ValueError) as error:
        reason = why_unreadable(error) if isinstance(error, (OSError, TooLarge)) else str(error)
        raise LakeplanError(
            f"cannot use the objects of the plan: {reason}",
            where=str(path),
            hint="keep the two files of one `lakeplan plan --format json --out FILE` together",
        ) from None


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

"""Holds that keep nothing: no branch or tag of that name exists (any more), or it was misspelt. They block
``sweep`` and ``lifecycle run``, as a hold on a commit that does not exist does. What a prefix holds is not
known without reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from lakeplan.core.globs import matches
from lakeplan.model.desired import DesiredRepository
from lakeplan.ports.lakefs import LakeFSReader


def idle_holds(
    desired: DesiredRepository, reader: LakeFSReader, branches: Iterable[str] | None, today: date
) -> list[str]:
    """A warning for each hold on a branch or tag that matches none; ``branches`` None: not read yet. Asks
    only for what holds name. Raises ServerError."""
    held = [(n, hold) for n, hold in enumerate(desired.holds) if hold.holds_on(today)]
    kinds = {hold.kind for _, hold in held}
    names: dict[str, list[str]] = {}
    if "branch" in kinds:
        listed = (b.id for b in reader.list_branches(desired.name)) if branches is None else branches
        names["branch"] = list(listed)
    if "tag" in kinds:
        names["tag"] = [tag.id for tag in reader.list_tags(desired.name)]
    warnings = []
    for number, hold in held:
        if hold.kind in names and not any(matches(name, hold.name) for name in names[hold.kind]):
            source = desired.values.get(f"/holds/{number}/{hold.kind}")
            place = f"{source}: " if source else ""
            warnings.append(
                f"{place}the hold on {hold.kind} {hold.name!r} keeps nothing: the repository has none of that"
                " name; correct it, or nothing is deleted here"
            )
    return warnings

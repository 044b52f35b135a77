"""Short comments on a pull request, beside those of a plan and an apply."""

from __future__ import annotations

from lakeplan.output.markdown_plan import marker
from lakeplan.output.page import code, prose


def comment_marker(kind: str, tree: str) -> str:
    """The first line of the comment of a ``plan`` or an ``apply`` of the tree in this folder."""
    return marker(tree, kind)


def not_applied(reason: str, hint: str, tree: str) -> str:
    """The comment of an apply that did not begin."""
    where = f" for {code(tree)}" if tree else ""
    lines = [marker(tree, "apply"), f"**lakeplan**{where}: :x: **not applied**", "", prose(reason), ""]
    return "\n".join([*lines, *([f"**What to do:** {prose(hint)}", ""] if hint else [])])


def refused_answer(command: str, reason: str, hint: str) -> str:
    return f"{code(f'/lakeplan {command}')}: {prose(reason)}. {prose(hint)}\n"


def approved_answer(mark: str, login: str) -> str:
    return f"Mark {code(mark)} is approved by {code(login)}. `lakeplan sweep run` deletes its objects.\n"

"""Names that lakeFS takes, checked with its wording."""

from __future__ import annotations

import re

from lakeplan.sandbox.messages import ApiError, bad_request

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)
_TAG_FORBIDDEN = re.compile(r"\s|\.\.|/|@\{|\.lock$|^@$")


def check_repository_name(name: str) -> None:
    if not _REPOSITORY.fullmatch(name):
        raise bad_request("argument repository: repository id: invalid value: validation error")


def check_branch_name(name: str) -> None:
    if not _BRANCH.fullmatch(name):
        raise bad_request(
            "argument branch: branch id: invalid value: validation error: branch id must consist of letters, "
            "digits, underscores and dashes, and cannot start with a dash"
        )


def check_tag_name(name: str) -> None:
    if not name or _TAG_FORBIDDEN.search(name):
        raise bad_request("argument tagID: tag id: invalid value: validation error")


def missing_branch(name: str) -> ApiError:
    """What a write to a branch that is not there answers."""
    return ApiError(404, f"branch '{name}' not found")

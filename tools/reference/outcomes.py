"""What a command's exit codes mean, which the command line itself does not tell.

Codes that every command may give (0 fine, 1 an error, 64 a wrong command line, 130 interrupted) stand here
only where they mean something of the command's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakeplan.errors import ExitCode

EVERY: Mapping[ExitCode, str] = {
    ExitCode.OK: "fine",
    ExitCode.ERROR: "an error",
    ExitCode.CHANGES_PENDING: "changes are pending, or drift was found: only where an option asks for it",
    ExitCode.PARTLY_DONE: "partly done: some repository, branch or object failed",
    ExitCode.REFUSED: "refused by a gate",
    ExitCode.STALE: "stale: something changed since it was looked at, or another run is at it",
    ExitCode.USAGE: "a wrong command line, or one that names a repository or run that there is not",
    ExitCode.INTERRUPTED: "interrupted",
}

_PLANNED = {
    ExitCode.ERROR: "no repository could be planned",
    ExitCode.PARTLY_DONE: "some repositories could not be planned",
    ExitCode.REFUSED: "a gate refuses",
}

EXITS: Mapping[str, Mapping[ExitCode, str]] = {
    "validate": {ExitCode.ERROR: "the tree has problems"},
    "test": {ExitCode.ERROR: "something is not as a test states"},
    "plan": {**_PLANNED, ExitCode.CHANGES_PENDING: "with `--detailed-exitcode`: an apply would write"},
    "report": {ExitCode.PARTLY_DONE: "some history or curve could not be made; the page has the rest"},
    "apply": {
        ExitCode.ERROR: "not approved, or nothing could be written",
        ExitCode.PARTLY_DONE: "some writes failed, the others are done",
        ExitCode.REFUSED: "a gate refuses, or more would go than was reviewed; nothing was written",
        ExitCode.STALE: "tree, rules or policies are not those of the plan, or another run writes",
    },
    "lifecycle plan": {**_PLANNED, ExitCode.CHANGES_PENDING: "with `--detailed-exitcode`: branches go"},
    "lifecycle run": {
        ExitCode.ERROR: "every repository failed",
        ExitCode.PARTLY_DONE: "some repositories or branches failed, or it was stopped on its way",
        ExitCode.REFUSED: "too many branches would go, or a tag would lose data: nothing goes there",
        ExitCode.STALE: "another run is at it",
    },
    "lifecycle undo": {
        ExitCode.ERROR: "nothing could be brought back",
        ExitCode.PARTLY_DONE: "some branches could not be brought back",
    },
    "sweep mark": {
        ExitCode.PARTLY_DONE: "some repositories were not marked",
        ExitCode.STALE: "the one repository changed while it was marked",
    },
    "sweep approve": {
        ExitCode.REFUSED: "a gate refuses, or the mark may not be approved",
        ExitCode.STALE: "what lies there is not what the mark wrote",
    },
    "sweep run": {
        ExitCode.ERROR: "nobody approved it, or it could not be begun",
        ExitCode.PARTLY_DONE: "an object failed, was lost, or something is left to do",
        ExitCode.REFUSED: "too early, or something marked is held again",
        ExitCode.STALE: "changed since it was approved, too old, or rules or another collector came between",
    },
    "sweep restore": {
        ExitCode.PARTLY_DONE: "some objects could not be brought back",
        ExitCode.STALE: "what lies there is not what the mark wrote, or another run is at it",
    },
    "sweep purge": {
        ExitCode.ERROR: "not approved",
        ExitCode.PARTLY_DONE: "some objects could not be deleted",
        ExitCode.STALE: "another run is at it",
    },
    "sweep report": {ExitCode.PARTLY_DONE: "with `--collector-runs`: some repositories could not be read"},
    "drift": {
        ExitCode.ERROR: "no repository could be compared",
        ExitCode.CHANGES_PENDING: "a class that `--fail-on` names was found",
        ExitCode.PARTLY_DONE: "some repositories could not be compared",
    },
    "history list": {ExitCode.PARTLY_DONE: "a record is damaged; the others are listed"},
    "history rollback": {
        **_PLANNED,
        ExitCode.STALE: "the tree asks for something else; the edits that it needs are printed",
    },
    "import": {ExitCode.PARTLY_DONE: "rules of some repositories cannot be in a tree, or cannot be read"},
    "doctor": {ExitCode.ERROR: "a check failed; warnings are fine"},
}
"""By the command's name without ``lakeplan``."""

"""Errors that people see: what happened, where, and what to do. Also the exit codes of every command.

The tree, with the exit code of each class that sets one::

    LakeplanError                       1
    ├── UsageError                      64  an invalid command line, option or value
    ├── ConfigError                     1   the tree; carries every problem at once
    ├── CredentialsError                1   missing, or bound to another endpoint
    ├── FormatError                     1   a damaged or foreign file; names it
    ├── ServerError                     1   a lakeFS server; names server and repository
    │   ├── ServerUnreachable
    │   ├── AuthenticationFailed
    │   ├── PermissionDenied                names the permission
    │   ├── NotFound                        a missing branch, commit, tag or object
    │   │   └── RepositoryNotFound
    │   ├── ReadOnlyRepository
    │   ├── DataGone                        410
    │   ├── PreconditionFailed          5   412
    │   ├── FeatureMissing                  the server does not know the route ("invalid API endpoint")
    │   └── UnexpectedAnswer                any other status, or a body that is not what the API says
    ├── StorageError                    1   an object store or a folder; names the URL
    │   ├── StorageNotFound
    │   ├── StorageDenied
    │   ├── StoreBusy                   throttled or failing for now: wait, then repeat the request
    │   └── WriteConflict               5   a conditional put that lost
    ├── LeaseHeld                       5   another writer holds the repository
    ├── StalePlan                       5   a plan that no longer describes what exists
    ├── GateRefused                     4   a safety gate
    ├── ClockSkew                       1   clocks that differ: ages cannot be judged
    ├── WriteUncertain                  3   a write that may have taken effect, or may still do so
    └── SimulationFailed                1   Spark or a worker stopped; the cause is in the hint

Messages never carry credentials: adapters put only endpoint, repository and operation in them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Every exit code of every command, in one place (the design's table)."""

    OK = 0
    ERROR = 1
    CHANGES_PENDING = 2
    PARTLY_DONE = 3
    REFUSED = 4
    STALE = 5
    USAGE = 64
    INTERRUPTED = 130


class LakeplanError(Exception):
    """Base of all errors a person may meet.

    ``message`` says what happened, ``where`` the file, server, repository or URL it happened at, ``hint``
    what to do about it. ``detail`` is for ``--log-level debug`` only.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.ERROR

    def __init__(self, message: str, *, where: str = "", hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.detail = detail

    def replaced(self, **texts: str) -> LakeplanError:
        """A copy of this error with some texts replaced."""
        return _rebuild(type(self), {**self.__dict__, **texts})

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark workers); keyword-only fields need help to be pickled.
        return (_rebuild, (type(self), dict(self.__dict__)))


def _rebuild(kind: type[LakeplanError], fields: dict[str, object]) -> LakeplanError:
    error = kind.__new__(kind)
    Exception.__init__(error, fields.get("message", ""))
    error.__dict__.update(fields)
    return error


class UsageError(LakeplanError):
    exit_code = ExitCode.USAGE


class ConfigError(LakeplanError):
    """Problems of a tree. ``problems`` holds one readable line each, ``file:line:col: path: text``."""

    def __init__(
        self,
        message: str,
        *,
        problems: tuple[str, ...] = (),
        where: str = "",
        hint: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(message, where=where, hint=hint, detail=detail)
        self.problems = problems


class CredentialsError(LakeplanError):
    pass


class FormatError(LakeplanError):
    """A damaged or foreign file, which ``where`` names. Nothing in it was used."""


class ServerError(LakeplanError):
    """A lakeFS server answered badly or not at all. ``where`` is ``server/repository`` or ``server``."""


class ServerUnreachable(ServerError):
    pass


class AuthenticationFailed(ServerError):
    pass


class PermissionDenied(ServerError):
    pass


class NotFound(ServerError):
    pass


class RepositoryNotFound(NotFound):
    pass


class ReadOnlyRepository(ServerError):
    pass


class DataGone(ServerError):
    pass


class PreconditionFailed(ServerError):
    exit_code = ExitCode.STALE


class FeatureMissing(ServerError):
    pass


class UnexpectedAnswer(ServerError):
    """A status outside the API's, or a body that does not parse. ``status`` is the HTTP status."""

    def __init__(
        self, message: str, *, status: int, where: str = "", hint: str = "", detail: str = ""
    ) -> None:
        super().__init__(message, where=where, hint=hint, detail=detail)
        self.status = status


class StorageError(LakeplanError):
    """An object store or a folder failed. ``where`` is its URL, without credentials."""


class StorageNotFound(StorageError):
    pass


class StorageDenied(StorageError):
    pass


class StoreBusy(StorageError):
    pass


class WriteConflict(StorageError):
    exit_code = ExitCode.STALE


class LeaseHeld(LakeplanError):
    exit_code = ExitCode.STALE


class StalePlan(LakeplanError):
    """``reasons``: one line each, where the message lists several."""

    exit_code = ExitCode.STALE
    reasons: tuple[str, ...] = ()


class ClockSkew(LakeplanError):
    pass


class GateRefused(LakeplanError):
    """``reasons``: one line each, where the message lists several."""

    exit_code = ExitCode.REFUSED
    reasons: tuple[str, ...] = ()


class WriteUncertain(LakeplanError):
    exit_code = ExitCode.PARTLY_DONE


class SimulationFailed(LakeplanError):
    pass


_PASSED_ON = frozenset({408, 502, 504})


def may_have_acted(error: LakeplanError) -> bool:
    """Whether a server may have carried out a request although the request failed: there was no
    answer, the server or a proxy before it failed (5xx), or the status is 408 or 429, which proxies also send
    for requests that they passed on."""
    if isinstance(error, UnexpectedAnswer):
        return error.status >= 500 or error.status in (408, 429)
    return isinstance(error, ServerUnreachable)


def may_still_act(error: LakeplanError) -> bool:
    """Whether the server may still be working on a request that ``may_have_acted``, because the answer is not
    the server's own."""
    if isinstance(error, UnexpectedAnswer):
        return error.status in _PASSED_ON
    return isinstance(error, ServerUnreachable)

"""Errors that people see: what happened, where, and what to do. Also the exit codes of every command.

Messages never carry credentials: adapters put only endpoint, repository and operation in them.
"""

from __future__ import annotations

import json
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
    """An invalid command line, option or value."""

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
    """Credentials are missing, or bound to another endpoint."""


class FormatError(LakeplanError):
    """A damaged or foreign file, which ``where`` names. Nothing in it was used."""


class WrongContent(FormatError):
    """No range or metarange can have this id and this content."""


class ServerError(LakeplanError):
    """A lakeFS server answered badly or not at all. ``where`` is ``server/repository`` or ``server``."""


class ServerUnreachable(ServerError):
    pass


class AuthenticationFailed(ServerError):
    pass


class PermissionDenied(ServerError):
    """The message names the permission."""


class NotFound(ServerError):
    """A missing branch, commit, tag or object."""


class RepositoryNotFound(NotFound):
    pass


class ReadOnlyRepository(ServerError):
    pass


class DataGone(ServerError):
    """Status 410."""


class PreconditionFailed(ServerError):
    """Status 412."""

    exit_code = ExitCode.STALE


class FeatureMissing(ServerError):
    """The server does not know the route ("invalid API endpoint")."""


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
    """Throttled or failing for now: wait, then repeat the request."""


class WriteConflict(StorageError):
    """A conditional put that lost."""

    exit_code = ExitCode.STALE


class LeaseHeld(LakeplanError):
    """Another writer holds the repository."""

    exit_code = ExitCode.STALE


class StalePlan(LakeplanError):
    """A plan that no longer describes what exists. ``reasons``: one line each, where the message lists
    several."""

    exit_code = ExitCode.STALE
    reasons: tuple[str, ...] = ()


class ClockSkew(LakeplanError):
    """Clocks differ, so that ages cannot be judged."""


class GateRefused(LakeplanError):
    """A safety gate refuses. ``reasons``: one line each, where the message lists several."""

    exit_code = ExitCode.REFUSED
    reasons: tuple[str, ...] = ()


class WriteUncertain(LakeplanError):
    """A write that may have taken effect, or may still do so."""

    exit_code = ExitCode.PARTLY_DONE


class SimulationFailed(LakeplanError):
    """Spark or a worker stopped. The hint has the cause."""


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


def report_of(error: LakeplanError, where: str) -> str:
    """An error as JSON. ``where`` is used if the error has none."""
    report = {
        "kind": type(error).__name__,
        "message": error.message,
        "where": error.where or where,
        "hint": error.hint,
        "detail": error.detail,
    }
    return json.dumps(report)


def failure(report: str | bytes) -> LakeplanError:
    """The error in a report."""
    fields = json.loads(report)
    kind = globals().get(fields.pop("kind"), FormatError)
    error: LakeplanError = FormatError.__new__(kind)
    LakeplanError.__init__(error, **fields)
    return error

"""Refs dumps: the short way, and the task that large repositories need."""

from __future__ import annotations

from lakeplan.adapters.lakefs import answers
from lakeplan.adapters.lakefs.answers import Fields, Malformed, parse_json
from lakeplan.adapters.lakefs.transport import Transport
from lakeplan.errors import FeatureMissing, ServerUnreachable, UnexpectedAnswer
from lakeplan.model.refs import RefsDumpIds

OPERATION = "dump the refs"
STATUS_OPERATION = "read the state of the refs dump"

TOO_MUCH_AT_ONCE = frozenset({405, 408, 413, 501, 502, 504})
"""Answers to the short way after which the task is tried: not offered, too large, or a gateway's time-out."""

FIRST_POLL = 0.5
LONGEST_POLL = 5.0
LONGEST_DUMP = 3600.0


def dump_refs(transport: Transport, repository: str) -> RefsDumpIds:
    """Asks for a dump of all commits, branches and tags, and waits for it. The ids are those that the answer
    names, never those of a manifest in the store, which may be of an older dump (api.md)."""
    try:
        response = transport.request(
            *("PUT", "repositories", repository, "refs", "dump"),
            operation=OPERATION,
            repository=repository,
            accept=TOO_MUCH_AT_ONCE,
            repeatable=True,  # a dump writes new files only
            retry_timeouts=False,
        )
    except FeatureMissing:
        return _dump_by_task(transport, repository)
    except ServerUnreachable as error:
        if error.detail != "ReadTimeout":
            raise
        return _dump_by_task(transport, repository)
    if response.status_code in TOO_MUCH_AT_ONCE:
        return _dump_by_task(transport, repository)
    return parse_json(
        response, answers.dump_ids_of, transport=transport, operation=OPERATION, repository=repository
    )


def _dump_by_task(transport: Transport, repository: str) -> RefsDumpIds:
    response = transport.request(
        *("POST", "repositories", repository, "dump"),
        operation=OPERATION,
        repository=repository,
        repeatable=True,  # a second task costs the server time and changes nothing
    )
    task = parse_json(
        response,
        lambda fields: fields.name("id"),
        transport=transport,
        operation=OPERATION,
        repository=repository,
    )
    clock = transport.connection.clock
    deadline = clock.monotonic() + LONGEST_DUMP
    pause = FIRST_POLL
    while (ids := _poll(transport, repository, task)) is None:
        if clock.monotonic() >= deadline:
            raise ServerUnreachable(
                f"cannot {OPERATION}: not done after {LONGEST_DUMP / 60:.0f} minutes",
                where=transport.where(repository),
                hint="see the server's log",
            )
        clock.sleep(pause)
        pause = min(LONGEST_POLL, pause * 1.5)
    return ids


def _poll(transport: Transport, repository: str, task: str) -> RefsDumpIds | None:
    response = transport.request(
        *("GET", "repositories", repository, "dump"),
        operation=STATUS_OPERATION,
        repository=repository,
        params={"task_id": task},
    )
    status = parse_json(
        response, _status, transport=transport, operation=STATUS_OPERATION, repository=repository
    )
    if isinstance(status, str):
        raise UnexpectedAnswer(
            f"cannot {OPERATION}: the server says: {status}",
            status=response.status_code,
            where=transport.where(repository),
            hint="see the server's log",
        )
    return status


def _status(fields: Fields) -> RefsDumpIds | str | None:
    """The ids when it is done, what went wrong as text, or None while it runs."""
    if problem := fields.text("error", ""):
        return " ".join(problem.split())[:300]
    if not fields.flag("done"):
        return None
    if "refs" not in fields.data:
        raise Malformed("the dump is done and names no ids")
    return answers.dump_ids_of(Fields.of(fields.data["refs"]))

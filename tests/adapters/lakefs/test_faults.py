from __future__ import annotations

import inspect

import pytest
from requests import exceptions as vendor

from lakeplan.adapters.lakefs import Credentials, LakeFSServer, connect, connect_rules_writer
from lakeplan.adapters.lakefs.faults import PERMISSIONS, REQUEST_ERRORS, unreachable
from lakeplan.errors import (
    AuthenticationFailed,
    DataGone,
    FeatureMissing,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    ReadOnlyRepository,
    RepositoryNotFound,
    ServerError,
    UnexpectedAnswer,
)
from lakeplan.model.rules import GcRules
from tests.adapters.lakefs.conftest import Answer, FakeClock, Scripted


@pytest.fixture
def server(scripted: Scripted, credentials: Credentials, fake_clock: FakeClock) -> LakeFSServer:
    return connect(scripted.config(), credentials, clock=fake_clock.clock())


def it_names_every_error_class_of_requests() -> None:
    known = {
        found
        for found in vars(vendor).values()
        if inspect.isclass(found)
        and issubclass(found, Exception)
        and not issubclass(found, Warning)
        and found.__module__ == vendor.__name__
    }
    assert known == set(REQUEST_ERRORS)


@pytest.mark.parametrize("kind", sorted(REQUEST_ERRORS, key=lambda kind: kind.__name__))
def it_says_what_an_error_of_requests_means_and_not_what_it_says(kind: type[Exception]) -> None:
    if issubclass(kind, vendor.JSONDecodeError):
        error: Exception = kind("https://h/?sig=SECRET", "", 0)
    else:
        error = kind("https://h/?sig=SECRET")
    found = unreachable(error, "server prod", "read metadata")
    assert found.hint
    assert "SECRET" not in f"{found} {found.hint} {found.detail}"


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (401, "error authenticating request", AuthenticationFailed),
        (401, "insufficient permissions: not allowed to fs:ListBranches", PermissionDenied),
        (403, "anything", PermissionDenied),
        (500, "User does not have the required permissions", PermissionDenied),
        (403, "read-only repository", ReadOnlyRepository),
        (404, "repository not found", RepositoryNotFound),
        (404, "branch not found", NotFound),
        (404, "invalid API endpoint", FeatureMissing),
        (500, "invalid API endpoint", FeatureMissing),
        (410, "repository in deletion", DataGone),
        (412, "Precondition failed", PreconditionFailed),
        (423, "locked", UnexpectedAnswer),
        (429, "Too many attempts", UnexpectedAnswer),
        (500, "boom", UnexpectedAnswer),
    ],
)
def it_tells_refusals_apart(
    scripted: Scripted, server: LakeFSServer, status: int, message: str, expected: type[ServerError]
) -> None:
    scripted.script = [Answer(status, {"message": message})]
    with pytest.raises(ServerError) as caught:
        list(server.list_branches("repo"))
    assert type(caught.value) is expected
    assert "prod" in caught.value.where
    assert "repository repo" in caught.value.where


def it_takes_an_html_404_for_no_lakefs_at_all(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [Answer(404, b"<html>nothing here</html>", {"Content-Type": "text/html"})]
    for ask in (server.get_repository, server.get_gc_rules):
        with pytest.raises(UnexpectedAnswer, match="without lakeFS's explanation"):
            ask("repo")


def it_names_the_permission_of_every_operation(
    scripted: Scripted, server: LakeFSServer, credentials: Credentials
) -> None:
    scripted.script = [Answer(401, {"message": "insufficient permissions"})]
    writer = connect_rules_writer(scripted.config(), credentials)
    metadata_repository = Answer(
        200, {"id": "r", "creation_date": 1, "default_branch": "main", "storage_namespace": "s3://b"}
    )
    calls = {
        "read the server's version": server.version,
        "list repositories": lambda: list(server.list_repositories()),
        "read the repository": lambda: server.get_repository("r"),
        "read the GC rules": lambda: server.get_gc_rules("r"),
        "set the GC rules": lambda: writer.set_gc_rules("r", GcRules(7)),
        "delete the GC rules": lambda: writer.delete_gc_rules("r"),
        "list branches": lambda: list(server.list_branches("r")),
        "list tags": lambda: list(server.list_tags("r")),
        "read a commit": lambda: server.get_commit("r", "c"),
        "list commits": lambda: list(server.log_commits("r", "main")),
        "dump the refs": lambda: server.dump_refs("r"),
    }
    for operation, call in calls.items():
        with pytest.raises(PermissionDenied) as caught:
            call()
        assert caught.value.message == f"cannot {operation}: it needs {PERMISSIONS[operation]}"
    assert writer.can_set_gc_rules("r") is False
    # Without the right to read the configuration presigned URLs are not asked for.
    denied = scripted.script[0]
    scripted.script = [metadata_repository, denied, Answer(200, b"bytes")]
    assert server.metadata_reader("r").read_metadata("range", "a" * 64) == b"bytes"
    assert scripted.seen[-1].query == {}

from __future__ import annotations

import inspect
import json

import pytest
import requests
from requests import exceptions as vendor

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
    ServerUnreachable,
    UnexpectedAnswer,
)
from lakeplan.lakefs.client import LakeFSServer
from lakeplan.lakefs.credentials import Credentials
from lakeplan.lakefs.transport import (
    PERMISSIONS,
    BeyondLimit,
    refusal,
    server_message,
    unreachable,
)
from lakeplan.lakefs.writers import LakeFSRulesWriter
from lakeplan.limits import MESSAGE_BYTES
from lakeplan.values.rules import GcRules
from tests.lakefs.conftest import Answer, FakeClock, Scripted


@pytest.fixture
def server(scripted: Scripted, credentials: Credentials, fake_clock: FakeClock) -> LakeFSServer:
    return LakeFSServer.connect(scripted.config(), credentials, clock=fake_clock.clock())


ERRORS_OF_REQUESTS = [
    found
    for found in vars(vendor).values()
    if inspect.isclass(found)
    and issubclass(found, Exception)
    and not issubclass(found, Warning)
    and found.__module__ == vendor.__name__
]


@pytest.mark.parametrize("kind", sorted(ERRORS_OF_REQUESTS, key=lambda kind: kind.__name__))
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


class DescribeARequestWithoutAnAnswer:
    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (vendor.ConnectTimeout("x"), "the connection was not established within the time limit"),
            (vendor.ReadTimeout("x"), "the server did not respond within the time limit"),
            (vendor.SSLError("x"), "the TLS connection failed"),
            (vendor.ConnectionError("x"), "the connection failed"),
            (vendor.ConnectionError("NameResolutionError: x"), "the host name could not be resolved"),
            (vendor.ConnectionError("getaddrinfo failed"), "the host name could not be resolved"),
            (vendor.ConnectionError("Connection refused"), "the connection was refused"),
            (vendor.ConnectionError("Read timed out."), "the server did not respond within the time limit"),
            (vendor.SSLError("refused"), "the TLS connection failed"),
            (ValueError("x"), "the request failed"),
        ],
    )
    def it_is_told_by_its_kind(self, error: Exception, message: str) -> None:
        found = unreachable(error, "server prod", "list branches")
        assert type(found) is ServerUnreachable
        assert found.message == f"cannot list branches: {message}"
        assert (found.where, found.detail) == ("server prod", type(error).__name__)

    def it_takes_a_subclass_for_its_kind(self) -> None:
        class Slow(vendor.ReadTimeout):
            pass

        found = unreachable(Slow("x"), "server prod", "list branches")
        assert (found.message, found.detail) == (
            "cannot list branches: the server did not respond within the time limit",
            "Slow",
        )

    def it_counts_an_answer_beyond_a_limit_as_none(self) -> None:
        found = unreachable(BeyondLimit("larger than 1 GiB"), "server prod", "list branches")
        assert found.message == "cannot list branches: the response was refused: larger than 1 GiB"
        assert (type(found), found.where, found.detail) == (ServerUnreachable, "server prod", "ReadTimeout")


@pytest.mark.parametrize(
    ("status", "said", "message", "hint"),
    [
        (429, "slow down", "the server is overloaded (status 429)", "Try again later."),
        (503, "", "the server is overloaded (status 503)", "Try again later."),
        (500, "boom", "status 500, boom", "Check the server's log."),
        (502, "", "status 502", "Check the server's log."),
        (423, "locked", "status 423, locked", ""),
        (
            300,
            "",
            "the server redirects (status 300), and lakeplan does not follow redirects",
            "Set endpoint_url",
        ),
        (
            399,
            "",
            "the server redirects (status 399), and lakeplan does not follow redirects",
            "Set endpoint_url",
        ),
        (400, "bad", "status 400, bad", ""),
        (401, "expired", "the server does not accept the credentials", "Check the access key"),
        (410, "", "the data no longer exists (no reason given)", ""),
        (
            412,
            "hook",
            "the repository changed in the meantime, or a hook refused the request (hook)",
            "Run `lakeplan plan` again",
        ),
        (
            403,
            "no",
            "the operation requires fs:ListBranches",
            "On the server, grant the permission to the user",
        ),
        (
            403,
            "it is READ ONLY",
            "the repository is read-only",
            "Remove the repository from the tree, or make it writable.",
        ),
        (404, "no such branch", "no such branch", ""),
        (
            404,
            "Invalid API endpoint",
            "the server does not support this request",
            "Check the server's version",
        ),
    ],
)
def it_says_what_a_status_means_and_what_to_do(status: int, said: str, message: str, hint: str) -> None:
    found = refused(status, said)
    assert found.message == f"cannot list branches: {message}"
    assert found.hint.startswith(hint)
    assert bool(found.hint) == bool(hint)
    assert found.where == "server prod"
    if isinstance(found, UnexpectedAnswer):
        assert found.status == status


def refused(
    status: int, said: str, *, operation: str = "list branches", repository: str | None = "r"
) -> ServerError:
    response = requests.Response()
    response.status_code = status
    response._content = json.dumps({"message": said}).encode() if said else b""
    return refusal(response, operation=operation, where="server prod", repository=repository)


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (401, "Insufficient permissions", PermissionDenied),
        (500, "insufficient permissions", UnexpectedAnswer),
        (401, "required permissions", AuthenticationFailed),
        (500, "User does not have the Required Permissions", PermissionDenied),
        (400, "required permissions", UnexpectedAnswer),
        (403, "", PermissionDenied),
        (400, "invalid API endpoint", UnexpectedAnswer),
        (403, "read-only repository", ReadOnlyRepository),
    ],
)
def it_takes_no_refusal_for_another(status: int, said: str, kind: type[ServerError]) -> None:
    assert type(refused(status, said)) is kind


@pytest.mark.parametrize("body", ["<Error><Code>AccessDenied</Code></Error>", '{"error": "denied"}', "[]"])
def it_blames_the_address_if_something_else_than_lakefs_refuses(body: str) -> None:
    response = requests.Response()
    response.status_code, response._content = 403, body.encode()
    response.headers["Content-Type"] = "application/xml; charset=utf-8"
    found = refusal(response, operation="list repositories", where="server prod (http://s3)", repository=None)
    assert str(found).startswith(
        "server prod (http://s3): cannot list repositories: the response is not from"
    )
    assert found.message.endswith("from a lakeFS API (status 403, content type application/xml)")
    assert (type(found), "endpoint_url" in found.hint) == (PermissionDenied, True)


def it_says_that_a_repository_is_missing_only_of_a_repository() -> None:
    assert refused(404, "Repository not found").message == "the repository does not exist"
    assert type(refused(404, "repository not found", repository=None)) is NotFound
    unexplained = refused(404, "")
    assert (
        unexplained.message
        == "cannot list branches: the server returned status 404 without a lakeFS error message"
    )
    assert isinstance(unexplained, UnexpectedAnswer)
    assert unexplained.status == 404
    assert refused(403, "why", operation="dance").message == "cannot dance: a permission is missing"
    assert refused(403, "why", operation="dance").detail == "why"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"message": " a\\n b\\t c "}', "a b c"),
        (b'{"message": 7}', ""),
        (b'["message"]', ""),
        (b"<html>", ""),
        (b'{"error": "x"}', ""),
        (json.dumps({"message": "x" * 301}).encode(), "x" * 300),
        (b'{"message": "x"}'.ljust(MESSAGE_BYTES), "x"),
        (b'{"message": "x"}'.ljust(MESSAGE_BYTES + 1), ""),
    ],
)
def it_takes_a_short_line_of_what_a_server_says(body: bytes, text: str) -> None:
    response = requests.Response()
    response._content = body
    assert server_message(response.content) == text


def it_takes_an_html_404_for_no_lakefs_at_all(scripted: Scripted, server: LakeFSServer) -> None:
    scripted.script = [Answer(404, b"<html>nothing here</html>", {"Content-Type": "text/html"})]
    for ask in (server.get_repository, server.get_gc_rules):
        with pytest.raises(UnexpectedAnswer, match="without a lakeFS error message"):
            ask("repo")


def it_names_the_permission_of_every_operation(
    scripted: Scripted, server: LakeFSServer, credentials: Credentials
) -> None:
    scripted.script = [Answer(401, {"message": "insufficient permissions"})]
    writer = LakeFSRulesWriter.connect(scripted.config(), credentials)
    metadata_repository = Answer(
        200, {"id": "r", "creation_date": 1, "default_branch": "main", "storage_namespace": "s3://b"}
    )
    calls = {
        "read the server's version": server.identify,
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
        assert caught.value.message == f"cannot {operation}: the operation requires {PERMISSIONS[operation]}"
    assert writer.can_set_gc_rules("r") is False
    # Without the right to read the configuration presigned URLs are not asked for.
    denied = scripted.script[0]
    scripted.script = [metadata_repository, denied, Answer(200, b"bytes")]
    assert server.metadata_reader("r").read_metadata("range", "a" * 64) == b"bytes"
    assert scripted.seen[-1].query == {}

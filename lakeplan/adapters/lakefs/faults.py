"""What a lakeFS server's refusals mean: statuses to errors, operations to permissions, in one place.

Sources: shared/lakefs/api.md ("Conventions"), and the answers of a real server: a missing permission is
401 with "insufficient permissions" (some versions: 500 "User does not have the required permissions"),
bad credentials are 401 "error authenticating request".
"""

from __future__ import annotations

import re

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
from lakeplan.limits import MESSAGE_BYTES, parse_json

_RULES = "retention:SetGarbageCollectionRules"
_DUMP = "fs:ListBranches, fs:ListTags and fs:ListCommits"
_POLICIES = "branches:SetBranchLifecyclePolicies"

PERMISSIONS = {
    "read the server's version": "fs:ReadConfig",
    "read the server's configuration": "fs:ReadConfig",
    "list repositories": "fs:ListRepositories",
    "read the repository": "fs:ReadRepository",
    "read the GC rules": "retention:GetGarbageCollectionRules",
    "ask whether GC rules may be set": _RULES,
    "set the GC rules": _RULES,
    "delete the GC rules": _RULES,
    "read the branch lifecycle policies": "branches:GetBranchLifecyclePolicies",
    "ask whether branch lifecycle policies may be set": _POLICIES,
    "set the branch lifecycle policies": _POLICIES,
    "delete the branch lifecycle policies": _POLICIES,
    "list branches": "fs:ListBranches",
    "list tags": "fs:ListTags",
    "read a commit": "fs:ReadCommit",
    "list commits": "fs:ReadBranch",
    "read a branch": "fs:ReadBranch",
    "read uncommitted changes": "fs:ListObjects",
    "read when an object was written": "fs:ReadObject",
    "list objects of a commit": "fs:ListObjects",
    "read an object": "fs:ReadObject",
    "list pull requests": "pr:ListPullRequests",
    "read the repository's metadata": "fs:ReadRepository",
    "set the repository's metadata": "fs:UpdateRepository",
    "read the branch protection rules": "branches:GetBranchProtectionRules",
    "delete a branch": "fs:DeleteBranch",
    "create a branch": "fs:CreateBranch",
    "dump the refs": _DUMP,
    "read the state of the refs dump": _DUMP,
    "read metadata": "fs:ListObjects and fs:ReadRepository",
}
"""Operation, as messages name it, to the permission it needs (api.md; the server's own checks)."""

_UNREACHABLE = "check endpoint_url, the network and proxy settings"
_TLS = "check the server's certificate, or name a CA bundle in REQUESTS_CA_BUNDLE"
_SETTINGS = "check endpoint_url and proxy settings"

REQUEST_ERRORS: dict[type[Exception], tuple[str, str]] = {
    vendor.SSLError: ("TLS failed", _TLS),
    vendor.ProxyError: ("the proxy refused or failed", "check HTTPS_PROXY, HTTP_PROXY and NO_PROXY"),
    vendor.ConnectTimeout: ("no connection within the time limit", _UNREACHABLE),
    vendor.ReadTimeout: ("no answer within the time limit", "the server is busy or hangs; try again"),
    vendor.Timeout: ("no answer within the time limit", _UNREACHABLE),
    vendor.ChunkedEncodingError: ("the answer was cut short", "try again"),
    vendor.ContentDecodingError: ("the answer could not be decoded", "try again; check proxies on the way"),
    vendor.ConnectionError: ("no connection", _UNREACHABLE),
    vendor.InvalidURL: ("the address is not a URL", _SETTINGS),
    vendor.MissingSchema: ("the address is not a URL", _SETTINGS),
    vendor.InvalidSchema: ("the address is not http or https", _SETTINGS),
    vendor.InvalidProxyURL: ("the proxy's address is not a URL", _SETTINGS),
    vendor.URLRequired: ("the address is missing", _SETTINGS),
    vendor.InvalidHeader: ("a request header cannot be sent", "check the credentials for odd characters"),
    vendor.TooManyRedirects: ("it redirects without end", _SETTINGS),
    vendor.RetryError: ("it kept failing", "try again later"),
    vendor.HTTPError: ("the request failed", "try again later"),
    vendor.StreamConsumedError: ("the answer was read twice", "please report this as a bug"),
    vendor.UnrewindableBodyError: ("the request could not be repeated", "please report this as a bug"),
    vendor.InvalidJSONError: ("the answer is not JSON", "check that endpoint_url is a lakeFS server"),
    vendor.JSONDecodeError: ("the answer is not JSON", "check that endpoint_url is a lakeFS server"),
    vendor.RequestException: ("the request failed", _UNREACHABLE),
}
"""Every error class of requests; ``tests`` fail when the library has one that is not here."""


class BeyondLimit(vendor.RequestException):
    """An answer that is too large or too slow; the text says how."""


def unreachable(error: Exception, where: str, operation: str) -> ServerError:
    """A request that got no answer. The library's text is left out: it may hold a signed URL."""
    if isinstance(error, BeyondLimit):
        return ServerUnreachable(
            f"cannot {operation}: its answer is not taken: {error}",
            where=where,
            hint="check that endpoint_url is a lakeFS server; docs/limits.md has the limits",
            detail="ReadTimeout",
        )
    kind = next((kind for kind in type(error).__mro__ if kind in REQUEST_ERRORS), vendor.RequestException)
    what, hint = REQUEST_ERRORS[kind]
    if type(error) is vendor.ConnectionError:
        what, hint = _connection_details(error, what, hint)
    return ServerUnreachable(
        f"cannot {operation}: {what}", where=where, hint=hint, detail=type(error).__name__
    )


def _connection_details(error: Exception, what: str, hint: str) -> tuple[str, str]:
    text = str(error)
    if re.search(r"NameResolutionError|getaddrinfo|Name or service not known|resolve", text):
        return "its name does not resolve", "check the host in endpoint_url and DNS"
    if "refused" in text:
        return "the connection was refused", "check endpoint_url, and that the server runs"
    if "timed out" in text:
        return "no answer within the time limit", "the server is busy or hangs; try again"
    return what, hint


def refusal(
    response: requests.Response, *, operation: str, where: str, repository: str | None
) -> ServerError:
    """The error that an answer of 300 and above means."""
    status = response.status_code
    said = server_message(response)
    if is_permission_problem(status, said):
        return _denied(said, operation, where, PERMISSIONS.get(operation))
    if is_unknown_route(status, said):
        return FeatureMissing(
            f"cannot {operation}: the server does not know this request",
            where=where,
            hint="check the server's version and edition, and endpoint_url",
        )
    if status == 404:
        return _missing(said, operation, where, repository)
    if status in _STATUSES:
        kind, what, hint = _STATUSES[status]
        reason = said or "no reason given"
        return kind(f"cannot {operation}: {what.format(reason=reason)}", where=where, hint=hint)
    return _unexpected(status, said, operation, where)


_STATUSES: dict[int, tuple[type[ServerError], str, str]] = {
    401: (
        AuthenticationFailed,
        "the server does not accept the credentials",
        "check access key and secret, and that they belong to this server",
    ),
    410: (DataGone, "the data is gone ({reason})", ""),
    412: (PreconditionFailed, "changed meanwhile, or a hook refused ({reason})", "plan again"),
}


def _unexpected(status: int, said: str, operation: str, where: str) -> UnexpectedAnswer:
    what, hint = f"status {status}" + (f", {said}" if said else ""), ""
    if status in (429, 503):
        what, hint = f"the server is overloaded (status {status})", "try again later"
    elif 300 <= status < 400:
        what = f"the server redirects (status {status}), which is not followed"
        hint = "set endpoint_url to the final address; http may have to be https"
    elif status >= 500:
        hint = "see the server's log"
    return UnexpectedAnswer(f"cannot {operation}: {what}", status=status, where=where, hint=hint)


def is_permission_problem(status: int, said: str) -> bool:
    """403, and the ways in which lakeFS says the same with another status."""
    text = said.lower()
    return (
        status == 403
        or (status == 401 and "insufficient permissions" in text)
        or (status == 500 and "required permissions" in text)
    )


def is_unknown_route(status: int, said: str) -> bool:
    """404 since lakeFS 1.75, 500 before."""
    return status in (404, 500) and "invalid api endpoint" in said.lower()


def _denied(said: str, operation: str, where: str, permission: str | None) -> ServerError:
    if "read-only" in said.lower() or "read only" in said.lower():
        return ReadOnlyRepository(
            f"cannot {operation}: the repository is read-only",
            where=where,
            hint="leave its rules to its owner",
        )
    needed = f"it needs {permission}" if permission else "a permission is missing"
    return PermissionDenied(
        f"cannot {operation}: {needed}",
        where=where,
        hint="give it to the user of this access key, in a policy on the server",
        detail=said,
    )


def _missing(said: str, operation: str, where: str, repository: str | None) -> ServerError:
    if repository is not None and "repository not found" in said.lower():
        return RepositoryNotFound(
            "the repository does not exist", where=where, hint="check its name, and which server it is on"
        )
    if not said:
        return UnexpectedAnswer(
            f"cannot {operation}: status 404 without lakeFS's explanation",
            status=404,
            where=where,
            hint="check that endpoint_url is a lakeFS server",
        )
    return NotFound(f"cannot {operation}: {said}", where=where)


def server_message(response: requests.Response) -> str:
    """``message`` of a lakeFS error body, one line and short; "" when the body is none."""
    try:
        body = parse_json(response.content, limit=MESSAGE_BYTES)
    except ValueError:
        return ""
    message = body.get("message") if isinstance(body, dict) else None
    return " ".join(message.split())[:300] if isinstance(message, str) else ""

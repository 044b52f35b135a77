"""The table of vendors' errors names every class that the installed libraries have."""

from __future__ import annotations

import errno
import inspect
import traceback
from types import ModuleType

import azure.core.exceptions
import botocore.exceptions
import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError, ServiceRequestError
from azure.storage.blob import StorageErrorCode
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, StoreBusy, WriteConflict
from lakeplan.stores.azure_client import azure_errors
from lakeplan.stores.faults import (
    AZURE_CLASSES,
    AZURE_CODES,
    BOTO_CLASSES,
    Kind,
    translate_azure_error,
    translate_boto_error,
    translate_os_error,
)


def exception_names(module: ModuleType) -> set[str]:
    """Error classes that a module defines itself; warnings are none."""
    return {
        name
        for name, found in vars(module).items()
        if inspect.isclass(found)
        and issubclass(found, Exception)
        and not issubclass(found, Warning)
        and found.__module__ == module.__name__
    }


LIKE_THEIR_BASE = {
    Kind.NO_CREDENTIALS: "UnauthorizedSSOTokenError SSOTokenLoadError LoginRefreshRequired"
    " LoginInsufficientPermissions LoginTokenLoadError LoginAuthorizationCodeError",
    Kind.SETTINGS: "NoRegionError InfiniteLoopConfigError InvalidRetryModeError UnknownEndpointError"
    " InvalidMaxRetryAttemptsError UnknownFIPSEndpointError EndpointVariantError EndpointResolutionError"
    " UnknownEndpointResolutionBuiltInName",
    Kind.MISUSE: "ParamValidationError ValidationError AliasConflictParameterError RangeError UnknownKeyError"
    " UnknownParameterError MissingParametersError OperationNotPageableError PaginationError"
    " UnseekableStreamError UnknownClientMethodError InvalidExpressionError ApiVersionNotFoundError"
    " DataNotFoundError UnknownServiceError UnknownServiceStyle MissingServiceIdError StubResponseError"
    " StubAssertionError UnStubbedResponseError WaiterError WaiterConfigError CapacityNotAvailableError"
    " ResponseNotReadError StreamClosedError StreamConsumedError",
}
"""Classes that the tables leave out."""


@pytest.mark.parametrize(
    ("module", "table"), [(botocore.exceptions, BOTO_CLASSES), (azure.core.exceptions, AZURE_CLASSES)]
)
def it_knows_every_error_class_of_a_library(module: ModuleType, table: dict[str, Kind]) -> None:
    like_base = {name: kind for kind, names in LIKE_THEIR_BASE.items() for name in names.split()}
    names = exception_names(module)
    assert names - like_base.keys() == table.keys()
    for name in names & like_base.keys():
        bases = (base.__name__ for base in vars(module)[name].__mro__)
        assert next(table[base] for base in bases if base in table) is like_base[name]


def it_knows_no_azure_code_that_azure_does_not_know() -> None:
    known = {code.value for code in StorageErrorCode}
    # Documented by the service, not listed by the library.
    known |= {
        "AccountNotFound", "AuthorizationPermissionMismatch", "AuthorizationProtocolMismatch",
        "AuthorizationResourceTypeMismatch", "AuthorizationServiceMismatch",
        "AuthorizationSourceIPMismatch", "PublicAccessNotPermitted", "BlobImmutableDueToPolicy",
        "Crc64Mismatch", "UnsupportedHttpVerb",
    }  # fmt: skip
    assert set(AZURE_CODES) <= known


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("NoSuchKey", 404, StorageNotFound),
        ("NoSuchBucket", 404, StorageNotFound),
        ("404", 404, StorageError),
        ("", 404, StorageError),
        ("SomethingNew", 404, StorageError),
        ("AccessDenied", 403, StorageDenied),
        ("ExpiredToken", 400, StorageDenied),
        ("PreconditionFailed", 412, WriteConflict),
        ("ConditionalRequestConflict", 409, WriteConflict),
        ("SomethingNew", 403, StorageDenied),
        ("SomethingNew", 418, StorageError),
        ("SlowDown", 503, StoreBusy),
        ("SomethingNew", 502, StoreBusy),
    ],
)
def it_translates_what_s3_answers(code: str, status: int, expected: type[StorageError]) -> None:
    error = ClientError(
        {"Error": {"Code": code, "Message": "TEXT"}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "GetObject",
    )
    found = translate_boto_error(error, "s3://b/k")
    assert type(found) is expected
    assert found.where == "s3://b/k"
    assert "TEXT" not in f"{found} {found.hint} {found.detail}"


def it_knows_that_an_answer_to_head_has_no_code() -> None:
    error = ClientError({"Error": {"Code": "404"}, "ResponseMetadata": {"HTTPStatusCode": 404}}, "HeadObject")
    assert type(translate_boto_error(error, "s3://b/k")) is StorageNotFound


def it_translates_what_botocore_raises_itself() -> None:
    url = "https://h/?X-Amz-Signature=TEXT"
    found = translate_boto_error(EndpointConnectionError(endpoint_url=url), "s3://b")
    assert "cannot be reached" in found.message
    assert "TEXT" not in f"{found} {found.hint} {found.detail}"
    assert type(translate_boto_error(NoCredentialsError(), "s3://b")) is StorageDenied


def it_translates_azure_by_code_then_status_then_class() -> None:
    archived = HttpResponseError("TEXT")
    archived.error_code = StorageErrorCode.BLOB_ARCHIVED  # type: ignore[attr-defined]
    archived.status_code = 409
    assert translate_azure_error(archived, "x").message == Kind.ARCHIVED.value.message
    gone = ResourceNotFoundError("TEXT")
    assert type(translate_azure_error(gone, "x")) is StorageNotFound
    assert "cannot be reached" in translate_azure_error(ServiceRequestError("TEXT"), "x").message
    denied = HttpResponseError("TEXT")
    denied.status_code = 403
    found = translate_azure_error(denied, "x")
    assert type(found) is StorageDenied
    assert "TEXT" not in f"{found} {found.hint} {found.detail}"


def it_shows_no_text_in_the_place_of_a_code() -> None:
    """A proxy may quote the request there, with its signature."""
    quoted = "GET /c?sv=2026&sig=TEXT%3D"
    boto = {"Error": {"Code": quoted}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    azure = HttpResponseError("x")
    azure.error_code = quoted  # type: ignore[attr-defined]
    azure.status_code = 400
    for found in (
        translate_boto_error(ClientError(boto, "GetObject"), "s3://b/k"),
        translate_azure_error(azure, "x"),
    ):
        assert "TEXT" not in f"{found} {found.hint} {found.detail}"


def it_says_where_azure_s_answer_was_damaged_because_it_may_be_a_bug() -> None:
    with pytest.raises(StoreBusy) as caught, azure_errors("x"):
        raise TypeError("TEXT")
    assert caught.value.detail.startswith("TypeError in test_translate.py, line ")
    assert "TEXT" not in "".join(traceback.format_exception(caught.value, limit=0))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOENT, StorageNotFound),
        (errno.EISDIR, StorageNotFound),
        (errno.EACCES, StorageDenied),
        (errno.EIO, StorageError),
        (errno.ESTALE, StoreBusy),
    ],
)
def it_translates_what_the_system_says(number: int, expected: type[StorageError]) -> None:
    assert type(translate_os_error(OSError(number, "text"), "file:///x")) is expected

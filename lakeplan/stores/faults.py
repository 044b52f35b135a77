"""Translates errors of vendors."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, StoreBusy, WriteConflict


@dataclass(frozen=True)
class Meaning:
    error: type[StorageError]
    message: str
    hint: str = ""


class Kind(Enum):
    """The meaning of a vendor's error."""

    MISSING = Meaning(StorageNotFound, "the object does not exist")
    UNCLEAR = Meaning(
        StorageError,
        "the response does not say whether the object exists",
        "Check proxies and endpoint_url: something other than the store returned status 404.",
    )
    NO_CONTAINER = Meaning(StorageNotFound, "the bucket or container does not exist", "Check the URL.")
    DENIED = Meaning(
        StorageDenied, "the storage refused access", "Check the credentials and their permissions."
    )
    NO_CREDENTIALS = Meaning(
        StorageDenied,
        "no usable credentials were found for the storage",
        "Set credentials in the way that the vendor's own tools expect: as environment variables, a profile"
        " or a role.",
    )
    CONFLICT = Meaning(
        WriteConflict,
        "another process changed the object first",
        "Run the command again. Nothing was written.",
    )
    # After these three, a repeated request may succeed. Whether the store did the first one is unknown.
    UNREACHABLE = Meaning(
        StoreBusy, "the storage cannot be reached", "Check the endpoint, the network and the proxy settings."
    )
    TLS = Meaning(StorageError, "the TLS certificate of the storage was not accepted", "Check the CA bundle.")
    BROKEN = Meaning(
        StoreBusy, "the response from the storage was incomplete or damaged", "Run the command again."
    )
    BUSY = Meaning(StoreBusy, "the storage is overloaded or temporarily unavailable", "Try again later.")
    REGION = Meaning(StorageError, "the bucket is in another region", "Set the region of the bucket.")
    ARCHIVED = Meaning(
        StorageError,
        "the object is archived and cannot be read",
        "Restore the object from the archive first.",
    )
    UNSUPPORTED = Meaning(StorageError, "the storage does not support this request")
    SETTINGS = Meaning(
        StorageError,
        "the settings of the storage client are invalid",
        "Check the region, profile and endpoint.",
    )
    MISUSE = Meaning(StorageError, "the storage client refused the request", "Please report this as a bug.")


DAMAGED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of reading a response that lacks something, or has something else in its place."""


def error_of(kind: Kind, where: str, *, detail: str = "", message: str = "") -> StorageError:
    """Return the error of a kind at a URL. ``detail`` must not have secrets."""
    meaning = kind.value
    return meaning.error(message or meaning.message, where=where, hint=meaning.hint, detail=detail)


def translate_os_error(error: OSError, where: str) -> StorageError:
    """Return the error for an error of the system, whose text is safe to show."""
    kind = OS_ERRORS.get(error.errno or 0)
    if kind is None:
        return StorageError(
            f"the file or folder cannot be used: {error.strerror or type(error).__name__}", where=where
        )
    return error_of(kind, where, detail=f"{type(error).__name__}: {error.strerror}")


def _named(groups: Mapping[Kind, str]) -> dict[str, Kind]:
    return {name: kind for kind, names in groups.items() for name in names.split()}


_OS_NAMES = _named(
    {
        Kind.MISSING: "ENOENT ENOTDIR EISDIR ELOOP ENAMETOOLONG",
        Kind.DENIED: "EACCES EPERM EROFS",
        Kind.BUSY: "EBUSY EAGAIN ESTALE",
    }
)
OS_ERRORS = {getattr(errno, name): kind for name, kind in _OS_NAMES.items()}

S3_CODES = _named(
    {
        Kind.MISSING: "NoSuchKey NoSuchVersion",
        Kind.UNCLEAR: "NotFound 404",
        Kind.NO_CONTAINER: "NoSuchBucket",
        Kind.DENIED: "AccessDenied AllAccessDisabled AccountProblem InvalidAccessKeyId InvalidSecurity"
        " SignatureDoesNotMatch Forbidden Unauthorized 401 403 InvalidPayer NotSignedUp",
        Kind.NO_CREDENTIALS: "ExpiredToken InvalidToken TokenRefreshRequired ExpiredTokenException"
        " RequestExpired CredentialsNotSupported",
        Kind.CONFLICT: "PreconditionFailed ConditionalRequestConflict 409 412",
        Kind.BUSY: "SlowDown Throttling ThrottlingException RequestLimitExceeded TooManyRequests Busy"
        " InternalError ServiceUnavailable OperationAborted RequestTimeout 500 502 503 504",
        Kind.REGION: "PermanentRedirect TemporaryRedirect IllegalLocationConstraintException"
        " AuthorizationHeaderMalformed 301 307",
        Kind.ARCHIVED: "InvalidObjectState",
        Kind.UNSUPPORTED: "NotImplemented MethodNotAllowed 405 501",
        Kind.BROKEN: "BadDigest XAmzContentSHA256Mismatch IncompleteBody",
        Kind.SETTINGS: "InvalidBucketName RequestTimeTooSkewed InvalidRequest 400",
    }
)
"""Error codes of S3. Another code is a StorageError that names it."""

BOTO_CLASSES = _named(
    {
        Kind.UNREACHABLE: "EndpointConnectionError ConnectTimeoutError ConnectionError"
        " ConnectionClosedError ReadTimeoutError HTTPClientError ProxyConnectionError",
        Kind.TLS: "SSLError",
        Kind.BROKEN: "IncompleteReadError ResponseStreamingError ChecksumError FlexibleChecksumError"
        " AwsChunkedWrapperError MD5UnavailableError EventStreamError",
        Kind.NO_CREDENTIALS: "NoCredentialsError PartialCredentialsError CredentialRetrievalError"
        " UnknownCredentialError TokenRetrievalError NoAuthTokenError MetadataRetrievalError SSOError"
        " LoginError RefreshWithMFAUnsupportedError UnknownTokenProviderError InvalidIMDSEndpointError"
        " InvalidIMDSEndpointModeError",
        Kind.SETTINGS: "InvalidRegionError UnknownRegionError ProfileNotFound ConfigNotFound"
        " ConfigParseError InvalidConfigError InvalidChecksumConfigError InvalidRetryConfigurationError"
        " InvalidProxiesConfigError InvalidS3AddressingStyleError InvalidDefaultsMode"
        " InvalidS3UsEast1RegionalEndpointConfigError InvalidSTSRegionalEndpointsConfigError"
        " InvalidEndpointConfigurationError InvalidEndpointDiscoveryConfigurationError"
        " BaseEndpointResolverError EndpointProviderError InvalidDNSNameError InvalidHostLabelError"
        " ServiceNotInRegionError UnsupportedS3ArnError UnsupportedS3AccesspointConfigurationError"
        " UnsupportedS3ConfigurationError UnsupportedS3ControlArnError"
        " UnsupportedS3ControlConfigurationError UnsupportedOutpostResourceError"
        " UnknownSignatureVersionError UnsupportedSignatureVersionError MissingDependencyException"
        " UnsupportedServiceProtocolsError",
        Kind.MISUSE: "UndefinedModelAttributeError BotoCoreError ClientError",
    }
)
"""Error classes of botocore. Others are translated like their base class, ``ClientError`` by its code."""

AZURE_CODES = _named(
    {
        Kind.MISSING: "BlobNotFound ResourceNotFound",
        Kind.NO_CONTAINER: "ContainerNotFound ContainerBeingDeleted ContainerDisabled AccountNotFound",
        Kind.DENIED: "AuthenticationFailed AuthorizationFailure AuthorizationPermissionMismatch"
        " AuthorizationProtocolMismatch AuthorizationResourceTypeMismatch AuthorizationServiceMismatch"
        " AuthorizationSourceIPMismatch InsufficientAccountPermissions AccountIsDisabled"
        " NoAuthenticationInformation InvalidAuthenticationInfo PublicAccessNotPermitted",
        Kind.CONFLICT: "ConditionNotMet TargetConditionNotMet BlobAlreadyExists ResourceAlreadyExists"
        " UnauthorizedBlobOverwrite BlobImmutableDueToPolicy LeaseIdMissing",
        Kind.BUSY: "ServerBusy InternalError OperationTimedOut",
        Kind.ARCHIVED: "BlobArchived BlobBeingRehydrated",
        Kind.BROKEN: "Md5Mismatch Crc64Mismatch",
        Kind.UNSUPPORTED: "UnsupportedHttpVerb FeatureVersionMismatch UnsupportedHeader"
        " ConditionHeadersNotSupported MultipleConditionHeadersNotSupported",
    }
)
"""Error codes of Azure. Another code is translated by the class of its error."""

AZURE_CLASSES = _named(
    {
        Kind.MISSING: "ResourceNotFoundError",
        Kind.DENIED: "ClientAuthenticationError",
        Kind.CONFLICT: "ResourceExistsError ResourceModifiedError",
        Kind.UNREACHABLE: "ServiceRequestError ServiceRequestTimeoutError ServiceResponseTimeoutError",
        Kind.BROKEN: "ServiceResponseError IncompleteReadError DecodeError DeserializationError",
        Kind.UNSUPPORTED: "TooManyRedirectsError HttpResponseError ODataV4Error",
        Kind.MISUSE: "AzureError ResourceNotModifiedError SerializationError",
    }
)
"""Error classes of azure-core. Others are translated like their base class."""
_RETURNED = "the storage returned "


def translate_boto_error(error: Exception, where: str) -> StorageError:
    """Return the error for an error of botocore. It has the code or the class, never the library's text."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        code = code_of(response.get("Error", {}).get("Code"))
        status = str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        kind = S3_CODES.get(code) or S3_CODES.get(status)
        if kind is Kind.UNCLEAR and getattr(error, "operation_name", "") == "HeadObject":
            kind = Kind.MISSING  # a response to HEAD has no body, and so no code
        if kind is None:
            what = f"error {code}" if code else f"status {status}" if status else "an error"
            return StorageError(f"{_RETURNED}{what}", where=where)
        return error_of(kind, where, detail=f"{code} (status {status})")
    return error_of(_by_class(error, BOTO_CLASSES, Kind.SETTINGS), where, detail=type(error).__name__)


def translate_azure_error(error: Exception, where: str) -> StorageError:
    """Return the error for an error of azure-core or azure-storage-blob, by its code or its class."""
    known = getattr(error, "error_code", None)  # an enum's member, or a text that the library does not know
    code = code_of(getattr(known, "value", known))
    status = getattr(error, "status_code", None)
    kind = AZURE_CODES.get(code) or _azure_status(status) or _by_class(error, AZURE_CLASSES, Kind.SETTINGS)
    detail = f"{code or type(error).__name__}" + (f" (status {status})" if status else "")
    message = f"{_RETURNED}{detail}" if kind is Kind.UNSUPPORTED else ""
    return error_of(kind, where, detail=detail, message=message)


def _azure_status(status: object) -> Kind | None:
    if not isinstance(status, int):
        return None
    known = {401: Kind.DENIED, 403: Kind.DENIED, 404: Kind.UNCLEAR, 412: Kind.CONFLICT, 429: Kind.BUSY}
    return Kind.BUSY if status >= 500 else known.get(status)


def _by_class(error: Exception, table: Mapping[str, Kind], otherwise: Kind) -> Kind:
    return next((table[c.__name__] for c in type(error).__mro__ if c.__name__ in table), otherwise)


def is_missing_object(error: StorageError) -> bool:
    """Return whether an object does not exist, in a bucket or container that does."""
    return isinstance(error, StorageNotFound) and error.message != Kind.NO_CONTAINER.value.message


def is_unknown(error: StorageError) -> bool:
    """Return whether the store returned an error that no table here has."""
    return error.message.startswith(_RETURNED)


def is_unsupported(error: StorageError) -> bool:
    """Return whether the store does not support this kind of request."""
    return error.message == Kind.UNSUPPORTED.value.message


CODE = re.compile("[A-Za-z0-9]{1,64}", re.ASCII)


def code_of(value: object) -> str:
    """Return an error code of a response, or "" for a text in its place, which may quote the request and thus
    a credential."""
    text = str(value or "")
    return text if CODE.fullmatch(text) else ""


def reason_of(code: str, kind: Kind | None) -> str:
    """Return a store's code with our text for it. The store's text may have secrets."""
    return f"{code}: {kind.value.message}" if kind is not None else code or "no reason given"

"""Vendors' errors become ours, in this one table.

Classes and codes are matched by name, so that nothing is imported here; ``tests`` compare the names with
what the installed libraries have, and fail when one grows a class that no line here names.
Messages are ours: a vendor's text can carry a signed URL, so it never reaches a message or a log.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import Enum

from lakeplan.errors import StorageDenied, StorageError, StorageNotFound, WriteConflict


@dataclass(frozen=True)
class Meaning:
    error: type[StorageError]
    message: str
    hint: str = ""


class Kind(Enum):
    """What a vendor's error means to a person."""

    MISSING = Meaning(StorageNotFound, "there is no such object")
    NO_CONTAINER = Meaning(StorageNotFound, "there is no such bucket or container", "check the URL")
    DENIED = Meaning(
        StorageDenied, "the storage refused access", "check the credentials and what they may read or write"
    )
    NO_CREDENTIALS = Meaning(
        StorageDenied,
        "no usable credentials for the storage",
        "set them as the vendor's tools expect them (environment, profile or role)",
    )
    CONFLICT = Meaning(
        WriteConflict, "another writer was first", "nothing was written; run the command again"
    )
    UNREACHABLE = Meaning(
        StorageError, "the storage cannot be reached", "check the endpoint, the network and proxy settings"
    )
    TLS = Meaning(StorageError, "the storage's TLS certificate was not accepted", "check the CA bundle")
    BROKEN = Meaning(StorageError, "the answer of the storage was cut short or damaged", "try again")
    BUSY = Meaning(StorageError, "the storage is overloaded or failing", "try again later")
    REGION = Meaning(StorageError, "the bucket is in another region", "set the region")
    ARCHIVED = Meaning(StorageError, "the object is archived and cannot be read", "restore it first")
    UNSUPPORTED = Meaning(StorageError, "the storage does not support this request")
    SETTINGS = Meaning(
        StorageError, "the storage client's settings are wrong", "check region, profile, endpoint"
    )
    MISUSE = Meaning(StorageError, "the storage client refused the request", "please report this as a bug")


OS_ERRORS = {
    errno.ENOENT: Kind.MISSING,
    errno.ENOTDIR: Kind.MISSING,
    errno.EISDIR: Kind.MISSING,
    errno.ELOOP: Kind.MISSING,
    errno.ENAMETOOLONG: Kind.MISSING,
    errno.EACCES: Kind.DENIED,
    errno.EPERM: Kind.DENIED,
    errno.EROFS: Kind.DENIED,
}


def error_of(kind: Kind, where: str, *, detail: str = "", message: str = "") -> StorageError:
    """The error of one kind at one URL; ``detail`` must not carry secrets."""
    meaning = kind.value
    return meaning.error(message or meaning.message, where=where, hint=meaning.hint, detail=detail)


def translate_os_error(error: OSError, where: str) -> StorageError:
    """Of a folder of this machine; the system's own words are safe to show."""
    kind = OS_ERRORS.get(error.errno or 0)
    if kind is None:
        return StorageError(f"cannot be used: {error.strerror or type(error).__name__}", where=where)
    return error_of(kind, where, detail=f"{type(error).__name__}: {error.strerror}")

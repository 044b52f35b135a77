"""Where a namespace or a state store is: its URL, taken apart once and without credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar
from urllib.parse import quote

from lakeplan.errors import StorageError
from lakeplan.values.storages import AZURE_SUFFIXES
from lakeplan.values.urls import (
    BadUrl,
    WebUrl,
    parse_bucket_url,
    parse_folder_url,
    parse_local_url,
    parse_web_url,
    shown_url,
)

T = TypeVar("T")

AZURE_EXAMPLE = "https://<account>.blob.core.windows.net/<container>/<path>"
_NAME = re.compile(r"\$(root|web|logs)|[a-z0-9](-?[a-z0-9]){0,62}", re.ASCII)


@dataclass(frozen=True)
class FolderLocation:
    """A folder of this machine. ``path`` is absolute."""

    path: str

    @property
    def url(self) -> str:
        return "file://" + quote(self.path)


@dataclass(frozen=True)
class S3Location:
    """``prefix`` has no slash at either end; "" is the whole bucket."""

    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def base(self) -> str:
        """How all keys begin in the bucket."""
        return f"{self.prefix}/" if self.prefix else ""


@dataclass(frozen=True)
class GcsLocation:
    """``prefix`` has no slash at either end; "" is the whole bucket."""

    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        return f"gs://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def base(self) -> str:
        """How all names begin in the bucket."""
        return f"{self.prefix}/" if self.prefix else ""


@dataclass(frozen=True)
class AzureLocation:
    """``account_url`` is scheme and host (and, as Azurite has it, the account as first part of the path)."""

    account_url: str
    account: str
    container: str
    prefix: str

    @property
    def is_azure(self) -> bool:
        """Whether the host is Azure's own."""
        return self.account_url in {f"https://{self.account}{suffix}" for suffix in AZURE_SUFFIXES}

    @property
    def url(self) -> str:
        return f"{self.account_url}/{self.container}" + (f"/{quote(self.prefix)}" if self.prefix else "")

    @property
    def base(self) -> str:
        """How all names begin in the container."""
        return f"{self.prefix}/" if self.prefix else ""


class Location(Protocol):
    """Where something is, without credentials."""

    @property
    def url(self) -> str: ...


class Opened:
    """What was opened at a location, and how messages name it and its keys."""

    def __init__(self, location: Location) -> None:
        self._url = location.url

    @property
    def url(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    def _where(self, key: str) -> str:
        return f"{self._url}/{key}"


def parse_folder_location(url: str) -> FolderLocation:
    """Of ``file:///…`` or an absolute path. Raises StorageError, as do the two below."""
    example = "/absolute/path" if url.startswith("/") else "file:///absolute/path"
    return FolderLocation(_strict(parse_folder_url, url, example))


def parse_s3_location(url: str) -> S3Location:
    found = _strict(parse_bucket_url, url, "s3://bucket/prefix")
    return S3Location(found.bucket, found.prefix)


def parse_gcs_location(url: str) -> GcsLocation:
    found = _strict(lambda text: parse_bucket_url(text, ("gs",)), url, "gs://bucket/prefix")
    return GcsLocation(found.bucket, found.prefix)


def parse_azure_location(url: str) -> AzureLocation:
    found = _strict(parse_web_url, url, AZURE_EXAMPLE)
    parts = list(found.parts)
    root = found.origin
    if (account := _azure_account(found)) is None:
        if not (found.host == "localhost" or found.address is not None) or not parts:
            raise StorageError("not an Azure blob URL", where=shown_url(url), hint=AZURE_EXAMPLE)
        if found.address is not None and found.address.is_link_local:
            raise StorageError(
                "a link-local address cannot be storage", where=shown_url(url), hint=AZURE_EXAMPLE
            )
        # Azurite, and gateways that are reached by address, carry the account in the path.
        account = parts.pop(0)
        root = f"{root}/{account}"
    if not parts:
        raise StorageError("the container is missing", where=root, hint=f"{root}/<container>/<path>")
    if not _NAME.fullmatch(parts[0]) or not _NAME.fullmatch(account):
        raise StorageError("not the name of a container or an account", where=shown_url(url))
    return AzureLocation(root, account, parts[0], "/".join(parts[1:]))


def folder_of(namespace: str, root: str) -> str:
    """The folder of a ``local://`` namespace below a server's own folder ``root``. Raises StorageError for
    one that leads out of it, by ``..`` or through a symbolic link."""
    top = os.path.abspath(root)
    folder = os.path.join(top, *_strict(parse_local_url, namespace, "local://folder"))
    real = os.path.realpath(top)
    if os.path.commonpath((os.path.realpath(folder), real)) != real:
        raise StorageError(
            "the namespace leads out of the server's folder through a symbolic link",
            where=shown_url(namespace),
            hint="Check storages.*.path in the tree.",
        )
    return folder


def _azure_account(found: WebUrl) -> str | None:
    """The account of an address that is Azure's own, by HTTPS on its own port; None for any other host."""
    account, _, rest = found.host.partition(".")
    if f".{rest}" not in AZURE_SUFFIXES:
        return None
    if found.scheme != "https" or found.port is not None:
        raise StorageError(
            "an Azure URL has the scheme https:// and no port", where=found.origin, hint=AZURE_EXAMPLE
        )
    return account


def _strict(parse: Callable[[str], T], url: str, example: str) -> T:
    try:
        return parse(url)
    except BadUrl as error:
        raise StorageError(str(error), where=shown_url(url), hint=f"Use for example {example}.") from None

"""Where a namespace or a state store is: its URL, taken apart once and without credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from lakeplan.errors import StorageError
from lakeplan.values.urls import (
    BadUrl,
    WebUrl,
    parse_bucket_url,
    parse_folder_url,
    parse_local_url,
    parse_web_url,
    scheme_of,
    shown_url,
)

T = TypeVar("T")

AZURE_SUFFIXES = (".blob.core.windows.net", ".blob.core.chinacloudapi.cn", ".blob.core.usgovcloudapi.net")
AZURE_EXAMPLE = "https://<account>.blob.core.windows.net/<container>/<path>"
_WORD = re.compile(r"[A-Za-z0-9._/-]{1,100}", re.ASCII)
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


Location = FolderLocation | S3Location | AzureLocation


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


def parse_location(url: str) -> Location:
    """Takes a URL apart: ``file:///…`` or an absolute path, ``s3://bucket/prefix``, or an Azure blob URL.

    Raises StorageError for any other kind, by its name, and for what ``values.urls`` refuses: a user,
    a password or a query (a SAS) among it. Their text is not repeated in the message.
    """
    if url.startswith("/"):
        return FolderLocation(_strict(parse_folder_url, url, "/absolute/path"))
    scheme = scheme_of(url)
    if scheme is None:
        raise StorageError(
            "a storage URL has a scheme, or is an absolute path",
            where=url if _WORD.fullmatch(url) else shown_url(url),
            hint="for example file:///data/repo, s3://bucket/repo",
        )
    if scheme == "file":
        return FolderLocation(_strict(parse_folder_url, url, "file:///absolute/path"))
    if scheme == "s3":
        found = _strict(parse_bucket_url, url, "s3://bucket/prefix")
        return S3Location(found.bucket, found.prefix)
    if scheme in ("https", "http"):
        return _azure(url)
    if scheme == "gs":
        raise StorageError(
            "Google Cloud Storage (gs://) cannot be read directly",
            where=shown_url(url),
            hint="plan reads its metadata through the lakeFS API; simulate needs file://, s3:// or Azure",
        )
    if scheme in ("local", "mem"):
        raise StorageError(
            f"{scheme}:// names a place inside a lakeFS server",
            where=shown_url(url),
            hint="give the folder that holds it as file:///…",
        )
    raise StorageError(
        f"unknown kind of storage {scheme}://",
        where=shown_url(url),
        hint="file://, s3:// or https://<account>.blob…",
    )


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
            hint="check storages.*.path in the tree",
        )
    return folder


def _azure(url: str) -> AzureLocation:
    found = _strict(parse_web_url, url, AZURE_EXAMPLE)
    parts = list(found.parts)
    root = found.origin
    if (account := _azure_account(found)) is None:
        if not (found.host == "localhost" or found.address is not None) or not parts:
            raise StorageError("not an Azure blob URL", where=shown_url(url), hint=AZURE_EXAMPLE)
        if found.address is not None and found.address.is_link_local:
            raise StorageError("a link-local address is no storage", where=shown_url(url), hint=AZURE_EXAMPLE)
        # Azurite, and gateways that are reached by address, carry the account in the path.
        account = parts.pop(0)
        root = f"{root}/{account}"
    if not parts:
        raise StorageError("the container is missing", where=root, hint=f"{root}/<container>/<path>")
    if not _NAME.fullmatch(parts[0]) or not _NAME.fullmatch(account):
        raise StorageError("not the name of a container or an account", where=shown_url(url))
    return AzureLocation(root, account, parts[0], "/".join(parts[1:]))


def _azure_account(found: WebUrl) -> str | None:
    """The account of an address that is Azure's own, by HTTPS on its own port; None for any other host."""
    account, _, rest = found.host.partition(".")
    if f".{rest}" not in AZURE_SUFFIXES:
        return None
    if found.scheme != "https" or found.port is not None:
        raise StorageError(
            "an address of Azure has the scheme https:// and no port", where=found.origin, hint=AZURE_EXAMPLE
        )
    return account


def _strict(parse: Callable[[str], T], url: str, example: str) -> T:
    try:
        return parse(url)
    except BadUrl as error:
        raise StorageError(str(error), where=shown_url(url), hint=f"for example {example}") from None

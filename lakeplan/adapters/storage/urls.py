"""Where a namespace or a state store is: its URL, taken apart once and without credentials."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from lakeplan.errors import StorageError

AZURE_SUFFIXES = (".blob.core.windows.net", ".blob.core.chinacloudapi.cn", ".blob.core.usgovcloudapi.net")


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


@dataclass(frozen=True)
class AzureLocation:
    """``account_url`` is scheme and host (and, as Azurite has it, the account as first part of the path)."""

    account_url: str
    account: str
    container: str
    prefix: str

    @property
    def url(self) -> str:
        return f"{self.account_url}/{self.container}" + (f"/{quote(self.prefix)}" if self.prefix else "")


Location = FolderLocation | S3Location | AzureLocation


def parse_location(url: str) -> Location:
    """Takes a URL apart: ``file:///…`` or an absolute path, ``s3://bucket/prefix``, or an Azure blob URL.

    Raises StorageError for any other kind, by its name, and for a URL that carries a user, a password or
    a query (a SAS): those belong into the environment, and their text is not repeated in the message.
    """
    if url.startswith("/"):
        return FolderLocation(_folder(url))
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        raise StorageError(
            "a storage URL has a scheme, or is an absolute path",
            where=url,
            hint="for example file:///data/repo, s3://bucket/repo",
        )
    if scheme == "file":
        return _file(url, rest)
    _refuse_credentials(scheme, rest)
    if scheme == "s3":
        return _s3(url, rest)
    if scheme in ("https", "http"):
        return _azure(url)
    if scheme == "gs":
        raise StorageError(
            "Google Cloud Storage (gs://) cannot be read directly",
            where=url,
            hint="plan reads its metadata through the lakeFS API; simulate needs file://, s3:// or Azure",
        )
    if scheme in ("local", "mem"):
        raise StorageError(
            f"{scheme}:// names a place inside a lakeFS server",
            where=url,
            hint="give the folder that holds it as file:///…",
        )
    raise StorageError(
        f"unknown kind of storage {scheme}://", where=url, hint="file://, s3:// or https://<account>.blob…"
    )


def _folder(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part)


def _file(url: str, rest: str) -> FolderLocation:
    host, slash, path = rest.partition("/")
    if not slash or host not in ("", "localhost"):
        raise StorageError(
            "a file URL has three slashes and an absolute path", where=url, hint="file:///absolute/path"
        )
    return FolderLocation(_folder(unquote("/" + path)))


def _s3(url: str, rest: str) -> S3Location:
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise StorageError("the bucket is missing", where=url, hint="s3://bucket/prefix")
    return S3Location(bucket, prefix.strip("/"))


def _azure(url: str) -> AzureLocation:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    path = [unquote(part) for part in parts.path.split("/") if part]
    root = f"{parts.scheme}://{parts.netloc.lower()}"
    if host.endswith(AZURE_SUFFIXES):
        account = host.split(".", 1)[0]
    elif _is_path_style(host) and path:
        # Azurite, and gateways that are reached by address, carry the account in the path.
        account = path.pop(0)
        root = f"{root}/{account}"
    else:
        raise StorageError(
            "not an Azure blob URL",
            where=url,
            hint="https://<account>.blob.core.windows.net/<container>/<path>",
        )
    if not path:
        raise StorageError("the container is missing", where=url, hint=f"{root}/<container>/<path>")
    return AzureLocation(root, account, path[0], "/".join(path[1:]))


def _is_path_style(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _refuse_credentials(scheme: str, rest: str) -> None:
    authority, _, _ = rest.partition("/")
    if "@" in authority:
        where = f"{scheme}://…@{authority.rpartition('@')[2]}"
        raise StorageError(
            "a storage URL carries no credentials", where=where, hint="set them in the environment"
        )
    if scheme != "s3" and ("?" in rest or "#" in rest):
        where = f"{scheme}://{rest.partition('?')[0].partition('#')[0]}"
        raise StorageError(
            "a storage URL carries no query",
            where=where,
            hint="set a SAS as AZURE_STORAGE_SAS_TOKEN in the environment",
        )

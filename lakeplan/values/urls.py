"""URLs of servers, stores, namespaces and state, which are all parsed here, and the kinds of storage they
name.

URLs come from trees that a pull request changes, and from servers. Libraries read the same odd URL in
different ways: one of them would check a host, and another would connect elsewhere. Here only listed
characters are allowed, and anything that two readers could interpret differently is refused: backslashes,
white space, control characters, user info, percent-encoded hosts, numbers that mean addresses, empty and
``..`` parts of a path.

The errors name the fault and never repeat the URL, which may contain a password or a signature.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import quote, unquote_to_bytes

from lakeplan import limits

DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31})://(.*)", re.DOTALL)
_ALLOWED = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_BUCKET = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,253}[A-Za-z0-9])?", re.ASCII)
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://[A-Za-z0-9._:/\[\]-]*", re.ASCII)


class BadUrl(ValueError):
    """A URL is refused. The message completes a sentence whose subject is the URL."""


@dataclass(frozen=True)
class WebUrl:
    """An http(s) URL. ``host`` is in lower case, IPv6 without brackets. ``port`` is None for the scheme's
    default port. ``parts`` are the decoded parts of the path."""

    scheme: str
    host: str
    port: int | None
    parts: tuple[str, ...]
    query: str = ""

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port is not None else "")

    @property
    def url(self) -> str:
        """Without the query."""
        return self.origin + "".join(f"/{quote(part, safe=_UNQUOTED)}" for part in self.parts)

    @property
    def is_loopback(self) -> bool:
        address = self.address
        return self.host == "localhost" or (address is not None and address.is_loopback)

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """None for a name."""
        return _address(self.host)


_UNQUOTED = "-._~!$&'()*+,;=:@"


@dataclass(frozen=True)
class BucketUrl:
    """``s3://bucket/prefix``: ``prefix`` has no slash at either end, and nothing in it is encoded."""

    scheme: str
    bucket: str
    prefix: str


def scheme_of(text: str) -> str | None:
    """The scheme in lower case, or None for a text without one."""
    match = _SCHEME.fullmatch(text)
    return match.group(1).lower() if match else None


def parse_web_url(
    text: str, schemes: Container[str] = frozenset({"http", "https"}), *, query: bool = False
) -> WebUrl:
    """Return an http(s) URL of a server or a store. It may have a query only with ``query``. Raises
    BadUrl."""
    scheme, rest = _split_scheme(text, schemes)
    if odd := _ALLOWED.sub("", rest, count=1):
        raise BadUrl(f"{_character(odd[0])} cannot be part of a URL")
    rest, mark, asked = rest.partition("?")
    if "#" in rest + asked:
        raise BadUrl("a URL must not have a fragment (#) here")
    if mark and not query:
        raise BadUrl("a URL must not have a query (?) here: credentials come from the environment")
    authority, _, path = rest.partition("/")
    if "@" in authority:
        raise BadUrl("a URL must not contain a user or password: credentials come from the environment")
    host, port = _host_and_port(authority)
    return WebUrl(
        scheme, host, None if port == DEFAULT_PORTS.get(scheme) else port, _decoded_parts(path), asked
    )


def parse_signed_url(text: str) -> WebUrl:
    """Return scheme, host and port of a signed URL or a redirect. The path is not parsed, because only the
    store reads it. The URL may have a query. Raises BadUrl."""
    scheme, rest = _split_scheme(text, DEFAULT_PORTS)
    if odd := _ALLOWED.sub("", rest, count=1):
        raise BadUrl(f"{_character(odd[0])} cannot be part of a URL")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return parse_web_url(f"{scheme}://{authority}")


def parse_bucket_url(text: str, schemes: Container[str] = frozenset({"s3"})) -> BucketUrl:
    """Return the parts of ``s3://bucket/prefix``. Raises BadUrl, including for escapes, which programs read
    differently."""
    scheme, rest = _split_scheme(text, schemes)
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket:
        raise BadUrl("a URL must not contain a user or password: credentials come from the environment")
    if not bucket:
        raise BadUrl("the bucket is missing")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise BadUrl("the bucket name has invalid characters")
    return BucketUrl(scheme, bucket, "/".join(_plain_parts(prefix)))


def parse_folder_url(text: str) -> str:
    """Return the absolute path of ``file:///path``, decoded, or of a path. Raises BadUrl."""
    if text.startswith("/"):
        parts = tuple(part for part in text.split("/") if part)
        _check_parts(parts)
        return "/" + "/".join(parts)
    _, rest = _split_scheme(text, {"file"})
    host, slash, path = rest.partition("/")
    if not slash or host not in ("", "localhost"):
        raise BadUrl("a file URL must have three slashes and an absolute path")
    return "/" + "/".join(_decoded_parts(path))


def parse_local_url(text: str) -> tuple[str, ...]:
    """Return the parts of ``local://folder/…``, a place below a folder of the lakeFS server. Raises
    BadUrl."""
    _, rest = _split_scheme(text, {"local"})
    parts = _plain_parts(rest)
    if not parts:
        raise BadUrl("the folder is missing")
    return parts


def shown_url(text: str) -> str:
    """Return a URL for a message, without secrets and without characters that a terminal would act on."""
    start = _PLAIN.match(text)
    if start is None:
        return "a URL without a scheme" if "://" not in text else "a URL that cannot be parsed"
    if "@" in text:
        return f"{start.group().partition('://')[0]}://…"
    return start.group() + ("…" if start.end() < len(text) else "")


def _split_scheme(text: str, schemes: Container[str]) -> tuple[str, str]:
    if len(text) > limits.URL_CHARACTERS:
        raise BadUrl(f"a URL may have at most {limits.URL_CHARACTERS:,} characters")
    for character in text:
        if not character.isprintable() or character == "\\":  # white space passes only as a plain space
            raise BadUrl(f"{_character(character)} cannot be part of a URL")
    match = _SCHEME.fullmatch(text)
    if match is None:
        raise BadUrl("a URL must begin with a scheme such as https://")
    scheme = match.group(1).lower()
    if scheme not in schemes:
        raise BadUrl(f"the scheme {scheme}:// is not supported here")
    return scheme, match.group(2)


def _host_and_port(authority: str) -> tuple[str, int | None]:
    if "%" in authority:
        raise BadUrl("a host must not be percent-encoded")
    host, colon, port = authority, "", ""
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or ":" not in host:
            raise BadUrl("the host in brackets is not a valid address")
        colon, port = rest[:1], rest[1:]
    elif ":" in authority:
        host, colon, port = authority.partition(":")
    return _checked_host(host.lower()), _checked_port(port) if colon else None


def _checked_host(host: str) -> str:
    if not host:
        raise BadUrl("the host is missing")
    if ":" in host:
        if _address(host) is None:
            raise BadUrl("the host is not an IPv6 address")
        return str(_address(host))
    host = host.removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadUrl("the host has invalid characters or empty parts")
    if _NUMBER.fullmatch(labels[-1]) and _address(host) is None:
        raise BadUrl("the host ends in a number but is not an IPv4 address such as 192.0.2.1")
    return host


def _checked_port(port: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or not 1 <= int(port) <= 65535:
        raise BadUrl("the port is not a number from 1 to 65535")
    return int(port)


def _decoded_parts(path: str) -> tuple[str, ...]:
    if _ESCAPE.search(path):
        raise BadUrl("the path has a % that is not followed by two hexadecimal digits")
    try:
        parts = tuple(unquote_to_bytes(part).decode() for part in _without_end(path.split("/")))
    except UnicodeDecodeError:
        raise BadUrl("the path has escapes that do not decode to UTF-8 text") from None
    _check_parts(parts)
    return parts


def _plain_parts(path: str) -> tuple[str, ...]:
    for character in "%?#":
        if character in path:
            raise BadUrl(
                f"the path contains {character!r}, which different programs interpret in different ways"
            )
    parts = tuple(_without_end(path.split("/")))
    _check_parts(parts)
    return parts


def _without_end(parts: list[str]) -> list[str]:
    """Return the parts without an empty last part, because a slash at the end has no meaning."""
    return parts[:-1] if parts[-1] == "" else parts


def _check_parts(parts: Iterable[str]) -> None:
    for part in parts:
        if part in (".", ".."):
            raise BadUrl(f"the part {part!r} of the path could point outside its folder")
        if not part:
            raise BadUrl("the path has an empty part (//)")
        if any(c in "/\\" or not c.isprintable() for c in part):
            raise BadUrl("a part of the path contains a slash, a backslash or a control character")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return None if getattr(address, "scope_id", None) else address


def _character(character: str) -> str:
    if character == "\\":
        return "a backslash"
    if character.isspace():
        return "whitespace"
    if not character.isprintable():
        return "a control character"
    return "a character that is not ASCII" if not character.isascii() else f"the character {character!r}"


MARK = "path-"
_DIGEST = re.compile(rf"{MARK}[0-9a-f]{{8}}(?:/[0-9a-f]{{8}})*/?")


def path_digest(scope: str, path: str) -> str:
    """Return ``raw/2026/`` as ``path-3f2a91c0/77ab12de/``. Each folder becomes a digest of the path to it, so
    that a path in a folder stays in that folder. ``scope`` is ``server/name``. A URL becomes one digest."""
    if "://" in path:
        return MARK + _short(scope, path)
    folders = path.split("/")
    shown = [_short(scope, "/".join(folders[: depth + 1])) for depth in range(len(folders))]
    if not folders[-1]:
        shown[-1] = ""  # so that a prefix still ends in a slash
    return MARK + "/".join(shown) if path else ""


def is_digest(text: str) -> bool:
    """Return whether a text is a result of ``path_digest``."""
    return _DIGEST.fullmatch(text) is not None


def _short(scope: str, path: str) -> str:
    return hashlib.sha256(f"{scope}\0{path}".encode("utf-8", "surrogatepass")).hexdigest()[:8]


class UrlForm(Enum):
    """The form of the URLs of a kind."""

    BUCKET = "scheme://bucket/prefix"
    WEB = "https://account.host/container/path"
    FOLDER = "file:///path"
    SERVER = "a place that only the server knows"


@dataclass(frozen=True)
class StorageKind:
    """A kind of storage. ``name`` is its ``type`` in a tree, if a tree may use it (``in_tree``)."""

    name: str
    schemes: tuple[str, ...]
    form: UrlForm
    hadoop_schemes: tuple[str, ...] = ()
    """Schemes that Hadoop programs, and namespaces made for them, use for the same storage."""
    in_tree: bool = True
    refusal: tuple[str, str] | None = None
    """Message and hint for a URL that lakeplan cannot open, or None if it can."""
    hosts: re.Pattern[str] | None = None
    """The vendor's hosts. If the host begins with the bucket, the group ``bucket`` matches it."""
    has_inventory: bool = False
    """Whether the storage can deliver an S3 inventory."""
    grants: Mapping[str, str] = field(default_factory=dict)
    """The permissions to grant for each action of a sweep, as ``doctor`` names the action."""
    packages: tuple[str, ...] = ()
    """The packages that Spark workers import to read it."""

    @property
    def can_be_swept(self) -> bool:
        return self.in_tree or self.refusal is None

    @property
    def holds_documents(self) -> bool:
        """Whether it can contain state and caches."""
        return self.refusal is None

    def check_url(self, url: str) -> None:
        """Raise BadUrl for a URL of this kind that two programs could read differently."""
        if self.form is UrlForm.BUCKET:
            parse_bucket_url(url, self.schemes)
        elif self.form is UrlForm.WEB:
            parse_web_url(url)
        else:
            parse_folder_url(url)


AZURE_SUFFIXES = (".blob.core.windows.net", ".blob.core.chinacloudapi.cn", ".blob.core.usgovcloudapi.net")
_IN_A_SERVER = "Use the URL of the folder that contains the data, in the form file:///…"

STORAGES = (
    StorageKind(
        "s3",
        ("s3",),
        UrlForm.BUCKET,
        hadoop_schemes=("s3a", "s3n"),
        hosts=re.compile(
            r"(?:(?P<bucket>[a-z0-9.-]+)\.)?s3(?:[.-](?:dualstack\.)?[a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?",
            re.ASCII,
        ),
        has_inventory=True,
        grants={
            "list objects": "s3:ListBucket",
            "write objects": "s3:PutObject",
            "read objects": "s3:GetObject",
            "copy objects": "s3:GetObjectTagging and s3:PutObjectTagging",
            "delete objects": "s3:DeleteObject (for `versions: all`, also s3:ListBucketVersions and"
            " s3:DeleteObjectVersion)",
        },
        packages=("boto3",),
    ),
    StorageKind(
        "azure",
        ("https", "http"),
        UrlForm.WEB,
        hadoop_schemes=("abfs", "abfss", "wasb", "wasbs"),
        hosts=re.compile(
            "[a-z0-9]{3,24}(?:" + "|".join(re.escape(suffix) for suffix in AZURE_SUFFIXES) + ")", re.ASCII
        ),
        grants={
            "list objects": "Azure's list",
            "write objects": "Azure's create and write",
            "read objects": "Azure's read",
            "copy objects": "Azure's read and write (and tags, if blobs have tags)",
            "delete objects": "Azure's delete",
        },
        packages=("azure-storage-blob",),
    ),
    StorageKind(
        "local",
        ("local",),
        UrlForm.SERVER,
        refusal=("a local:// URL refers to a folder inside a lakeFS server", _IN_A_SERVER),
    ),
    StorageKind("folder", ("file",), UrlForm.FOLDER, in_tree=False),
    StorageKind(
        "gcs",
        ("gs",),
        UrlForm.BUCKET,
        hosts=re.compile(r"(?:(?P<bucket>[a-z0-9._-]+)\.)?storage\.googleapis\.com", re.ASCII),
        grants={
            "list objects": "storage.objects.list",
            "write objects": "storage.objects.create (and storage.objects.delete, to replace)",
            "read objects": "storage.objects.get",
            "copy objects": "storage.objects.get and storage.objects.create",
            "delete objects": "storage.objects.delete",
        },
        packages=("google-auth",),
    ),
    StorageKind(
        "memory",
        ("mem",),
        UrlForm.SERVER,
        in_tree=False,
        refusal=("a mem:// URL refers to data inside a lakeFS server", _IN_A_SERVER),
    ),
)
BY_SCHEME: Mapping[str, StorageKind] = {scheme: kind for kind in STORAGES for scheme in kind.schemes}
BUCKET_SCHEMES = frozenset(scheme for scheme, kind in BY_SCHEME.items() if kind.form is UrlForm.BUCKET)


def storage_of(url: str) -> StorageKind | None:
    """Return the kind of storage of a namespace or another URL, or None for an unknown scheme."""
    return BY_SCHEME.get(scheme_of(url) or "")


def can_be_swept(namespace: str) -> bool:
    """Return whether lakeplan can sweep namespaces of this kind. An unknown kind counts as supported, because
    opening it fails with the reason."""
    kind = storage_of(namespace)
    return kind is None or kind.can_be_swept

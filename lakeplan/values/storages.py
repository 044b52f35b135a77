"""The kinds of storage: their URLs, what lakeplan does there, and the permissions that it needs.

``lakeplan.stores.open`` opens them, by the same names. ``SweepStore.facts`` asks a store about one bucket
(versions, soft delete).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from lakeplan.values.urls import parse_bucket_url, parse_folder_url, parse_web_url, scheme_of


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

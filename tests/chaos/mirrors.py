"""A real store server (S3 as moto has it, Azurite) between lakeplan and the folder that the sandbox uses.

lakeplan reads, lists, copies and deletes in the store; the folder follows, so that the sandbox, the checker
and everybody else see what is left. Times are the folder's: the world's clock decides what is old.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from lakeplan.stores.open import open_sweep_store
from lakeplan.values.repository import StoredObject
from tests.storage_servers import AZURITE_KEY, azurite_server, s3_server

MakeMirror = Callable[[Path], Any]
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test-key",
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AZURE_STORAGE_KEY": AZURITE_KEY,
}


class Mirror:
    """``lakeplan.stores.open.SweepStore``: the store, and after each call the folder."""

    def __init__(self, store: Any, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._known: dict[str, tuple[int, int]] = {}
        self._originals: dict[tuple[str, int], Any] = {}

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._store, name)
        if not callable(target):
            return target

        def call(*args: Any, **more: Any) -> Any:
            self._push()
            if more.get("expected"):
                items = more["expected"].items()
                more["expected"] = {k: self._originals.get((k, one.version), one) for k, one in items}
            answer = target(*args, **more)
            return self._pull(name, args, answer)

        return call

    def _push(self) -> None:
        """Copies what the server and others wrote."""
        found: dict[str, tuple[int, int]] = {}
        for root, _, names in os.walk(self._folder):
            for name in names:
                path = Path(root, name)
                facts = path.stat()
                found[path.relative_to(self._folder).as_posix()] = (facts.st_mtime_ns, facts.st_size)
        for key in found.items() - self._known.items():
            self._store.put(key[0], (self._folder / key[0]).read_bytes())
        self._known = found

    def _pull(self, name: str, args: tuple[Any, ...], answer: Any) -> Any:
        if name in ("put", "create"):
            self._write(args[0], args[1])
        elif name == "copy":
            self._write(args[1], (self._folder / args[0]).read_bytes())
        elif name.startswith("delete"):
            for one in args[0]:
                key = one if isinstance(one, str) else one.key
                if self._store.stat(key) is None:
                    (self._folder / key).unlink(missing_ok=True)
        elif name == "list_objects":
            return iter([self._dated(found) for found in answer])
        elif name == "find":
            return {key: self._dated(found) for key, found in answer.items()}
        return self._dated(answer) if name in ("stat", "copy") else answer

    def _write(self, key: str, data: bytes) -> None:
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def _dated(self, found: Any) -> Any:
        if found is None:
            return None
        path = self._folder / found.key
        at = path.stat().st_mtime_ns // 1000 if path.is_file() else found.modified_us
        dated = replace(found, modified_us=at)
        if isinstance(dated, StoredObject):
            self._originals[(dated.key, dated.version)] = found
        return dated


@contextmanager
def folder() -> Iterator[None]:
    """No mirror: lakeplan works in the sandbox's folder."""
    yield None


@contextmanager
def s3() -> Iterator[MakeMirror]:
    import boto3

    with s3_server() as endpoint, mock.patch.dict(os.environ, CREDENTIALS):
        bucket, numbers = f"chaos-{uuid.uuid4().hex[:12]}", itertools.count()
        boto3.session.Session().client("s3", endpoint_url=endpoint).create_bucket(Bucket=bucket)
        yield lambda folder: Mirror(
            open_sweep_store(f"s3://{bucket}/w{next(numbers)}/{folder.name}", endpoint_url=endpoint), folder
        )


@contextmanager
def azurite() -> Iterator[MakeMirror]:
    """Skips with the reason where Azurite cannot run."""
    from azure.storage.blob import ContainerClient

    with azurite_server() as account, mock.patch.dict(os.environ, CREDENTIALS):
        name, numbers = f"chaos-{uuid.uuid4().hex[:12]}", itertools.count()
        with ContainerClient(account, name, credential=AZURITE_KEY) as container:
            container.create_container()
        yield lambda folder: Mirror(
            open_sweep_store(f"{account}/{name}/w{next(numbers)}/{folder.name}"), folder
        )


STORES: Mapping[str, Callable[[], Any]] = {"folder": folder, "s3": s3, "azurite": azurite}

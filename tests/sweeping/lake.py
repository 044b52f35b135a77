"""The lakeFS calls that tests of sweeps make, against a sandbox whose clock and file times they set."""

from __future__ import annotations

import itertools
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import requests

from lakeplan.formats.namespace import ObjectPaths, XidSource
from lakeplan.sandbox.service import Options
from tests.in_process import session_of
from tests.sandboxes import SandboxHandle, start_sandbox


class Clock:
    """A clock for the server, the sweep and the files. It begins in the past, so that no file that this
    machine writes looks older than it is."""

    def __init__(self) -> None:
        self.at = datetime(2024, 3, 1, 12, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.at

    def advance(self, *, days: float = 0, hours: float = 0) -> None:
        self.at += timedelta(days=days, hours=hours)


class Refused(Exception):
    """The server said no; ``status`` is why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Lake:
    """A sandbox server. New objects get the clock's time as their modification time."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.folder = folder
        self.handle: SandboxHandle = start_sandbox(folder, options=Options(clock=self.clock, presign=False))
        _count_ids(self.handle, self.clock)
        self.root = f"{self.handle.endpoint_url}/api/v1"
        self._session = session_of(self.handle)

    def close(self) -> None:
        self._session.close()
        self.handle.stop()

    def call(self, method: str, path: str, **more: Any) -> requests.Response:
        answer = self._session.request(method, f"{self.root}{path}", timeout=30, **more)
        if answer.status_code >= 400:
            raise Refused(answer.status_code, answer.text)
        return answer

    def repository(self, name: str, namespace: str | None = None) -> LakeRepository:
        body = {"name": name, "storage_namespace": namespace or f"local://{name}", "default_branch": "main"}
        self.call("POST", "/repositories", json=body)
        return LakeRepository(self, name)


def _count_ids(handle: SandboxHandle, clock: Clock) -> None:
    """Addresses and run ids that are the same in every run: hypothesis repeats what it saw."""
    numbers = itertools.count()
    service = handle._sandbox.service
    service.xids = XidSource(
        lambda: clock().timestamp(), lambda size: (next(numbers) % 256**size).to_bytes(size, "big")
    )
    service.object_paths = ObjectPaths(lambda: clock().timestamp(), service.xids)


class LakeRepository:
    def __init__(self, lake: Lake, name: str) -> None:
        self.lake, self.name = lake, name
        self.folder = lake.handle.namespace_folder(name)

    def call(self, method: str, path: str, **more: Any) -> requests.Response:
        return self.lake.call(method, f"/repositories/{self.name}{path}", **more)

    # ---- objects
    def upload(self, path: str, data: bytes, branch: str = "main") -> str:
        """Returns the address, relative to the namespace."""
        headers = {"Content-Type": "application/octet-stream"}
        answer = self.call(
            "POST", f"/branches/{branch}/objects", params={"path": path}, data=data, headers=headers
        ).json()
        address = self.relative(answer["physical_address"])
        self.touch(address)
        return address

    def relative(self, physical_address: str) -> str:
        return physical_address.partition("://")[2].partition("/")[2]

    def touch(self, address: str, age_hours: float = 0) -> None:
        at = self.lake.clock.at.timestamp() - age_hours * 3600
        os.utime(self.folder / address, (at, at))

    def stage(self, path: str, address: str, branch: str = "main", *, checksum: str = "again") -> None:
        """Puts an address of the namespace (or a whole URL) under a path, without writing data."""
        url = address if "://" in address else f"local://{self.name}/{address}"
        body = {"physical_address": url, "checksum": checksum, "size_bytes": 1}
        self.call("PUT", f"/branches/{branch}/objects", params={"path": path}, json=body)

    def delete(self, path: str, branch: str = "main") -> None:
        self.call("DELETE", f"/branches/{branch}/objects", params={"path": path})

    def get(self, ref: str, path: str) -> bytes:
        """Raises Refused (410 when the data is gone)."""
        return self.call("GET", f"/refs/{ref}/objects", params={"path": path}).content

    def is_gone(self, ref: str, path: str) -> bool:
        try:
            self.get(ref, path)
        except Refused as refused:
            if refused.status == 410:
                return True
            raise
        return False

    def stored(self) -> set[str]:
        """Keys of the objects that are there."""
        data = self.folder / "data"
        return {f.relative_to(self.folder).as_posix() for f in data.rglob("*") if f.is_file()}

    # ---- commits and refs
    def commit(self, age_days: float = 0, branch: str = "main", **files: bytes) -> str:
        """Uploads files (path without its ``.bin`` → bytes) and commits, dated so many days back."""
        for name, data in files.items():
            self.upload(f"{name}.bin", data, branch)
        date = int(self.lake.clock.at.timestamp() - age_days * 86400)
        body = {"message": "m", "date": date, "allow_empty": True}
        return str(self.call("POST", f"/branches/{branch}/commits", json=body).json()["id"])

    def branch(self, name: str, source: str = "main") -> None:
        self.call("POST", "/branches", json={"name": name, "source": source})

    def drop_branch(self, name: str) -> None:
        self.call("DELETE", f"/branches/{name}")

    def tag(self, name: str, ref: str) -> None:
        self.call("POST", "/tags", json={"id": name, "ref": ref})

    def reset(self, branch: str = "main") -> None:
        """Forgets what is staged."""
        self.call("PUT", f"/branches/{branch}", json={"type": "reset"})

    def hard_reset(self, ref: str, branch: str = "main") -> None:
        self.call("PUT", f"/branches/{branch}/hard_reset", params={"ref": ref})

    def revert(self, ref: str, branch: str = "main") -> None:
        self.call("POST", f"/branches/{branch}/revert", json={"ref": ref, "parent_number": 0})

    def merge(self, source: str, branch: str = "main") -> None:
        self.call("POST", f"/refs/{source}/merge/{branch}", json={"strategy": "source-wins"})

    def set_rules(self, default: int, **branches: int) -> None:
        rules = [{"branch_id": b, "retention_days": d} for b, d in branches.items()]
        body = {"default_retention_days": default, "branches": rules}
        self.call("PUT", "/settings/gc_rules", json=body)

"""A proxy before fake-gcs-server that adds documented behaviour that the emulator lacks.

https://cloud.google.com/storage/docs/request-preconditions and the reference of ``objects.delete`` and
``objects.rewrite``: conditions on deletions and copies, deletions of one generation, copies in several steps.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from urllib.parse import parse_qs, unquote

from tests.faulty_store import Answered, FaultyStore

OBJECT = re.compile(r"/storage/v1/b/(?P<bucket>[^/?]+)/o/(?P<name>[^/?]+)")
REWRITE = re.compile(rf"{OBJECT.pattern}/rewriteTo/b/(?P<bucket2>[^/?]+)/o/(?P<name2>[^/?]+)")
LISTING = re.compile(r"/storage/v1/b/(?P<bucket>[^/?]+)/o")


def refusal(status: int, reason: str, message: str) -> str:
    """The body of an error, as the JSON API words it."""
    errors = [{"message": message, "domain": "global", "reason": reason}]
    return json.dumps({"error": {"code": status, "message": message, "errors": errors}})


class ConformingGcs(FaultyStore):
    """Handles one request at a time, so that a condition and its effect are atomic. ``steps``: how many
    requests a copy takes."""

    def __init__(self, emulator: str) -> None:
        super().__init__(emulator)
        self.steps = 1
        self._one_at_a_time = threading.Lock()
        self._deleted: set[tuple[str, str, str]] = set()

    def ask(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answered:
        path, _, query = target.partition("?")
        params = {name: values[-1] for name, values in parse_qs(query).items()}
        with self._one_at_a_time:
            if method == "DELETE" and (found := OBJECT.fullmatch(path)):
                return self._delete(found, params, target, headers)
            if method == "POST" and (found := REWRITE.fullmatch(path)):
                refused = self._copy_refused(found, params)
                return refused or super().ask(method, target, headers, body)
            try:
                answer = super().ask(method, target, headers, body)
            except http.client.IncompleteRead:  # the emulator announces a first byte of an empty object
                return Answered(416, [], b"")
            if params.get("versions") == "true" and (found := LISTING.fullmatch(path)):
                return self._but_deleted(answer, found["bucket"])
            return answer

    def _delete(
        self, found: re.Match[str], params: dict[str, str], target: str, headers: dict[str, str]
    ) -> Answered:
        live = self._generation(found["bucket"], found["name"])
        wanted = params.get("generation") or live
        version = (found["bucket"], unquote(found["name"]), wanted)
        known = wanted == live or self._generation(found["bucket"], found["name"], wanted)
        if not known or not wanted or version in self._deleted:
            return _refused(404, "notFound", "No such object")
        if params.get("ifGenerationMatch", wanted) != wanted:
            return _refused(412, "conditionNotMet", "At least one of the pre-conditions you specified")
        if "generation" in params:
            self._deleted.add(version)
        if wanted == live:
            super().ask("DELETE", target, headers, b"")
        return Answered(204, [], b"")

    def _copy_refused(self, found: re.Match[str], params: dict[str, str]) -> Answered | None:
        source = self._generation(found["bucket"], found["name"])
        target = self._generation(found["bucket2"], found["name2"])
        if not source:
            return _refused(404, "notFound", "No such object")
        conditions = {"ifSourceGenerationMatch": source, "ifGenerationMatch": target or "0"}
        if any(params.get(name, present) != present for name, present in conditions.items()):
            return _refused(412, "conditionNotMet", "At least one of the pre-conditions you specified")
        step = int(params.get("rewriteToken", "step-0").removeprefix("step-")) + 1
        if step < self.steps:
            token = {"kind": "storage#rewriteResponse", "done": False, "rewriteToken": f"step-{step}"}
            return Answered(200, [("Content-Type", "application/json")], json.dumps(token).encode())
        return None

    def _generation(self, bucket: str, name: str, wanted: str = "") -> str:
        """The generation of the object at a name, or "". Both names are quoted."""
        target = f"/storage/v1/b/{bucket}/o/{name}" + (f"?generation={wanted}" if wanted else "")
        answer = super().ask("GET", target, {"Host": "127.0.0.1"}, b"")
        return str(json.loads(answer.body)["generation"]) if answer.status == 200 else ""

    def _but_deleted(self, answer: Answered, bucket: str) -> Answered:
        page = json.loads(answer.body)
        page["items"] = [
            item
            for item in page.get("items", ())
            if (bucket, item["name"], str(item["generation"])) not in self._deleted
        ]
        return Answered(answer.status, answer.headers, json.dumps(page).encode())


def _refused(status: int, reason: str, message: str) -> Answered:
    body = refusal(status, reason, message).encode()
    return Answered(status, [("Content-Type", "application/json")], body)

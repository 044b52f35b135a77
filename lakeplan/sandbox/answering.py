"""From a request to its answer: faults, routes, credentials, and the shape of errors."""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import replace
from pathlib import Path

from lakeplan.errors import LakeplanError
from lakeplan.sandbox.faults import Faults
from lakeplan.sandbox.messages import ApiError, Request, Response, error_response, not_found
from lakeplan.sandbox.presigned import PRESIGNED_PATH
from lakeplan.sandbox.service import Options, Service
from lakeplan.sandbox.table import router_of


class Sandbox:
    """Answers requests. Everything but the sockets, so that it can be read and tested without them."""

    def __init__(self, directory: Path, options: Options, faults: Faults) -> None:
        self.service = Service(directory, options)
        self.faults = faults
        self._router = router_of(options.flavor)

    def answer(self, request: Request, raw_path: str) -> Response:
        """The answer to a request; every error becomes one."""
        try:
            return self._dispatch(request, raw_path)
        except ApiError as error:
            return error_response(error)
        except LakeplanError as error:
            # A damaged file of a namespace: a real server answers 500 with the cause.
            return error_response(ApiError(500, str(error)))

    def _dispatch(self, request: Request, raw_path: str) -> Response:
        self.faults.check(request.method, request.path)
        if raw_path.startswith(PRESIGNED_PATH + "/"):
            return self._presigned(request)
        found = self._router.find(request.method, raw_path)
        if found is None:
            raise not_found("invalid API endpoint")
        route, params = found
        if not route.public:
            self._authenticate(request.headers.get("authorization", ""))
        with self.service.store.transaction():
            return route.handler(self.service, replace(request, params=params))

    def _authenticate(self, header: str) -> None:
        scheme, _, credentials = header.partition(" ")
        options = self.service.options
        expected = f"{options.access_key_id}:{options.secret_access_key}".encode()
        try:
            given = base64.b64decode(credentials, validate=True)
        except binascii.Error:
            given = b""
        if scheme.lower() != "basic" or not hmac.compare_digest(given, expected):
            raise ApiError(401, "error authenticating request")

    def _presigned(self, request: Request) -> Response:
        """Files by link, as an object store gives them: no lakeFS credentials, and its own errors."""
        repository, _, key = request.path[len(PRESIGNED_PATH) + 1 :].partition("/")
        expires, signature = request.text("expires"), request.text("signature")
        if request.method != "GET" or not self.service.presigner.allows(
            repository, key, expires, signature, self.service.now()
        ):
            raise ApiError(403, "the link has expired or was not signed here")
        with self.service.store.transaction():
            found = self.service.records.repository(repository)
        data = self.service.namespace(found).read(key)
        if data is None:
            raise not_found("no such key")
        return Response(200, data, {"Content-Type": "application/octet-stream"})

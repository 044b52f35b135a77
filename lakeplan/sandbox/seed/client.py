"""A small lakeFS client: what seeding needs, and nothing more. The credentials stay inside it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import requests

from lakeplan.errors import AuthenticationFailed, NotFound, ServerUnreachable, UnexpectedAnswer

_TIMEOUT = (5.0, 60.0)


class SeedClient:
    """Calls ``endpoint_url`` with basic auth. Follows no redirect: its credentials go nowhere else.

    Every call raises ServerUnreachable, AuthenticationFailed, NotFound (404) or UnexpectedAnswer.
    """

    def __init__(self, endpoint_url: str, access_key_id: str, secret_access_key: str) -> None:
        base = endpoint_url.rstrip("/")
        self.endpoint_url = base
        self._api = base if base.endswith("/api/v1") else f"{base}/api/v1"
        self._session = requests.Session()
        # Without this, requests would look for other credentials in ~/.netrc.
        self._session.trust_env = False
        self._session.auth = (access_key_id, secret_access_key)

    def call(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        data: bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        place: str = "",
    ) -> requests.Response:
        """One request. ``path`` is quoted already; ``place`` is where the seed file asks for it."""
        where = place or self.endpoint_url
        try:
            answer = self._session.request(
                method,
                self._api + path,
                json=json,
                data=data,
                params=query,
                headers=headers,
                timeout=_TIMEOUT,
                allow_redirects=False,
            )
        except (requests.RequestException, ValueError) as error:
            raise ServerUnreachable(
                "the server does not answer",
                where=where,
                hint="is the server running there? `lakeplan sandbox up` starts one",
                detail=str(error),
            ) from error
        if answer.status_code >= 300:
            raise self._error(method, path, answer, where)
        return answer

    def exists(self, repository: str) -> bool:
        try:
            self.call("GET", f"/repositories/{quote(repository, safe='')}")
        except NotFound:
            return False
        return True

    def _error(
        self, method: str, path: str, answer: requests.Response, where: str
    ) -> AuthenticationFailed | NotFound | UnexpectedAnswer:
        message = _message(answer)
        if answer.status_code == 401:
            return AuthenticationFailed(
                f"the server refuses the credentials: {message}",
                where=where,
                hint="--access-key and --secret-key, or LAKEPLAN_ACCESS_KEY and LAKEPLAN_SECRET_KEY",
            )
        if answer.status_code == 404:
            return NotFound(f"{method} {path}: {message}", where=where)
        status = answer.status_code
        return UnexpectedAnswer(f"{method} {path}: {status} {message}", status=status, where=where)


def _message(answer: requests.Response) -> str:
    try:
        body = answer.json()
    except requests.JSONDecodeError:
        return answer.text[:200].strip()
    return str(body.get("message", body)) if isinstance(body, dict) else str(body)[:200]

"""Links that work without credentials for a while, as an object store's presigned URLs do."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import quote, urlencode

PRESIGNED_PATH = "/_presigned"


class Presigner:
    """Signs (repository, key, expiry). The secret lives as long as the process: links do not survive it."""

    def __init__(self, secret: bytes, seconds: int) -> None:
        self._secret = secret
        self._seconds = seconds

    def link(self, base_url: str, repository: str, key: str, now: int) -> str:
        """A URL on the server at ``base_url``."""
        expires = now + self._seconds
        query = urlencode({"expires": expires, "signature": self._sign(repository, key, expires)})
        return f"{base_url}{PRESIGNED_PATH}/{quote(repository)}/{quote(key)}?{query}"

    def allows(self, repository: str, key: str, expires: str, signature: str, now: int) -> bool:
        """Whether a link was signed here and still works."""
        if not expires.isdecimal() or int(expires) < now:
            return False
        return hmac.compare_digest(self._sign(repository, key, int(expires)), signature)

    def _sign(self, repository: str, key: str, expires: int) -> str:
        text = f"{repository}\n{key}\n{expires}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

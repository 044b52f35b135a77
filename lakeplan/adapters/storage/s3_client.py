"""S3 clients: made lazily, one per process, from the usual credential chain."""

from __future__ import annotations

import logging
import threading
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from lakeplan.adapters.storage.translate import translate_boto_error

CONNECT_SECONDS = 10
READ_SECONDS = 60
TRIES = 4
AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


class S3Client:
    """Makes the boto3 client on first use, in whichever process that is. Thread-safe; a pickle carries
    endpoint and region only, never credentials."""

    def __init__(self, endpoint_url: str | None, region: str | None) -> None:
        self._endpoint_url = endpoint_url
        self._region = region
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None

    def __getstate__(self) -> tuple[str | None, str | None]:
        return (self._endpoint_url, self._region)

    def __setstate__(self, state: tuple[str | None, str | None]) -> None:
        self._endpoint_url, self._region = state
        self._reset()

    def get(self) -> Any:
        with self._lock:
            if self._client is None:
                try:
                    self._client = self._make()
                except (BotoCoreError, ValueError) as error:
                    where = self._endpoint_url or "s3"
                    raise translate_boto_error(error, where) from None
            return self._client

    def _make(self) -> Any:
        quiet_vendor_logs()
        session = boto3.session.Session(region_name=self._region)
        client = session.client("s3", endpoint_url=self._endpoint_url, config=_config(custom=False))
        # The endpoint can also come from AWS_ENDPOINT_URL(_S3) or a profile: only the client knows.
        host = urlsplit(client.meta.endpoint_url).hostname or ""
        if not host.endswith(AWS_HOSTS):
            client = session.client("s3", endpoint_url=self._endpoint_url, config=_config(custom=True))
        return client


def _config(*, custom: bool) -> Config:
    settings: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": READ_SECONDS,
        "retries": {"mode": "standard", "total_max_attempts": TRIES},
        "max_pool_connections": 32,
    }
    if custom:
        # Other stores know buckets by path, and often not the newer checksum headers.
        settings |= {
            "s3": {"addressing_style": "path"},
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        }
    return Config(**settings)


def quiet_vendor_logs() -> None:
    """At debug botocore logs headers, session tokens included, and urllib3 signed URLs: never shown."""
    for name in ("botocore", "boto3", "s3transfer", "urllib3", "urllib3.connectionpool"):
        logger = logging.getLogger(name)
        if logger.level < logging.WARNING:
            logger.setLevel(logging.WARNING)

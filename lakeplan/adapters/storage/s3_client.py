"""S3 clients: made lazily, one per process, from the usual credential chain."""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader

from lakeplan.adapters.storage.bounded import bound_s3
from lakeplan.adapters.storage.s3_pages import ROWS, take_rows
from lakeplan.adapters.storage.translate import translate_boto_error

CONNECT_SECONDS = 10
READ_SECONDS = 60
TRIES = 4
Limits = tuple[float | None, float | None, int | None]
AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


class S3Client:
    """Makes the boto3 client on first use, in whichever process that is. Thread-safe; a pickle carries
    endpoint, region and limits only, never credentials.

    ``tries`` is how often one request is sent at most; None takes this module's constant, and so do the
    limits of time.
    """

    def __init__(
        self,
        endpoint_url: str | None,
        region: str | None,
        *,
        connect_seconds: float | None = None,
        read_seconds: float | None = None,
        tries: int | None = None,
    ) -> None:
        self._endpoint_url = endpoint_url
        self._region = region
        self._limits = (connect_seconds, read_seconds, tries)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None

    def __getstate__(self) -> tuple[str | None, str | None, Limits]:
        return (self._endpoint_url, self._region, self._limits)

    def __setstate__(self, state: tuple[str | None, str | None, Limits]) -> None:
        self._endpoint_url, self._region, self._limits = state
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
        session = botocore.session.Session()
        session.register_component("data_loader", _data(session.get_config_variable("data_path")))
        client = session.create_client(
            "s3",
            region_name=self._region,
            endpoint_url=self._endpoint_url,
            config=_config(self._limits, custom=False),
        )
        # The endpoint can also come from AWS_ENDPOINT_URL(_S3) or a profile: only the client knows.
        host = urlsplit(client.meta.endpoint_url).hostname or ""
        if not host.endswith(AWS_HOSTS):
            client = session.create_client(
                "s3",
                region_name=self._region,
                endpoint_url=self._endpoint_url,
                config=_config(self._limits, custom=True),
            )
            client.meta.events.register_last("before-call.s3.DeleteObjects", _add_content_md5)
        client.meta.events.register("before-parse.s3", _refuse_cut_answer)
        # By this name it runs before botocore's own handler, which parses the whole page to find an error.
        client.meta.events.register("before-parse.*.ListObjectsV2", take_rows)
        bound_s3(client)
        return client


@cache
def _data(path: str | None) -> Loader:
    """botocore's descriptions of services. Each session would read megabytes of them again, and a sweep opens
    the storage of every repository of a server."""
    return create_loader(path)


def _refuse_cut_answer(
    operation_model: Any, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    """botocore takes an answer whose body never came for an empty one: a listing would have no object, a
    bucket no versions, a batch no failure. Here it becomes an answer to try again. (It checks itself the
    bodies that it streams; an answer to HEAD announces a body and has none.)"""
    body = response_dict["body"]
    announced = response_dict["headers"].get("Content-Length", "")
    if operation_model.http.get("method") == "HEAD" or not isinstance(body, bytes):
        return
    if ROWS in customized_response_dict:
        return  # the body was whole before its entries were taken out
    if response_dict["status_code"] < 300 and announced.isdecimal() and int(announced) != len(body):
        response_dict["status_code"] = 500


def _add_content_md5(params: dict[str, Any], **_: object) -> None:
    """botocore sends a CRC32 here, whatever ``request_checksum_calculation`` says: this request needs a
    checksum. Older stores know the older header only, and refuse the request without it."""
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def _config(limits: Limits, *, custom: bool) -> Config:
    connect_seconds, read_seconds, tries = limits
    settings: dict[str, Any] = {
        "connect_timeout": connect_seconds or CONNECT_SECONDS,
        "read_timeout": read_seconds or READ_SECONDS,
        "retries": {"mode": "standard", "total_max_attempts": tries or TRIES},
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

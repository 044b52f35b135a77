"""A lakeFS repository as its server describes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Repository:
    """``creation_date`` is epoch seconds; ``storage_namespace`` is the server's own URL for it
    (``s3://``, ``gs://``, ``https://<account>.blob…``, ``local://``, ``mem://``)."""

    id: str
    storage_namespace: str
    default_branch: str
    creation_date: int = 0
    storage_id: str = ""
    read_only: bool = False

"""What is stored at given keys of a container, by listing one folder after the other."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from azure.core.exceptions import AzureError
from azure.storage.blob import BlobPrefix, BlobProperties

from lakeplan.adapters.storage.azure_client import AzureClient
from lakeplan.adapters.storage.translate import translate_azure_error
from lakeplan.model.objects import StoredObject

PAGE = 5_000
KEYS_A_PAGE = 50
"""When pages give fewer wanted keys than this, each key is listed alone."""
LISTERS = 16


def find(client: AzureClient, base: str, keys: Sequence[str], url: str) -> dict[str, StoredObject]:
    """``lakeplan.ports.sweep_storage.ObjectProber.find``. Azure lists from the beginning of a prefix only, so
    each folder's keys are read from the prefix that they share."""

    def of_folder(wanted: list[str]) -> list[StoredObject]:
        found, done = _listed(client, base, wanted, url)
        for key in wanted[done:]:
            found += _listed(client, base, [key], url)[0]
        return found

    folders = [list(group) for _, group in groupby(keys, key=lambda key: key.rpartition("/")[0])]
    with ThreadPoolExecutor(LISTERS) as pool:
        return {one.key: one for found in pool.map(of_folder, folders) for one in found}


def stored_object(item: BlobProperties, base: str) -> StoredObject:
    modified = round(item.last_modified.timestamp() * 1_000_000)
    return StoredObject(item.name[len(base) :], int(item.size), modified, str(item.etag or ""))


def first_name(page: Sequence[BlobProperties | BlobPrefix]) -> tuple[str, str | None] | None:
    """What names the first entry of a page; None for an empty one."""
    return (page[0].name, getattr(page[0], "version_id", None)) if page else None


def _listed(client: AzureClient, base: str, wanted: list[str], url: str) -> tuple[list[StoredObject], int]:
    """What is stored of ``wanted``, and of how many of them, from the first, that is known."""
    found: list[StoredObject] = []
    done = 0
    first, last = wanted[0], wanted[-1]
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    try:
        pages = client.get().list_blobs(
            name_starts_with=base + first[:same], results_per_page=1 if len(wanted) == 1 else PAGE
        )
        for number, page in enumerate(pages.by_page(), start=1):
            stored = {one.key: one for one in (stored_object(item, base) for item in page)}
            to = max(stored, default="")
            while done < len(wanted) and wanted[done] <= to:
                if (one := stored.get(wanted[done])) is not None:
                    found.append(one)
                done += 1
            if done == len(wanted) or number > 1 + len(wanted) // KEYS_A_PAGE:
                return found, done
    except AzureError as error:
        raise translate_azure_error(error, url) from None
    return found, len(wanted)

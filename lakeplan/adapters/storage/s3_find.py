"""What is stored at given keys of a bucket, by listing: about 1,000 neighbours a request."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from lakeplan.adapters.storage.s3_client import S3Client
from lakeplan.adapters.storage.s3_pages import check_inside, rows_of
from lakeplan.adapters.storage.translate import Kind, error_of, translate_boto_error
from lakeplan.errors import StorageError
from lakeplan.model.objects import StoredObject

KEYS_A_PAGE = 50
"""When pages give fewer wanted keys than this, each key is listed alone, several at a time."""
LISTERS = 16


def find(client: S3Client, bucket: str, base: str, keys: Sequence[str], url: str) -> dict[str, StoredObject]:
    """``lakeplan.ports.sweep_storage.ObjectProber.find``. Each page begins at the next wanted key, so that
    what lies between wanted keys is skipped."""
    found: dict[str, StoredObject] = {}
    done = 0
    for _ in range(2 + len(keys) // KEYS_A_PAGE):
        if done == len(keys):
            return found
        # ``StartAfter`` leaves its own key out.
        items, truncated = _page(client, base, bucket, url, Prefix=base, StartAfter=base + keys[done][:-1])
        stored = {one.key: one for one in items}
        last = next(reversed(stored)) if truncated else None
        while done < len(keys) and (last is None or keys[done] <= last):
            if (one := stored.get(keys[done])) is not None:
                found[one.key] = one
            done += 1

    def alone(key: str) -> StoredObject | None:
        items, _ = _page(client, base, bucket, url, Prefix=base + key, MaxKeys=1)
        return next((one for one in items if one.key == key), None)

    with ThreadPoolExecutor(LISTERS) as pool:
        return found | {one.key: one for one in pool.map(alone, keys[done:]) if one is not None}


def stored_object(item: dict[str, Any], base: str) -> StoredObject:
    """A version of an object."""
    modified = round(item["LastModified"].timestamp() * 1_000_000)
    return StoredObject(item["Key"][len(base) :], item["Size"], modified, str(item.get("ETag", "")))


def _page(
    client: S3Client, base: str, bucket: str, url: str, **where: Any
) -> tuple[list[StoredObject], bool]:
    """The entries of one page, in ascending order, and whether more follow."""
    try:
        answer = client.get().list_objects_v2(Bucket=bucket, **where)
    except (BotoCoreError, ClientError) as error:
        raise translate_boto_error(error, url) from error
    rows = rows_of(answer)
    if rows.keys != sorted(rows.keys):
        raise StorageError("the storage does not list keys in ascending order", where=url)
    check_inside(rows.keys, base, url)
    if answer.get("IsTruncated") and not rows.keys:
        raise error_of(Kind.BROKEN, url, detail="a page of a listing that is empty, but not the last")
    columns = zip(rows.keys, rows.sizes.tolist(), rows.modified_us.tolist(), rows.e_tags, strict=True)
    items = [StoredObject(key[len(base) :], *others) for key, *others in columns]
    return items, bool(answer.get("IsTruncated"))

"""CPU time a listed key: lakeplan's listing beside boto3's own, and obstore's where it is installed.

    .venv/bin/python bench/listing.py s3://bucket/prefix --endpoint-url http://127.0.0.1:9000

Needs a store that speaks S3, with objects below ``data/`` of the prefix, and credentials in the environment.
Of a store on the same machine the CPU time is not counted. ``--objects N`` first puts N objects there.
"""

from __future__ import annotations

import argparse
import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lakeplan.formats.namespace import known_as
from lakeplan.simulation.inputs import NamespaceMetadata, listing_items
from lakeplan.simulation.listings import list_stored
from lakeplan.simulation.observing import Source, fetch, observe
from lakeplan.stores.open import Access, S3Location, open_namespace, parse_location
from lakeplan.stores.s3_client import S3Client

AT_ONCE = 4
PREFIXES = 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("namespace")
    parser.add_argument("--endpoint-url")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--objects", type=int, default=0)
    options = parser.parse_args()
    location = parse_location(options.namespace)
    assert isinstance(location, S3Location), "an s3:// URL"
    client = S3Client(Access(options.endpoint_url, options.region))
    if options.objects:
        put(client, location, options.objects)
    reader = open_namespace(options.namespace, endpoint_url=options.endpoint_url, region=options.region)
    items = listing_items(reader)
    assert items is not None, "the namespace cannot be listed"
    prefixes = [item.name for item in items if item.name]
    source = Source("bench", NamespaceMetadata(reader), known_as(reader.url, None), reader, 1 << 62)
    print(f"load {os.getloadavg()[0]:.1f}, {len(prefixes)} prefixes, {AT_ONCE} at a time")
    counts = {
        measured("obstore, Arrow", lambda: spread(obstore_listing(location, options), prefixes)),
        measured("lakeplan, columns", lambda: spread(lambda name: columns(reader, name), prefixes)),
        measured("lakeplan, sightings", lambda: spread(lambda item: sightings(source, item), items)),
        measured("lakeplan, objects", lambda: spread(lambda name: objects(reader, name), prefixes)),
        measured("boto3", lambda: spread(lambda name: boto3_listing(location, options, name), prefixes)),
    } - {None}
    assert len(counts) == 1, f"listings differ: {counts}"


def put(client: S3Client, location: S3Location, count: int) -> None:
    names = [f"p{n % PREFIXES:04}/{secrets.token_hex(10)}" for n in range(count)]
    base = f"{location.prefix}/data/" if location.prefix else "data/"
    with ThreadPoolExecutor(16) as pool:
        each = [
            pool.submit(client.get().put_object, Bucket=location.bucket, Key=base + name, Body=b"")
            for name in names
        ]
        for done in each:
            done.result()


def columns(reader: Any, name: str) -> int:
    return sum(map(len, list_stored(reader, name)))


def objects(reader: Any, name: str) -> int:
    return sum(1 for _ in reader.list_objects(name))


def sightings(source: Source, item: Any) -> int:
    return sum(seen.sizes.size for seen in observe(source, item, fetch(source, item)))


def boto3_listing(location: S3Location, options: argparse.Namespace, name: str) -> int:
    """As lakeplan listed before it took pages apart: through botocore's own parser."""
    import boto3
    from botocore.config import Config

    session = boto3.session.Session()
    client = session.client(
        "s3",
        endpoint_url=options.endpoint_url,
        region_name=options.region,
        config=Config(s3={"addressing_style": "path"}),
    )
    pages = client.get_paginator("list_objects_v2")
    base = f"{location.prefix}/" if location.prefix else ""
    return sum(
        len(page.get("Contents", ())) for page in pages.paginate(Bucket=location.bucket, Prefix=base + name)
    )


def obstore_listing(location: S3Location, options: argparse.Namespace) -> Callable[[str], int] | None:
    try:
        import arro3.core  # noqa: F401  # for its listings in Arrow
        from obstore.store import S3Store
    except ImportError:
        return None
    store = S3Store(
        location.bucket,
        prefix=location.prefix or None,
        endpoint=options.endpoint_url,
        region=options.region,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    return lambda name: sum(len(b["path"]) for b in store.list(name, chunk_size=20_000, return_arrow=True))


def spread(count: Callable[[Any], int] | None, items: list[Any]) -> int | None:
    if count is None:
        return None
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(count, items))


def measured(name: str, run: Callable[[], int | None]) -> int | None:
    wall, cpu = time.perf_counter(), time.process_time()
    keys = run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if keys is None:
        print(f"{name:20} is not installed")
        return None
    print(
        f"{name:20} {keys:>9,} keys {wall:7.1f} s, CPU {cpu:7.2f} s, {cpu / max(keys, 1) * 1e6:6.2f} µs a key"
    )
    return keys


if __name__ == "__main__":
    main()

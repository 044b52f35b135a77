"""A check for lakeplan that refuses repositories without an owner, and warns if a lot of data expires."""

import json
import sys

MOST_BYTES = 100 * 10**9
"""Warn if more bytes than this would expire."""


def findings(plan: dict) -> list[dict]:
    found = []
    for repository in plan["repositories"]:
        name = f"{repository['server']}/{repository['name']}"
        if repository["failure"] is not None:
            continue
        if not repository["owner"]:
            found.append({"level": "refuse", "repository": name, "message": "has no owner; add `owner: …`"})
        now = repository["impact"]["horizons"].get("now")
        expiring = (now or {}).get("bytes_expire") or 0
        if expiring > MOST_BYTES:
            text = f"{expiring / 1e9:,.0f} GB would expire; inform {repository['owner'] or 'its owner'}"
            found.append({"level": "warn", "repository": name, "message": text})
    return found


json.dump({"annotations": findings(json.load(sys.stdin))}, sys.stdout)

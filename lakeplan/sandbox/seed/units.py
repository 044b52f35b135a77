"""Ages and sizes as people write them."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGE = re.compile(r"(?:\d+[smhdw])+")
_AGE_PART = re.compile(r"(\d+)([smhdw])")
_SIZE = re.compile(r"(\d+)\s*(B|KB|MB|GB|KiB|MiB|GiB)?")
_BYTES = {
    None: 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def parse_age(text: str) -> int | None:
    """Seconds of an age such as ``40d`` or ``1w3d12h``; None for what is none."""
    if not _AGE.fullmatch(text):
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in _AGE_PART.findall(text))


def parse_size(text: str) -> int | None:
    """Bytes of a size such as ``512`` or ``4KB``; None for what is none."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _BYTES[match[2]] if match else None

"""Keys and addresses in a storage namespace, relative to its root, including those of lakeplan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from lakeplan.errors import FormatError, UsageError
from lakeplan.values.repository import AddressType
from lakeplan.values.sweep import LAKEPLAN_PREFIX
from lakeplan.values.units import number_of

METADATA_PREFIX = "_lakefs/"
DATA_PREFIX = "data/"
DUMMY_KEY = "_lakefs/dummy"
ROOT_DUMMY_KEY = "dummy"
"""Very old servers wrote this file at the root, to check that they could write."""
REFS_MANIFEST_KEY = "_lakefs/refs_manifest.json"
GC_PREFIX = "_lakefs/retention/gc/"
GC_RULES_KEY = "_lakefs/retention/gc/rules/config.json"
GC_COMMITS_PREFIX = "_lakefs/retention/gc/commits/"
GC_UNCOMMITTED_PREFIX = "_lakefs/retention/gc/uncommitted/"
_DOTS = frozenset((".", ".."))


def metadata_key(file_id: str) -> str:
    """The key of the range or metarange with this id."""
    return METADATA_PREFIX + file_id


def commits_csv_key(run_id: str) -> str:
    return f"{GC_COMMITS_PREFIX}run_id={run_id}/commits.csv"


def uncommitted_prefix(run_id: str) -> str:
    """The folder of one run of uncommitted addresses, with a trailing slash."""
    return f"{GC_UNCOMMITTED_PREFIX}{run_id}/uncommitted/"


def check_not_nested(key: str) -> None:
    """Raises FormatError if the key shows that another repository's namespace is below ``data/``."""
    at = f"/{key}".find(f"/{METADATA_PREFIX}")
    if key.startswith(DATA_PREFIX) and at >= 0:
        raise FormatError(
            "the storage namespace of another repository is inside that of this repository, at"
            f" {key[: at - 1]}",
            hint="Move one of the two repositories to its own namespace. Until then, neither can be swept.",
        )


def is_candidate_key(key: str) -> bool:
    """Whether a collector may delete an object with this key: under ``data/``, or directly at the root (where
    old repositories keep objects) other than ``dummy`` (lakefs/retention.md, the official collector). Never
    with a ``.`` or ``..`` segment, which lakeFS does not write and a client might resolve."""
    if not _DOTS.isdisjoint(key.split("/") if "." in key else ()):
        return False
    if key.startswith(DATA_PREFIX):
        return len(key) > len(DATA_PREFIX)
    return bool(key) and "/" not in key and key != ROOT_DUMMY_KEY


_ALPHABET = "0123456789abcdefghijklmnopqrstuv"
_VALUE = {c: i for i, c in enumerate(_ALPHABET)}
# The last character has one of the 96 bits, so its other four are zero.
_XID = re.compile(r"[0-9a-v]{19}[0g]\Z")
_YEAR_4000 = 64_060_588_800
_SECONDS = 2**32
_COUNTER = 2**24


def is_xid(text: str) -> bool:
    return _XID.match(text) is not None


def encode(raw: bytes) -> str:
    """12 bytes as an xid's text."""
    if len(raw) != 12:
        raise ValueError("an xid has 12 bytes")
    number = int.from_bytes(raw, "big") << 4
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(95, -1, -5))


def decode(text: str) -> bytes:
    """The 12 bytes of an xid. Raises ValueError for other text."""
    if not is_xid(text):
        raise ValueError(f"{text!r} is not a valid xid")
    number = 0
    for character in text:
        number = number << 5 | _VALUE[character]
    return (number >> 4).to_bytes(12, "big")


def time_of(text: str) -> int:
    """Epoch seconds at which an ascending xid was made."""
    return int.from_bytes(decode(text)[:4], "big")


def time_of_descending(text: str) -> int:
    """Epoch seconds at which a descending xid was made."""
    return (_YEAR_4000 - time_of(text)) % _SECONDS


class XidSource:
    """Makes xids. ``clock`` returns epoch seconds, and ``randomness(n)`` n random bytes. It is called once,
    for the machine, the process and the start of the counter. Not thread-safe."""

    def __init__(self, clock: Callable[[], float], randomness: Callable[[int], bytes]) -> None:
        seed = randomness(8)
        self._clock = clock
        self._origin = seed[:5]
        self._counter = int.from_bytes(seed[5:], "big")

    def ascending(self) -> str:
        """An object's id. Ids sort by the time, and within a second by the order, in which they were made."""
        return self._make(int(self._clock()))

    def descending(self) -> str:
        """A partition's or run's id. The newest sorts first."""
        return self._make(_YEAR_4000 - int(self._clock()))

    def _make(self, seconds: int) -> str:
        self._counter = (self._counter + 1) % _COUNTER
        time_bytes = (seconds % _SECONDS).to_bytes(4, "big")
        return encode(time_bytes + self._origin + self._counter.to_bytes(3, "big"))


PARTITION_SECONDS = 3600
PARTITION_OBJECTS = 50_000


class ObjectPaths:
    """Makes addresses of new objects. A partition lasts an hour or 50,000 objects (lakefs/format.md)."""

    def __init__(self, clock: Callable[[], float], xids: XidSource) -> None:
        self._clock = clock
        self._xids = xids
        self._partition = ""
        self._since = 0.0
        self._count = PARTITION_OBJECTS

    def new(self) -> str:
        """A relative address that no object has."""
        now = self._clock()
        if self._count >= PARTITION_OBJECTS or now - self._since > PARTITION_SECONDS:
            self._partition, self._since, self._count = self._xids.descending(), now, 0
        self._count += 1
        return f"{DATA_PREFIX}{self._partition}/{self._xids.ascending()}"


_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_CUT = re.compile(r"[?#].*", re.DOTALL)
_UNUSUAL_KEY = re.compile(r"//|(?:^|/)\.{1,2}(?:/|\Z)|^/|/\Z")
_UNUSUAL_URL = re.compile(r"[%?#\\\x00-\x1f\x7f]")
MAX_KEY_LENGTH = 4096
"""No store has longer keys."""


def normalize(address: str, address_type: int, storage_namespace: str) -> str | None:
    """The address relative to ``storage_namespace`` (as the server spells it), or None if it is outside.

    Relative addresses are keys and are not changed. A full address inside the namespace becomes relative
    (lakefs/format.md). Addresses are compared as text, like the server and the official collector do. Old
    entries (type 0), and full ones without a scheme, count as relative unless they are URIs. This is safe,
    because an address that counts as inside the namespace protects an object.
    """
    if address_type == AddressType.RELATIVE or not _URI.match(address):
        return address
    inside = prefix_of(storage_namespace)
    if address.startswith(inside) and len(address) > len(inside):
        return address[len(inside) :]
    return None


def prefix_of(storage_namespace: str) -> str:
    """The prefix of every full address inside the namespace. It ends with a slash, so that
    ``s3://bucket/ns-other`` is not inside ``s3://bucket/ns``. A second slash is part of the keys."""
    return storage_namespace if storage_namespace.endswith("/") else storage_namespace + "/"


def is_usual_key(key: str) -> bool:
    """Whether every store reads the key as it is, because it has no empty and no dot segments."""
    return _UNUSUAL_KEY.search(key) is None


def is_usual_url(tail: str) -> bool:
    """Whether every server and store reads the end of a full address as it is: a usual key without a query, a
    fragment, escapes, backslashes and control characters."""
    return is_usual_key(tail) and _UNUSUAL_URL.search(tail) is None


@lru_cache(maxsize=1024)
def folder_names(namespaces: tuple[str, ...]) -> tuple[str, ...]:
    """The last part of each namespace, in every spelling. Whatever the scheme and the host, it precedes the
    key in a full address."""
    names = {
        form.rstrip("/").rpartition("/")[2]
        for namespace in namespaces
        for form in _forms(_after_scheme(namespace))
    }
    return tuple(sorted(names - {""}))


def possible_keys(address: str, folders: Iterable[str]) -> list[str]:
    """The keys that an unusually spelled address, or one under an unknown URL, may refer to: what follows
    each ``/data/`` (with ``data/``) and each ``/<folder>/`` of ``folder_names``, in every spelling."""
    keys: dict[str, None] = {}
    markers = [("/" + DATA_PREFIX, DATA_PREFIX), *((f"/{name}/", "") for name in folders)]
    for form in _forms(_after_scheme(address)):
        if not _URI.match(address):
            keys[form[1:]] = None
        for marker, front in markers:
            at = form.rfind(marker)
            while at >= 0 and len(form) - at <= MAX_KEY_LENGTH:
                keys[front + form[at + len(marker) :]] = None
                at = form.rfind(marker, 0, at + len(marker) - 1)
    return [key for key in keys if is_candidate_key(key)]


def keeps_its_name(address: str) -> bool:
    """Whether the last part of the address is the same in every key that the address may mean."""
    path = _after_scheme(address)[1:]
    host, _, rest = path.partition("/")
    return bool(rest) and "@" not in host and is_usual_url(path)


def _after_scheme(address: str) -> str:
    """Host and path of a URL as one path, or the key, with a slash in front."""
    uri = _URI.match(address)
    return "/" + (address[uri.end() :] if uri else address)


def _forms(path: str) -> list[str]:
    """Every reading of a path whose first part may be a host: with the container as user information
    (``abfss``), with the bucket as the host's first label, and as servers and stores may clean it."""
    host, slash, rest = path[1:].partition("/")
    labels = {
        host.lower(),
        *(part for part in re.split("[@:]", host)),
        host.rpartition("@")[2].partition(".")[0],
    }
    forms = {path, *(f"/{label}{slash}{rest}" for label in labels if label)}
    if is_usual_url(path[1:]) and "@" not in host:
        return sorted(forms)
    for _ in range(2):  # decoded text may have to be cut and cleaned again
        forms |= {_CUT.sub("", form) for form in forms}
        forms |= {unquote(form, errors="surrogateescape") for form in forms}
        forms |= {form.replace("\\", "/") for form in forms}
        forms |= {"/" + "/".join(resolved(form)) for form in forms}
        forms |= {form.rstrip("/ ") for form in forms}
    return sorted(form.encode(errors="surrogateescape").decode(errors="backslashreplace") for form in forms)


def resolved(path: str) -> list[str]:
    """The parts of a path without empty and dot segments."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


OWNER_KEY = f"{LAKEPLAN_PREFIX}owner.json"
PROBE_KEY = f"{LAKEPLAN_PREFIX}probe.json"
"""Every check for other repositories in the same storage writes it again."""
MARKS_PREFIX = f"{LAKEPLAN_PREFIX}marks/"
SWEEPS_PREFIX = f"{LAKEPLAN_PREFIX}sweeps/"
HOLDS_PREFIX = f"{LAKEPLAN_PREFIX}holds/"
QUARANTINE_PREFIX = f"{LAKEPLAN_PREFIX}quarantine/"
MARK_FILE = "mark.json"
KNOWN_FILE = "seen.json"
CLOCK_FILE = "clock.json"
"""Written before every round, to learn the store's time."""
RULES_KEY = f"{LAKEPLAN_PREFIX}rules.json"
"""The GC rules when they were last read, besides the record in the state."""
SUMMARY_FILE = "summary.json"
OFFICIAL_FILE = "official.json"
"""Names the run under which a sweep writes the official report. Written before the report."""
UNIFIED_PREFIX = f"{GC_PREFIX}unified/"
OLD_RUNS_PREFIX = f"{GC_PREFIX}addresses/"
COLLECTOR_RUNS = (UNIFIED_PREFIX, OLD_RUNS_PREFIX)
"""Where other collectors record the runs in which they deleted (lakefs/retention.md)."""


def mark_prefix(mark_id: str) -> str:
    return f"{MARKS_PREFIX}{checked_mark_id(mark_id)}/"


def sweep_prefix(mark_id: str) -> str:
    return f"{SWEEPS_PREFIX}{checked_mark_id(mark_id)}/"


def quarantine_prefix(mark_id: str) -> str:
    return f"{QUARANTINE_PREFIX}{checked_mark_id(mark_id)}/"


def begun_key(sweep: str, part: str) -> str:
    """The record that a part's deletions may have begun. ``sweep`` is the sweep's prefix."""
    return f"{sweep}begun/{part_id(part)}.json"


def copied_key(sweep: str, part: str) -> str:
    """The record of the objects of a part that were copied into quarantine."""
    return f"{sweep}copied/{part_id(part)}.json"


def result_key(sweep: str, part: str, attempt: int = 0) -> str:
    """The key of the record of every object's result in a part. A later attempt at failed objects has a
    separate record, which replaces earlier ones."""
    return f"{sweep}results/{part_id(part)}{f'.{attempt}' if attempt else ''}.parquet"


def attempt_of(key: str, sweep: str) -> int | None:
    """The attempt whose record has this key, or None for a key that ``result_key`` never makes."""
    number = key.removesuffix(".parquet").rpartition(".")[2]
    attempt = number_of(number) or 0
    return attempt if key == result_key(sweep, key, attempt) else None


def part_id(name: str) -> str:
    """The text that the names of a part and of its records share."""
    return name.rpartition("/")[2].partition(".")[0]


def is_mark_id(text: str) -> bool:
    return text.isascii() and text == quote(text, safe="") and not text.startswith(".") and text != ""


def checked_mark_id(mark_id: str) -> str:
    """A mark's id that may be part of keys. Raises UsageError for other text."""
    if not is_mark_id(mark_id):
        raise UsageError(
            f"{mark_id!r} is not a mark id", hint="Run `lakeplan sweep list` to list marks and their ids."
        )
    return mark_id


@dataclass(frozen=True)
class Addresses:
    """Addresses of one namespace, which has the URLs ``namespaces``. A full address under another URL or in
    an unusual spelling may still refer to an object of the namespace, and so protects it."""

    namespaces: tuple[str, ...]

    def meaning(self, address: str, address_type: int) -> tuple[str | None, list[str]]:
        """The key that the address certainly refers to (or None), and other keys that it may refer to."""
        if address_type == AddressType.RELATIVE:
            key: str | None = address
        else:
            known = (normalize(address, address_type, namespace) for namespace in self.namespaces)
            key = next((meant for meant in known if meant is not None), None)
        relative = key == address
        if key is not None and (is_usual_key(key) if relative else is_usual_url(key)):
            return key, []
        others = possible_keys(address, folder_names(self.namespaces))
        if relative:
            return key, [other for other in others if other != key]
        return None, others

    def protected(self, address: str, address_type: int) -> list[str]:
        """Every key that the address refers to or may refer to."""
        key, others = self.meaning(address, address_type)
        return others if key is None else [key, *others]

    def foreign(self, address: str, address_type: int) -> tuple[str | None, list[str]]:
        """The ``meaning`` of an address in another repository. A relative address (or, in old entries, one
        that is no URI) is in that repository's namespace, unless a store lets it lead out of it: ``../``, or
        a URL."""
        if address_type != AddressType.RELATIVE and "://" in address:
            return self.meaning(address, AddressType.FULL)
        if is_usual_key(address):
            return None, []
        return None, possible_keys(f"//{address}", folder_names(self.namespaces))

    def staged(self, address: str) -> list[str]:
        """Every key that an address in a run of uncommitted addresses may refer to. The server writes full
        ones that begin with the namespace as relative, so a query or an escape may still be that of a URL."""
        keys = self.protected(address, AddressType.BY_PREFIX)
        if not is_usual_url(address):
            keys += possible_keys(address, folder_names(self.namespaces))
        return list(dict.fromkeys(keys))


def known_as(read_url: str, storage_namespace: str | None) -> Addresses:
    """The addresses of a namespace read at ``read_url``, which its server calls ``storage_namespace`` (None:
    unknown)."""
    read_url = read_url.rstrip("/")
    return Addresses((read_url,) if storage_namespace is None else (storage_namespace, read_url))

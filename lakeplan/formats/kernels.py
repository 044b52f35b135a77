"""Compiled loops over the bytes of ranges. Imported by ``compiled`` alone, after numba's cache has its place.

They run without Python's lock, so threads are enough. Only the shape that lakeFS writes is handled: for
anything else the answer is a status, and the careful decoder says what is wrong. No read or write leaves its
buffer whatever the bytes say: every position is checked against its end, and whole words are read and written
only where ``SLACK`` bytes follow.
"""

from __future__ import annotations

import os
from typing import Any

import numba
import numpy as np
from numba import types

SLACK = 64
"""Bytes after every buffer, so that words may be read and written past the end."""
OK, FULL, IRREGULAR = 0, 1, 2
MAX_BLOCK, MAX_TABLE = 64 << 20, 256 << 20
RATIO, KEY_RATIO = 32, 64
MAX_KEY, MAX_KEYS = 16 << 10, 512 << 20
LAST_SECOND = 253402300799
"""As in ``limits`` and ``wire``; compiled code needs constants, and a test compares."""
CANDIDATE, UNUSUAL, RELATIVE = 1, 2, 4
"""Bits of a row's flags."""
_SEED, _FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_HIGH = np.uint64(0x8080808080808080)
_SLASHES, _ONES = np.uint64(0x2F2F2F2F2F2F2F2F), np.uint64(0x0101010101010101)
_DATA, _LOW5 = np.uint64(int.from_bytes(b"data/", "little")), np.uint64((1 << 40) - 1)
_ONE, _EIGHT, _SHIFT = np.uint64(1), np.uint64(8), np.uint64(32)
_KEY_TRAILER = 8
_inner: Any = numba.njit(nogil=True, boundscheck=False, inline="never")


def _jit(signature: Any) -> Any:
    """Compiles a function when this module is imported, or loads it from the cache. Each exported function
    has one signature, so that two processes that fill the cache at once write the same. Code in an archive is
    not cached."""
    kept = os.path.isfile(__file__)
    return numba.njit(signature, nogil=True, cache=kept, boundscheck=False)


def _given(kind: Any) -> Any:
    """The type of a read-only one-dimensional array."""
    return types.Array(kind, 1, "A", readonly=True, aligned=False)


def _several(*kinds: Any) -> Any:
    return types.Tuple(kinds)  # type: ignore[no-untyped-call]


_FILE = types.Array(types.uint8, 1, "C", readonly=True)
_FILE_WORDS = _given(types.uint64)
_WORDS = types.Array(types.uint64, 1, "A", aligned=False)


@_inner
def _uvarint(data, at, end):  # type: ignore[no-untyped-def]
    """The number at ``at`` and the position after it, or position -1 if the number is cut off or has more
    than 49 bits."""
    value = np.int64(0)
    shift = np.int64(0)
    while at < end and shift < 49:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return np.int64(0), np.int64(-1)


@_inner
def _copy(words_to, to, words_from, start, length):  # type: ignore[no-untyped-def]
    """Copies bytes in words. Up to seven more bytes are written, for which both buffers have room."""
    # unsigned positions: numba would look at each whether it counts from the end
    at, of, end = np.uint64(to), np.uint64(start), np.uint64(to + length)
    while at < end:
        words_to[at] = words_from[of]
        at += _EIGHT
        of += _EIGHT


@_inner
def _inflate(src, src_words, at, end, out, out_words):  # type: ignore[no-untyped-def]
    """Decompresses raw snappy. Returns the size, -1 for damaged data, or -2 minus the size that is needed."""
    packed = end - at
    size, at = _uvarint(src, at, end)
    if at < 0 or size > MAX_BLOCK or size > RATIO * packed:
        return np.int64(-1)
    if size + SLACK > out.size:
        return -size - 2
    to = np.int64(0)
    while at < end:
        tag = np.int64(src[at])
        at += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                if end - at < 4:  # as cramjam: no writer puts a long length before a short text
                    return np.int64(-1)
                length = np.int64(0)
                for k in range(extra):
                    length |= np.int64(src[at + k]) << (8 * k)
                length += 1
                at += extra
            if length > end - at or length > size - to:
                return np.int64(-1)
            _copy(out_words, to, src_words, at, length)
            at += length
            to += length
            continue
        if kind == 1:
            if at >= end:
                return np.int64(-1)
            length = ((tag >> 2) & 7) + 4
            offset = (tag >> 5) << 8 | np.int64(src[at])
            at += 1
        else:
            wide = 2 if kind == 2 else 4
            if wide > end - at:
                return np.int64(-1)
            length = (tag >> 2) + 1
            offset = np.int64(0)
            for k in range(wide):
                offset |= np.int64(src[at + k]) << (8 * k)
            at += wide
        if offset == 0 or offset > to or length > size - to:
            return np.int64(-1)
        if offset >= 8:
            _copy(out_words, to, out_words, to - offset, length)
        else:
            for k in range(length):
                out[to + k] = out[to - offset + k]
        to += length
    return size if to == size else np.int64(-1)


@_inner
def _load(src, src_words, offset, size, limit, out, out_words):  # type: ignore[no-untyped-def]
    """Decompresses a block into ``out``. Returns what ``_inflate`` returns."""
    if offset < 0 or size < 0 or offset + size + 5 > limit:
        return np.int64(-1)
    kind = src[offset + size]
    if kind == 1:
        return _inflate(src, src_words, offset, offset + size, out, out_words)
    if kind != 0 or size > MAX_BLOCK:
        return np.int64(-1)
    if size + SLACK > out.size:
        return -size - 2
    _copy(out_words, np.int64(0), src_words, offset, size)
    return np.int64(size)


@_inner
def _entries_end(block, size):  # type: ignore[no-untyped-def]
    """The position at which a block's entries end, or -1 if its restart points do not fit."""
    if size < 4:
        return np.int64(-1)
    count = np.int64(0)
    for k in range(4):
        count |= np.int64(block[size - 4 + k]) << (8 * k)
    end = size - 4 - 4 * count
    if count == 0 or end < 0:
        return np.int64(-1)
    return end


@_inner
def _restart(block, start, shared, point, points_end):  # type: ignore[no-untyped-def]
    """The next restart point after the entry at ``start``, or -1 if the points do not fit the entries: the
    first must be 0, they must ascend, and an entry at a restart point must share nothing."""
    if point >= points_end:
        return point if start else np.int64(-1)
    restart = np.int64(0)
    for k in range(4):
        restart |= np.int64(block[point + k]) << (8 * k)
    if restart < start or (start == 0 and restart):
        return np.int64(-1)
    if restart > start:
        return point
    return np.int64(-1) if shared else point + 4


@_jit(types.int64(_FILE, types.int64, types.int64[:, ::1]))
def handles_in(block, size, handles):  # type: ignore[no-untyped-def]
    """Writes the (offset, size) of each entry of an inflated index block into ``found``. Returns their
    number, or -1 for an irregular block. Keys are measured but not read, because the records' own keys decide
    the order."""
    end = _entries_end(block, size)
    if end < 0:
        return np.int64(-1)
    at = np.int64(0)
    count = np.int64(0)
    key = np.int64(0)
    budget = min(KEY_RATIO * size + MAX_KEY, MAX_KEYS)
    point = end
    while at < end:
        start = at
        shared, at = _uvarint(block, at, end)
        if at < 0:
            return np.int64(-1)
        unshared, at = _uvarint(block, at, end)
        if at < 0:
            return np.int64(-1)
        value, at = _uvarint(block, at, end)
        if at < 0 or at + unshared + value > end or count >= handles.shape[0]:
            return np.int64(-1)
        point = _restart(block, start, shared, point, size - 4)
        if point < 0 or shared > key:
            return np.int64(-1)
        key = shared + unshared
        budget -= key
        if key > MAX_KEY or budget < 0:
            return np.int64(-1)
        stop = at + unshared + value
        first, at = _uvarint(block, at + unshared, stop)
        if at < 0:
            return np.int64(-1)
        second, at = _uvarint(block, at, stop)
        if at != stop:
            return np.int64(-1)
        handles[count, 0] = first
        handles[count, 1] = second
        count += 1
    return count if point == size - 4 else np.int64(-1)


@_inner
def _digits(body, at, number):  # type: ignore[no-untyped-def]
    """Writes a number as text. Returns the position after it."""
    width = np.int64(1)
    top = np.int64(10)
    while number >= top:
        width += 1
        top *= 10
    for k in range(width):
        body[at + width - 1 - k] = 48 + number % 10
        number //= 10
    return at + width


@_inner
def _hash(words, at, length):  # type: ignore[no-untyped-def]
    """The hash as in ``range_arrays.hash_spans``, and the OR of all words (to detect ASCII)."""
    digest = (_SEED ^ np.uint64(length)) * _FACTOR
    all_words = np.uint64(0)
    place, left = np.uint64(at), np.uint64(length)
    while left >= _EIGHT:
        word = words[place]
        all_words |= word
        digest ^= word
        digest *= _FACTOR
        digest ^= digest >> _SHIFT
        place += _EIGHT
        left -= _EIGHT
    if left:
        word = words[place] & ((_ONE << (_EIGHT * left)) - _ONE)
        all_words |= word
        digest ^= word
        digest *= _FACTOR
        digest ^= digest >> _SHIFT
    digest *= _SEED
    digest ^= digest >> _SHIFT
    return digest, all_words


@_inner
def _is_unusual(body, words, at, length):  # type: ignore[no-untyped-def]
    """Whether ``RangeArrays.unusual`` includes the span: it has a slash before a slash or a dot, or one of
    these at an end where it matters."""
    if length == 0:
        return False
    first, last = body[at], body[at + length - 1]
    if first == 47 or first == 46 or last == 47:
        return True
    end = at + length - 1
    for word in range(at, end, 8):
        # bytes that are slashes are zero in here, and the highest bit of each such byte is set after this
        matches = words[word] ^ _SLASHES
        if (matches - _ONES) & ~matches & _HIGH == np.uint64(0):
            continue
        for k in range(word, min(word + 8, end)):
            if body[k] == 47 and (body[k + 1] == 47 or body[k + 1] == 46):
                return True
    return False


@_inner
def _is_time(body, at, stop):  # type: ignore[no-untyped-def]
    """Whether the bytes are exactly one regular modification time."""
    seconds = np.int64(0)
    nanos = np.int64(0)
    if at < stop and body[at] == 0x08:
        seconds, at = _uvarint(body, at + 1, stop)
        if at < 0:
            return False
    if at < stop and body[at] == 0x10:
        nanos, at = _uvarint(body, at + 1, stop)
        if at < 0:
            return False
    return at == stop and nanos < 1_000_000_000 and seconds <= LAST_SECOND


@_inner
def _entry(body, words, at, end, row, columns):  # type: ignore[no-untyped-def]
    """Parses one value into row ``row`` of the columns. Returns False for an irregular value."""
    length, at = _uvarint(body, at, end)
    if at < 0 or length & 1:
        return False
    at += length >> 1
    if at >= end:
        return False
    length, at = _uvarint(body, at, end)
    if at < 0 or length & 1 or at + (length >> 1) != end:
        return False
    last = np.int64(0)
    size = np.int64(0)
    kind = np.int64(0)
    address_at = at
    address_len = np.int64(0)
    while at < end:
        tag = np.int64(body[at])
        if tag < last or (tag == last and tag != 0x2A):
            return False
        last = tag
        number, at = _uvarint(body, at + 1, end)
        if at < 0:
            return False
        if tag == 0x18:
            size = number
            continue
        if tag == 0x30:
            if number > 2:
                return False
            kind = number
            continue
        if number > end - at:
            return False
        stop = at + number
        if tag == 0x0A:
            address_at = at
            address_len = number
        elif tag == 0x12:
            if not _is_time(body, at, stop):
                return False
        elif tag != 0x22 and tag != 0x2A and tag != 0x3A:
            return False
        at = stop
    digest, all_words = _hash(words, address_at, address_len)
    if all_words & _HIGH:
        return False
    flags = np.int64(0)
    if address_len > 5 and words[address_at] & _LOW5 == _DATA:
        flags |= CANDIDATE
    if kind == 1:
        flags |= RELATIVE
    if _is_unusual(body, words, address_at, address_len):
        flags |= UNUSUAL
    places, numbers, hashes = columns
    places[2, row] = address_at
    places[3, row] = address_at + address_len
    numbers[0, row] = size
    numbers[1, row] = kind
    numbers[2, row] = flags
    hashes[0, row] = digest
    return True


@_inner
def _head(scratch, at, end):  # type: ignore[no-untyped-def]
    """The head of a record: shared and unshared bytes of its key, bytes of its value, and the position after
    them, or -1 for an irregular record."""
    unshared = np.int64(0)
    size = np.int64(0)
    shared, at = _uvarint(scratch, at, end)
    if at >= 0:
        unshared, at = _uvarint(scratch, at, end)
    if at >= 0:
        size, at = _uvarint(scratch, at, end)
    if at < 0 or unshared < _KEY_TRAILER or unshared + size > end - at:
        return shared, unshared, size, np.int64(-1)
    return shared, unshared, size, at


@_inner
def _ascends(body, at, length, before_at, before, shared):  # type: ignore[no-untyped-def]
    """Whether a key is greater than the previous one. Both have the same shared prefix."""
    k = shared
    least = min(before, length)
    while k < least and body[at + k] == body[before_at + k]:
        k += 1
    return k != length and (k >= before or body[at + k] >= body[before_at + k])


@_jit(
    _several(types.int64, types.int64, types.int64, types.boolean)(
        *(_several(_FILE, _FILE_WORDS), types.int64, types.int64[:, ::1]),
        _several(types.uint8[::1], _WORDS, types.uint8[::1], _WORDS),
        _several(types.int64[:, ::1], types.int64[:, ::1], types.uint64[:, ::1]),
    )
)
def decode(source, limit, blocks, buffers, columns):  # type: ignore[no-untyped-def]
    """All records of the ``blocks`` (offset, size) into the columns and ``body``, which gets exactly the
    bytes whose SHA-256 is the range's id (``len key|len value|`` a record): (status, records, bytes of body,
    whether all paths are ASCII).

    ``source``, scratch and body of ``buffers`` are bytes, each followed by its words. ``columns`` are places
    (the start and end of keys and of addresses in the body), numbers (sizes, kinds and flags) and hashes (of
    addresses and of paths). FULL: a buffer is too small; the second number then says how many bytes the
    scratch needs (0: the body was the small one).
    """
    src, src_words = source
    scratch, scratch_words, body, words = buffers
    places, _, hashes = columns
    count = to = before_at = inflated = keys = np.int64(0)
    before, high = np.int64(-1), np.uint64(0)
    for b in range(blocks.shape[0]):
        length = _load(src, src_words, blocks[b, 0], blocks[b, 1], limit, scratch, scratch_words)
        if length < 0:
            if length == -1:
                return IRREGULAR, count, to, False
            return FULL, -length, np.int64(0), False
        end = _entries_end(scratch, length)
        inflated += length
        if end <= 0 or inflated > MAX_TABLE:
            return IRREGULAR, count, to, False
        at = np.int64(0)
        point = end  # of the next restart
        budget = min(KEY_RATIO * length + MAX_KEY, MAX_KEYS)
        while at < end:
            start = at
            shared, unshared, size, at = _head(scratch, at, end)
            if at < 0:
                return IRREGULAR, count, to, False
            point = _restart(scratch, start, shared, point, length - 4)
            keys += shared + unshared
            budget -= shared + unshared
            if point < 0 or shared > max(before, 0) or shared + unshared > MAX_KEY or budget < 0:
                return IRREGULAR, count, to, False
            if scratch_words[at + unshared - _KEY_TRAILER] != _ONE or count >= hashes.shape[1]:
                return IRREGULAR, count, to, False
            key_len = shared + unshared - _KEY_TRAILER
            if to + key_len + size + 48 + SLACK > body.size:
                return FULL, np.int64(0), np.int64(0), False
            to = _digits(body, to, key_len)
            _copy(words, to, words, before_at, shared)
            _copy(words, to + shared, scratch_words, at, unshared - _KEY_TRAILER)
            if before >= 0 and not _ascends(body, to, key_len, before_at, before, shared):
                return IRREGULAR, count, to, False
            before_at, before = to, key_len
            at += unshared
            to += key_len
            body[to] = 124
            to = _digits(body, to + 1, size)
            _copy(words, to, scratch_words, at, size)
            if not _entry(body, words, to, to + size, count, columns):
                return IRREGULAR, count, to, False
            # after the value was copied: its bytes follow the key's, and a hash reads whole words
            digest, all_words = _hash(words, before_at, key_len)
            high |= all_words
            places[0, count] = before_at
            places[1, count] = before_at + key_len
            hashes[1, count] = digest
            at += size
            to += size
            body[to] = 124
            to += 1
            count += 1
        if point != length - 4 or keys > MAX_KEYS:
            return IRREGULAR, count, to, False
    return OK, count, to, high & _HIGH == np.uint64(0)


@_jit(
    types.UniTuple(types.int64, 3)(  # type: ignore[no-untyped-call]
        _several(_given(types.uint64), _given(types.uint64), _given(types.int64), _given(types.uint8)),
        *(types.int64, _several(types.int32[::1], types.int64[:, ::1], types.uint64[:, ::1])),
        *(types.int64, _several(types.int64[:, ::1], types.int32[:, ::1]), types.int64),
        types.boolean[::1],
    )
)
def add_rows(rows, first_leaf, table, used, chains, nodes, fresh):  # type: ignore[no-untyped-def]
    """Adds the rows of one work item to an open table. Returns (rows in the table, sets, status).

    ``rows`` are pairs, hashes, sizes, codes. ``table``: slots are places in its columns plus one (0: free),
    as many as a power of two and more than twice the rows; columns are sizes and sets, hash columns pairs and
    hashes. ``chains``: a set is a pair of ``sets``, another set and a leaf, which is ``first_leaf`` plus a
    code; ``following`` has, by code, the set that follows each set (0: none yet), and must be zero at the
    beginning. FULL: ``sets`` is too small, and the table is half changed.
    """
    pairs, hashes, sizes, codes = rows
    slots, columns, hash_columns = table
    sets, following = chains
    mask = np.uint64(slots.size - 1)
    for row in range(pairs.size):
        pair = pairs[row]
        slot = (pair * _FACTOR >> _SHIFT) & mask
        place = np.int64(slots[slot]) - 1
        while place >= 0 and (hash_columns[0, place] != pair or hash_columns[1, place] != hashes[row]):
            slot = (slot + _ONE) & mask
            place = np.int64(slots[slot]) - 1
        of = np.int64(0)
        leaf = first_leaf + np.int64(codes[row])
        if place < 0:
            place = used
            slots[slot] = place + 1
            used += 1
            hash_columns[0, place] = pair
            hash_columns[1, place] = hashes[row]
            columns[0, place] = sizes[row]
            fresh[row] = True
        else:
            of = columns[1, place]
            if sizes[row] > columns[0, place]:
                columns[0, place] = sizes[row]
            if sets[1, of] == leaf:
                continue
        then = np.int64(following[codes[row], of])
        if then == 0:
            if nodes >= sets.shape[1]:
                return used, nodes, FULL
            then = nodes
            sets[0, then] = of
            sets[1, then] = leaf
            following[codes[row], of] = then
            nodes += 1
        columns[1, place] = then
    return used, nodes, OK


@_jit(types.void(_given(types.uint64), types.int32[::1]))
def place_rows(pairs, slots):  # type: ignore[no-untyped-def]
    """Moves the rows of a table into new slots."""
    mask = np.uint64(slots.size - 1)
    for row in range(pairs.size):
        slot = (pairs[row] * _FACTOR >> _SHIFT) & mask
        while slots[slot]:
            slot = (slot + _ONE) & mask
        slots[slot] = row + 1

"""A cache in a dictionary, that can be damaged."""

from __future__ import annotations


class MemoryCache:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.got: list[str] = []

    def get(self, key: str) -> bytes | None:
        self.got.append(key)
        return self.files.get(key)

    def put(self, key: str, data: bytes) -> None:
        self.files[key] = data

    def trim(self) -> None:
        pass

    def damage(self) -> None:
        """Every entry another way: a byte changed, cut short, another's, empty."""
        names = sorted(self.files)
        for n, name in enumerate(names):
            data = self.files[name]
            if not data:
                continue
            middle = len(data) // 2
            self.files[name] = (
                data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :],
                data[:-1],
                self.files[names[n - 1]] if len(names) > 1 else b"",
                b"",
            )[n % 4]

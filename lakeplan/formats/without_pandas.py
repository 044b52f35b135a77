"""pyarrow imports pandas where it is installed, at the first array that it makes: a quarter of a second,
longer than many commands take. Only PySpark needs it."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec


class _Hidden:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is hidden: this process needs none", name=name)
        return None


def hide_pandas() -> None:
    """For a process of one command: others may want tables of pyarrow as data frames."""
    sys.meta_path.insert(0, _Hidden)


def show_pandas() -> None:
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not _Hidden]

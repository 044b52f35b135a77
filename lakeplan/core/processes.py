"""What a program that lakeplan starts may get from its surroundings: nothing is found by the current folder.

A checkout is written by strangers, and commands run inside it. A relative entry of ``PATH`` or ``PYTHONPATH``
would make its files run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping


def absolute_entries(paths: str) -> str:
    """A search path without its empty and relative entries, which mean the current folder."""
    return os.pathsep.join(entry for entry in paths.split(os.pathsep) if os.path.isabs(entry))


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """The absolute path of a program that ``PATH`` names. A name with a slash is a path, and stays one."""
    found = shutil.which(name, path=absolute_entries(environ.get("PATH", os.defpath)))
    return os.path.abspath(found) if found is not None else None

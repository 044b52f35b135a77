"""``python -P -m tools.reference FOLDER``: writes the pages into a folder such as ``docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.reference.pages import write_pages


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -P -m tools.reference FOLDER\n")
        return 64
    for path in write_pages(Path(arguments[0])):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

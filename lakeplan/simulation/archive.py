"""The archive that Spark's executors need: lakeplan itself as a zip for ``--py-files``."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from lakeplan.errors import LakeplanError
from lakeplan.values.local import SHARED, write_file
from lakeplan.values.urls import STORAGES

EXECUTOR_PACKAGES = (
    "pyspark",
    "pyarrow",
    "pandas",
    "numpy",
    "cramjam",
    "google-crc32c",
    *(package for kind in STORAGES for package in kind.packages),
    "requests",
)
"""What workers import besides lakeplan. A zip cannot contain these packages, because most are compiled."""
REQUIREMENTS = "requirements.txt"
_ROOT = Path(__file__).resolve().parent.parent
_EPOCH = (1980, 1, 1, 0, 0, 0)


def is_folder() -> bool:
    """Whether lakeplan runs from a folder. An archive cannot make another archive."""
    return _ROOT.is_dir()


def write_archive(target: Path, *, schemas: Path | None = None) -> tuple[str, ...]:
    """Writes the zip. Returns the packages that executors (and a driver in cluster mode) also need, as
    ``name==version`` of those installed here. The zip has them as ``requirements.txt`` too.

    The same files give the same bytes. ``schemas`` is put in as ``lakeplan/schemas``. Raises LakeplanError
    when it cannot be written, or when lakeplan itself runs from an archive.
    """
    if not is_folder():
        raise LakeplanError(
            "lakeplan is running from an archive and cannot write another one",
            where=str(_ROOT),
            hint=(
                "Use the existing archive, or run the command in an environment where lakeplan is installed."
            ),
        )
    needed = needed_packages()
    paths = sorted(schemas.glob("*.json")) if schemas is not None else ()
    files = {f"lakeplan/schemas/{path.name}": path.read_bytes() for path in paths}
    files[REQUIREMENTS] = "".join(f"{line}\n" for line in needed).encode()
    write_file(target, _zip(files), mode=SHARED)
    return needed


def write_code(target: Path) -> None:
    """Writes only lakeplan's modules, for the executors of an open session. Raises LakeplanError."""
    write_file(target, _zip({}), mode=SHARED)


def _zip(files: Mapping[str, bytes]) -> bytes:
    """Writes a zip of lakeplan's modules and these files."""
    modules = {
        f"lakeplan/{p.relative_to(_ROOT).as_posix()}": p.read_bytes() for p in sorted(_ROOT.rglob("*.py"))
    }
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in (modules | dict(files)).items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return target.getvalue()


def needed_packages() -> tuple[str, ...]:
    """The packages as ``name==version``: first those of workers, then those of the command line."""
    try:
        packages = [
            re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
            for line in metadata.requires("lakeplan") or ()
            if "extra ==" not in line
        ]
        names = dict.fromkeys([*EXECUTOR_PACKAGES, *sorted(packages)])
        return tuple(f"{name}=={metadata.version(name)}" for name in names)
    except metadata.PackageNotFoundError as error:
        raise LakeplanError(
            f"{error.name} is not installed, so its version is unknown",
            hint="Run the command in an environment where lakeplan was installed with pip.",
        ) from error

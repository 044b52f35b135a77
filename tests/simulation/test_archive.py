"""The archive for executors: complete, importable, and always the same."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lakeplan.cli.main import run
from lakeplan.errors import ExitCode, LakeplanError
from lakeplan.simulation.archive import EXECUTOR_PACKAGES, needed_packages, write_archive

ROOT = Path(__file__).parents[2]
IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import lakeplan.simulation.spark, lakeplan.simulation.steps, lakeplan.cli.main
from importlib.resources import files
assert lakeplan.__file__.startswith(sys.argv[1]), lakeplan.__file__
assert files("lakeplan").joinpath("schemas", "curve.v1.json").is_file()
from lakeplan.simulation.archive import is_folder
assert not is_folder()
"""


def it_holds_every_module_and_schema(tmp_path: Path) -> None:
    target = tmp_path / "lakeplan.zip"
    needed = write_archive(target, schemas=ROOT / "schemas")
    with zipfile.ZipFile(target) as archive:
        names = set(archive.namelist())
        listed = archive.read("requirements.txt").decode().split()
    modules = {
        f"lakeplan/{p.relative_to(ROOT / 'lakeplan').as_posix()}" for p in (ROOT / "lakeplan").rglob("*.py")
    }
    schemas = {f"lakeplan/schemas/{p.name}" for p in (ROOT / "schemas").glob("*.json")}
    assert names == modules | schemas | {"requirements.txt"}
    assert listed == list(needed)


def it_is_what_executors_import(tmp_path: Path) -> None:
    target = tmp_path / "lakeplan.zip"
    write_archive(target, schemas=ROOT / "schemas")
    subprocess.run([sys.executable, "-c", IMPORTS, str(target)], check=True, cwd=tmp_path)


def it_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        write_archive(tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def it_names_every_package_with_its_version() -> None:
    needed = dict(line.split("==") for line in needed_packages())
    assert list(needed)[: len(EXECUTOR_PACKAGES)] == list(EXECUTOR_PACKAGES)
    assert {"typer", "rich", "pyyaml", "jsonschema"} <= needed.keys()
    assert "pytest" not in needed
    assert all(version[0].isdigit() for version in needed.values())


def it_says_where_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(LakeplanError, match="cannot write"):
        write_archive(tmp_path / "nowhere" / "lakeplan.zip")


def it_is_made_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "lakeplan.zip"
    assert run(["spark", "package", "--out", str(target)]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert zipfile.is_zipfile(target)
    assert f"--py-files {target}" in shown
    assert "pyarrow==" in shown

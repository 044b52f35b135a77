"""The effect of a check on the folders that it gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakeplan.review import base
from lakeplan.values.desired import Check

HOME = "import os\nhome = os.environ['HOME']\n"


@pytest.mark.parametrize(
    "script",
    [
        "os.rmdir(home)",
        "os.rmdir(home)\nopen(home, 'w').close()",
        "os.rmdir(home)\nos.symlink(os.getcwd(), home)",
        "os.mkdir(home + '/x', 0)\nos.chmod(home, 0)",
        "os.chdir(home)\nfor _ in range(2000):\n    os.mkdir('d')\n    os.chdir('d')",
    ],
    ids=["removed", "file", "link", "unreadable", "deep"],
)
def it_judges_although_a_folder_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    temporary, tree = tmp_path / "tmp", tmp_path / "tree"
    temporary.mkdir()
    tree.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    (tree / "check.py").write_text(f"{HOME}{script}\nprint('[]')\n")
    program = Path(sys.executable)
    check = Check("homes", (program.name, "check.py"))
    path = f"{program.parent}{os.pathsep}{os.defpath}"
    try:
        assert base.run(check, b"{}", base.Place(tree), path) == []
    finally:
        # Python's own removal, which pytest uses later, cannot take it away either.
        subprocess.run(["rm", "-rf", str(temporary)], check=True)
    assert (tree / "check.py").exists()

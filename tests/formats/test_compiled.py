"""Where machine code is cached, and which code is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from lakeplan.formats import compiled, range_arrays

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DECODE = """
import logging, sys
sys.path.insert(0, {root!r})
logging.basicConfig(level="INFO", format="%(message)s")
from lakeplan.formats.ranges import write_range
from lakeplan.formats.ranges import read_range_arrays
from lakeplan.values.repository import AddressType, Entry
found = read_range_arrays(
    write_range([Entry("p", "data/a", AddressType.RELATIVE, 1)])[1], name="r", use_compiled=True
)
print("numpy" if found.flags is None else "compiled", found.sizes.tolist())
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("code")


def decode(folder: Path, *, before: str = "", **environ: str | None) -> tuple[str, str]:
    """What a process in ``folder`` decodes with, and its log."""
    known = {"PATH": os.environ["PATH"], "TMPDIR": str(folder)}
    known |= {name: value for name, value in environ.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-P", "-c", before + DECODE.format(root=str(ROOT))],
        env=known,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return done.stdout.strip(), done.stderr


def code_of(cache: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")}


def it_keeps_code_in_the_users_folder_and_loads_it_again(cache: Path, tmp_path: Path) -> None:
    assert decode(tmp_path, XDG_CACHE_HOME=str(cache))[0] == "compiled [1]"
    (folder,) = (cache / "lakeplan").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    first = code_of(cache)
    assert len(first) == len(list(cache.rglob("*.nbi")))  # one signature each
    assert decode(tmp_path, XDG_CACHE_HOME=str(cache)) == ("compiled [1]", "")
    assert code_of(cache) == first
    assert not list(tmp_path.rglob("*.nb?"))
    assert not list((ROOT / "lakeplan").rglob("*.nb?"))


def it_follows_no_setting_of_numba(cache: Path, tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path}/stranger\ndisable_jit: 1\n")
    (tmp_path / "numba.py").write_text("raise SystemExit('a stranger')")
    known = code_of(cache)
    found = decode(
        tmp_path,
        XDG_CACHE_HOME=str(cache),
        NUMBA_CACHE_DIR=str(tmp_path / "stranger"),
        NUMBA_DISABLE_JIT="1",
        NUMBA_CACHE_LOCATOR_CLASSES="InTreeCacheLocator",
    )
    assert found == ("compiled [1]", "")
    assert not list(tmp_path.rglob("*.nb?"))
    assert code_of(cache) == known


@pytest.mark.extended
def it_compiles_anew_what_is_cut(cache: Path, tmp_path: Path) -> None:
    decode(tmp_path, XDG_CACHE_HOME=str(cache))
    for ending in ("nbi", "nbc"):
        cut = next(iter(cache.rglob(f"kernels.decode*.{ending}")))
        cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
        said, log = decode(tmp_path, XDG_CACHE_HOME=str(cache))
        assert said == "compiled [1]"
        assert "compiling it again" in log
        assert decode(tmp_path, XDG_CACHE_HOME=str(cache)) == ("compiled [1]", "")


def it_compiles_anew_what_has_one_wrong_bit(cache: Path, tmp_path: Path) -> None:
    decode(tmp_path, XDG_CACHE_HOME=str(cache))
    code = next(iter(cache.rglob("kernels.decode*.nbc")))
    whole = code.read_bytes()
    factor = whole.index(int(range_arrays._FACTOR).to_bytes(8, "little"))  # of all hashes
    code.write_bytes(whole[:factor] + bytes([whole[factor] ^ 1]) + whole[factor + 1 :])
    said, log = decode(tmp_path, XDG_CACHE_HOME=str(cache))
    assert said.startswith("compiled [1]")
    assert "compiling it again" in log
    assert decode(tmp_path, XDG_CACHE_HOME=str(cache)) == (said, "")


def it_keeps_code_for_several_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(name: str) -> ModuleType:
        (tmp_path / f"{len(list(tmp_path.glob('*.nbc')))}.nbc").write_bytes(b"code")
        return ModuleType(name)

    monkeypatch.setattr(compiled.importlib, "import_module", add)  # type: ignore[attr-defined]
    for number in (1, 2):
        compiled._imported(tmp_path)
        assert len(list(tmp_path.glob("*.nbc"))) == number
    (tmp_path / "1.nbc").write_bytes(b"damaged")
    compiled._imported(tmp_path)
    assert [file.read_bytes() for file in tmp_path.glob("*.nbc")] == [b"code"]


def it_decodes_with_numpy_where_numba_is_not_installed_or_fails(tmp_path: Path) -> None:
    missing = "import sys; sys.modules['numba'] = None\n"
    said, log = decode(tmp_path, before=missing, HOME=str(tmp_path))
    assert said == "numpy [1]"
    assert "numba is not installed" in log
    broken = (
        "import builtins, importlib\nreal = importlib.import_module\n"
        "def load(name, *more):\n"
        "    if name.startswith('numba'): raise RuntimeError('no LLVM here')\n"
        "    return real(name, *more)\n"
        "importlib.import_module = load\n"
    )
    said, log = decode(tmp_path, before=broken, HOME=str(tmp_path))
    assert said == "numpy [1]"
    assert "no LLVM here" in log


@pytest.mark.extended
def it_lets_two_processes_fill_it_at_once(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    said: list[tuple[str, str]] = []
    both = [
        threading.Thread(target=lambda: said.append(decode(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))))
        for _ in range(2)
    ]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert said == [("compiled [1]", "")] * 2
    assert decode(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")) == ("compiled [1]", "")


def it_is_loaded_once_by_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Path] = []

    def load(folder: Path) -> ModuleType:
        loaded.append(folder)
        time.sleep(0.1)
        return ModuleType("kernels")

    monkeypatch.setattr(compiled, "_loaded", load)
    compiled._kernels.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            found = {id(kernels) for kernels in pool.map(lambda _: compiled.kernels(), range(4))}
    finally:
        compiled._kernels.cache_clear()
    assert len(found) == len(loaded) == 1


class DescribeTheFolder:
    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        home = tmp_path / "home"
        home.mkdir(0o700)
        for name in ("CI", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(home))
        return home

    def why(self) -> str:
        folder, why = compiled._kept_folder()
        assert folder is None
        return why

    def it_is_in_the_users_cache(self, home: Path) -> None:
        folder, _ = compiled._kept_folder()
        assert folder is not None
        assert folder.parent == home / ".cache" / "lakeplan"

    @pytest.mark.parametrize(
        ("name", "value"), [("CI", "true"), ("HOME", "home"), ("HOME", ""), ("XDG_CACHE_HOME", ".cache")]
    )
    def it_is_none_in_ci_and_at_no_absolute_path(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        monkeypatch.chdir(home.parent)
        monkeypatch.setenv(name, value)
        assert self.why() in ("CI is set", "neither XDG_CACHE_HOME nor HOME is an absolute path")
        assert [*home.iterdir()] == []

    def it_is_none_without_a_home(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HOME")
        assert "absolute" in self.why()

    @pytest.mark.parametrize("mark", ["lakeplan.yaml", ".git"])
    @pytest.mark.parametrize("linked", [True, False])
    def it_is_in_no_tree(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, linked: bool
    ) -> None:
        tree = tmp_path / "tree"
        tree.mkdir(0o700)
        (tree / mark).write_text("")
        place = tree / "cache"
        if linked:
            place.mkdir(0o700)
            (tmp_path / "link").symlink_to(place)
            place = tmp_path / "link"
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        assert f"is in the tree {tree}" in self.why()
        assert not list(tree.rglob("compiled-*"))

    def it_is_where_a_link_of_the_user_leads(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir(0o700)
        (home / ".cache").symlink_to(tmp_path / "disk")
        folder, _ = compiled._kept_folder()
        assert folder is not None
        assert folder.parent == tmp_path / "disk" / "lakeplan"

    def it_is_none_at_links_in_a_circle(self, home: Path) -> None:
        (home / ".cache").symlink_to(home / ".cache")
        assert self.why()

    def it_is_in_no_folder_that_others_may_write_to(self, home: Path) -> None:
        folder, _ = compiled._kept_folder()
        assert folder is not None
        for each in (folder, folder.parent, home):
            before = each.stat().st_mode & 0o7777
            each.chmod(before | 0o022)
            assert "other users can write" in self.why()
            each.chmod(before)
        folder.chmod(0o755)
        assert "other users can write" in self.why()

    def it_is_none_in_a_home_that_cannot_be_written(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (home / ".cache").write_text("a file")
        assert self.why()
        (home / ".cache").unlink()
        compiled._kept_folder()

        def full(**more: object) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(compiled.tempfile, "TemporaryFile", full)
        assert "Read-only" in self.why()

    @pytest.mark.parametrize("of", ["lakeplan", "numpy", "numba", "llvmlite"])
    def it_is_another_for_other_versions(self, home: Path, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
        folders = {compiled._kept_folder()[0]}
        real: Callable[[str], str] = compiled.version
        monkeypatch.setattr(compiled, "version", lambda name: "0.0" if name == of else real(name))
        folders.add(compiled._kept_folder()[0])
        monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
        folders.add(compiled._kept_folder()[0])
        assert len(folders) == 3

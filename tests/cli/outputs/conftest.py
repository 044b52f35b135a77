"""Sites at hand: a copy of a stage for each test, which it may change."""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.outputs.site import PLACE_LENGTH, Site
from tests.cli.outputs.stages import STAGES

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
REGENERATE = "LAKEPLAN_REGENERATE_OUTPUT"


@pytest.fixture(scope="session")
def port() -> int:
    """Five digits, which every address in an output then has. It is below those that systems give to clients,
    because each site of the session listens on it anew."""
    for number in random.sample(range(10_000, 30_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", number)):
            return number
    raise AssertionError("100 ports are in use")


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """The folder of every site of the session, one at a time. Its path has the same length on every
    machine, because lines are wrapped by it."""
    base = Path(tempfile.mkdtemp(prefix="lakeplan-"))
    folder = base / "site".ljust(PLACE_LENGTH - len(str(base)) - 1, "-")
    assert len(str(folder)) == PLACE_LENGTH, f"{base} is too long"
    yield folder
    shutil.rmtree(base)


@pytest.fixture(scope="session")
def stage(
    port: int, place: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str], Path]:
    """``stage(name)``: what a site holds after that stage, made once. Copy it before you change it."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            chosen = STAGES[name]
            before = HERE / "start" if chosen.after is None else make(chosen.after)
            with _site_at(place, before, Site(place, port, name)) as site:
                chosen.make(site)
                made[name] = tmp_path_factory.mktemp("stages") / name
                shutil.copytree(place, made[name])
        return made[name]

    return make


@pytest.fixture
def open_site(stage: Callable[[str], Path], port: int, place: Path) -> Iterator[Callable[[str], Site]]:
    """A function that opens a separate site as the named stage left it, and closes the previous one."""
    with ExitStack() as stack:

        def opened(name: str) -> Site:
            stack.close()
            return stack.enter_context(_site_at(place, stage(name), Site(place, port)))

        yield opened


@contextmanager
def _site_at(place: Path, before: Path, site: Site) -> Iterator[Site]:
    shutil.copytree(before, place)
    try:
        with site.serving():
            yield site
    finally:
        shutil.rmtree(place)


@pytest.fixture
def golden_file() -> Callable[[str, str], None]:
    """Compares with ``golden/<name>.txt``. With LAKEPLAN_REGENERATE_OUTPUT=1 the file is written
    instead: read the difference in git before you commit it. Outputs that are the same at both widths
    have one file, for width 80."""

    def compare(name: str, text: str) -> None:
        path, regenerate = GOLDEN / f"{name}.txt", os.environ.get(REGENERATE)
        narrow = GOLDEN / f"{name.replace('160', '80')}.txt"
        if narrow != path and narrow.is_file() and narrow.read_text(encoding="utf-8") == text:
            if regenerate:
                path.unlink(missing_ok=True)
            assert not path.exists(), f"{path} repeats {narrow.name}: {REGENERATE}=1 removes it"
            return
        if regenerate:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path.name} is missing: {REGENERATE}=1 writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path}: {REGENERATE}=1 writes it again"

    return compare

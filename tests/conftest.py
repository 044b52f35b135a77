"""Golden cases recorded from a real server (tests/data/golden), for every test that wants them."""

from __future__ import annotations

import functools
import gc
import json
import os
import re
import shutil
import signal
import tarfile
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.storage_servers import (  # noqa: F401  # fixtures, for every test that wants a store
    azure_container,
    azurite,
    gcs,
    gcs_bucket,
    gcs_emulator,
    gcs_endpoint,
    no_credentials_of_this_machine,
    s3_bucket,
    s3_endpoint,
)

if TYPE_CHECKING:
    from lakeplan.simulation.runners import Runners

# Machines that run these are shared: how long an example takes says nothing about the code.
settings.register_profile("lakeplan", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lakeplan")

GOLDEN = Path(__file__).parent / "data" / "golden"


@dataclass(frozen=True)
class GoldenCase:
    """``namespace`` is the unpacked storage namespace, modification times kept; ``case`` is case.json."""

    name: str
    namespace: Path
    case: dict[str, object]


MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Tests make tens of thousands of small files: in memory each costs a tenth of what it costs on a slow
    disk. Only where programs may run there and there is room, and TMPDIR names no other folder."""
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        room = os.statvfs(MEMORY)
        if room.f_bavail * room.f_frsize >= MEMORY_BYTES and not room.f_flag & os.ST_NOEXEC:
            os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collecting makes millions of objects that live until the end. To look for garbage among them takes a
    third of the time, and later a part of every test's."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


EXTENDED = re.compile(r"extended|hypothesis|\brunners\b|\bat_both_widths\b")
"""What a file says that has an extended test: the marker, or a name that brings it."""
MANY_EXAMPLES, FEWER = 40, 4
"""``make test`` tries a quarter of the examples of a random test that has this many, and ``make
test-extended`` all of them. Each run draws other ones."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``-m extended`` reads only the files that have such tests: to collect all takes longer."""
    if config.option.markexpr != "extended" or not collection_path.match("test_*.py"):
        return None
    return True if EXTENDED.search(collection_path.read_text()) is None else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    many: dict[Any, settings] = {}
    extended = set()
    for item in items:
        function = getattr(item, "obj", None)
        function = getattr(function, "__func__", function)
        used = getattr(function, "_hypothesis_internal_use_settings", None)
        if used is not None and used.max_examples >= MANY_EXAMPLES:
            many[function] = used
            if config.option.markexpr == "extended":
                item.add_marker("extended")
            extended.add(item.path)
        elif item.get_closest_marker("extended"):
            extended.add(item.path)
    if config.option.markexpr == "not extended":
        for function, used in many.items():
            count = used.max_examples // FEWER
            function._hypothesis_internal_use_settings = settings(used, max_examples=count)
    if lost := [str(path) for path in extended if EXTENDED.search(path.read_text()) is None]:
        raise pytest.UsageError(f"make test-extended leaves out {', '.join(lost)}: add its word to EXTENDED")


TOGETHER = {
    "tests/cli/outputs/test_outputs.py": "outputs",
    "tests/cli/outputs/test_terminals.py": "outputs",
    "tests/cli/outputs/test_wrong_uses.py": "outputs",
    "tests/e2e/test_doctor.py": "spark",
    "tests/simulation/runners/test_spark.py": "spark",
    "tests/sweeping/test_engines.py": "spark",
}
"""Files of one process, by what they share: the stages of recorded outputs, which take a second each, or a
Spark session. These are all that open one in ``make test``."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, files that share something are one piece of work."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return TOGETHER.get(file, file)

    return Together(config, log)


def golden_folder() -> Path | None:
    """More cases than those in the repository, where there are any."""
    root = Path(os.environ.get("LAKEPLAN_GOLDEN") or Path(__file__).parents[2] / "shared" / "golden")
    return root if root.is_dir() else None


@functools.cache
def golden_sources() -> dict[str, Path]:
    """By name, the archive of a case in the repository, or the folder of one that is elsewhere."""
    root = golden_folder()
    others = {} if root is None else {path.parent.name: path.parent for path in root.glob("*/case.json")}
    return others | {path.name.partition(".")[0]: path for path in GOLDEN.glob("*.tar.xz")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``golden`` runs once per case; ``@pytest.mark.golden(extended=NAMES)``: these cases
    take long and are left to ``make test-extended``."""
    if "golden" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("golden")
        long = marker.kwargs.get("extended", ()) if marker is not None else ()
        names = sorted(golden_sources())
        cases = [pytest.param(n, marks=pytest.mark.extended) if n in long else n for n in names]
        metafunc.parametrize("golden", cases, indirect=True)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[None]:
    """Runs keep what they read in a folder of the test session, not in the user's cache directory. Machine
    code alone is taken over from the last session: numba knows by itself what is out of date."""
    cache = tmp_path_factory.mktemp("cache")
    code = cache / "lakeplan"
    kept = pytestconfig.cache.mkdir("machine-code") if getattr(pytestconfig, "cache", None) else None
    if kept is not None:
        with suppress(shutil.Error):  # another process changed them
            shutil.copytree(kept, code)
        for folder in (code, *code.glob("**/")):
            folder.chmod(0o700)  # as lakeplan makes them: it loads no code that others may write
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
    if kept is not None:
        keep_machine_code(code, kept)


def keep_machine_code(code: Path, kept: Path) -> None:
    """Each file at once: another process may be copying them. Code is used only if all files are as lakeplan
    left them."""
    for folder in code.glob("compiled-*"):
        paths = {path.relative_to(code) for path in (*folder.rglob("*.nb?"), *folder.glob("checksum"))}
        for old in (kept / folder.name).rglob("*.nb?"):
            if old.relative_to(kept) not in paths:
                old.unlink(missing_ok=True)
        for path in sorted(paths, key=lambda path: path.name == "checksum"):
            source, target = code / path, kept / path
            if not target.exists() or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                made = target.with_name(f".{os.getpid()}")
                shutil.copy2(source, made)
                made.replace(target)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """No test cuts the power: what is written may stay in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def schemas_checked_once() -> Iterator[None]:
    """``jsonschema.validate`` checks the schema each time: for ours that takes ten times as long as most
    documents."""
    from jsonschema import Draft202012Validator

    checked: set[str] = set()
    check = Draft202012Validator.check_schema

    def check_once(schema: Any, *arguments: Any, **more: Any) -> None:
        key = json.dumps([schema, repr(arguments), repr(more)], sort_keys=True)
        if key not in checked:
            check(schema, *arguments, **more)
            checked.add(key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft202012Validator, "check_schema", check_once)
        yield


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """A shell starts its background jobs with Ctrl-C ignored; here it is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def unpack_golden(source: Path, target: Path) -> GoldenCase:
    """The case of an archive of the repository, or of a folder with a namespace.tar.gz."""
    namespace, name = target / "namespace", source.name.partition(".")[0]
    folder = target if source.is_file() else source
    archive, into = (source, target) if source.is_file() else (source / "namespace.tar.gz", namespace)
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):
            opened.extractall(into, filter="data")
        else:
            opened.extractall(into)
    return GoldenCase(name, namespace, json.loads((folder / "case.json").read_text()))


@pytest.fixture(scope="session")
def golden_case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GoldenCase]:
    """A function that returns a case by name, unpacked once a session. Tests must not change it."""

    @functools.cache
    def unpack(name: str) -> GoldenCase:
        return unpack_golden(golden_sources()[name], tmp_path_factory.mktemp(name))

    return unpack


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest, golden_case: Callable[[str], GoldenCase]) -> GoldenCase:
    return golden_case(request.param)


@pytest.fixture(scope="session")
def spark() -> Iterator[Runners]:
    """The Spark session for all tests of a process. While it is open, every run uses it."""
    from lakeplan.simulation.runners import Runners
    from lakeplan.simulation.spark import open_session

    options = Runners(conf=(("spark.sql.shuffle.partitions", "2"),))
    with open_session(options):
        yield options


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.extended])])
def runners(request: pytest.FixtureRequest) -> Runners:
    """Either runner: no test of a simulation may see a difference."""
    from lakeplan.simulation.runners import Runners

    if request.param == "spark":
        request.getfixturevalue("spark")
    return Runners(asked=request.param)

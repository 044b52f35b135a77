"""Golden cases recorded from a real server (LAKEPLAN_GOLDEN), for every test that wants them."""

from __future__ import annotations

import functools
import json
import os
import signal
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.storage_servers import (  # noqa: F401  # fixtures, for every test that wants a store
    azure_container,
    azurite,
    no_credentials_of_this_machine,
    s3_bucket,
    s3_endpoint,
)

if TYPE_CHECKING:
    from lakeplan.simulation.runners import Runners
    from lakeplan.simulation.session import SparkOptions

# Machines that run these are shared: how long an example takes says nothing about the code.
settings.register_profile("lakeplan", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lakeplan")

_REASON = "no golden cases: set LAKEPLAN_GOLDEN to a folder that has them"


@dataclass(frozen=True)
class GoldenCase:
    """``namespace`` is the unpacked storage namespace, modification times kept; ``case`` is case.json."""

    name: str
    namespace: Path
    case: dict[str, object]


def find_golden_root() -> Path | None:
    root = Path(os.environ.get("LAKEPLAN_GOLDEN") or Path(__file__).parents[2] / "shared" / "golden")
    return root if root.is_dir() else None


def golden_names(prefix: str = "") -> list[str]:
    """Names of the cases at hand that begin with ``prefix``, sorted."""
    root = find_golden_root()
    if root is None:
        return []
    return sorted(p.parent.name for p in root.glob(f"{prefix}*/case.json"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``golden`` runs once per case (``@pytest.mark.golden("wide-")``: of that kind only);
    without cases there is one skipped run of it."""
    if "golden" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("golden")
        names = golden_names(*(mark.args if mark else ()))
        params = names or [pytest.param("", marks=pytest.mark.skip(reason=_REASON))]
        metafunc.parametrize("golden", params, indirect=True)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs keep what they read in a folder of the test session, not in the user's cache directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """A shell starts its background jobs with Ctrl-C ignored; here it is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def golden_root() -> Path:
    root = find_golden_root()
    if root is None:
        pytest.skip(_REASON)
    return root


@pytest.fixture(scope="session")
def golden_case(golden_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GoldenCase]:
    """``golden_case(name)``: the case, unpacked once a session. Read only: other tests share it."""

    @functools.cache
    def unpack(name: str) -> GoldenCase:
        source = golden_root / name
        if not source.is_dir():
            pytest.skip(f"the golden case {name} is not here")
        target = tmp_path_factory.mktemp(name)
        with tarfile.open(source / "namespace.tar.gz") as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(target, filter="data")
            else:
                archive.extractall(target)
        return GoldenCase(name, target, json.loads((source / "case.json").read_text()))

    return unpack


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest, golden_case: Callable[[str], GoldenCase]) -> GoldenCase:
    return golden_case(request.param)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkOptions]:
    """One Spark session for all tests of a process: while it is open, every run uses it."""
    from lakeplan.simulation.session import SparkOptions, open_session

    options = SparkOptions(conf={"spark.sql.shuffle.partitions": "2"})
    with open_session(options, estimated_bytes=0):
        yield options


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def runners(request: pytest.FixtureRequest) -> Runners:
    """Either runner: no test of a simulation may see a difference."""
    from lakeplan.simulation.runners import Runners

    if request.param == "spark":
        request.getfixturevalue("spark")
    return Runners(asked=request.param)

"""Runs steps in Spark: checks the installation and its Java, and opens a session with the fewest settings."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lakeplan.errors import SimulationFailed
from lakeplan.simulation.archive import is_folder, write_code
from lakeplan.simulation.documents import RunnerVersions
from lakeplan.simulation.local import Packet, PacketKind, packets_in, to_batch
from lakeplan.simulation.runners import SPARK, Leaves, Runners, Step
from lakeplan.values.local import SAFE_PATH, find_program, safe_environment, set_environment, show_pandas

_JAVA = {3: (8, 17), 4: (17, None)}
"""By Spark's major version: the first and the last Java that it runs on."""
_CORE = re.compile(r"spark-core_[\d.]+-(\d+\.\d+).*\.jar")


def is_submitted() -> bool:
    """Whether spark-submit started this process and the JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def spark_of_pyspark() -> Path:
    """The folder of the Spark that contains, or is part of, the imported pyspark."""
    package = Path(pyspark.__file__).parent
    candidates = [package / "spark-distribution", package, package.parent.parent]
    if package.parent.suffix == ".zip":  # python/lib/pyspark.zip
        candidates.append(package.parents[3])
    home = next((folder for folder in candidates if _is_spark(folder)), None)
    if home is None:
        raise SimulationFailed(
            "pyspark is installed without Spark",
            hint=f"Set --spark-home to the folder of Spark {_minor(pyspark.__version__)}.",
        )
    return home


def checked_home(home: str) -> Path:
    """Spark's folder. Raises SimulationFailed if its version is not that of pyspark."""
    folder = Path(home)
    if not _is_spark(folder):
        raise SimulationFailed(
            "the folder in --spark-home does not contain bin/spark-submit",
            where=home,
            hint="Set --spark-home to the folder of a Spark installation.",
        )
    wanted = _minor(pyspark.__version__)
    version = next((m[1] for jar in folder.glob("jars/*") if (m := _CORE.fullmatch(jar.name))), None)
    if version != wanted:
        what = "not a Spark installation" if version is None else f"Spark {version}"
        raise SimulationFailed(
            f"--spark-home is {what}, but pyspark is {pyspark.__version__}",
            where=home,
            hint=f"Install pyspark {version}, or remove --spark-home."
            if version
            else "Set --spark-home to the folder of a Spark installation.",
        )
    return folder


def require_java() -> None:
    """Raises SimulationFailed if there is no Java."""
    if is_submitted() or _java() is not None:
        return
    home = os.environ.get("JAVA_HOME")
    where = (
        f"JAVA_HOME is {home}, but that folder does not contain bin/java"
        if home
        else "there is no java command on the PATH"
    )
    raise SimulationFailed(f"Java is missing: {where}", hint=_hint())


def wrong_java() -> SimulationFailed | None:
    """The error for a Java that is too old or too new for Spark, else None."""
    version = _java_version()
    first, last = _known_java()
    if version is None or (first <= version and (last is None or version <= last)):
        return None
    age = "old" if version < first else "new"
    return SimulationFailed(f"Java {version} is too {age} for Spark", hint=_hint())


def _hint() -> str:
    first, last = _known_java()
    range_ = f"Java {first} or later" if last is None else f"Java {first} to {last}"
    return (
        f"Use --runner local, which does not need Java. Spark {_minor(pyspark.__version__)} needs {range_}."
        " On"
        " Debian or Ubuntu, run apt-get install openjdk-17-jre-headless. Elsewhere, install a JDK and set"
        " JAVA_HOME."
    )


def _known_java() -> tuple[int, int | None]:
    major = int(pyspark.__version__.partition(".")[0])
    return _JAVA.get(major, _JAVA[max(_JAVA)])


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _is_spark(folder: Path) -> bool:
    return (folder / "bin" / "spark-submit").is_file()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which(os.path.join(home, "bin", "java"))
    return find_program("java", os.environ)


def _java_version() -> int | None:
    """Major version of the Java that Spark would use, or None if unknown."""
    java = _java()
    if java is None:
        return None
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    return parse_java_version(answer.stderr + answer.stdout)


def parse_java_version(text: str) -> int | None:
    """17 for ``openjdk version "17.0.15"``, 8 for ``java version "1.8.0_402"``."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


_log = logging.getLogger(__name__)


@contextmanager
def open_session(runners: Runners) -> Iterator[SparkSession]:
    """A session with the user's settings. An active one is used and left running. Raises SimulationFailed if
    Java is missing or too old, or Spark does not start."""
    show_pandas()
    active = SparkSession.getActiveSession()
    if active is not None:
        active.sparkContext.environment[SAFE_PATH] = "1"
        yield active
        return
    session = _start(runners)
    try:
        with _code_given(session):
            yield session
    finally:
        _stop(session)


@contextmanager
def explained() -> Iterator[None]:
    """Translates Spark's errors into a one-line SimulationFailed. ``--log-level debug`` logs the rest."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise SimulationFailed(
            f"the Spark job failed: {_first_line(error)}",
            hint="Run with --log-level debug to see Spark's output. To change how Spark runs, use"
            " --spark-conf and --master.",
            detail=str(error),
        ) from error


def _first_line(error: Exception) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:300]


@contextmanager
def _code_given(session: SparkSession) -> Iterator[None]:
    """Sends this lakeplan to executors on other machines, whatever is installed there."""
    if is_local(session) or not is_folder():
        # If lakeplan runs from an archive, spark-submit --py-files has sent it to them.
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "lakeplan.zip"
        write_code(archive)
        session.sparkContext.addPyFile(str(archive))  # executors fetch it from there, while the job runs
        yield


def _stop(session: SparkSession) -> None:
    try:
        session.stop()
    except (PySparkException, Py4JError, OSError) as error:
        # The JVM is gone. The error that stopped it is being raised, and this one would hide it.
        _log.debug("Spark did not stop cleanly: %s", error)


def is_local(session: SparkSession) -> bool:
    """Whether its workers see the folders of this machine."""
    return (session.sparkContext.master or "").startswith("local")


def _settings(runners: Runners) -> dict[str, str]:
    settings = {
        "spark.app.name": "lakeplan",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        # `python -m pyspark.daemon` would import from its current folder.
        f"spark.executorEnv.{SAFE_PATH}": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        # Larger functions are broadcast in plain temporary files, and ours carry credentials.
        "spark.broadcast.UDFCompressionThreshold": str(2**31 - 1),
    }
    if runners.is_local and not is_submitted():
        settings |= {
            "spark.master": runners.master or "local[*]",
            "spark.driver.memory": "2g",
            # Nothing outside this machine may connect to a local job.
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
        settings["spark.driver.extraJavaOptions"] = _java_options()
    elif runners.master:
        settings["spark.master"] = runners.master
    return settings | dict(runners.conf)


def archive_path() -> Path:
    """Return where ``lakeplan.simulation.warm`` puts Java's archive of Spark's classes: in the
    installation."""
    return Path(sys.prefix) / "share" / "lakeplan" / "spark.jsa"


def _java_options() -> str:
    # The JVM only passes on what Python workers made, so its second compiler does not pay.
    chosen = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    archive = archive_path()
    if archive.is_file():
        # Java ignores an archive that another Java or other jars made.
        chosen.append(f'"-XX:SharedArchiveFile={archive}"')
    return " ".join(chosen)


def _start(runners: Runners) -> SparkSession:
    is_own = runners.is_local and not is_submitted()
    conf = SparkConf(loadDefaults=False) if is_own else SparkConf()
    for key, value in _settings(runners).items():
        conf.set(key, value)
    with tempfile.TemporaryFile() as noise:
        try:
            context = _context(conf, noise, runners.spark_home)
        except (PySparkException, Py4JError, OSError) as error:
            raise _not_started(error, noise) from error
    if is_own:
        # Workers must be this interpreter, whatever PYSPARK_PYTHON or the PATH say.
        context.pythonExec = sys.executable
    return SparkSession(context)


def _context(conf: SparkConf, noise: IO[bytes], home: str | None) -> SparkContext:
    gateway = SparkContext._gateway
    if gateway is None:
        require_java()
        # Spark and its workers write to standard error. It is shown only on failure or at debug.
        loud = _log.isEnabledFor(logging.DEBUG)
        with _spark_environment(home), _logged() if loud else nullcontext(noise) as errors:
            streams = {"stdout": errors if loud else subprocess.DEVNULL, "stderr": errors}
            gateway = launch_gateway(conf, {**streams, "cwd": _own_folder()})  # type: ignore[no-untyped-call]
    return SparkContext(gateway=gateway, conf=conf)


@contextmanager
def _logged() -> Iterator[int]:
    """A pipe for a program that outlives the block. Each of its lines is cleaned and logged."""
    reader, writer = os.pipe()

    def follow() -> None:
        with open(reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                _log.debug("%s", line.rstrip())

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield writer
    finally:
        os.close(writer)


@contextmanager
def _spark_environment(home: str | None) -> Iterator[None]:
    """Sets the environment in which Java and its Python workers start. pyspark itself would look for Spark in
    ``..`` first, or use SPARK_HOME, which may be another version."""
    before = dict(os.environ)
    safe = safe_environment(before)
    foreign = before.get("SPARK_HOME", "")
    if is_submitted() and foreign:
        # spark-submit set it, with its own pyspark from an archive.
        home = foreign
    else:
        home = str(spark_of_pyspark() if home is None else checked_home(home))
    safe["SPARK_HOME"] = home
    if foreign not in ("", safe["SPARK_HOME"]):
        _log.info("SPARK_HOME=%s is ignored; to use that folder, pass it with --spark-home", foreign)
    try:
        set_environment(safe)
        yield
    finally:
        set_environment(before)


@cache
def _own_folder() -> str:
    """A temporary folder in which Java and its workers run, for as long as this process lives."""
    folder = tempfile.mkdtemp(prefix="lakeplan-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _not_started(error: Exception, noise: IO[bytes]) -> SimulationFailed:
    wrong = wrong_java()
    if wrong is not None:
        return wrong
    noise.seek(0)
    output = noise.read().decode(errors="replace")[-4000:]
    return SimulationFailed(
        f"Spark did not start: {_first_line(error)}",
        hint="Check --master and --spark-conf. Run with --log-level debug to see Spark's output.",
        detail=f"{error}\n{output}",
    )


def check_spark(runners: Runners) -> str:
    """Starts a session and sends a row through a worker. Returns what ran. Raises SimulationFailed."""
    with open_session(runners) as session, explained():
        rows = session.range(1).mapInArrow(_unchanged, "id long").count()
        if rows != 1:
            raise SimulationFailed(f"a Spark worker returned {rows} rows instead of 1")
        return f"Spark {pyspark.__version__}, master {session.sparkContext.master}, a Python worker responds"


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


SCHEMA = "place int, source int, part int, of int, data binary"
"""``exchange.PACKETS`` for Spark; a test compares the two."""
_WORD = 0xFFFFFFFF


class SparkRunner:
    """A ``Runner`` in a Spark session."""

    name = SPARK

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def parallelism(self) -> int:
        return self._session.sparkContext.defaultParallelism

    @property
    def versions(self) -> RunnerVersions:
        jvm = self._session.sparkContext._jvm
        java = str(jvm.java.lang.System.getProperty("java.version")) if jvm is not None else ""
        return {"pyspark": pyspark.__version__, "java": java}

    def run(self, bins: Sequence[bytes], steps: Sequence[Step], leaves: Leaves) -> Iterator[Packet]:
        """Implements ``Runner``. Raises SimulationFailed if Spark stops."""
        # Broadcasts are plain temporary files. Steps carry credentials, so they travel as functions over a
        # socket.
        given = self._session.sparkContext.broadcast((tuple(bins), leaves))

        def first(batches):  # type: ignore[no-untyped-def]  # PySpark reads annotations of Arrow functions
            numbers = (number for batch in batches for number in batch.column("id").to_pylist())
            packets = (Packet(0, 0, 0, PacketKind.BIN, given.value[0][number]) for number in numbers)
            return map(to_batch, steps[0].run(packets, given.value[1]))

        def then(step: Step):  # type: ignore[no-untyped-def]
            def run(batches):  # type: ignore[no-untyped-def]
                return map(to_batch, step.run(packets_in(batches), given.value[1]))

            return run

        with explained():
            frame = self._session.range(0, len(bins), 1, len(bins)).mapInArrow(first, SCHEMA)
            for step in steps[1:]:
                placed = frame.mapInArrow(_placing(places(step.places)), SCHEMA)
                frame = placed.repartition(step.places, "place").mapInArrow(then(step), SCHEMA)
            frame = frame.persist()
            try:
                frame.count()
                for row in frame.toLocalIterator(prefetchPartitions=True):
                    yield Packet(row.place, row.source, row.part, row.of, bytes(row.data))
            finally:
                frame.unpersist()
                given.unpersist()


def _placing(numbers: Sequence[int]):  # type: ignore[no-untyped-def]
    """Sets ``place`` to the number that Spark's ``repartition`` puts into a separate partition."""

    def run(batches):  # type: ignore[no-untyped-def]
        for packet in packets_in(batches):
            yield to_batch(packet._replace(place=numbers[packet.place]))

    return run


def places(partitions: int) -> tuple[int, ...]:
    """For each partition, a number that Spark's ``repartition`` puts into it alone."""
    number_of: dict[int, int] = {}
    number = 0
    while len(number_of) < partitions:
        number_of.setdefault(spark_hash(number) % partitions, number)
        number += 1
    return tuple(number_of.values())


def spark_hash(number: int) -> int:
    """The result of Spark SQL's ``hash`` for one int: Murmur3, 32 bits, seed 42, signed. A different hash
    would only make partitions uneven."""
    mixed = _rotated(number * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    value = (_rotated(42 ^ mixed, 13) * 5 + 0xE6546B64 & _WORD) ^ 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _WORD

"""The Spark and the Java that a session starts with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark

from lakeplan.core.processes import find_program
from lakeplan.errors import SimulationFailed

_JAVA = {3: (8, 17), 4: (17, None)}
"""By Spark's major version: the first and the last Java that it runs on."""
_CORE = re.compile(r"spark-core_[\d.]+-(\d+\.\d+).*\.jar")


def is_submitted() -> bool:
    """Started by spark-submit, which has made the JVM already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def spark_of_pyspark() -> Path:
    """The Spark of the pyspark that is imported here: with it, or that it is a part of."""
    package = Path(pyspark.__file__).parent
    candidates = [package / "spark-distribution", package, package.parent.parent]
    if package.parent.suffix == ".zip":  # python/lib/pyspark.zip
        candidates.append(package.parents[3])
    found = next((folder for folder in candidates if _is_spark(folder)), None)
    if found is None:
        raise SimulationFailed(
            "pyspark has no Spark beside it",
            hint=f"Name the folder of Spark {_minor(pyspark.__version__)} with --spark-home.",
        )
    return found


def checked_home(home: str) -> Path:
    """Spark's folder, if it can serve this pyspark. Raises SimulationFailed."""
    folder = Path(home)
    if not _is_spark(folder):
        raise SimulationFailed(
            "--spark-home has no bin/spark-submit", where=home, hint="Name Spark's folder."
        )
    wanted = _minor(pyspark.__version__)
    found = next((m[1] for jar in folder.glob("jars/*") if (m := _CORE.fullmatch(jar.name))), None)
    if found != wanted:
        what = "no Spark" if found is None else f"Spark {found}"
        raise SimulationFailed(
            f"--spark-home is {what}, and pyspark is {pyspark.__version__}",
            where=home,
            hint=f"Install pyspark {found}, or leave --spark-home out." if found else "Name Spark's folder.",
        )
    return folder


def require_java() -> None:
    """Raises SimulationFailed without one."""
    if is_submitted() or _java() is not None:
        return
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on the PATH"
    raise SimulationFailed(f"Java is missing: {where}", hint=_hint())


def wrong_java() -> SimulationFailed | None:
    """What is wrong with a Java that Spark did not start with, if it is its age."""
    version = _java_version()
    first, last = _known_java()
    if version is None or (first <= version and (last is None or version <= last)):
        return None
    age = "old" if version < first else "new"
    return SimulationFailed(f"Java is too {age}: this is Java {version}", hint=_hint())


def _hint() -> str:
    first, last = _known_java()
    range_ = f"Java {first} or later" if last is None else f"Java {first} to {last}"
    return (
        f"Use --runner local, which needs no Java; Spark {_minor(pyspark.__version__)} needs {range_}: on "
        "Debian or Ubuntu, apt-get install openjdk-17-jre-headless; elsewhere any JDK, with JAVA_HOME set."
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
    """Major version of the Java that Spark would use; None when it does not say."""
    java = _java()
    if java is None:
        return None
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    return parse_java_version(answer.stderr + answer.stdout)


def parse_java_version(text: str) -> int | None:
    """17 for ``openjdk version "17.0.15"``, 8 for ``java version "1.8.0_402"``."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None

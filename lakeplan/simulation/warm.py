"""Makes sessions start faster with an archive of the classes that Spark loads (class data sharing).

    python -P -m lakeplan.simulation.warm

runs one small simulation, after which Java writes the classes that it loaded into an archive (about 160 MB,
beside the installation). Sessions then start in about half the time. The archive is optional.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from subprocess import TimeoutExpired

from pyspark import SparkContext

from lakeplan.errors import LakeplanError, SimulationFailed
from lakeplan.formats.namespace import REFS_MANIFEST_KEY, metadata_key
from lakeplan.formats.ranges import write_metarange, write_range
from lakeplan.formats.refs import write_manifest, write_refs_dump
from lakeplan.simulation.documents import SimulateRequest
from lakeplan.simulation.run import simulate
from lakeplan.simulation.runners import SPARK, Runners
from lakeplan.simulation.spark import archive_path
from lakeplan.simulation.verdicts import RULES, RuleSet
from lakeplan.values.progress import Silent
from lakeplan.values.repository import AddressType, Branch, Commit, Entry, Refs, StoredObject
from lakeplan.values.rules import GcRules

EXIT_SECONDS = 300
"""How long Java may take to write the archive when it ends."""
_DAY_US = 86_400_000_000


class MemoryNamespace:
    """A namespace of three commits, one of them expired: enough to load all classes of a simulation."""

    url = "memory://warm"

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        commits: list[Commit] = []
        for n in range(3):
            entry = Entry(f"a/{n}", f"data/p/{n}", AddressType.RELATIVE, 1)
            info, data = write_range([entry])
            metarange, table = write_metarange([info])
            self._files |= {metadata_key(info.id): data, metadata_key(metarange): table}
            parents = (commits[-1].id,) if commits else ()
            commits.append(Commit(f"{n:064x}", n * _DAY_US, metarange, parents))
        ids, files = write_refs_dump(Refs(tuple(commits), (Branch("main", commits[-1].id),), ()))
        self._files |= {metadata_key(id): data for id, data in files.items()}
        self._files[REFS_MANIFEST_KEY] = write_manifest(ids)

    def read(self, key: str) -> bytes:
        return self._files[key]

    def list_objects(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredObject]:
        stored = [StoredObject(f"data/p/{n}", 1, 0) for n in range(3)]
        return (each for each in stored if prefix and recursive and each.key.startswith(prefix))

    def list_prefixes(self, prefix: str = "") -> list[str]:
        return ["data/p/"]


def write_archive(target: Path) -> None:
    """Writes or replaces the archive. Raises SimulationFailed if Java or Spark does not start, or Java writes
    no archive."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        draft = Path(folder) / "spark.jsa"
        java = f'-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "-XX:ArchiveClassesAtExit={draft}"'
        request = SimulateRequest(
            (RuleSet(RULES, GcRules(1)),),
            datetime.fromtimestamp(100 * 86_400, timezone.utc),
            output=Path(folder) / "out",
        )
        runners = Runners(SPARK, None, (("spark.driver.extraJavaOptions", java),))
        simulate(request, MemoryNamespace(), runners, Silent())
        _end_java()
        if not draft.is_file():
            raise SimulationFailed(
                "Java did not write the class archive",
                hint="Spark works without it, but sessions start more slowly.",
            )
        draft.replace(target)


def _end_java() -> None:
    """Ends Java by closing its standard input, so that it writes the archive."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(EXIT_SECONDS)
    except TimeoutExpired as error:
        gateway.proc.kill()
        raise SimulationFailed(
            "Java did not exit within the time limit", hint="Try again when the machine is less busy."
        ) from error


def main() -> int:
    try:
        write_archive(archive_path())
    except (LakeplanError, OSError) as error:
        sys.stderr.write(f"Spark sessions will not start faster: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    # Workers must find the namespace's class by its module's name, which is not __main__ there.

    sys.exit(main())

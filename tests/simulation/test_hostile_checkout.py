"""lakeplan in a checkout full of Python files that a stranger wrote: none of them runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from lakeplan.cli.main import main
from lakeplan.errors import ExitCode, UsageError
from lakeplan.simulation.archive import write_archive
from lakeplan.values.local import safe_environment
from tests.simulation.namespaces import NOW, History, Snapshot, Stored, entry, write_namespace

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__path__[0])
BIN = Path(sys.executable).parent
SHADOWED = (
    "traceback",
    "sitecustomize",
    "usercustomize",
    "numpy",
    "shutil",
    "pyspark",
    "pip",
    "yaml",
    "lakeplan",
)
"""Modules of Python, of its start, of Spark's workers, and of lakeplan."""
PROGRAMS = ("bin/spark-submit", "bin/spark-class", "java", "bash", "ps", "python3", "git")
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A tree's folder with such files beside it and above it; each leaves a mark when it runs."""
    tree = tmp_path / "checkout" / "deploy"
    ran = tmp_path / "ran"
    for folder in (tree, tree.parent):
        folder.mkdir(parents=True, exist_ok=True)
        for name in SHADOWED:
            module = folder / name / "__init__.py" if name in ("pyspark", "pip") else folder / f"{name}.py"
            module.parent.mkdir(exist_ok=True)
            module.write_text(f"open({str(ran)!r}, 'a').write({str(module)!r} + chr(10))\n")
            (module.parent / "__main__.py").write_text(module.read_text())
        for name in PROGRAMS:
            program = folder / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\necho {program} >> {ran}\nexit 1\n")
            program.chmod(0o755)
        # pyspark takes a folder above the current one with these for Spark itself.
        (folder / "jars").mkdir()
    return tree


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    commits = [
        Snapshot("c0", 30, (), (entry("a/1", "data/1", 10),)),
        Snapshot("c1", 1, ("c0",), (entry("a/2", "data/2", 10),)),
    ]
    history = History(commits, {"main": "c1"}, {"data/1": Stored(), "data/2": Stored()}, staged=[])
    rules = tmp_path / "rules.json"
    rules.write_text('{"default_retention_days": 9}')
    url = write_namespace(tmp_path / "ns", history)
    return ["simulate", "--namespace", url, "--rules", str(rules), "--as-of", NOW.isoformat()]


def run_in(folder: Path, command: list[str], **more: str) -> str:
    """Runs a command from the hostile folder, and from nowhere else is anything imported."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    environ |= {"PWD": str(folder), "SPARK_LOCAL_IP": "127.0.0.1", "PATH": f".:{os.environ['PATH']}", **more}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600, check=False
    )
    ran = folder.parents[1] / "ran"
    assert not ran.exists(), ran.read_text()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.spark
@pytest.mark.extended
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,512]"])
def it_imports_nothing_from_the_current_folder(
    hostile: Path, arguments: list[str], tmp_path: Path, master: str
) -> None:
    output = tmp_path / "out"
    conf = [
        *("--spark-conf", "spark.executor.memory=512m"),
        *("--spark-conf", f"spark.executor.extraJavaOptions={LIGHT}"),
    ]
    run_in(hostile, [str(BIN / "lakeplan"), *arguments, "--master", master, *conf, "--output", str(output)])
    assert list((output / "objects").glob("*.parquet"))


@pytest.mark.spark
@pytest.mark.extended
def it_imports_nothing_from_the_current_folder_under_spark_submit(
    hostile: Path, arguments: list[str], tmp_path: Path
) -> None:
    """The same for the workers of a session that spark-submit made."""
    archive, output = tmp_path / "lakeplan.zip", tmp_path / "out"
    write_archive(archive, schemas=ROOT / "schemas")
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[2]", "--py-files", str(archive)]
    command += [str(ROOT / "spark" / "simulate.py"), *arguments[1:], "--output", str(output)]
    surroundings = {"PATH": os.environ["PATH"], "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(SPARK)}
    run_in(hostile, command, **surroundings)
    assert list((output / "objects").glob("*.parquet"))


def it_forgets_the_current_folder_of_a_module_search_path(tmp_path: Path) -> None:
    """``PYTHONPATH=$PYTHONPATH:/opt/lib`` often begins with an empty entry, which is the current folder."""
    for name in ("typer", "click", "yaml", "requests"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current folder')\n")
    program = "import sys; from lakeplan.__main__ import main; sys.argv = ['lakeplan', '--version']; main()"
    environ = {**os.environ, "PYTHONPATH": f":{ROOT}"}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:9]) == (0, "lakeplan "), done.stderr


@pytest.mark.parametrize("name", ["SPARK_HOME", "JAVA_HOME", "AWS_CONFIG_FILE", "REQUESTS_CA_BUNDLE", "HOME"])
def it_refuses_relative_settings(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "here")
    monkeypatch.setattr(sys, "argv", ["lakeplan", "--version"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == ExitCode.USAGE
    assert name in capsys.readouterr().err


def it_gives_programs_no_relative_paths_to_search() -> None:
    safe = safe_environment({"PATH": f".:/usr/bin::bin:{os.sep}bin", "PYTHONPATH": ":lib", "OTHER": "x"})
    assert safe == {"PATH": "/usr/bin:/bin", "OTHER": "x", "PYTHONSAFEPATH": "1"}
    for name in ("LD_LIBRARY_PATH", "CLASSPATH", "AWS_DATA_PATH"):
        assert (
            safe_environment({name: "/opt/lib:"})[name] == "/opt/lib"
        )  # an empty entry is the current folder
    with pytest.raises(UsageError, match="PYSPARK_PYTHON"):
        safe_environment({"PYSPARK_PYTHON": "venv/bin/python"})
    assert safe_environment({"PYSPARK_PYTHON": "python3"})["PYSPARK_PYTHON"] == "python3"


def _python_steps(path: Path) -> list[str]:
    """Every use of Python in a workflow, as a line."""
    return [line.strip() for line in path.read_text().splitlines() if re.search(r"\bpython3? -", line)] + [
        line.strip() for line in path.read_text().splitlines() if re.search(r"\bpython3? [^-:]", line)
    ]


@pytest.mark.parametrize(
    "file",
    [
        *sorted((ROOT / "examples").rglob("*.yml")),
        ROOT / "examples/branches/github-actions.yaml",
    ],
    ids=lambda path: path.name,
)
def it_starts_python_in_no_workflow_with_modules_of_the_checkout(file: Path) -> None:
    lines = _python_steps(file)
    assert all(re.search(r"\bpython3? (-P -m|-I) ", line) for line in lines), lines
    assert not lines or 'PYTHONSAFEPATH: "1"' in file.read_text()

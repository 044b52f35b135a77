"""Options that several commands share, declared once (the design's "Common")."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from lakeplan.cli import completing, redaction
from lakeplan.errors import UsageError
from lakeplan.simulation.runners import Runners

TreeDir = Annotated[
    Path, typer.Option("-C", "--tree", help="The folder that holds lakeplan.yaml.", metavar="DIR")
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="Only repositories that match; repeatable.",
        metavar="REPO_GLOB",
        autocompletion=completing.targets,
    ),
]
Owner = Annotated[
    str | None, typer.Option("--owner", help="Only repositories of this owner.", metavar="OWNER")
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="Only repositories on this server.",
        metavar="NAME",
        autocompletion=completing.servers,
    ),
]
Formats = list[str] | None
Outs = Annotated[
    list[Path] | None,
    typer.Option("--out", help="Where that format goes; a dash is standard output.", metavar="FILE"),
]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", help="The moment to judge at: ISO 8601 or epoch seconds.", metavar="TIME"),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours.")]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="No progress bars.")]
LogLevel = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.", metavar="LEVEL")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only results and errors.")]
RedactPaths = Annotated[
    bool,
    typer.Option(
        "--redact-paths",
        help="Short digests instead of object paths, prefixes and storage URLs.",
        callback=redaction.remember,
    ),
]
LakectlConfig = Annotated[
    Path | None,
    typer.Option(
        "--lakectl-config", help="lakectl's file, for credentials of a tree with one server.", metavar="FILE"
    ),
]
Runner = Annotated[
    str | None,
    typer.Option(
        "--runner",
        help="auto, local or spark: threads of this process, or Spark. Default: the tree's, else auto.",
        metavar="RUNNER",
    ),
]
Master = Annotated[
    str | None, typer.Option("--master", help="Spark master; local[*] by default.", metavar="URL")
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", help="A Spark setting, KEY=VALUE; repeatable.", metavar="K=V"),
]
SparkHome = Annotated[
    str | None,
    typer.Option(
        "--spark-home",
        help="Spark's folder, for a Spark of pyspark's version that pip did not install. SPARK_HOME alone is "
        "ignored.",
        metavar="FOLDER",
    ),
]
ConnectTimeout = Annotated[
    float,
    typer.Option(
        "--connect-timeout", help="Seconds to connect to a server or a store.", min=0.1, metavar="SECONDS"
    ),
]
ReadTimeout = Annotated[
    float,
    typer.Option(
        "--read-timeout",
        help="Seconds to wait for an answer of a server or a store.",
        min=0.1,
        metavar="SECONDS",
    ),
]


def formats(names: Sequence[str]) -> OptionInfo:
    """``--format`` of a command that has these, the first when none is asked for."""
    option: OptionInfo = typer.Option(
        "--format",
        help=f"{', '.join(names)}; repeatable, in pairs with --out.",
        metavar="FORMAT",
        autocompletion=lambda: list(names),
    )
    return option


def runners(
    runner: str | None, master: str | None, spark_conf: Sequence[str] | None, home: str | None
) -> Runners:
    """Raises UsageError."""
    return Runners(runner, master, tuple(parse_spark_conf(spark_conf).items()), spark_home(home))


def spark_home(folder: str | None) -> str | None:
    """Raises UsageError for a relative path: a checkout is written by strangers, and Spark is a program."""
    if folder is not None and not os.path.isabs(folder):
        raise UsageError(f"--spark-home {folder!r} is a relative path", hint="Name the whole path.")
    return folder


def parse_spark_conf(settings: Sequence[str] | None) -> dict[str, str]:
    """``KEY=VALUE`` pairs. Raises UsageError."""
    found = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"--spark-conf {setting!r} is not KEY=VALUE", hint="--spark-conf spark.executor.memory=4g"
            )
        found[key.strip()] = value
    return found

"""What a program that lakeplan starts may get from its surroundings: nothing is found by the current folder.

A checkout is written by strangers, and commands run inside it. A relative entry of ``PATH`` or
``PYTHONPATH``, or a relative ``SPARK_HOME``, would make its files run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from lakeplan.errors import UsageError

SAFE_PATH = "PYTHONSAFEPATH"
"""Python 3.11 and later then leave the current folder and a script's folder out of ``sys.path``."""
_FOLDERS = (
    *("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"),
    *("PYTHONHOME", "PYTHONUSERBASE", "PYTHONSTARTUP", "PYTHONPYCACHEPREFIX"),
    *("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "BOTO_CONFIG"),
    *("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC"),
    *("AZURE_CONFIG_DIR", "AZURE_FEDERATED_TOKEN_FILE", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"),
)
"""Programs and libraries run, read or trust what is there."""
_SEARCHED = ("PATH", "PYTHONPATH", "CLASSPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "AWS_DATA_PATH")
"""Search paths: code is loaded from each folder, or, by botocore, what says where credentials are sent."""
_PROGRAMS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""A name is found by ``PATH``; a relative path is not allowed."""


def absolute_entries(paths: str) -> str:
    """A search path without its empty and relative entries, which mean the current folder."""
    return os.pathsep.join(entry for entry in paths.split(os.pathsep) if os.path.isabs(entry))


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """The absolute path of a program that ``PATH`` names. A name with a slash is a path, and stays one."""
    found = shutil.which(name, path=absolute_entries(environ.get("PATH", os.defpath)))
    return os.path.abspath(found) if found is not None else None


def safe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a program: its Python imports nothing from the current folder. Raises UsageError
    for a variable that names a file or folder by a relative path."""
    wrong = relative_settings(environ)
    if wrong:
        raise UsageError(
            f"relative paths would take files of the current folder: {', '.join(wrong)}",
            hint="Set these variables to absolute paths, or unset them.",
        )
    safe = {**environ, SAFE_PATH: "1"}
    for name in _SEARCHED:
        entries = absolute_entries(safe.pop(name, ""))
        if entries:
            safe[name] = entries
    return safe


def set_environment(environ: Mapping[str, str]) -> None:
    """Makes ``environ`` the environment of this process."""
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)


def relative_settings(environ: Mapping[str, str]) -> list[str]:
    """Variables of ``environ`` that name a file or folder by a relative path."""
    folders = [name for name in _FOLDERS if environ.get(name) and not os.path.isabs(environ[name])]
    programs = [n for n in _PROGRAMS if os.sep in environ.get(n, "") and not os.path.isabs(environ[n])]
    return folders + programs

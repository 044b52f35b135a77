"""What lakectl is set up with: its environment variables and its file, in lakectl's order (api.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from lakeplan.adapters.lakefs.secret import Secret
from lakeplan.errors import CredentialsError
from lakeplan.limits import KIB, read_file

ENDPOINT = "LAKECTL_SERVER_ENDPOINT_URL"
ACCESS_KEY_ID = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"
SECRET_ACCESS_KEY = "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
CONFIG_FILE = "LAKECTL_CONFIG_FILE"


@dataclass(frozen=True)
class LakectlSettings:
    """Each value may be absent. ``source`` names where they came from, for messages."""

    endpoint_url: str | None = None
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    source: str = ""


def read_lakectl(
    environ: Mapping[str, str], *, config: Path | None = None, home: Path | None = None
) -> LakectlSettings:
    """The file (``config``, else ``LAKECTL_CONFIG_FILE``, else ``.lakectl.yaml`` in ``home``), with each
    value overridden by its environment variable.

    Raises CredentialsError for a file that was named and is not there, and for one that cannot be read;
    the message holds nothing of what the file says.
    """
    named = config or (Path(environ[CONFIG_FILE]) if environ.get(CONFIG_FILE) else None)
    path = named or (home / ".lakectl.yaml" if home is not None else None)
    values: dict[str, str] = {}
    sources: list[str] = []
    text = None if path is None else _read_file(path, required=named is not None)
    if path is not None and text is not None:
        values = _parse(text, path)
        sources.append(str(path) if named is not None else "~/.lakectl.yaml")
    for name, variable in (
        ("endpoint_url", ENDPOINT),
        ("access_key_id", ACCESS_KEY_ID),
        ("secret_access_key", SECRET_ACCESS_KEY),
    ):
        if value := environ.get(variable):
            values[name] = value
            sources.append(variable)
    return LakectlSettings(
        endpoint_url=values.get("endpoint_url"),
        access_key_id=_secret(values.get("access_key_id")),
        secret_access_key=_secret(values.get("secret_access_key")),
        source=", ".join(sources),
    )


def _secret(text: str | None) -> Secret | None:
    return Secret(text) if text else None


def _read_file(path: Path, *, required: bool) -> str | None:
    try:
        return read_file(path, KIB * 64).decode()
    except FileNotFoundError:
        if not required:
            return None
        raise CredentialsError("lakectl's configuration file is not there", where=str(path)) from None
    except (OSError, ValueError) as error:
        raise CredentialsError(
            f"lakectl's configuration file cannot be read ({type(error).__name__})", where=str(path)
        ) from None


def _parse(text: str, path: Path) -> dict[str, str]:
    try:
        data: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        # No cause and no detail: the parser quotes the line, which may hold the secret.
        raise CredentialsError("lakectl's configuration file is not YAML", where=str(path)) from None
    if data is None:
        return {}
    top = _mapping(data, path, "the file")
    server = _mapping(top.get("server"), path, "server")
    keys = _mapping(top.get("credentials"), path, "credentials")
    found = {
        "endpoint_url": _text(server.get("endpoint_url"), path, "server.endpoint_url"),
        "access_key_id": _text(keys.get("access_key_id"), path, "credentials.access_key_id"),
        "secret_access_key": _text(keys.get("secret_access_key"), path, "credentials.secret_access_key"),
    }
    return {name: value for name, value in found.items() if value}


def _mapping(value: object, path: Path, what: str) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CredentialsError(f"{what} is not a map", where=str(path), hint="see lakectl config")
    # lakectl takes keys in any case.
    return {str(key).lower(): item for key, item in value.items()}


def _text(value: object, path: Path, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CredentialsError(f"{what} is not a text", where=str(path), hint="put it in quotes")
    return value

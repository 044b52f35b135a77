"""Addresses and credentials of lakeFS servers, from variables or lakectl's file, each for one endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from lakeplan.errors import CredentialsError
from lakeplan.limits import KIB
from lakeplan.values.desired import ServerConfig, server_variable
from lakeplan.values.local import read_file
from lakeplan.values.urls import (
    BUCKET_SCHEMES,
    BadUrl,
    parse_bucket_url,
    parse_folder_url,
    parse_web_url,
    scheme_of,
    shown_url,
)

API_PATH = "/api/v1"


def normalise_endpoint(url: str, *, what: str = "") -> str:
    """Return ``scheme://host[:port][/path]``: lower-case host, no default port, no ``/api/v1``, no final
    slash.

    Two URLs with the same result are the same server. Raises CredentialsError for anything but an http(s)
    URL, and for a URL with a user, a password, a query or a fragment, whose text is not repeated. ``what``
    names the owner of the URL in messages ("server prod").
    """
    try:
        parsed = parse_web_url(url.strip())
    except BadUrl as error:
        raise CredentialsError(
            f"the endpoint URL cannot be used: {error}",
            where=what,
            hint="Use a URL such as https://lakefs.example.com",
        ) from None
    return parsed.url.removesuffix(API_PATH)


class Secret:
    """A text whose ``repr`` and ``str`` are ``***``.

    A pickle has the text: a metadata reader takes its credentials to local Spark workers. Such a pickle is
    only in the memory and the job files of one Spark application. Nothing else may pickle a secret.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for the one place that sends it."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))


@dataclass(frozen=True)
class Credentials:
    """An access key of a lakeFS server. ``source`` says where it is from (names of variables or a file)."""

    access_key_id: Secret
    secret_access_key: Secret
    source: str = ""


ENDPOINT = "LAKECTL_SERVER_ENDPOINT_URL"
ACCESS_KEY_ID = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"
SECRET_ACCESS_KEY = "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
CONFIG_FILE = "LAKECTL_CONFIG_FILE"


@dataclass(frozen=True)
class LakectlSettings:
    """The settings of lakectl, each of which may be absent. ``source`` says where they are from, for
    messages."""

    endpoint_url: str | None = None
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    source: str = ""


def read_lakectl(environ: Mapping[str, str], config: Path | None = None) -> LakectlSettings:
    """Return lakectl's settings from its file (``config``, else ``LAKECTL_CONFIG_FILE``, else
    ``.lakectl.yaml`` in ``HOME``) and its environment variables, which win.

    Raises CredentialsError for a named file that does not exist, and for one that cannot be read. The message
    has nothing from the file.
    """
    named = config or (Path(environ[CONFIG_FILE]) if environ.get(CONFIG_FILE) else None)
    path = named or (Path(environ["HOME"], ".lakectl.yaml") if environ.get("HOME") else None)
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
        raise CredentialsError("lakectl's configuration file does not exist", where=str(path)) from None
    except (OSError, ValueError) as error:
        raise CredentialsError(
            f"lakectl's configuration file cannot be read ({type(error).__name__})", where=str(path)
        ) from None


def _parse(text: str, path: Path) -> dict[str, str]:
    try:
        data: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        # No cause and no detail: the parser quotes the line, which may hold the secret.
        raise CredentialsError("lakectl's configuration file is not valid YAML", where=str(path)) from None
    if data is None:
        return {}
    top = _mapping(data, path, "the file")
    server = _mapping(top.get("server"), path, "server")
    keys = _mapping(top.get("credentials"), path, "credentials")
    settings = {
        "endpoint_url": _text(server.get("endpoint_url"), path, "server.endpoint_url"),
        "access_key_id": _text(keys.get("access_key_id"), path, "credentials.access_key_id"),
        "secret_access_key": _text(keys.get("secret_access_key"), path, "credentials.secret_access_key"),
    }
    return {name: value for name, value in settings.items() if value}


def _mapping(value: object, path: Path, what: str) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CredentialsError(
            f"{what} is not a map", where=str(path), hint="Run `lakectl config` to write the file again."
        )
    # lakectl reads keys in any case.
    return {str(key).lower(): item for key, item in value.items()}


def _text(value: object, path: Path, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CredentialsError(f"{what} is not a string", where=str(path), hint="Put it in quotes.")
    return value


Approve = Callable[[str, str], bool]
"""Asks a person whether credentials may be sent to an address that only the tree names. The arguments are the
owner of the address and the normalised address."""

STATE_URL = "LAKEPLAN_STATE_URL"
SUFFIXES = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")


def find_credentials(
    server: ServerConfig,
    environ: Mapping[str, str],
    *,
    approve: Approve | None,
    lakectl: LakectlSettings | None,
) -> Credentials:
    """Return the credentials of one server, after a check that they are for the address in the tree.

    They are from ``LAKEPLAN_<SERVER>_ACCESS_KEY_ID`` and ``_SECRET_ACCESS_KEY``, or lakectl's. ``lakectl`` is
    None unless the tree has a single server. Raises CredentialsError if there are none or only one of the
    two, and if the binding fails (``check_binding``). Nothing has been sent then.
    """
    where = f"server {server.name}"
    key_name, secret_name = (server_variable(server.name, suffix) for suffix in SUFFIXES)
    own_key, own_secret = environ.get(key_name), environ.get(secret_name)
    endpoint_name = server_variable(server.name, "ENDPOINT_URL")
    bindings = {endpoint_name: environ.get(endpoint_name)}
    if own_key or own_secret:
        if not (own_key and own_secret):
            missing = secret_name if own_key else key_name
            raise CredentialsError(
                f"{missing} is not set", where=where, hint="Set both variables, or neither."
            )
        credentials = Credentials(Secret(own_key), Secret(own_secret), f"{key_name}, {secret_name}")
    elif lakectl is not None and (lakectl.access_key_id or lakectl.secret_access_key):
        if not (lakectl.access_key_id and lakectl.secret_access_key):
            missing = "secret_access_key" if lakectl.access_key_id else "access_key_id"
            raise CredentialsError(
                f"lakectl's configuration has no {missing}",
                where=where,
                hint=f"Set LAKECTL_CREDENTIALS_{missing.upper()}, or correct {lakectl.source}.",
            )
        credentials = Credentials(lakectl.access_key_id, lakectl.secret_access_key, lakectl.source)
        bindings[f"lakectl's endpoint_url ({lakectl.source})"] = lakectl.endpoint_url
    else:
        raise CredentialsError(
            "no credentials are set for this server", where=where, hint=_how(server.name, lakectl is not None)
        )
    _check_text(credentials, where)
    _check_endpoint(server, bindings, endpoint_name, approve)
    return credentials


def check_binding(
    what: str,
    url: str | None,
    bound: str | None,
    *,
    variable: str,
    approve: Approve | None,
    with_folders: bool = False,
) -> None:
    """Raise CredentialsError if credentials would go to an address that only the tree names, which a pull
    request can change.

    ``url`` is the tree's. ``bound`` is the value of ``variable``, which may have several addresses, one of
    which must be that of the tree. If it is not set, ``approve`` asks a person; without a terminal
    ``approve`` is None and ``bound`` is required. A tree without an address (None) needs no binding. A
    folder, to which no credentials are sent, needs one only with ``with_folders``, because it is written to.
    ``what`` names the owner of the address in messages ("state", "storage of server prod").
    """
    if url is None or (url.startswith(("/", "file://", "local://")) and not with_folders):
        return
    if not bound:
        if approve is not None:
            if approve(what, normalise_url(url, what=what)):
                return
            raise CredentialsError(
                "the address was not approved, so nothing was sent",
                where=what,
                hint="Check the address. If it is correct, run the command again and answer `yes`, or set"
                f" {variable} to this address where you set the credentials.",
            )
        raise CredentialsError(
            "the address was not confirmed, and there is no terminal to ask for confirmation; nothing was"
            " sent",
            where=what,
            hint=f"If this address is correct, set {variable} to {shown_url(url)} in the environment that"
            " provides the credentials.",
        )
    normal = normalise_url(url, what=what)
    if normal not in (normalise_url(one, what=variable) for one in several(bound)):
        raise CredentialsError(
            f"the address in the tree is {shown_url(url)}, but {variable} is {shown_url(bound)}; nothing"
            " was sent",
            where=what,
            hint="Correct the address in the tree or in the variable.",
        )


def several(bound: str) -> list[str]:
    """Return the addresses in a variable, which white space or commas separate."""
    return bound.replace(",", " ").split()


def normalise_url(url: str, *, what: str = "") -> str:
    """Return the normalised form of a URL: http(s) as by ``normalise_endpoint``, others with the scheme in
    lower case and no final slash. Raises CredentialsError for a URL that two programs could read
    differently."""
    text = url.strip()
    scheme = scheme_of(text)
    if scheme in ("http", "https"):
        return normalise_endpoint(text, what=what)
    try:
        if scheme in BUCKET_SCHEMES:
            parsed = parse_bucket_url(text, BUCKET_SCHEMES)
            return f"{parsed.scheme}://{parsed.bucket}/{parsed.prefix}".rstrip("/")
        return parse_folder_url(text)
    except BadUrl as error:
        raise CredentialsError(f"the URL cannot be used: {error}", where=what) from None


def _check_endpoint(
    server: ServerConfig, bindings: Mapping[str, str | None], endpoint_name: str, approve: Approve | None
) -> None:
    """Check every binding that is set: both lakectl's endpoint and the variable may be."""
    given: dict[str, str | None] = {name: value for name, value in bindings.items() if value}
    for name, value in (given or {endpoint_name: None}).items():
        check_binding(f"server {server.name}", server.endpoint_url, value, variable=name, approve=approve)


def _check_text(credentials: Credentials, where: str) -> None:
    for secret in (credentials.access_key_id, credentials.secret_access_key):
        text = secret.reveal()
        if text != text.strip() or not text.isprintable():
            raise CredentialsError(
                "the credentials contain whitespace or control characters",
                where=where,
                hint=(
                    f"Check {credentials.source}. A line break may have been copied along with the"
                    " credentials."
                ),
            )


def _how(server: str, only_server: bool) -> str:
    key_id, secret = server_variable(server, "ACCESS_KEY_ID"), server_variable(server, "SECRET_ACCESS_KEY")
    lakectl = (
        ", or configure lakectl."
        if only_server
        else ". The credentials of lakectl are used only if the tree has a single server."
    )
    return f"Set {key_id} and {secret}{lakectl}"

"""Credentials of lakeFS servers: where they are found, and to which address they may go.

The order and the binding are the design's ("Credentials"). Pure functions over an environment mapping: who
calls brings the environment, what lakectl has, and whether somebody sits at a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from lakeplan.adapters.lakefs.endpoint import normalise_endpoint
from lakeplan.adapters.lakefs.lakectl import LakectlSettings
from lakeplan.adapters.lakefs.secret import Credentials, Secret
from lakeplan.errors import CredentialsError
from lakeplan.model.desired import ServerConfig
from lakeplan.model.urls import BadUrl, parse_bucket_url, parse_folder_url, scheme_of, shown_url

Approve = Callable[[str, str], bool]
"""Asks a person whether credentials may be sent to an address that only the tree names: what it is of, and
the address in its one form. Without a terminal there is none."""

STATE_URL = "LAKEPLAN_STATE_URL"
SUFFIXES = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "ENDPOINT_URL", "STORAGE_URL")
BUCKETS = frozenset({"s3", "gs"})
RESERVED_PREFIX = "LAKEPLAN_VAR"
"""``${VAR}`` in server settings reads ``LAKEPLAN_VAR_*`` (the design)."""


def variable(server: str, suffix: str) -> str:
    """``LAKEPLAN_<SERVER>_<SUFFIX>``: the server's name in capitals, ``-`` as ``_``."""
    return f"LAKEPLAN_{server.upper().replace('-', '_')}_{suffix}"


def storage_variable(server: str) -> str:
    """The variable that a server's storage is bound by."""
    return variable(server, "STORAGE_URL")


def check_server_names(names: Iterable[str], options: Iterable[str] = ()) -> None:
    """Raises CredentialsError when two servers would read the same variables, or when a server's variable is
    an option's (``options``: the ``LAKEPLAN_…`` names that set options) or one of ``LAKEPLAN_VAR_*``."""
    taken: dict[str, str] = {}
    reserved = {STATE_URL, *options}
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise CredentialsError(
                "a server's name must do for a variable: letters, digits, - and _", where=f"server {name}"
            )
        for suffix in SUFFIXES:
            own = variable(name, suffix)
            if own in taken:
                raise CredentialsError(
                    f"servers {taken[own]} and {name} would share the variable {own}",
                    where=f"server {name}",
                    hint="rename one of them",
                )
            if own in reserved or own.startswith(RESERVED_PREFIX + "_"):
                raise CredentialsError(
                    f"its variable {own} has another meaning",
                    where=f"server {name}",
                    hint="rename the server",
                )
            taken[own] = name


def find_credentials(
    server: ServerConfig,
    environ: Mapping[str, str],
    *,
    approve: Approve | None,
    only_server: bool,
    lakectl: LakectlSettings | None = None,
) -> Credentials:
    """The credentials of one server, checked to be meant for the address that the tree names.

    First ``LAKEPLAN_<SERVER>_ACCESS_KEY_ID`` and ``_SECRET_ACCESS_KEY``; then, when ``only_server`` (the tree
    has one server), what lakectl has. Raises CredentialsError when there are none, when half of them is
    there, and when the binding fails (``check_binding``); nothing has been sent then.
    """
    where = f"server {server.name}"
    key_name, secret_name = (variable(server.name, suffix) for suffix in SUFFIXES[:2])
    own_key, own_secret = environ.get(key_name), environ.get(secret_name)
    endpoint_name = variable(server.name, "ENDPOINT_URL")
    bindings = {endpoint_name: environ.get(endpoint_name)}
    if own_key or own_secret:
        if not (own_key and own_secret):
            missing = secret_name if own_key else key_name
            raise CredentialsError(f"{missing} is not set", where=where, hint="set both, or none")
        found = Credentials(Secret(own_key), Secret(own_secret), f"{key_name}, {secret_name}")
    elif only_server and lakectl is not None and (lakectl.access_key_id or lakectl.secret_access_key):
        if not (lakectl.access_key_id and lakectl.secret_access_key):
            raise CredentialsError(
                "lakectl has half of the credentials", where=where, hint=f"look at {lakectl.source}"
            )
        found = Credentials(lakectl.access_key_id, lakectl.secret_access_key, lakectl.source)
        bindings[f"lakectl's endpoint_url ({lakectl.source})"] = lakectl.endpoint_url
    else:
        raise CredentialsError("no credentials for it", where=where, hint=_how(server.name, only_server))
    _check_text(found, where)
    _check_endpoint(server, bindings, endpoint_name, approve)
    return found


def check_binding(
    what: str,
    url: str | None,
    bound: str | None,
    *,
    variable: str,
    approve: Approve | None,
    with_folders: bool = False,
) -> None:
    """Refuses to send credentials to an address that only the tree names (a pull request can change it).

    ``url`` is the tree's, ``bound`` the value of ``variable``, which may name several places: one of them
    must be that one. Where ``bound`` is not set a person is asked (``approve``); without a
    terminal that is None, and ``bound`` is required. Nothing needs a binding when the tree names no
    address (None), or a folder, where no credentials go; ``with_folders``: a folder needs one too, because it
    is written to. ``what`` begins the messages ("state", "storage of server prod").
    """
    if url is None or (url.startswith(("/", "file://", "local://")) and not with_folders):
        return
    if not bound:
        if approve is not None:
            if approve(what, normalise_url(url, what=what)):
                return
            raise CredentialsError(
                "the address was not approved: nothing was sent",
                where=what,
                hint=f"answer yes, or set {variable} where the credentials are set",
            )
        raise CredentialsError(
            "without a terminal its address has to be bound: nothing was sent",
            where=what,
            hint=f"set {variable} to {shown_url(url)} where the credentials are set",
        )
    own = normalise_url(url, what=what)
    if own not in (normalise_url(one, what=variable) for one in several(bound)):
        raise CredentialsError(
            f"the tree says {shown_url(url)}, {variable} says {shown_url(bound)}: nothing was sent",
            where=what,
            hint="change the tree, or the variable where the credentials are set",
        )


def several(bound: str) -> list[str]:
    """The addresses in a variable; white space or commas separate them."""
    return bound.replace(",", " ").split()


def normalise_url(url: str, *, what: str = "") -> str:
    """One form of a URL: http(s) as endpoints are compared; others with the scheme in lower case and no slash
    at the end. Raises CredentialsError for a URL that two programs could read differently."""
    text = url.strip()
    scheme = scheme_of(text)
    if scheme in ("http", "https"):
        return normalise_endpoint(text, what=what)
    try:
        if scheme in BUCKETS:
            found = parse_bucket_url(text, BUCKETS)
            return f"{found.scheme}://{found.bucket}/{found.prefix}".rstrip("/")
        return parse_folder_url(text)
    except BadUrl as error:
        raise CredentialsError(f"the URL cannot be used: {error}", where=what) from None


def _check_endpoint(
    server: ServerConfig, bindings: Mapping[str, str | None], endpoint_name: str, approve: Approve | None
) -> None:
    """Every binding that is there must agree: lakectl's endpoint and the variable can both be set."""
    given = {name: value for name, value in bindings.items() if value}
    if not given:
        check_binding(
            f"server {server.name}",
            server.endpoint_url,
            None,
            variable=endpoint_name,
            approve=approve,
        )
    for name, value in given.items():
        check_binding(f"server {server.name}", server.endpoint_url, value, variable=name, approve=approve)


def _check_text(found: Credentials, where: str) -> None:
    for secret in (found.access_key_id, found.secret_access_key):
        text = secret.reveal()
        if text != text.strip() or not text.isprintable():
            raise CredentialsError(
                "the credentials hold white space or control characters",
                where=where,
                hint=f"look at {found.source}: often a line end that was copied along",
            )


def _how(server: str, only_server: bool) -> str:
    own = f"set {variable(server, 'ACCESS_KEY_ID')} and {variable(server, 'SECRET_ACCESS_KEY')}"
    return own + (", or set lakectl up" if only_server else "; with several servers lakectl's are not used")

"""``lakeplan sandbox``: an embedded lakeFS for trying lakeplan, and histories to fill it with."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, get_args

from lakeplan.cli.console import say, stderr, stdout
from lakeplan.cli.options import AsOf, CommandGroup, argument, command, one_of, option
from lakeplan.cli.process import now_utc, parse_time, stopping
from lakeplan.errors import UsageError
from lakeplan.lakefs.credentials import ACCESS_KEY_ID, ENDPOINT, SECRET_ACCESS_KEY
from lakeplan.sandbox.seed import SeedClient, run_seed
from lakeplan.sandbox.seed_document import HELP, read_seed
from lakeplan.sandbox.server import start_sandbox
from lakeplan.sandbox.service import Flavor, Options
from lakeplan.values.units import count_of

SANDBOX = "LAKEPLAN_SANDBOX"
"""The variables of a server named sandbox begin with it."""
DEFAULT_PORT = 8000
DEFAULT_ENDPOINT = f"http://127.0.0.1:{DEFAULT_PORT}"
_DEFAULTS = Options()


SEED_HELP = f"""Create repositories with a history from a YAML file.

\b
Examples:
  lakeplan sandbox seed history.yaml
  lakeplan sandbox seed history.yaml --as-of 2026-03-31 --skip-existing

\b
{HELP}"""


@command("Start a local stand-in for lakeFS.", without="redact_paths no_color no_progress quiet")
def up(
    *,
    dir: Annotated[
        Path | None,
        option("Folder for repositories. Default: a temporary folder, which is deleted at the end.", "D"),
    ] = None,
    port: Annotated[
        int, option("Port to listen on, or 0 for any free port.", "PORT", min=0, max=65535)
    ] = DEFAULT_PORT,
    flavor: Annotated[str, option("lakeFS edition: oss or enterprise.", "FLAVOR")] = _DEFAULTS.flavor,
    access_key: Annotated[str, option("Access key to accept.", "KEY")] = _DEFAULTS.access_key_id,
    secret_key: Annotated[
        str, option("Secret key to accept.", "SECRET", show_default=False)
    ] = _DEFAULTS.secret_access_key,
) -> None:
    """Start a local stand-in for lakeFS on 127.0.0.1. It runs until you press Ctrl-C.

    \b
    Examples:
      lakeplan sandbox up --dir ./sandbox
      lakeplan sandbox up --port 0 --flavor enterprise
    """
    if not access_key or ":" in access_key or not secret_key:
        raise UsageError(
            "the access key or its secret is empty, or the access key contains a colon",
            hint="Remove --access-key and --secret-key to use the defaults.",
        )
    options = Options(
        flavor=one_of("flavor", flavor, get_args(Flavor)),
        access_key_id=access_key,
        secret_access_key=secret_key,
    )
    with ExitStack() as stack:
        # Ctrl-C is the normal way to end a server in a terminal, so it is not an error.
        stop = stack.enter_context(stopping(signal.SIGTERM, signal.SIGINT))
        folder = dir if dir is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        handle = stack.enter_context(start_sandbox(folder, port=port, options=options))
        kept = (
            f"are in {dir}"
            if dir is not None
            else ("are deleted when the sandbox stops (use --dir to keep them)")
        )
        say(stdout(), f"lakeFS sandbox at {handle.endpoint_url}")
        say(stderr(), f"The access key is {access_key}. Repositories {kept}. Press Ctrl-C to stop.")
        # A program that waits for this line must get it even if stdout is a pipe.
        sys.stdout.flush()
        stop.wait()


@command("Create repositories from a YAML file.", help=SEED_HELP, without="redact_paths no_color no_progress")
def seed(
    *,
    file: Annotated[Path, argument("YAML file to read, or - for standard input.", "FILE")],
    endpoint: Annotated[
        str | None,
        option(
            "URL of a lakeFS server, either a sandbox or a real one. Default:"
            f" LAKEPLAN_SANDBOX_ENDPOINT_URL, then {DEFAULT_ENDPOINT}.",
            "URL",
        ),
    ] = None,
    access_key: Annotated[
        str | None,
        option(
            "Access key. Default: LAKEPLAN_SANDBOX_ACCESS_KEY_ID, then lakectl's key for this endpoint,"
            " then the sandbox's key.",
            "KEY",
        ),
    ] = None,
    secret_key: Annotated[
        str | None,
        option(
            "Secret key. Default: LAKEPLAN_SANDBOX_SECRET_ACCESS_KEY, then lakectl's key for this"
            " endpoint, then the sandbox's key.",
            "SECRET",
        ),
    ] = None,
    namespace_prefix: Annotated[
        str, option("Prefix of the storage namespaces. The repository name is added to it.", "URL")
    ] = "local://",
    skip_existing: Annotated[bool, option("Skip repositories that already exist.")] = False,
    as_of: AsOf = None,
    quiet: bool,
) -> None:
    at = seed_target(endpoint, access_key, secret_key, os.environ)
    text, name = _read(file)
    wanted = read_seed(text, name)
    moment = parse_time(as_of) if as_of else now_utc()
    made = run_seed(
        wanted,
        SeedClient(at.endpoint, at.access_key, at.secret_key),
        as_of=int(moment.timestamp()),
        namespace_prefix=namespace_prefix,
        skip_existing=skip_existing,
        report=(lambda _: None) if quiet else lambda line: say(stderr(), line),
    )
    if not quiet:
        say(stdout(), f"created {count_of(len(made), 'repository')} on {at.endpoint}")


@dataclass(frozen=True)
class SeedTarget:
    """The server to seed. Its repr shows no secret."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)


def seed_target(
    endpoint: str | None, access_key: str | None, secret_key: str | None, environ: Mapping[str, str]
) -> SeedTarget:
    """The server and the credentials of ``sandbox seed``. Each comes from the options, else from the
    variables of the server ``sandbox``, else from lakectl for the same endpoint, else from the sandbox's
    defaults.

    A key from the variables is used only for the endpoint of the variables or, if they name none, for that of
    the option. A key other than the sandbox's default is used only for an endpoint that an option or a
    variable names. Raises UsageError.
    """
    url = environ.get(f"{SANDBOX}_ENDPOINT_URL") or None
    chosen = endpoint or url or DEFAULT_ENDPOINT
    bound = url or endpoint
    if bound is not None and _is_same(chosen, bound):
        access_key = access_key or environ.get(f"{SANDBOX}_ACCESS_KEY_ID")
        secret_key = secret_key or environ.get(f"{SANDBOX}_SECRET_ACCESS_KEY")
    if not (access_key or secret_key) and (endpoint or url) and _is_same(chosen, environ.get(ENDPOINT, "")):
        access_key, secret_key = environ.get(ACCESS_KEY_ID), environ.get(SECRET_ACCESS_KEY)
    target = SeedTarget(
        chosen, access_key or _DEFAULTS.access_key_id, secret_key or _DEFAULTS.secret_access_key
    )
    is_public = (
        target.access_key == _DEFAULTS.access_key_id and target.secret_key == _DEFAULTS.secret_access_key
    )
    if not (endpoint or url or is_public):
        raise UsageError(
            f"no endpoint was specified, so the access key was not sent to {DEFAULT_ENDPOINT}",
            hint="Specify the server with --endpoint URL or LAKEPLAN_SANDBOX_ENDPOINT_URL.",
        )
    return target


def _is_same(one: str, other: str) -> bool:
    """Whether two addresses belong to the same server. lakectl's may end with the path of the API."""
    first, second = (url.rstrip("/").removesuffix("/api/v1").rstrip("/") for url in (one, other))
    return first == second


def _read(file: Path) -> tuple[str, str]:
    """(text, name) of the seed file."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the seed file: {error.strerror}",
            where=str(file),
            hint="Specify a YAML file. `lakeplan sandbox seed --help` shows an example.",
        ) from error
    try:
        return data.decode(), str(file)
    except UnicodeDecodeError as error:
        raise UsageError(
            "the seed file is not UTF-8", where=str(file), hint="Save it as UTF-8 text."
        ) from error


sandbox = CommandGroup({"up": up, "seed": seed})

"""Asks before the first use of an address at a terminal, and remembers the answer outside the tree.

A tree may come from somebody else, in a pull request for example. An address that they changed would get the
credentials of everybody who runs a command on the tree. So a person approves each address once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import typer

from lakeplan.cli.console import say, stderr
from lakeplan.cli.progress import TerminalProgress
from lakeplan.errors import LakeplanError
from lakeplan.lakefs.credentials import Approve
from lakeplan.limits import MIB, parse_json
from lakeplan.stores.open import FolderLocation, parse_location
from lakeplan.values.local import OutsideFolder, inside, new_file, read_file
from lakeplan.values.own_files import user_folder
from lakeplan.values.progress import Progress

FILE = Path("lakeplan") / "addresses.json"
_log = logging.getLogger(__name__)


def address_question(tree: Path, environ: Mapping[str, str], progress: Progress) -> Approve | None:
    """A function that asks at the terminal, once for each address of a tree, or None without a terminal."""
    if not sys.stdin.isatty():
        return None
    return AddressQuestion(tree.resolve(), KnownAddresses(_place(environ, tree.resolve())), progress)


def typed_addresses(tree: Path, environ: Mapping[str, str]) -> Approve:
    """A function that approves and saves every address, for a command at a terminal whose options name the
    addresses of ``tree``."""
    known = KnownAddresses(_place(environ, tree.resolve()))

    def approve(what: str, url: str) -> bool:
        known.remember(tree.resolve(), what, url)
        return True

    return approve


def _place(environ: Mapping[str, str], tree: Path) -> Path | None:
    """The file with the addresses that the user approved, or None if no place outside the tree can hold
    it."""
    base = user_folder(environ, "CONFIG")
    if base is None:
        return None
    place = Path(os.path.realpath(base)) / FILE
    return None if tree in place.parents else place


def is_state_inside(url: str, tree: Path) -> bool:
    """Whether a state URL names a folder in the tree. Raises LakeplanError if a link leads out of it."""
    location = parse_location(url) if url.startswith("file:") else None
    if not isinstance(location, FolderLocation):
        return False
    top = os.path.abspath(tree)
    folder = os.path.normpath(location.path)
    if not folder.startswith((f"{top}{os.sep}", f"{os.path.realpath(tree)}{os.sep}")):
        return False
    try:
        inside(tree, folder)
    except OutsideFolder as error:
        raise LakeplanError(
            f"the state folder {error}",
            where=url,
            hint="Replace the link with a folder, or set state.url to the folder that it points to.",
        ) from None
    return True


@dataclass(frozen=True)
class KnownAddresses:
    """Approved addresses, by tree and by purpose. A file that other users may write, or that is damaged,
    counts as empty."""

    place: Path | None

    def last(self, tree: Path, what: str) -> str | None:
        address = self._read().get(str(tree), {}).get(what)
        return address if isinstance(address, str) else None

    def remember(self, tree: Path, what: str, url: str) -> None:
        """Adds an address. If the file cannot be written, lakeplan asks again next time."""
        if self.place is None:
            return
        known = self._read()
        known.setdefault(str(tree), {})[what] = url
        try:
            os.makedirs(self.place.parent, mode=0o700, exist_ok=True)
            with new_file(self.place) as file:
                file.write(json.dumps(known, indent=2, sort_keys=True).encode())
                file.flush()
                os.replace(file.name, self.place)
        except OSError as error:
            _log.warning(
                "%s: cannot be written (%s), so the approval was not saved", self.place, error.strerror
            )

    def _read(self) -> dict[str, dict[str, object]]:
        if self.place is None:
            return {}
        try:
            status = os.lstat(self.place)
            if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return {}
            document = parse_json(read_file(self.place, MIB))
        except (OSError, ValueError):
            return {}
        if not isinstance(document, dict):
            return {}
        return {tree: dict(known) for tree, known in document.items() if isinstance(known, dict)}


@dataclass(frozen=True)
class AddressQuestion:
    """Implements ``Approve`` at a terminal. May be asked from several threads. Asks each question once."""

    tree: Path
    known: KnownAddresses
    progress: Progress
    _answers: dict[tuple[str, str], bool] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __call__(self, what: str, url: str) -> bool:
        with self._lock:
            if (what, url) not in self._answers:
                self._answers[what, url] = self._approved(what, url)
            return self._answers[what, url]

    def _approved(self, what: str, url: str) -> bool:
        last = self.known.last(self.tree, what)
        if last == url:
            return True
        bars = (
            self.progress.paused()
            if isinstance(self.progress, TerminalProgress)
            else contextlib.nullcontext()
        )
        with bars:
            before = f"were last sent to {last}" if last else "have not been sent anywhere yet for this tree"
            say(stderr(), f"{what}: the credentials {before}")
            say(stderr(), f"{what}: the tree in {self.tree} specifies {url}")
            question = "Send them there? Only 'yes' is accepted"
            answer = typer.prompt(question, default="", show_default=False, err=True)
        if answer.strip() != "yes":
            return False
        self.known.remember(self.tree, what, url)
        return True

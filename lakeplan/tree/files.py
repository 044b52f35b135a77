"""Reads the files of a tree, and nothing outside it through ``..``, an absolute path or a link."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from lakeplan import limits
from lakeplan.limits import TooLarge
from lakeplan.tree.yaml import Node, NodeCount, NodePath, Problems, parse_yaml
from lakeplan.values.desired import Source
from lakeplan.values.local import OutsideFolder, inside, read_file

ROOT_FILE = "lakeplan.yaml"
_NOT_OURS = frozenset({".git", ".lakeplan"})


class TreeFiles:
    """The files of a tree, by their relative paths with ``/`` between parts. Each file is parsed once.
    ``edited`` has texts, by real path, that are read instead of the files, which need not exist yet."""

    def __init__(self, root: Path, problems: Problems, edited: Mapping[Path, str] | None = None) -> None:
        self.root = root
        self._edited = edited or {}
        self._real_root = Path(os.path.realpath(root))
        self._problems = problems
        self._parsed: dict[str, Node | None] = {}
        self._bytes_read = 0
        self._nodes = NodeCount()
        self._visited = 0
        self.ignores_links = False
        self.digests: dict[str, str] = {}
        """SHA-256 (hex) of every file that was read."""
        self.lost: dict[str, set[NodePath]] = {}
        """Paths, by file, at which the YAML reader found problems, so that values may be missing."""

    def parse(self, file: str, at: Source, path: NodePath) -> Node | None:
        """Return the document of a file. If the file does not exist or is not text, this is a problem at the
        place that names it."""
        if file in self._parsed:
            return self._parsed[file]
        before = len(self._problems)
        text = self._read(file, at, path)
        if text is not None and file.endswith(".json"):
            # JSON may be indented with tabs, but YAML may not. A valid JSON value has no tab.
            text = text.replace("\t", " ")
        node = parse_yaml(text, file, self._problems, tree=self._nodes) if text is not None else None
        self.lost[file] = self._problems.paths_since(before)
        self._parsed[file] = node
        return node

    def mentions(self, file: str, word: str) -> bool:
        """Return whether a word is in a file, or False if the file cannot be read."""
        try:
            return word.encode() in self._bytes(file)
        except (OSError, ValueError):
            return False

    def _bytes(self, file: str) -> bytes:
        """Return the bytes of a file. Raises OSError, and ValueError if its real path is not a file of the
        tree."""
        real = inside(self._real_root, self.root / file)
        if _NOT_OURS.intersection(part.casefold() for part in real.relative_to(self._real_root).parts):
            raise ValueError("it belongs to git or to lakeplan's state")
        text = self._edited.get(real)
        data = read_file(real, limits.TREE_FILE_BYTES) if text is None else text.encode()
        self._bytes_read += len(data)
        if self._bytes_read > limits.TREE_BYTES:
            raise TooLarge(
                "the files of the tree are larger than the limit of"
                f" {limits.size_text(limits.TREE_BYTES)} in total"
            )
        self.digests[file] = hashlib.sha256(data).hexdigest()
        return data

    def _read(self, file: str, at: Source, path: NodePath) -> str | None:
        try:
            data = self._bytes(file)
        except OutsideFolder as error:
            self._problems.add(at, path, f"{file} {error}")
            return None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._problems.add(at, path, f"cannot read {file}: {reason}")
            return None
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = data[: error.start]
            line = before.count(b"\n") + 1
            column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
            self._problems.add(Source(file, line, column), (), "the file is not UTF-8 text")
            return None

    def resolve(self, file: str, reference: str, at: Source, path: NodePath) -> str | None:
        """Return a file that is named relative to another file. Return None and add a problem if it is
        outside the tree."""
        if why := _why_outside(reference, allow_up=True):
            self._problems.add(at, path, why)
            return None
        joined = os.path.normpath(os.path.join(os.path.dirname(file), reference)).replace(os.sep, "/")
        if joined == ".." or joined.startswith("../"):
            self._problems.add(at, path, f"{reference!r} is outside the tree")
            return None
        if not self.is_inside(joined):
            self._problems.add(at, path, f"{reference!r} points outside the tree through a symbolic link")
            return None
        return joined

    def is_inside(self, file: str) -> bool:
        try:
            inside(self._real_root, self.root / file)
        except OutsideFolder:
            return False
        return True

    def expand(self, pattern: str, at: Source, path: NodePath) -> list[str]:
        """Return the files that an include pattern names, sorted, without the root file."""
        if why := _why_outside(pattern, allow_up=False):
            self._problems.add(at, path, why)
            return []
        parts = _folded([p for p in pattern.split("/") if p not in ("", ".")])
        matching: list[str] = []
        try:
            if len(parts) > limits.INCLUDE_PARTS:
                raise TooLarge(f"a pattern may have at most {limits.INCLUDE_PARTS} parts between slashes")
            done = set[tuple[str, int]]()
            files = sorted({*self._matching("", parts, done), *self._new_files(parts)})
        except TooLarge as error:
            self._problems.add(at, path, str(error))
            return []
        except OSError as error:
            folder = os.path.relpath(error.filename, self.root)
            self._problems.add(at, path, f"cannot read the folder {folder}: {error.strerror}")
            return []
        read = {os.path.realpath(self.root / folder) for folder, left in done if left == 1}
        for file in files:
            if not self.is_inside(file):
                self._problems.add(at, path, f"{file} points outside the tree through a symbolic link")
            elif not os.path.isdir(self.root / file):
                matching += [file] if file != ROOT_FILE else []
            elif os.path.islink(self.root / file) and os.path.realpath(self.root / file) not in read:
                self._problems.add(at, path, f"{file} links to a folder, whose files ** does not include")
        if not matching and parts and not any(c in pattern for c in "*?["):
            self._problems.add(at, path, f"the file {pattern} does not exist")
        return matching

    def _new_files(self, parts: list[str]) -> Iterator[str]:
        """Yield the matching files that are only in ``edited``."""
        for real in self._edited:
            file = real.relative_to(self._real_root).as_posix()
            if not os.path.lexists(self.root / file) and _fits(file.split("/"), parts):
                yield file

    def _matching(self, folder: str, parts: list[str], done: set[tuple[str, int]]) -> Iterator[str]:
        """Yield files. ``done`` has the folders that were read and the number of remaining parts of the
        pattern."""
        if not parts or (folder and not self.is_inside(folder)):
            yield folder  # one outside the tree is not read, and becomes a problem
            return
        if (folder, len(parts)) in done:
            return
        done.add((folder, len(parts)))
        head, rest = parts[0], parts[1:]
        if head == "**":
            yield from self._matching(folder, rest, done)
        for entry in self._entries(folder):
            here = f"{folder}/{entry.name}" if folder else entry.name
            if head == "**":
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    yield from self._matching(here, parts, done)
                elif not self.ignores_links and entry.is_dir() and not entry.name.startswith("."):
                    yield here  # the files in a linked folder may have holds
            elif _named(entry.name, head):
                if not rest:
                    yield here
                elif entry.is_dir():
                    yield from self._matching(here, rest, done)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        """Return the entries of a folder, sorted. Raises TooLarge if all patterns together read too many, and
        OSError: the files of a folder that cannot be read may have holds."""
        try:
            with os.scandir(self.root / folder) as entries:
                listed = list(islice(entries, limits.TREE_ENTRIES + 1))
        except (FileNotFoundError, NotADirectoryError):
            return []
        self._visited += len(listed) + 10 * folder.count("/")  # resolving a long path takes longer
        if self._visited > limits.TREE_ENTRIES:
            raise TooLarge(
                f"the patterns in `include` search more than the limit of {limits.TREE_ENTRIES:,} files"
                " and folders"
            )
        return sorted(listed, key=lambda e: e.name)


def _named(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))


def _fits(names: list[str], parts: list[str]) -> bool:
    """Return whether a path, by its names, matches the parts of a pattern."""
    if not parts:
        return not names
    head, *rest = parts
    if head != "**":
        return bool(names) and _named(names[0], head) and _fits(names[1:], rest)
    return _fits(names, rest) or (len(names) > 1 and not names[0].startswith(".") and _fits(names[1:], parts))


def _folded(parts: list[str]) -> list[str]:
    """Return the parts with several ``**`` in a row reduced to one, because each would read all folders
    again."""
    return [part for n, part in enumerate(parts) if part != "**" or parts[n - 1 : n] != ["**"]]


def _why_outside(path: str, *, allow_up: bool) -> str | None:
    if "\0" in path:
        return "a path cannot contain a NUL character"
    if os.path.isabs(path) or path.startswith(("/", "\\", "~")) or ":" in path.split("/")[0]:
        return f"{path!r} is an absolute path; write a path relative to this file, inside the tree"
    if not allow_up and ".." in path.split("/"):
        return f"{path!r} may point outside the tree; .. is not allowed here"
    return None

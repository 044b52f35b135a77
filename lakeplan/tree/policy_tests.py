"""Reads policy tests (``tests/*.yaml`` of a tree), and reports all their problems at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from lakeplan import limits
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.limits import TREE_FILE_BYTES, why_unreadable
from lakeplan.retention.drawing import (
    Drawing,
    DrawnCommit,
    DrawnObject,
    Expected,
    ExpectedDays,
    PolicyTest,
    contents_of,
)
from lakeplan.tree.structure import check_structure
from lakeplan.tree.yaml import ListNode, MapNode, Node, NodePath, Problems, ScalarNode, TreeError, parse_yaml
from lakeplan.values.desired import Source
from lakeplan.values.local import OutsideFolder, read_inside
from lakeplan.values.units import MAX_SECONDS, parse_duration

FOLDER = "tests"
DEFAULT_AS_OF = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
FATES: tuple[Literal["survives", "goes", "at_risk"], ...] = ("survives", "goes", "at_risk")
KINDS: tuple[Literal["commit", "object"], ...] = ("commit", "object")


def find_tests(root: Path, named: Iterable[Path]) -> list[Path]:
    """Return the named files, or else every ``tests/*.yaml`` (and ``.yml``) of the tree, sorted."""
    files = list(named)
    if files:
        return files
    folder = root / FOLDER
    return sorted(p for p in folder.glob("*") if p.suffix in (".yaml", ".yml") and p.is_file())


def read_tests(files: Iterable[Path], root: Path) -> list[PolicyTest]:
    """Return the tests of these files, in order. Raises ConfigError with all problems, and UsageError for a
    file that cannot be read."""
    problems = Problems()
    tests: list[PolicyTest] = []
    budget = _DrawingBudget()
    for file in files:
        node = _parse(file, root, problems)
        if node is not None:
            tests += _tests_of(node, problems, budget)
    if len(problems):
        count = len(set(problems))
        message = f"the policy tests have {count} problem{'' if count == 1 else 's'}"
        raise TreeError(problems, message=message, where=str(root))
    return tests


def _parse(file: Path, root: Path, problems: Problems) -> MapNode | None:
    try:
        # A file in the tree may be a link by a stranger. A file outside the tree is the user's.
        folder = root if root.absolute() in file.absolute().parents else file.parent
        text = read_inside(folder, file, TREE_FILE_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = str(error) if isinstance(error, OutsideFolder) else why_unreadable(error)
        raise UsageError(
            f"cannot read the tests: {reason}", where=str(file), hint="Specify a test file."
        ) from None
    try:
        name = file.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        name = str(file)
    node = parse_yaml(text, name, problems)
    if node is None or check_structure(node, "policy-test", problems) or not isinstance(node, MapNode):
        return None
    return node


class _DrawingBudget:
    """The size of the drawings in the tests of all files."""

    def __init__(self) -> None:
        self._steps = 0

    def add(self, drawing: Drawing, expected: tuple[Expected, ...]) -> bool:
        """Add a drawing, and return whether the total is within the limit."""
        commits = drawing.commits.values()
        paths = {drawn.path for commit in commits for drawn in commit.objects}
        names = len(drawing.branches) + len(drawing.tags)
        self._steps += len(commits) * (1 + names + len(paths) + len(expected))
        return self._steps <= limits.DRAWN_STEPS


def _tests_of(root: MapNode, problems: Problems, budget: _DrawingBudget) -> Iterator[PolicyTest]:
    places: dict[str, Source] = {}
    for n, node in enumerate(_items(root.items.get("tests"))):
        path: NodePath = ("tests", n)
        if not isinstance(node, MapNode):
            continue
        before = len(problems)
        test = _Reader(node, path, problems, budget).read()
        if test.name in places:
            text = f"the name appears twice; the first is on line {places[test.name].line}"
            problems.add(node.source, (*path, "name"), text)
        places.setdefault(test.name, node.source)
        if len(problems) == before:
            yield test


class _Reader:
    """One test."""

    def __init__(self, node: MapNode, path: NodePath, problems: Problems, budget: _DrawingBudget) -> None:
        self._node, self._path, self._problems, self._budget = node, path, problems, budget
        self._before = len(problems)

    def read(self) -> PolicyTest:
        commits = {name: self._commit(name, node) for name, node in _pairs(self._node.items.get("commits"))}
        drawing = Drawing(
            as_of=self._as_of(),
            commits=commits,
            branches=self._refs("branches", commits),
            tags=self._refs("tags", commits),
            staged={
                branch: self._objects(node, ("staged", branch))
                for branch, node in _pairs(self._node.items.get("staged"))
            },
        )
        self._check_names(drawing)
        expected = tuple(self._expected())
        self._check_history(drawing, expected)
        days = tuple(
            ExpectedDays(branch, int(_text(node)), node.source)
            for branch, node in _pairs(self._node.items.get("days"))
        )
        for one in days:
            if one.branch not in drawing.branches:
                self._add(one.source, ("days", one.branch), f"there is no branch {one.branch!r} in this test")
        return PolicyTest(
            name=_text(self._node.items["name"]),
            repository=_text(self._node.items["repository"]),
            drawing=drawing,
            source=self._node.source,
            judge="documented" if _text(self._node.items.get("judge")) == "documented" else "server",
            expected=expected,
            days=days,
        )

    def _commit(self, name: str, node: Node) -> DrawnCommit:
        assert isinstance(node, MapNode)
        age = node.items["age"]
        return DrawnCommit(
            name,
            self._age(_text(age), age.source, ("commits", name, "age")),
            node.source,
            tuple(_text(item) for item in _items(node.items.get("parents"))),
            self._objects(node.items.get("objects"), ("commits", name, "objects")),
            tuple(_text(item) for item in _items(node.items.get("removes"))),
        )

    def _age(self, text: str, at: Source, path: NodePath) -> int:
        if not any(c in "123456789" for c in text):
            return 0
        try:
            return parse_duration(text)
        except ValueError as error:
            self._add(at, path, str(error))
            return MAX_SECONDS

    def _as_of(self) -> datetime:
        node = self._node.items.get("as_of")
        if node is None:
            return DEFAULT_AS_OF
        try:
            moment = datetime.fromisoformat(_text(node).replace("Z", "+00:00"))
        except ValueError:
            self._add(
                node.source, ("as_of",), "this is not a valid time; write it in the form 2026-03-31T12:00:00Z"
            )
            return DEFAULT_AS_OF
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)

    def _refs(self, key: str, commits: dict[str, DrawnCommit]) -> dict[str, str]:
        commit_of = {}
        for name, node in _pairs(self._node.items.get(key)):
            commit_of[name] = _text(node)
            if commit_of[name] not in commits:
                self._add(node.source, (key, name), f"there is no commit {commit_of[name]!r} in this test")
        return commit_of

    def _objects(self, node: Node | None, path: NodePath) -> tuple[DrawnObject, ...]:
        by_path: dict[str, DrawnObject] = {}
        for item in _items(node):
            if isinstance(item, MapNode):
                drawn = DrawnObject(_text(item.items["path"]), item.source, _text(item.items["same_as"]))
            else:
                drawn = DrawnObject(_text(item), item.source)
            if drawn.path in by_path:
                self._add(item.source, path, f"{drawn.path!r} appears twice")
            by_path[drawn.path] = drawn
        return tuple(by_path.values())

    def _expected(self) -> Iterator[Expected]:
        for fate in FATES:
            expected = dict(_pairs(self._node.items.get(fate)))
            for kind in KINDS:
                for item in _items(expected.get(f"{kind}s")):
                    yield Expected(kind, _text(item), fate, item.source)
        if not any(self._node.items.get(key) for key in (*FATES, "days")):
            self._add(self._node.source, (), "this test has no expectations; add survives, goes or days")

    def _check_names(self, drawing: Drawing) -> None:
        for commit in drawing.commits.values():
            for parent in commit.parents:
                if parent not in drawing.commits:
                    text = f"there is no commit {parent!r} in this test"
                    self._add(commit.source, ("commits", commit.name, "parents"), text)
        for branch in drawing.staged:
            if branch not in drawing.branches:
                self._add(
                    self._node.where("staged"),
                    ("staged", branch),
                    f"there is no branch {branch!r} in this test",
                )
        for name in sorted(set(drawing.branches) & set(drawing.tags)):
            self._add(
                self._node.where("tags"), ("tags", name), f"the tag {name!r} has the same name as a branch"
            )
        for name in sorted((set(drawing.branches) | set(drawing.tags)) & set(drawing.commits)):
            self._add(
                self._node.where("commits"),
                ("commits", name),
                f"the commit {name!r} has the same name as a branch or tag",
            )

    def _check_history(self, drawing: Drawing, expected: tuple[Expected, ...]) -> None:
        """Check everything that requires a drawing without problems."""
        if len(self._problems) > self._before:
            return
        if not self._budget.add(drawing, expected):
            text = "the tests are too large; draw fewer commits, branches, tags or objects"
            self._add(self._node.source, (), text)
            return
        try:
            graph = drawing.graph()
        except LakeplanError as error:
            self._add(self._node.source, (), error.message)
            return
        contents = contents_of(drawing, graph)
        for source, text in contents.unknown:
            self._add(source, (), text)
        for one in expected:
            if one.kind == "commit" and drawing.commit_of(one.ref) is None:
                text = f"there is no commit, branch or tag {one.ref!r} in this test"
                self._add(one.source, (one.fate, "commits"), text)
            if one.kind == "object" and not contents.versions(drawing, one.ref):
                text = f"{one.ref!r} does not match any object in this test; write PATH@REF, or only PATH"
                self._add(one.source, (one.fate, "objects"), text)

    def _add(self, at: Source, path: NodePath, text: str) -> None:
        self._problems.add(at, (*self._path, *path), text)


def _items(node: Node | None) -> list[Node]:
    return list(node.items) if isinstance(node, ListNode) else []


def _pairs(node: Node | None) -> list[tuple[str, Node]]:
    return list(node.items.items()) if isinstance(node, MapNode) else []


def _text(node: Node | None) -> str:
    if not isinstance(node, ScalarNode):
        return ""
    return node.value if isinstance(node.value, str) else node.text

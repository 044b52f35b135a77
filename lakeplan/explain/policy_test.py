"""``lakeplan test``: reads policy tests (``tests/*.yaml`` of a tree) and reports all their problems at once,
runs them on drawn histories, and makes their document (``schemas/test.v1.json``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, TypedDict
from zoneinfo import ZoneInfo

from lakeplan import limits
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.limits import TREE_FILE_BYTES
from lakeplan.retention import drawing as drawn
from lakeplan.retention.drawing import Drawing, DrawnCommit, DrawnObject, contents_of
from lakeplan.retention.keep import reaching
from lakeplan.retention.patterns import expand
from lakeplan.retention.rules import NEVER_EXPIRES, NEVER_KEPT, documented_verdict
from lakeplan.tree.structure import check_structure
from lakeplan.tree.tree import DesiredTree
from lakeplan.tree.yaml import ListNode, MapNode, Node, NodePath, Problems, ScalarNode, TreeError, parse_yaml
from lakeplan.values.desired import NAME_HINT, Cleared, DesiredRepository, Source
from lakeplan.values.local import OutsideFolder, read_inside, why_unreadable
from lakeplan.values.rules import GcRules, RulesBody
from lakeplan.values.units import MAX_SECONDS, parse_duration


@dataclass(frozen=True)
class Expected:
    """One expectation of a drawing. ``ref``: a commit, branch or tag when ``kind`` is commit; ``path`` or
    ``path@REF`` for an object."""

    kind: Literal["commit", "object"]
    ref: str
    fate: drawn.Fate
    source: Source


@dataclass(frozen=True)
class ExpectedDays:
    branch: str
    days: int
    source: Source


@dataclass(frozen=True)
class PolicyTest:
    """A test of a drawn history. With ``judge`` ``documented``, what is at risk counts as surviving."""

    name: str
    repository: str
    drawing: Drawing
    source: Source
    judge: Literal["server", "documented"] = "server"
    expected: tuple[Expected, ...] = ()
    days: tuple[ExpectedDays, ...] = ()


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
            text = "the tests are too large; use fewer commits, branches, tags or objects"
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


class GraphRow(TypedDict):
    """One commit of the drawn graph. ``expected``: what the test expects, if ``found`` differs."""

    lanes: str
    commit: str
    age_seconds: int
    branches: list[str]
    tags: list[str]
    merges: list[str]
    found: drawn.Fate
    expected: drawn.Fate | None
    why: str


class FailureRow(TypedDict):
    """A failed expectation. ``kind`` ``rules``: the rules could not be resolved."""

    kind: Literal["commit", "object", "days", "rules"]
    message: str
    why: str
    ref: str | None
    expected: drawn.Fate | None
    found: drawn.Fate | None
    line: int | None
    column: int | None


class ResultRow(TypedDict):
    """The result of one test. ``entry`` None: its repository could not be resolved."""

    name: str
    file: str
    line: int
    column: int
    repository: str
    entry: str | None
    as_of: str
    judge: Literal["server", "documented"]
    rules: RulesBody | None
    passed: bool
    checks: int
    failures: list[FailureRow]
    graph: list[GraphRow]


class PolicyTestDocument(TypedDict):
    """The document of ``schemas/test.v1.json``."""

    format: Literal["lakeplan.test/v1"]
    tests: list[ResultRow]
    passed: int
    failed: int


def result_document(
    test: PolicyTest,
    repository: DesiredRepository | None,
    rules: GcRules | None,
    rows: Sequence[GraphRow],
    failures: Sequence[FailureRow],
) -> ResultRow:
    """The result of one test. ``repository`` None: it could not be resolved."""
    return {
        "name": test.name,
        "file": test.source.file,
        "line": test.source.line,
        "column": test.source.column,
        "repository": test.repository if repository is None else repository.key,
        "entry": None if repository is None else repository.entry,
        "as_of": test.drawing.as_of.isoformat().replace("+00:00", "Z"),
        "judge": test.judge,
        "rules": None if rules is None else rules.to_body(),
        "passed": not failures,
        "checks": len(test.expected) + len(test.days),
        "failures": list(failures),
        "graph": list(rows),
    }


def failure(
    kind: Literal["commit", "object", "days", "rules"],
    message: str,
    why: str,
    *,
    ref: str | None = None,
    wanted: drawn.Fate | None = None,
    fate: drawn.Fate | None = None,
    source: Source | None = None,
) -> FailureRow:
    return {
        "kind": kind,
        "message": message,
        "why": why,
        "ref": ref,
        "expected": wanted,
        "found": fate,
        "line": None if source is None else source.line,
        "column": None if source is None else source.column,
    }


def run_tests(tree: DesiredTree, tests: Sequence[PolicyTest]) -> PolicyTestDocument:
    """Return the results of all tests."""
    documents = [_run(tree, test) for test in tests]
    passed = sum(1 for one in documents if one["passed"])
    return {
        "format": "lakeplan.test/v1",
        "tests": documents,
        "passed": passed,
        "failed": len(documents) - passed,
    }


def _run(tree: DesiredTree, test: PolicyTest) -> ResultRow:
    try:
        repository = _named(tree, test.repository)
        rules = _rules(repository, test.drawing.branches)
    except LakeplanError as error:
        return result_document(test, None, None, [], [failure("rules", str(error), error.hint)])
    judged = _Judged(test, rules, ZoneInfo(tree.servers[repository.server].time_zone))
    failures = [each for one in test.expected for each in judged.check(one)]
    for one in test.days:
        days = None if rules is None else rules.days_for(one.branch)
        if days != one.days:
            text = "no rules are set" if days is None else f"the tree gives it {_days(days)}"
            failures.append(
                failure(
                    "days",
                    f"branch {one.branch}: expected {_days(one.days)}, but {text}",
                    "",
                    source=one.source,
                )
            )
    return result_document(test, repository, rules, judged.rows(), failures)


def _named(tree: DesiredTree, repository: str) -> DesiredRepository:
    """Return the repository of the tree with this name. Raises LakeplanError if there is none or several."""
    server, slash, name = repository.rpartition("/")
    servers = [server] if slash else list(tree.servers)
    if slash and server not in tree.servers:
        raise LakeplanError(
            f"the tree has no server {server!r}", hint=f"Use one of {', '.join(tree.servers)}."
        )
    matching = [d for s in servers if (d := tree.find(s, name)) is not None]
    if not matching:
        raise LakeplanError(
            f"the tree has no entry for {repository!r}",
            hint=NAME_HINT,
        )
    if len(matching) > 1:
        raise LakeplanError(
            f"{repository!r} is on several servers: {', '.join(d.server for d in matching)}",
            hint=f"Include the server, for example {matching[0].key}",
        )
    return matching[0]


def _rules(repository: DesiredRepository, branches: Iterable[str]) -> GcRules | None:
    """Return the tree's rules for a repository with these branches, or None if the tree clears them."""
    if repository.gc is None:
        raise LakeplanError(
            f"the tree does not manage the GC rules of {repository.name!r}",
            hint="Add a `gc` block to the repository's entry, to one of its profiles, or to a glob that"
            " matches it.",
        )
    return None if isinstance(repository.gc, Cleared) else expand(repository.gc, branches).rules


class _Judged:
    """The verdicts on a drawing under its rules."""

    def __init__(self, test: PolicyTest, rules: GcRules | None, zone: ZoneInfo) -> None:
        self._drawing, self._graph = drawing, graph = test.drawing, test.drawing.graph()
        self._contents = drawn.contents_of(drawing, graph)
        self._rules, self._zone, self._documented_only = rules, zone, test.judge == "documented"
        self.fates = drawn.fates(graph, rules, drawing.as_of, zone)
        self._kept_until = (
            None if rules is None else documented_verdict(graph, rules, drawing.as_of, zone).kept_until_us
        )
        self.wrong_commits: list[Expected] = []

    def check(self, one: Expected) -> list[FailureRow]:
        """Return the failures of an expectation, at most one for each version of an object."""
        if one.kind == "commit":
            commit = self._drawing.commit_of(one.ref)
            assert commit is not None
            number = self._graph.index[commit]
            if self._fits(one.fate, self.fates[number]):
                return []
            self.wrong_commits.append(Expected("commit", commit, one.fate, one.source))
            named = f"commit {commit}" if commit == one.ref else f"commit {commit} ({one.ref})"
            return [self._failure(one, named, self.fates[number], [number], ())]
        failures = []
        for version in sorted(self._contents.versions(self._drawing, one.ref)):
            holders = [self._graph.index[c] for c in self._contents.holders(version)]
            staged = self._contents.staged_on(version)
            fate = drawn.fate_of([self.fates[n] for n in holders], staged=bool(staged))
            if not self._fits(one.fate, fate):
                failures.append(self._failure(one, f"object {version}", fate, holders, staged))
        return failures

    def rows(self) -> list[GraphRow]:
        """Return the drawn graph after all checks, newest commit first."""
        rows: list[GraphRow] = []
        wrong = {expected.ref: expected.fate for expected in self.wrong_commits}
        for row in drawn.picture(self._graph):
            name = self._graph.ids[row.commit]
            commit = self._drawing.commits[name]
            rows.append(
                {
                    "lanes": row.lanes,
                    "commit": name,
                    "age_seconds": commit.age_seconds,
                    "branches": sorted(b for b, head in self._drawing.branches.items() if head == name),
                    "tags": sorted(tag for tag, head in self._drawing.tags.items() if head == name),
                    "merges": list(commit.parents[1:]),
                    "found": self.fates[row.commit],
                    "expected": wrong.get(name),
                    "why": self.reason(row.commit),
                }
            )
        return rows

    def _fits(self, wanted: drawn.Fate, actual: drawn.Fate) -> bool:
        if self._documented_only and actual == "at_risk":
            return wanted in ("survives", "at_risk")
        return wanted == actual

    def _failure(
        self, one: Expected, named: str, fate: drawn.Fate, holders: Sequence[int], staged: Sequence[str]
    ) -> FailureRow:
        until = self._kept_until
        best = max(holders, key=lambda n: 0 if until is None else until[n], default=None)
        if staged:
            why = f"it is an uncommitted change on branch {staged[0]}"
        elif best is None:
            why = "no commit contains it"
        else:
            held = "" if len(holders) == 1 else f" (by commit {self._graph.ids[best]})"
            why = self.reason(best) + held
        text = f"{named}: expected {_words(one.fate)!r}, but the result is {_words(fate)!r}"
        return failure(one.kind, text, why, ref=one.ref, wanted=one.fate, fate=fate, source=one.source)

    def reason(self, number: int) -> str:
        """Return text about the walk that keeps or kept a commit the longest, and until when."""
        graph, rules, until = self._graph, self._rules, self._kept_until
        if rules is None or until is None:
            return "no rules are set, so nothing is collected"
        if until[number] == NEVER_KEPT:
            return "no walk reaches it"
        keepers = reaching(graph, rules, graph.ids[number], self._zone)
        best = max(keepers, key=lambda k: NEVER_EXPIRES if k.until_us is None else k.until_us)
        who = f"branch {best.branch}" if best.branch is not None else f"dangling commit {best.start}"
        if best.until_us is None:
            return f"it is the HEAD of {who}"
        goes = self.fates[number] == "goes"
        moment = _moment(
            best.until_us + goes
        )  # expired from the moment after the last one at which it was kept
        note = (
            "; a server's walk may stop before this commit, depending on the ids of commits"
            if self.fates[number] == "at_risk"
            else ""
        )
        return f"{'expired on' if goes else 'kept until'} {moment}, {who}, {best.rule}{note}"


def _words(fate: drawn.Fate) -> str:
    return {"survives": "survives", "goes": "goes", "at_risk": "at risk"}[fate]


def _days(days: int) -> str:
    return "1 day" if days == 1 else f"{days} days"


def _moment(us: int) -> str:
    try:
        moment = datetime.fromtimestamp(us // 1_000_000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return "the end of the calendar" if us > 0 else "the start of the calendar"
    return moment.strftime("%Y-%m-%dT%H:%MZ")

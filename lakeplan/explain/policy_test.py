"""``lakeplan test``: policy tests on drawn histories, and their document (``schemas/test.v1.json``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Literal, TypedDict
from zoneinfo import ZoneInfo

from lakeplan.errors import LakeplanError
from lakeplan.retention import drawing as drawn
from lakeplan.retention.keepers import reaching
from lakeplan.retention.patterns import expand
from lakeplan.retention.rules import NEVER_EXPIRES, NEVER_KEPT, documented_verdict
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.desired import NAME_HINT, Cleared, DesiredRepository, Source
from lakeplan.values.rules import GcRules, RulesBody


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
    test: drawn.PolicyTest,
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


def run_tests(tree: DesiredTree, tests: Sequence[drawn.PolicyTest]) -> PolicyTestDocument:
    """Return the results of all tests."""
    documents = [_run(tree, test) for test in tests]
    passed = sum(1 for one in documents if one["passed"])
    return {
        "format": "lakeplan.test/v1",
        "tests": documents,
        "passed": passed,
        "failed": len(documents) - passed,
    }


def _run(tree: DesiredTree, test: drawn.PolicyTest) -> ResultRow:
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
            hint=f"Write {matching[0].key}.",
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

    def __init__(self, test: drawn.PolicyTest, rules: GcRules | None, zone: ZoneInfo) -> None:
        self._drawing, self._graph = drawing, graph = test.drawing, test.drawing.graph()
        self._contents = drawn.contents_of(drawing, graph)
        self._rules, self._zone, self._documented_only = rules, zone, test.judge == "documented"
        self.fates = drawn.fates(graph, rules, drawing.as_of, zone)
        self._kept_until = (
            None if rules is None else documented_verdict(graph, rules, drawing.as_of, zone).kept_until_us
        )
        self.wrong_commits: list[drawn.Expected] = []

    def check(self, one: drawn.Expected) -> list[FailureRow]:
        """Return the failures of an expectation, at most one for each version of an object."""
        if one.kind == "commit":
            commit = self._drawing.commit_of(one.ref)
            assert commit is not None
            number = self._graph.index[commit]
            if self._fits(one.fate, self.fates[number]):
                return []
            self.wrong_commits.append(drawn.Expected("commit", commit, one.fate, one.source))
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
        self, one: drawn.Expected, named: str, fate: drawn.Fate, holders: Sequence[int], staged: Sequence[str]
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

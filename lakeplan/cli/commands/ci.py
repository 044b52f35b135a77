"""``lakeplan ci``: runs commands of lakeplan in a pipeline of GitHub or GitLab, and reports to the host how
they ended.

Each command runs in a separate process, exactly as a person would type it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from lakeplan import limits
from lakeplan.api import read_plan
from lakeplan.cli import options
from lakeplan.cli.commands import SHORT_HELP
from lakeplan.cli.console import say, stdout
from lakeplan.cli.git import tree_prefix
from lakeplan.cli.options import CommandGroup, argument, command, option
from lakeplan.cli.process import APPROVED_BY, MERGED_AT, PULL_REQUEST
from lakeplan.errors import ExitCode, LakeplanError, UsageError
from lakeplan.hosts.github import (
    PLAN,
    Asked,
    GitHub,
    NotAllowed,
    asked_in,
    check_member,
    check_merge,
    plan_again,
)
from lakeplan.hosts.gitlab import GitLab
from lakeplan.hosts.protocols import (
    OBJECTS_FILE,
    PLAN_FILE,
    Host,
    HostError,
    NoPlan,
    Request,
    put_comment,
    put_plan_comment,
    with_changes,
    with_page,
)
from lakeplan.limits import parse_json
from lakeplan.output.comments import approved_answer, marker, not_applied, refused_answer
from lakeplan.output.plan import summary_text
from lakeplan.output.text import safe_lines
from lakeplan.tree.tree import load_tree
from lakeplan.values.local import read_file
from lakeplan.values.plan_document import to_document

COMMENT, PAGE, JUNIT, RESULT, REPORT = "comment.md", "plan.html", "junit.xml", "result.md", "apply.json"
MARK = "mark.json"
_FILES = (PLAN_FILE, OBJECTS_FILE, COMMENT, PAGE, JUNIT, MARK)
STATUS = "lakeplan"


def host_of(environ: Mapping[str, str]) -> Host:
    """The host whose job this process is in. Raises UsageError."""
    if environ.get("GITHUB_ACTIONS"):
        return GitHub.of(environ)
    if environ.get("GITLAB_CI"):
        return GitLab.of(environ)
    raise UsageError(
        "this is not a GitHub Actions or GitLab CI job",
        hint="Outside CI, run `lakeplan plan` and `lakeplan apply`.",
    )


MOST_APPROVERS = 10
"""Names of approvers that a run records."""


@dataclass(frozen=True)
class Pipeline:
    """A job of a pipeline. ``into`` is the folder of the files of this job, ``more`` further arguments of the
    command, and ``comments`` says whether an apply posts its result."""

    tree: Path
    into: Path
    more: Sequence[str] = ()
    comments: bool = True
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    # ---- plan
    def plan(self) -> int:
        """Makes a plan against the base commit of the pull request. Deletes the files of an earlier job
        first, and files of the same names that the checkout contains."""
        host = host_of(self.environ)
        if host.is_fork():
            raise UsageError(
                "lakeplan does not plan pull requests from forks, because a plan needs credentials",
                hint="Push the branch to this repository, and open the pull request from there.",
            )
        _make_folder(self.into, _FILES)
        outs = {"json": PLAN_FILE, "markdown": COMMENT, "junit": JUNIT}
        files = _files(self.into, outs)
        shown = ["--format", "github"] if isinstance(host, GitHub) else []
        done = self._run("plan", "--base", host.base_ref(), "--no-progress", *files, *shown, *self.more)
        if self._has(PLAN_FILE):
            self._run("report", self._at(PLAN_FILE), "--html", self._at(PAGE), "--no-progress", in_tree=False)
        self._write_outputs(done, summary=self._summary(), plan=PLAN_FILE, page=PAGE)
        if (self.into / COMMENT).is_file():
            self._show(_text(self.into / COMMENT))
        return done

    def comment(self, page: str) -> int:
        """Posts the plan that ``plan`` made, and lists pull requests that change the same repositories."""
        host = host_of(self.environ)
        number = host.here()
        if number is None or not self._has(COMMENT):
            _say("There is nothing to post, because this job has no pull request or no plan.")
            return ExitCode.OK
        body = with_page(_text(self.into / COMMENT), page)
        passed = False
        if self._has(PLAN_FILE):
            plan = read_plan(self.into / PLAN_FILE)
            body = with_changes(body, (repository.key for repository in plan.writes))
            passed = not plan.blocked and not any(r.failure for r in plan.repositories)
        for line in put_plan_comment(host, number, body, marker(tree_prefix(self.tree))):
            _say(line)
        host.set_status(host.head(), STATUS, passed=passed, text=self._summary())
        return ExitCode.OK

    # ---- apply
    def apply(self) -> int:
        """Applies the plan of every pull request that the push merged, and posts the result on each."""
        host = host_of(self.environ)
        merged = host.merged()
        if not merged:
            raise NoPlan(
                "the pushed commits did not merge a pull request of this repository, so there is no reviewed"
                " plan to apply",
                hint="Change the tree only through pull requests.",
            )
        _make_folder(self.into, _FILES)
        codes, results = [], []
        for request in merged:
            done, end = self._apply_one(host, request)
            codes.append(done)
            results.append(f"{host.sign}{request.number} {end}")
        worst = max(codes)
        if self.comments:
            worst = self._report(host, worst, ", ".join(results))
        self._write_outputs(worst, summary=", ".join(results), plan=f"{merged[-1].number}/{PLAN_FILE}")
        return worst

    def _report(self, host: Host, worst: int, text: str) -> int:
        """Updates comments on open pull requests, and sets the status of the pushed commit, which all pull
        requests of the push share. Returns the exit code."""
        try:
            put_plan_comment(host, None, "", marker(tree_prefix(self.tree)))
        except HostError as error:
            _say(f"The comments on open pull requests were not updated: {error}")
        try:
            host.set_status(host.head(), f"{STATUS}/apply", passed=not worst, text=text)
        except HostError as error:
            _say(f"The result was not posted: {error}\n{error.hint}")
            return worst or int(ExitCode.ERROR)
        return worst

    def _apply_one(self, host: Host, request: Request) -> tuple[int, str]:
        folder = self.into / str(request.number)
        _make_folder(folder, (PLAN_FILE, OBJECTS_FILE, RESULT, REPORT))
        try:
            file = host.fetch_plan(request, folder)
        except (NoPlan, HostError) as error:
            _say(f"{error}\n{error.hint}")
            body, done, end = (
                not_applied(str(error), error.hint, tree_prefix(self.tree)),
                int(error.exit_code),
                "has no plan",
            )
        else:
            outs = {"json": REPORT, "markdown": RESULT}
            # The history names the pull request and who approved it. An old job may run after a newer one.
            known = {PULL_REQUEST: str(request.number), MERGED_AT: request.merged}
            known[APPROVED_BY] = self._approvers(host, request)
            merged = replace(self, environ={**self.environ, **known})
            options = ("--replan", "--no-progress", *_files(folder, outs), *self.more)
            done = merged._run("apply", str(file), *options)
            written = (folder / RESULT).is_file()
            why = f"`lakeplan apply` exited with code {done} before it wrote a result; see the job's log"
            body = _text(folder / RESULT) if written else not_applied(why, "", tree_prefix(self.tree))
            end = _end_in(folder / REPORT) if written else f"exited with code {done}"
        self._show(body)
        if not self.comments:
            return done, end
        try:
            put_comment(host, request.number, body)
        except HostError as error:
            _say(f"The result was not posted: {error}\n{error.hint}")
            done = done or int(ExitCode.ERROR)
        return done, end

    def _approvers(self, host: Host, request: Request) -> str:
        """The names of the approvers, for the history: from the workflow, else from the host, else ""."""
        if approvers := self.environ.get(APPROVED_BY, ""):
            return approvers
        try:
            return ", ".join(host.approvers(request)[:MOST_APPROVERS])
        except HostError as error:
            _say(f"Cannot determine who approved {host.sign}{request.number}: {error}")
            return ""

    # ---- comments
    def answer(self, workflow: str) -> int:
        """Runs the command that a comment on a pull request contains, if the author may run it. ``workflow``
        is the file of the workflow that makes plans."""
        host = GitHub.of(self.environ)
        asked = asked_in(host.event)
        if asked is None:
            _say("The comment contains no lakeplan command.")
            return ExitCode.OK
        if not host.is_unchanged(host.event["comment"]):
            text = "The comment was edited or deleted, so its command was not run."
            _say(text)
            self._write_outputs(ExitCode.REFUSED, summary=text)
            return ExitCode.REFUSED
        try:
            answer = plan_again(host, asked, workflow) if asked.name == PLAN else self._approve(host, asked)
        except NotAllowed as error:
            _say(f"{error}\n{error.hint}")
            host.react(asked.comment, "-1")
            if not error.silent:
                text = refused_answer(asked.name, error.message, error.hint)
                host.write_comment(asked.number, text, None)
            self._write_outputs(ExitCode.REFUSED, summary=error.message)
            return ExitCode.REFUSED
        _say(answer)
        host.react(asked.comment, "+1")
        self._write_outputs(ExitCode.OK, summary=answer)
        return ExitCode.OK

    def _approve(self, host: GitHub, asked: Asked) -> str:
        """Approves a mark. People outside the team of approvers learn nothing about any mark."""
        team, token = (
            load_tree(self.tree, self.environ).approvers,
            self.environ.get("LAKEPLAN_TEAM_TOKEN", ""),
        )
        check_member(host, asked, team, token)
        _make_folder(self.into, _FILES)
        shown = self._at(MARK)
        if self._run("sweep", "show", asked.mark, "--format", "json", "--out", shown, "-q"):
            hint = "See the job's log for the reason, and check the id with `lakeplan sweep list`."
            raise NotAllowed(f"mark {asked.mark} could not be shown", hint=hint)
        request = check_merge(host, asked, _commit_in(Path(shown), asked.mark))
        reason = f"comment {asked.comment} by {asked.login} on pull request {request.number}"
        by = {APPROVED_BY: asked.login, PULL_REQUEST: str(request.number)}
        named = replace(self, environ={**self.environ, **by})
        done = named._run("sweep", "approve", asked.mark, "--reason", reason, *self.more)
        if done:
            raise NotAllowed(
                f"`lakeplan sweep approve` exited with code {done}", hint="See the job's log for the reason."
            )
        host.write_comment(asked.number, approved_answer(asked.mark, asked.login), None)
        return f"approved {asked.mark}"

    # ---- any other command
    def run(self, line: Sequence[str]) -> int:
        """A command of lakeplan, and how it ended as outputs of the step."""
        done = self._run(line[0], *line[1:], *self.more)
        self._write_outputs(done, summary=f"lakeplan {line[0]} exited with code {done}")
        return done

    def validate(self) -> int:
        """Validates the tree and runs its policy tests. Sends no request to a host or a server."""
        shown = ["--format", "github"] if self.environ.get("GITHUB_ACTIONS") else []
        done = self._run("validate", *shown, *self.more)
        tests = [file for ending in ("yaml", "yml") for file in (self.tree / "tests").glob(f"*.{ending}")]
        if not done and tests:
            done = self._run("test")
        self._write_outputs(done, summary="The tree is valid." if not done else "The tree is not valid.")
        return done

    # ---- files
    def _at(self, name: str) -> str:
        return str(self.into / name)

    def _has(self, name: str) -> bool:
        path = self.into / name
        return path.is_file() and not path.is_symlink()

    def _summary(self) -> str:
        """One line about the plan, or "" if there is none."""
        if not self._has(PLAN_FILE):
            return "The plan failed."
        return summary_text(to_document(read_plan(self.into / PLAN_FILE)))

    # ---- the process and the host's own files
    def _run(self, name: str, *arguments: str, in_tree: bool = True) -> int:
        sys.stdout.flush()
        where = ("-C", str(self.tree)) if in_tree else ()
        line = [sys.executable, "-P", "-m", "lakeplan", name, *arguments, *where]
        return subprocess.run(line, env=dict(self.environ), check=False).returncode

    def _write_outputs(self, done: int, *, summary: str, **files: str) -> None:
        """Writes the outputs of the step, one line each, if the host has such outputs."""
        values = {"exit-code": str(done), "summary": " ".join(summary.split())}
        values |= {name: self._at(file) for name, file in files.items() if self._has(file)}
        lines = (f"{name}={safe_lines(value)}\n" for name, value in values.items())
        self._append("GITHUB_OUTPUT", "".join(lines))

    def _show(self, text: str) -> None:
        """Adds Markdown to the job's page on GitHub."""
        self._append("GITHUB_STEP_SUMMARY", text)

    def _append(self, name: str, text: str) -> None:
        """Appends to the file that a variable of the host names. An apply goes on if that fails."""
        path = self.environ.get(name)
        if not path:
            return
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            _say(f"Cannot write to the file that {name} specifies: {error.strerror}")


def split_arguments(text: str) -> list[str]:
    """Split further arguments as a shell does. Raises UsageError."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"cannot parse --args: {error}", hint="Check the quotes.") from None


def _files(folder: Path, outs: Mapping[str, str]) -> list[str]:
    """Options that write each format into a file of the folder."""
    return [part for name, file in outs.items() for part in ("--format", name, "--out", str(folder / file))]


def _say(text: str) -> None:
    say(stdout(no_color=True), text)


def _make_folder(folder: Path, names: Sequence[str]) -> None:
    """Creates the folder, and deletes the files in it that this job is going to write."""
    try:
        if folder.is_symlink():
            raise LakeplanError(
                "the folder for results is a symbolic link",
                where=str(folder),
                hint="Remove the link from the checkout.",
            )
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise LakeplanError(
            f"cannot prepare the folder for results: {error.strerror}",
            where=str(folder),
            hint="Choose another folder with --into.",
        ) from None


def _text(path: Path) -> str:
    return read_file(path, limits.MIB).decode()


def _commit_in(path: Path, mark_id: str) -> str | None:
    """The tree commit of a mark, from the document of ``sweep show``, or None if it names none."""
    try:
        (commit,) = [
            m["tree_commit"] for m in parse_json(read_file(path))["marks"] if m["mark_id"] == mark_id
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return commit if isinstance(commit, str) else None


def _end_in(path: Path) -> str:
    try:
        return str(parse_json(read_file(path))["end"])
    except (OSError, ValueError, KeyError):
        return "ended"


# ---- commands
Into = Annotated[
    Path, typer.Option("--into", help="Folder for this job's files.", metavar="DIR", file_okay=False)
]
Arguments = Annotated[
    str, option("Additional options for the command, quoted as in a shell.", "TEXT", names=("--args",))
]
DEFAULT_INTO = Path("lakeplan-results")


@command("Plan a pull request.", common="log_level")
def plan(*, tree: options.TreeDir = Path(), into: Into = DEFAULT_INTO, arguments: Arguments = "") -> int:
    """Plan a pull request against its base commit, and write the files that the other jobs need.

    The files are plan.json, comment.md, junit.xml and plan.html. The exit code is that of `lakeplan plan`.

    \b
    Examples:
      lakeplan ci plan --into "$RUNNER_TEMP/lakeplan"
    """
    return Pipeline(tree, into, split_arguments(arguments)).plan()


@command("Comment on a pull request.", common="log_level")
def comment(
    *,
    tree: options.TreeDir = Path(),
    into: Into = DEFAULT_INTO,
    page: Annotated[str, option("URL of the report page to link to.", "URL")] = "",
) -> int:
    """Post the plan from `lakeplan ci plan` as a comment on the pull request, or update an earlier comment.

    The comment also lists other open pull requests that change the same repositories. The comments on those
    pull requests are updated to list this pull request.

    \b
    Examples:
      lakeplan ci comment --into "$RUNNER_TEMP/lakeplan"
    """
    return Pipeline(tree, into).comment(page)


@command("Apply merged plans, and post the results.", common="log_level")
def apply(
    *,
    tree: options.TreeDir = Path(),
    into: Into = DEFAULT_INTO,
    arguments: Arguments = "",
    no_comment: Annotated[bool, option("Do not post the result.")] = False,
) -> int:
    """Apply the plans of the pull requests merged by a push, and post the results on those pull requests.

    Each plan must come from a run of this workflow on the last commit of its pull request. If a plan is stale
    only because the servers have changed, lakeplan plans again. It applies the new plan only if all of its
    deletions were reviewed (`lakeplan apply --replan`).

    \b
    Examples:
      lakeplan ci apply --into "$RUNNER_TEMP/lakeplan"
    """
    return Pipeline(tree, into, split_arguments(arguments), comments=not no_comment).apply()


@command("Run a command from a comment.", common="log_level")
def answer(
    *,
    tree: options.TreeDir = Path(),
    into: Into = DEFAULT_INTO,
    workflow: Annotated[
        str, option("Workflow file that creates the plans.", "FILE")
    ] = ".github/workflows/lakeplan.yml",
    arguments: Arguments = "",
) -> int:
    """Run the `/lakeplan` command that a pull request comment contains, if its author has permission.

    \b
    Commands:
      /lakeplan plan          plan again
      /lakeplan approve MARK  approve a mark

    Anyone with write access to the Git repository can run `/lakeplan plan`. Only members of the team in the
    tree's `approvers` setting can run `/lakeplan approve`. They must comment on the pull request whose merge
    led to the mark, and they must not be the author of that pull request.

    \b
    Examples:
      lakeplan ci answer
    """
    return Pipeline(tree, into, split_arguments(arguments)).answer(workflow)


@command("Run any other command.", common="log_level")
def run(
    *,
    line: Annotated[str, argument("lakeplan command to run, such as drift.", "COMMAND")],
    tree: options.TreeDir = Path(),
    arguments: Arguments = "",
) -> int:
    """Run a lakeplan command as a workflow step, and set the step's outputs to the exit code and a summary.

    With `validate`, the command also runs the tree's policy tests.

    \b
    Examples:
      lakeplan ci run validate
      lakeplan ci run "sweep list"
    """
    words = split_arguments(line)
    if not words or words[0] == "ci" or words[0] not in SHORT_HELP:
        named = f"does not support the command {words[0]!r}" if words else "needs a command"
        raise UsageError(f"`lakeplan ci run` {named}", hint="Run `lakeplan --help` to list the commands.")
    pipeline = Pipeline(tree, DEFAULT_INTO, split_arguments(arguments))
    return pipeline.validate() if words == ["validate"] else pipeline.run(words)


ci = CommandGroup({"plan": plan, "comment": comment, "apply": apply, "answer": answer, "run": run})

"""``lakeplan ci``: the jobs of a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakeplan.cli import options
from lakeplan.cli.commands import SHORT_HELP
from lakeplan.cli.options import CommandGroup, argument, command, option
from lakeplan.cli.pipelines import Pipeline, split_arguments
from lakeplan.errors import UsageError

Into = Annotated[
    Path, typer.Option("--into", help="Folder for the files of this job.", metavar="DIR", file_okay=False)
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
    """Run the command in a pull request comment, if the author of the comment has permission.

    \b
    Commands:
      /lakeplan plan          plan again
      /lakeplan approve MARK  approve a mark

    People with write access to the repository can plan again. Members of the team that the tree names in
    `approvers` can approve a mark. They must comment on the pull request whose merge led to the mark, and
    they must not be the author of that pull request.

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

    `validate` also runs the tree's policy tests.

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

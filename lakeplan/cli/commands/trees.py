"""``lakeplan import`` and ``lakeplan init``: a new tree. ``lakeplan export``: rules for lakectl."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, get_args

from lakeplan.api import find_repository
from lakeplan.cli import options
from lakeplan.cli.addresses import typed_addresses
from lakeplan.cli.console import say, stderr, stdout
from lakeplan.cli.git import default_branch_of, find_work_folder
from lakeplan.cli.options import command, option
from lakeplan.cli.outputs import Outputs, pair_outputs
from lakeplan.cli.process import now_utc, this_run
from lakeplan.cli.wiring import Opening, Session, SessionOptions
from lakeplan.cli.workflows import INCLUDED, INCLUDING, Ci, branch_of, cloud_of, source_of, workflows
from lakeplan.errors import ConfigError, ExitCode, LakeplanError, UsageError
from lakeplan.lakefs.credentials import read_lakectl
from lakeplan.output.text import json_text
from lakeplan.plan import drift
from lakeplan.plan.baselines import note_baselines, record_sightings
from lakeplan.retention.patterns import expand
from lakeplan.review.differences import same_setting
from lakeplan.review.run import open_journal
from lakeplan.review.selection import Selection
from lakeplan.simulation.inputs import read_rules
from lakeplan.tree.editing import quoted
from lakeplan.tree.files import ROOT_FILE
from lakeplan.tree.tree import load_tree
from lakeplan.tree.yaml import TreeError
from lakeplan.values.desired import Cleared, DesiredRepository, GcDesired, SettingKind
from lakeplan.values.local import SHARED, refuse_links, write_file
from lakeplan.values.rules import GcRules
from lakeplan.values.units import count_of

LAKECTL = "lakectl"
FORMATS = (LAKECTL,)


@command(without="redact_paths no_progress quiet")
def export(
    *,
    repository: options.Repository,
    tree: options.TreeDir = Path(),
    format: Annotated[options.Formats, options.formats(FORMATS)] = None,
    out: options.Outs = None,
    opening: SessionOptions,
) -> None:
    """Print a repository's rules as JSON for `lakectl gc set-config`.

    Patterns are expanded to the branches on the server. If there are no patterns, no server is contacted.

    \b
    Examples:
      lakeplan export analytics > rules.json
      lakeplan export prod/analytics --format lakectl --out rules.json
      lakectl gc set-config lakefs://analytics -f rules.json
    """
    named = format or [LAKECTL] * max(1, len(out or ()))
    outputs = Outputs(pair_outputs(named, out, FORMATS, quiet=True))
    session = opening.session(tree)
    rules = rules_of(session, find_repository(session.tree, repository))
    outputs.write({LAKECTL: lambda: json_text(rules.to_body())}, lambda _: None)


def rules_of(session: Session, desired: DesiredRepository) -> GcRules:
    """The rules that a plan would set. Raises LakeplanError if there are none to write."""
    if desired.gc is None:
        raise LakeplanError("the tree does not manage the GC rules of this repository", where=desired.key)
    if desired.gc is Cleared.CLEAR:
        raise LakeplanError(
            "the tree clears the GC rules of this repository, and a rules file cannot express that",
            where=desired.key,
            hint=f"Run `lakectl gc delete-config lakefs://{desired.name}`.",
        )
    branches: list[str] = []
    if any(rule.is_pattern for rule in desired.gc.branches):
        branches = [b.id for b in session.reader(desired.server).list_branches(desired.name)]
    return expand(desired.gc, branches).rules


Endpoints = Annotated[
    list[str] | None,
    option("Name and URL of a server. Repeatable. Default: lakectl's endpoint, named prod.", "NAME=URL"),
]
StateUrl = Annotated[str | None, option("State URL: s3://…, https://…blob… or file://…", "URL")]
IGNORE, IGNORED = ".gitignore", ".lakeplan/\n.lakeplan-new-*\nplan.json\nplan.html\n"
IGNORE_BY_HAND = f"{IGNORE} already exists: add .lakeplan/ and plan.json to it"


@command(without="redact_paths")
def import_(
    *,
    tree: options.TreeDir = Path(),
    endpoint: Endpoints = None,
    split: Annotated[
        str, option("Write one file for each repository, server or owner.", "BY")
    ] = "repository",
    owner: Annotated[
        list[str] | None,
        option("Owner of the repositories that match this glob. Repeatable.", "REPO_GLOB=OWNER"),
    ] = None,
    target: options.Targets = None,
    from_files: Annotated[
        list[Path] | None,
        option(
            "Rules file for lakectl, or a folder of such files, to read instead of a server. Each file"
            " must be named after its repository.",
            "FILE",
        ),
    ] = None,
    state: StateUrl = None,
    opening: SessionOptions,
    no_color: bool,
    quiet: bool,
) -> int:
    """Write a tree that matches the rules stored on the servers: the next plan shows no changes.

    Rules that several repositories share become profiles. The folder must not contain a tree yet. Servers are
    not changed. The state records what was read, so that `lakeplan drift` detects every later edit.

    \b
    Examples:
      lakeplan import -C retention --endpoint prod=https://lakefs.example.com
      lakeplan import --endpoint prod=https://… --state s3://ops/lakeplan
      lakeplan import --endpoint a=https://… --endpoint b=https://… --split server
      lakeplan import --split owner --owner 'team-a-*=team-a'
      lakeplan import --endpoint prod=https://… --from-files rules/analytics.json
    """
    by: drift.Split = options.one_of("--split", split, get_args(drift.Split))
    owners = drift.Owners(tuple(_pair(text, "--owner") for text in owner or ()))
    refuse_a_tree(tree)
    endpoints = endpoints_of(endpoint, opening.lakectl_config)
    selection = Selection(tuple(target or ()))
    with TemporaryDirectory(prefix="lakeplan-import-") as name:
        # A tree of servers alone: names and addresses are checked as everywhere.
        write_files(Path(name), {ROOT_FILE: servers_only(endpoints, state)})
        with of_options():
            session = opening.session(Path(name))
        if session.approve is not None:
            session = replace(session, approve=typed_addresses(tree, os.environ))
        imported: Sequence[drift.Imported]
        left_out: Sequence[drift.SkippedRepository]
        read_at = now_utc()
        if from_files:
            imported, left_out = _read_files(from_files, endpoints, owners, selection), ()
        else:
            imported, left_out = drift.read_servers(
                endpoints,
                session.reader,
                owners,
                session.progress,
                takes=lambda server, repo: selection.takes_named(server, repo, None),
            )
        made = make_checked(endpoints, imported, left_out, by, Path(name), state=state)
    refuse_a_tree(tree)  # again: reading the servers takes a while
    ignore = {} if os.path.lexists(tree / IGNORE) else {IGNORE: IGNORED}
    write_files(tree, {**made.files, **ignore})
    unrecorded = "" if from_files else _record_baselines(made, opening, tree, at=read_at)
    if not quiet:
        _report(made, tree, ignores=bool(ignore), no_color=no_color)
    if unrecorded:
        say(stderr(no_color=no_color), unrecorded)
    problems = any(item.is_problem for item in made.left_out)
    return ExitCode.PARTLY_DONE if problems or unrecorded else ExitCode.OK


def _record_baselines(made: drift.Import, opening: Opening, tree: Path, *, at: datetime) -> str:
    """Return why the state could not record what was read, or "". The tree is written either way."""
    try:
        session = opening.session(tree)
        if session.approve is not None:
            session = replace(session, approve=typed_addresses(tree, os.environ))
        run, state = this_run(tree, session.tree), session.state()
        sightings = drift.sightings(made.imported, session.tree, run, at=at)
        recorded = record_sightings(sightings, state, run, session.reader)
        failed = note_baselines(open_journal(state, run, "import"), recorded, run)
        failed = recorded.note or failed
    except LakeplanError as error:
        failed = f"{error}. {error.hint}".rstrip(". ")
    except KeyboardInterrupt:  # the command cannot be run again, because the tree exists
        failed = "the command was interrupted"
    if not failed:
        return ""
    return (
        f"The tree is complete, but its baseline could not be recorded in the state ({failed}). Run"
        " `lakeplan apply` to record it. Until then, `lakeplan drift` does not detect edits."
    )


@contextmanager
def of_options() -> Iterator[None]:
    """Raises UsageError for a ConfigError of a tree that is made of options: there is no file to open."""
    try:
        yield
    except ConfigError as error:
        raise UsageError(
            "\n  ".join(["these options do not make a valid tree:", *error.problems]),
            hint="Correct the options. Nothing was written.",
        ) from None


def _pair(text: str, option: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        example = "prod=https://lakefs.example.com" if option == "--endpoint" else "'team-a-*=team-a'"
        raise UsageError(
            f"{option} {text!r} is not in the form NAME=VALUE", hint=f"For example, use {option} {example}"
        )
    return left, right


def endpoints_of(
    given: Sequence[str] | None, lakectl_config: Path | None, *, or_tree: bool = False
) -> dict[str, str]:
    """Server names and addresses of ``--endpoint``, or lakectl's as prod. Raises UsageError. ``or_tree``: the
    command has ``--tree`` too."""
    pairs = [_pair(text, "--endpoint") for text in given or ()]
    endpoints = dict(pairs)
    if len(endpoints) < len(pairs):
        raise UsageError("two --endpoint options have the same name", hint="Give each server its own name.")
    if not endpoints:
        url = read_lakectl(os.environ, lakectl_config).endpoint_url
        if not url:
            what = "--tree DIR to use the servers of a tree, or specify a server" if or_tree else "one"
            hint = f"Add {what}, for example --endpoint prod=https://lakefs.example.com"
            raise UsageError("no server was specified", hint=hint)
        endpoints = {"prod": url}
    return endpoints


def refuse_a_tree(folder: Path) -> None:
    repositories = folder / "repositories"
    there = [p for p in (folder / ROOT_FILE, folder / "lakeplan.yml") if p.exists()]
    if repositories.exists() and (not repositories.is_dir() or any(repositories.iterdir())):
        there.append(repositories)
    if there:
        hint = "Import into another folder and copy what you need. Nothing was written."
        if there == [repositories]:
            again = (
                "If `repositories` is left over from an interrupted command, delete it and run the command"
                " again."
            )
            hint = f"{again} Otherwise, i{hint[1:]}"
        raise LakeplanError(
            f"the folder already has a tree: {', '.join(p.name for p in there)}",
            where=str(folder),
            hint=hint,
        )


def servers_only(endpoints: Mapping[str, str], state: str | None) -> str:
    servers = "".join(f"  {quoted(n)}: {{endpoint_url: {quoted(u)}}}\n" for n, u in endpoints.items())
    where = "" if state is None else f"state: {{url: {quoted(state)}}}\n"
    return f"apiVersion: lakeplan/v1\nservers:\n{servers}{where}"


def _read_files(
    paths: Sequence[Path], endpoints: Mapping[str, str], owners: drift.Owners, selection: Selection
) -> list[drift.Imported]:
    if len(endpoints) != 1:
        raise UsageError("--from-files requires exactly one --endpoint", hint="Import one server at a time.")
    (server,) = endpoints
    rules_of: dict[str, GcRules] = {}
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise UsageError(
                "the folder contains no rules files (*.json)",
                where=str(path),
                hint="Name each file REPOSITORY.json, or pass the files themselves.",
            )
        for file in files:
            if file.stem in rules_of:
                raise UsageError(
                    f"two rules files are named after the repository {file.stem!r}",
                    hint="Pass only one of them.",
                )
            rules_of[file.stem] = read_rules(file)
    return [
        drift.Imported(server, name, rules, owners.of(server, name))
        for name, rules in rules_of.items()
        if selection.takes_named(server, name, None)
    ]


def make_checked(
    endpoints: Mapping[str, str],
    imported: Sequence[drift.Imported],
    left_out: Sequence[drift.SkippedRepository],
    split: drift.Split,
    scratch: Path,
    *,
    state: str | None = None,
) -> drift.Import:
    """The tree of all repositories that a tree can express. The others are left out, each with the reason."""
    made = drift.make_tree(endpoints, imported, left_out, split, state=state)
    if not _problems(made, scratch / "all"):
        return made
    good, bad = [], []
    for n, repository in enumerate(made.imported):
        alone = drift.make_tree(endpoints, [repository], (), "repository")
        why = _problems(alone, scratch / str(n))
        if why:
            bad.append(
                drift.SkippedRepository(
                    repository.key, f"no tree can express the stored rules: {'; '.join(why)}"
                )
            )
        else:
            good.append(repository)
    made = drift.make_tree(endpoints, good, [*made.left_out, *bad], split, state=state)
    why = _problems(made, scratch / "good")
    if why:
        raise LakeplanError(
            f"these repositories cannot be in one tree: {'; '.join(why[:3])}",
            hint="Import them one by one with --target.",
        )
    return made


def _problems(made: drift.Import, folder: Path) -> list[str]:
    """The problems of a tree before it is written: it must validate, and match exactly what was read. The
    texts name no file, since no file exists yet."""
    write_files(folder, made.files)
    try:
        tree = load_tree(folder, os.environ)
        resolved = {d.key: d for server in tree.servers for d in tree.resolve(server, ())}
    except TreeError as error:
        return list(dict.fromkeys(problem.text for problem in error.items))
    except ConfigError as error:
        return list(error.problems) or [error.message]
    wrong = [r.key for r in made.imported if not _asks_for(resolved.get(r.key), r)]
    return [f"the tree would not match the rules stored for {key}" for key in wrong]


def _asks_for(desired: DesiredRepository | None, repository: drift.Imported) -> bool:
    if desired is None:
        return False
    rules = expand(desired.gc, ()).rules if isinstance(desired.gc, GcDesired) else None
    return rules == repository.rules and all(
        same_setting(repository.settings.get(kind), desired.wanted_items(kind)) for kind in SettingKind
    )


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Writes files and their folders, without following links. Raises LakeplanError that names the file."""
    # The root file is last, so that the folder does not look like a complete tree if the command is killed.
    for name, text in sorted(files.items(), key=lambda item: item[0] == ROOT_FILE):
        path = folder / name
        refuse_links(path, below=folder)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LakeplanError(f"cannot write: {error.strerror}", where=str(path)) from None
        write_file(path, text, mode=SHARED)


def _report(made: drift.Import, tree: Path, *, ignores: bool, no_color: bool) -> None:
    line = partial(say, stdout(no_color=no_color))
    for item in made.left_out:
        line(f"not imported: {item.repository}: {item.reason}")
    if not ignores:
        line(IGNORE_BY_HAND)
    line(
        f"Wrote {count_of(len(made.files), 'file')} to {tree}:"
        f" {count_of(len(made.imported), 'repository')}, {count_of(len(made.profiles), 'profile')}. Next:"
        f" lakeplan plan -C {tree}"
    )


def root_file(endpoints: Mapping[str, str], state_url: str | None) -> str:
    """The text of a new tree's ``lakeplan.yaml``."""
    text = servers_only(endpoints, None)
    if len(endpoints) > 1:
        text += f"defaults: {{server: {quoted(next(iter(endpoints)))}}}\n"
    if state_url is None:
        state = "# state: {url: s3://bucket/lakeplan}   # required in CI; default: .lakeplan in this folder"
    else:
        state = f"state: {{url: {quoted(state_url)}}}"
    rest = (resources.files("lakeplan.cli") / "new_tree.yaml").read_text(encoding="utf-8")
    return f"{text}{state}\n{rest}"


@command(without="redact_paths no_progress")
def init(
    *,
    tree: options.TreeDir = Path(),
    endpoint: Endpoints = None,
    ci: Annotated[str, option("CI system to write workflows for: github, gitlab or none.", "HOST")] = "none",
    source: Annotated[
        str | None,
        option(
            "Source from which jobs install lakeplan: a version, git+https://…@COMMIT, or a path in the"
            " repository. Default: the running version.",
            "SOURCE",
        ),
    ] = None,
    cloud: Annotated[
        str | None,
        option(
            "Cloud that jobs sign in to through OIDC: aws, azure, gcp or none. Default: the cloud of the"
            " state.",
            "CLOUD",
        ),
    ] = None,
    branch: Annotated[
        str | None,
        option(
            "On GitHub: branch whose merges are applied. Default: the default branch of origin, or main.",
            "BRANCH",
        ),
    ] = None,
    state: StateUrl = None,
    lakectl_config: options.LakectlConfig = None,
    no_color: bool,
    quiet: bool,
) -> None:
    """Create a tree: settings with their defaults, an example entry, and CI workflows.

    Existing files are never changed, and no server is contacted. If your servers already have retention
    rules, start with `lakeplan import` instead. If the tree already exists, --ci adds only workflows.

    \b
    Examples:
      lakeplan init --endpoint prod=https://lakefs.example.com
      lakeplan init -C retention --ci github --state s3://ops/lakeplan
      lakeplan init -C retention --ci github --source 0.1.0
    """
    host: Ci = options.one_of("--ci", ci, get_args(Ci))
    files: dict[str, str] = {}
    if host == "none" or endpoint or not (tree / ROOT_FILE).is_file():
        files = {ROOT_FILE: root_file(endpoints_of(endpoint, lakectl_config), state), IGNORE: IGNORED}
        server, url = _checked(files, tree), state
    else:
        loaded = load_tree(tree, os.environ)
        server, url = next(iter(loaded.servers)), state or loaded.state_url
    top, prefix = _top_of(tree)
    applied = branch_of(branch, default_branch_of(tree) if host == "github" else None)
    origin = source_of(source)
    jobs = workflows(
        host, tree=prefix, server=server, source=origin, cloud=cloud_of(cloud, url), branch=applied
    )
    notes = _left_out(jobs, top) + _left_out(files, tree)
    if host == "github":
        notes.append(
            f"plans are applied when pull requests are merged into {applied}; use --branch to choose another"
        )
    if host != "none" and source is None:
        notes.append(
            f"jobs install {origin.package} from the package index and give it your secrets. Unless you"
            " know who published it there, use --source git+https://HOST/OWNER/lakeplan@COMMIT"
        )
    _refuse_existing(top, jobs)
    _refuse_existing(tree, files)
    write_files(tree, files)
    write_files(top, jobs)
    if not quiet:
        written = [*(tree / name for name in sorted(files)), *(top / name for name in sorted(jobs))]
        _report_files(written, notes, host, url, has_entry=ROOT_FILE in files, no_color=no_color)


def _top_of(tree: Path) -> tuple[Path, str]:
    """The folder that workflows belong in, and the tree's folder below it: the top of the git repository,
    else where the command runs, where that holds the tree."""
    try:
        work = find_work_folder(tree)
        top, prefix = work.top, work.prefix
    except LakeplanError:
        real, here = Path(os.path.realpath(tree)), Path(os.path.realpath("."))
        inside = real.is_relative_to(here) and not tree.is_absolute()
        top, prefix = (here, real.relative_to(here).as_posix()) if inside else (tree, ".")
    if not re.fullmatch(r"[\w./ -]*", prefix):
        raise UsageError(
            f"a workflow cannot use the folder name {prefix}",
            hint="Use a folder whose name contains only letters, digits, dots, dashes and underscores.",
        )
    return (tree if prefix in ("", ".") else Path(os.path.relpath(top))), prefix


def _checked(files: Mapping[str, str], tree: Path) -> str:
    """The name of the first server of a new tree, which is valid. Raises LakeplanError."""
    _refuse_existing(tree, {name: text for name, text in files.items() if name != IGNORE})
    with TemporaryDirectory(prefix="lakeplan-init-") as name:
        write_files(Path(name), {k: v for k, v in files.items() if not k.startswith(".")})
        with of_options():
            return next(iter(load_tree(Path(name), os.environ).servers))


def _left_out(files: dict[str, str], folder: Path) -> list[str]:
    """Removes files that may exist already from ``files``, and says what to add to them."""
    notes = {
        IGNORE: IGNORE_BY_HAND,
        INCLUDING: f"{INCLUDING} already exists: include {INCLUDED} in it",
    }
    existing = [name for name in notes if name in files and os.path.lexists(folder / name)]
    for name in existing:
        del files[name]
    return [notes[name] for name in existing]


def _refuse_existing(folder: Path, files: Mapping[str, str]) -> None:
    there = [name for name in files if os.path.lexists(folder / name)]
    if there:
        raise LakeplanError(
            f"these files already exist: {', '.join(there)}",
            where=str(folder),
            hint="Use -C DIR to write to a different folder. Nothing was written.",
        )


def _report_files(
    written: list[Path], notes: list[str], ci: Ci, state: str | None, *, has_entry: bool, no_color: bool
) -> None:
    line = partial(say, stdout(no_color=no_color))
    for path in written:
        line(f"wrote {path}")
    for note in notes:
        line(note)
    if ci != "none" and state is None:
        line(
            f"CI runners do not keep files, so set state.url in {ROOT_FILE}, for example state: {{url:"
            " s3://bucket/lakeplan}"
        )
    if ci != "none":
        line("the first lines of each workflow list the variables and secrets that it needs")
    if has_entry:
        line(
            f"Next: copy the entry at the end of {ROOT_FILE} into repositories/, then run lakeplan doctor"
            " and lakeplan plan"
        )

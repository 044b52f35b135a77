"""docs/walkthrough.md: a person's whole path, typed into a terminal as the page has it.

The page is the record. Its blocks ``console`` are typed one after the other into a pseudo-terminal; ``<!-- on
the host: … -->`` is before what others do. With LAKEPLAN_REGENERATE_OUTPUT=1 the outputs are written again.
"""

from __future__ import annotations

import hashlib
import os
import pty
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any

import boto3
import pytest

from lakeplan.cli.main import whole_command
from tests.e2e.conftest import DAY, Api
from tests.examples.conftest import Runner, interpreter
from tests.examples.fake_github import FakeGitHub, serving
from tests.examples.hosted import GitHub
from tests.sandboxes import start_sandbox
from tools.reference.commands import leaves

__all__ = ["interpreter"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "walkthrough.md"
REGENERATE = "LAKEPLAN_REGENERATE_OUTPUT"
BLOCK = re.compile(
    r"<!-- on the host: (?P<event>.*?) -->|^```(?P<kind>console|markdown)\n(?P<text>.*?)^```", re.M | re.S
)
PLACES = ("first-look.md", "import.md", "pull-requests.md", "deleting-data.md", "on-call.md", "drift.md")
"""The five pages to start with, and the one about drift that they lead to."""
LEAVES = {leaf.name: leaf for leaf in leaves(whole_command())}
WIDTH = 100
OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "0",
    "PIP_NO_DEPS": "1",
    "PIP_IGNORE_INSTALLED": "1",
}
"""pip's settings: what lakeplan needs is there, and no test has a network."""
SHOWN = {"pip install": r"Successfully installed", "lakeplan demo": r"[$#\[]|BLOCKED|Done"}
"""Of long outputs only the lines that begin so are on the page."""


class Scrub:
    """What differs from run to run becomes the same in every record, and is turned back in what is typed."""

    def __init__(self, *places: tuple[str, str]) -> None:
        self.places = places
        self.ids: dict[str, str] = {}
        self.marks: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n"))
        for real, shown in self.places:
            text = text.replace(real, shown)
        text = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:8000", text)
        text = re.sub(r"\b\d{8}T\d{6}-[0-9a-f]{8}\b", self._mark, text)
        text = re.sub(r"\b\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{8}\b", "20261231T000000.000000Z-00000000", text)
        text = re.sub(r"\b(?<![0Z]-)[0-9a-f]{7,64}\b", self._id, text)
        text = re.sub(r"\b20\d\d-\d\d-\d\d(?!\d)", "2026-MM-DD", text)
        text = re.sub(r"(?<=[T ])\d\d:\d\d(:\d\d)?(?!\d)", lambda m: "hh:mm:ss" if m[1] else "hh:mm", text)
        text = re.sub(r"\b\d+(\.\d)? s\b", "0.0 s", text)
        return "".join(f"{line.rstrip()}\n" for line in text.splitlines())

    def _id(self, found: re.Match[str]) -> str:
        made = hashlib.sha256(str(len(self.ids)).encode()).hexdigest()
        return self.ids.setdefault(found[0][:7], made)[: len(found[0])]

    def _mark(self, found: re.Match[str]) -> str:
        return self.marks.setdefault(found[0], f"20261231T000000-{len(self.marks):08x}")

    def typed(self, command: str) -> str:
        """A command of the record with the ids of this run."""
        for real, shown in self.marks.items():
            command = command.replace(shown, real)
        return command


class Person:
    """Ada: a terminal, a clone of lakeplan, and ``trees``, a clone of the team's repository, with lakectl's
    settings, and AWS credentials for the state."""

    def __init__(self, folder: Path, runner: Runner, endpoint: str, aws: dict[str, str]) -> None:
        self.home, self.folder = folder / "home", folder / "home/trees"
        self.home.mkdir()
        (self.home / ".lakectl.yaml").write_text(
            "credentials: {access_key_id: sandbox, secret_access_key: sandbox-secret}\n"
            f"server: {{endpoint_url: {endpoint}}}\n"
        )
        tools = folder / "bin"
        tools.mkdir()
        pip = tools / "pip"
        pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip "$@"\n')
        lakeplan = tools / "lakeplan"
        lakeplan.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m lakeplan "$@"\n')
        for tool in (pip, lakeplan):
            tool.chmod(0o755)
        self.environment = {
            **{k: v for k, v in runner.environment.items() if k != "PYTHONPATH"},
            **aws,
            **OFFLINE,
            "PATH": f"{tools}{os.pathsep}{runner.environment['PATH']}",
            "PIP_TARGET": str(folder / "installed"),
            "PYTHONPATH": str(folder / "installed"),
            "HOME": str(self.home),
            "LOGNAME": "ada",
            "TERM": "dumb",
            "COLUMNS": str(WIDTH),
            "LINES": "50",
            "NO_COLOR": "1",
            "GIT_PAGER": "cat",
            "GIT_CONFIG_GLOBAL": str(self.home / ".gitconfig"),
        }
        (self.home / ".gitconfig").write_text(
            "[user]\n  name = Ada\n  email = ada@org.example\n[init]\n  defaultBranch = main\n"
        )

    def types(self, command: str) -> tuple[str, int]:
        """What the terminal then shows, and the exit code. ``cd`` stays."""
        if command.startswith("cd "):
            self.folder = (self.folder / command[3:].replace("~", str(self.home))).resolve(strict=True)
            return "", 0
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
        with subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            stop = threading.Timer(180, process.kill)  # also when it asks something
            stop.start()
            shown = b"".join(_all_of(ours))
            code = process.wait()
            stop.cancel()
        os.close(ours)
        return shown.decode(), code


def _all_of(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            block = os.read(terminal, 65536)
        except OSError:  # Linux: the other side is closed
            return
        if not block:
            return
        yield block


class Team:
    """The repository on the host, its pull requests and jobs; the lake that the tree is about."""

    def __init__(
        self, folder: Path, runner: Runner, handle: Any, fake: FakeGitHub, aws: dict[str, str]
    ) -> None:
        self.folder, self.fake, self.handle = folder, fake, handle
        self.origin, self.checkout = folder / "org/trees.git", folder / "checkout"
        self.api = Api(handle)
        self._git(folder, "init", "--bare", "-q", "-b", "main", str(self.origin))
        self.environment = {
            "LAKEPLAN_PROD_ENDPOINT_URL": handle.endpoint_url,
            "LAKEPLAN_STATE_URL": "s3://ops/lakeplan",
        }
        self.jobs = GitHub(self.checkout, runner, fake, aws)
        self.jobs.vars = self.environment | {"LAKEPLAN_AWS_ROLE": "role", "LAKEPLAN_AWS_REGION": "us-east-1"}
        keys = {"LAKEPLAN_PROD_ACCESS_KEY_ID": "sandbox", "LAKEPLAN_PROD_SECRET_ACCESS_KEY": "sandbox-secret"}
        self.jobs.secrets = keys
        self.jobs.environments = {"production": {"secrets": keys}}
        self._draw()

    def _draw(self) -> None:
        """Ten files that stay, and one that every commit replaces. They were written long ago."""
        self.api.repository("analytics")
        self.api.commit(
            "analytics", "main", 400, **{f"raw/{n:02}": 40_000 for n in range(10)}, **{"daily/state": 9}
        )
        for number, age in enumerate((300, 200, 100, 50, 20, 1)):
            self.api.commit("analytics", "main", age, **{"daily/state": 10_000 + number})
        self.api.set_rules("analytics", 365, main=365)
        long_ago = time.time() - 5 * DAY
        for file in (self.folder / "lakefs").glob("analytics/data/**/*"):
            os.utime(file, (long_ago, long_ago))

    @staticmethod
    def _git(folder: Path, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def propose(self, number: int, branch: str) -> str:
        """A pull request is opened; its plan has run. Returns the comment."""
        self._git(self.folder, "clone", "-q", str(self.origin), str(self.checkout))
        who = ("-c", "user.name=host", "-c", "user.email=host@org.example")
        head = self._git(self.checkout, "rev-parse", f"origin/{branch}")
        self._git(self.checkout, *who, "merge", "-q", "--no-ff", "-m", "merge", head)
        self.fake.open_pull(number, head, branch)
        self.jobs.run_id = self.fake.begin_run(number, path=WORKFLOW, event="pull_request")
        payload = {"pull_request": self.fake.pulls[number]}
        merge = self._git(self.checkout, "rev-parse", "HEAD")
        done = self.jobs.run(WORKFLOW, "plan", "pull_request", payload, sha=merge, ref_name=f"{number}/merge")
        assert done.code == 0, done.output
        return self.fake.bodies(number)[0]

    def merge(self, number: int) -> str:
        """Its merge is pushed to main and applied. Returns the comment with the result."""
        merge = self._git(self.checkout, "rev-parse", "HEAD")
        self._git(self.checkout, "push", "-q", "origin", "HEAD:main")
        self.fake.merge(number, merge)
        self._git(self.checkout, "clean", "-xdfq")
        shutil.rmtree(self.folder / "runner", ignore_errors=True)
        done = self.jobs.run(
            WORKFLOW, "apply", "push", {"commits": [{"id": merge}]}, sha=merge, ref_name="main", actor="ben"
        )
        assert done.code == 0, done.output
        assert self.fake.refused == []
        return self.fake.bodies(number)[1]


WORKFLOW = ".github/workflows/lakeplan.yml"


class Record:
    """Goes through the page, and writes it again with what happens."""

    def __init__(self, person: Person, team: Team, scrub: Scrub) -> None:
        self.person, self.team, self.scrub = person, team, scrub
        self.comment = ""

    def again(self, page: str) -> str:
        return BLOCK.sub(self._block, page)

    def _block(self, found: re.Match[str]) -> str:
        if found["event"]:
            self.comment = EVENTS[found["event"]](self.team, self.person) or ""
            return found[0]
        if found["kind"] == "markdown":
            return f"```markdown\n{self.scrub(self.comment)}```"
        commands = re.findall(r"^\$ (.*)$", found["text"], re.MULTILINE)
        return f"```console\n{''.join(map(self._typed, commands))}```"

    def _typed(self, command: str) -> str:
        shown, code = self.person.types(self.scrub.typed(command))
        lines = self.scrub(shown).splitlines()
        kept = next((kept for begin, kept in SHOWN.items() if command.startswith(begin)), None)
        if kept is not None:
            lines = ["  …", *(f"  {line}" for line in lines if re.match(kept, line))]
        ended = [f"[exit {code}]"] if code else []
        return "".join(f"{line}\n" for line in (f"$ {command}", *lines, *ended))


SWEEP = """\
    sweep: {mode: quarantine, settle: 0s, margin: 0s}
"""


def _edit(team: Team, person: Person) -> None:
    """In an editor: 90 days for main, where objects are, and how to sweep."""
    root, entry = (
        person.folder / "retention" / name for name in ("lakeplan.yaml", "repositories/analytics.yaml")
    )
    server = f'  prod: {{endpoint_url: "{team.handle.endpoint_url}"}}\n'
    storages = f'  prod:\n    endpoint_url: "{team.handle.endpoint_url}"\n'
    storages += f'    storages: {{"": {{type: local, path: {team.folder}/lakefs}}}}\n'
    _replace(root, server, storages)
    _replace(entry, "branch_id: main, retention_days: 365", "branch_id: main, retention_days: 90")
    _replace(entry, "    gc:\n", f"{SWEEP}    gc:\n")


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, text
    file.write_text(text.replace(old, new))


def _hand(team: Team, person: Person) -> None:
    team.api.set_rules("analytics", 365, main=120)


EVENTS: dict[str, Callable[[Team, Person], str | None]] = {
    "Ada edits the tree": _edit,
    "pull request 7 is opened": lambda team, person: team.propose(7, "main-90"),
    "pull request 7 is merged": lambda team, person: team.merge(7),
    "someone edits the rules": _hand,
}


@pytest.fixture
def recorded(
    tmp_path: Path,
    interpreter: Path,
    s3_endpoint: str,
    no_credentials_of_this_machine: None,
) -> Iterator[str]:
    """The page as it is with what happens now."""
    aws = {
        "AWS_ACCESS_KEY_ID": "test-key",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": s3_endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    session = boto3.session.Session(
        aws["AWS_ACCESS_KEY_ID"], aws["AWS_SECRET_ACCESS_KEY"], region_name="us-east-1"
    )
    session.client("s3", endpoint_url=s3_endpoint).create_bucket(Bucket="ops")
    runner = Runner(tmp_path, interpreter)
    with start_sandbox(tmp_path / "lakefs") as handle, serving(FakeGitHub()) as fake:
        person = Person(tmp_path, runner, handle.endpoint_url, aws)
        team = Team(tmp_path, runner, handle, fake, aws)
        subprocess.run(
            ["git", "clone", "-q", team.origin, "trees"], cwd=person.home, check=True, capture_output=True
        )
        made = person.home / "lakeplan"
        shutil.copytree(
            ROOT, made, ignore=shutil.ignore_patterns(".*", "mutants", "tests", "docs", "bench", "spark")
        )
        scrub = Scrub(
            (str(team.origin), "https://host.example/org/trees.git"),
            (str(tmp_path / "lakefs"), "/lakefs"),
            (str(person.home), "/home/ada"),
            (handle.endpoint_url, "https://lakefs.example.com"),
            (f"@{socket.gethostname()}", "@laptop"),
        )
        yield Record(person, team, scrub).again(PAGE.read_text(encoding="utf-8"))


@pytest.mark.extended
def it_goes_as_the_page_says(recorded: str) -> None:
    if os.environ.get(REGENERATE):
        PAGE.write_text(recorded, encoding="utf-8")
    assert "\n[exit " not in recorded, "every command ends well"
    assert "sandbox-secret" not in recorded
    assert recorded == PAGE.read_text(encoding="utf-8"), f"{REGENERATE}=1 writes {PAGE} again"


def typed() -> list[str]:
    page = PAGE.read_text(encoding="utf-8")
    blocks = [found["text"] for found in BLOCK.finditer(page) if found["kind"] == "console"]
    return [command for block in blocks for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE)]


@pytest.mark.parametrize("command", [c for c in typed() if c.startswith("lakeplan ")])
def it_types_commands_as_the_pages_to_start_with_have_them(command: str) -> None:
    pages = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in PLACES)
    pages += (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.sub(r"\b\d{8}T\d{6}-[0-9a-f]{8}\b", "MARK", command) in pages


@pytest.mark.parametrize("command", typed())
def it_explains_every_option(command: str) -> None:
    """On the page, or in the help of the command."""
    prose = BLOCK.sub("", PAGE.read_text(encoding="utf-8"))
    words = shlex.split(command)
    leaf = next(
        (LEAVES[name] for name in (" ".join(words[1:3]), " ".join(words[1:2])) if name in LEAVES), None
    )
    helped = {o for option in leaf.options if option.help for o in option.opts} if leaf else set()
    given = {word.partition("=")[0] for word in words if re.match(r"--?\w", word)}
    assert [option for option in given if f"`{option}`" not in prose and option not in helped] == []

"""Trees with stricter settings than the checked-out tree: those of its base, of a plan or of a review. Also
runs the checks of a tree on a plan.

A check is reviewed code, but its input is not. It gets the plan on standard input, the allowed environment
variables, an empty home folder and its own folder, but nothing from the checkout that is judged.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from lakeplan import limits
from lakeplan.errors import ConfigError
from lakeplan.review import strictness
from lakeplan.review.gates import GateOverrides
from lakeplan.tree.tree import DesiredTree
from lakeplan.values.declare import POLICY
from lakeplan.values.desired import BranchSettings, Check, DesiredRepository, Override, Safety, ServerConfig
from lakeplan.values.gates import CHECK, WHOLE_PLAN
from lakeplan.values.local import absolute_entries
from lakeplan.values.pins import PinSettings
from lakeplan.values.plan import GateOutcome, GateResult, Plan, RepositoryPlan


@dataclass(frozen=True)
class _Wrapped:
    """A ``DesiredTree`` that delegates to another tree. Subclasses override some of its methods."""

    tree: DesiredTree

    @property
    def servers(self) -> Mapping[str, ServerConfig]:
        return self.tree.servers

    @property
    def safety(self) -> Safety:
        return self.tree.safety

    @property
    def overrides(self) -> Sequence[Override]:
        """The overrides of the checked-out tree. They are reviewed, and new ones are listed as weakened
        settings."""
        return self.tree.overrides

    @property
    def unmanaged_policy(self) -> strictness.Policy:
        return self.tree.unmanaged_policy

    @property
    def checks(self) -> Sequence[Check]:
        return self.tree.checks

    @property
    def name(self) -> str:
        return self.tree.name

    @property
    def digest(self) -> str:
        return self.tree.digest

    def globs(self, server: str) -> list[DesiredRepository]:
        return self.tree.globs(server)

    def may_manage(self, server: str, name: str) -> bool:
        return self.tree.may_manage(server, name)

    def unmanaged(self, server: str, live_repositories: Iterable[str]) -> list[str]:
        return self.tree.unmanaged(server, live_repositories)

    def resolve(self, server: str, live_repositories: Iterable[str]) -> list[DesiredRepository]:
        return self._adjusted(server, self.tree.resolve(server, live_repositories))

    def find(self, server: str, name: str) -> DesiredRepository | None:
        desired = self.tree.find(server, name)
        return None if desired is None else self._adjusted(server, [desired])[0]

    def _adjusted(self, server: str, resolved: list[DesiredRepository]) -> list[DesiredRepository]:
        """Return the repositories of a server with the settings of this tree, in the same order."""
        raise NotImplementedError


@dataclass(frozen=True)
class HeldTree(_Wrapped):
    """A ``DesiredTree`` with the stricter limits of ``tree`` and ``base`` and the holds of both. Messages
    refer to the base as ``base_name``."""

    base: strictness.Guards
    base_name: str
    before: Callable[[str, set[str]], Mapping[str, Sequence[DesiredRepository]]]
    """The base's repositories on a server of ``tree``, by name."""

    @property
    def safety(self) -> Safety:
        return strictness.stricter_safety(self.base.safety, self.tree.safety)

    @property
    def unmanaged_policy(self) -> strictness.Policy:
        policy: strictness.Policy = POLICY.combine(self.base.unmanaged, self.tree.unmanaged_policy)
        return policy

    def _adjusted(self, server: str, resolved: list[DesiredRepository]) -> list[DesiredRepository]:
        """Raises ConfigError if a retention period is outside the base's bounds."""
        low, high = self.base.min_retention_days, self.base.max_retention_days
        outside = {
            f"{source}: {name}: {days} is outside the bounds in {self.base_name} ({low} to {high} days)": None
            for desired in resolved
            for source, name, days in strictness.outside_bounds(desired, low, high)
        }
        if outside:
            raise ConfigError(
                f"the tree has retention periods outside the bounds of {self.base_name}",
                problems=tuple(outside),
                hint="Widen the bounds in a separate pull request first.",
            )
        before = self.before(server, {desired.name for desired in resolved})
        return [self._held(desired, before.get(desired.name, ())) for desired in resolved]

    def _held(self, desired: DesiredRepository, before: Sequence[DesiredRepository]) -> DesiredRepository:
        most_pins = min([one.pins.max for one in before] or [PinSettings().max])
        return replace(
            desired,
            safety=strictness.stricter_safety(self.base.safety, desired.safety),
            holds=strictness.all_holds(desired.holds, *(one.holds for one in before)),
            pins=replace(desired.pins, max=min(most_pins, desired.pins.max)),
        )


@dataclass(frozen=True)
class GuardedTree(_Wrapped):
    """A ``DesiredTree`` whose settings for sweeps are at least as strict as in the review of ``plan``
    (``Plan.sweep_guards``). A repository that the plan shows with other settings is not swept automatically,
    because the checkout may be older than the plan."""

    plan: Plan

    def _adjusted(self, server: str, resolved: list[DesiredRepository]) -> list[DesiredRepository]:
        guards, planned = self.plan.sweep_guards, {r.key: r.config_hash for r in self.plan.repositories}
        return [
            strictness.held_to_guard(d, guards[d.key]) if d.key in guards else d
            for one in resolved
            for d in [one if planned.get(one.key) == one.config_hash else _not_automatic(one)]
        ]


def _not_automatic(desired: DesiredRepository) -> DesiredRepository:
    return replace(desired, sweep=replace(desired.sweep, automatic=False))


@dataclass(frozen=True)
class ReviewedSettings:
    """The settings that a branch plan was made with."""

    lifecycle: BranchSettings
    safety: Safety


@dataclass(frozen=True)
class ReviewedTree(_Wrapped):
    """A ``DesiredTree`` whose branch settings are at least as strict as those of a reviewed branch plan,
    which ``reviewed`` has by ``server/name``."""

    reviewed: Mapping[str, ReviewedSettings]

    @property
    def safety(self) -> Safety:
        safety = self.tree.safety
        for then in self.reviewed.values():
            safety = strictness.stricter_safety(then.safety, safety)
        return safety

    def _adjusted(self, server: str, resolved: list[DesiredRepository]) -> list[DesiredRepository]:
        return [self._as_reviewed(desired) for desired in resolved]

    def _as_reviewed(self, desired: DesiredRepository) -> DesiredRepository:
        then = self.reviewed.get(desired.key)
        if then is None:
            return desired
        return replace(
            desired,
            branch_settings=strictness.stricter_branch_settings(then.lifecycle, desired.branch_settings),
            safety=strictness.stricter_safety(then.safety, desired.safety),
        )


KEPT_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""The environment variables that a check gets, besides PATH."""
_REFUSE, _WARN = "refuse", "warn"
_SHOWN = 300
"""The maximum number of characters in a message."""
_PAUSE = 0.05


@dataclass(frozen=True)
class Place:
    """Where checks run: ``folder`` has the files of the tree. No program in ``judged``, the checkout that is
    judged, may run. ``judged`` is None if the tree's own files are run."""

    folder: Path
    judged: Path | None = None

    def may_use(self, path: str) -> bool:
        """Return whether an absolute path leads outside the judged checkout."""
        return self.judged is None or not _is_below(path, self.judged)


@dataclass(frozen=True)
class Finding:
    level: str
    message: str
    repository: str | None = None


class _Failed(Exception):
    """The check did not finish, or its output is not understood."""


def judge(
    checks: Iterable[Check], plan: Plan, given: bytes, place: Place, overrides: GateOverrides, path: str
) -> tuple[tuple[GateResult, ...], tuple[str, ...]]:
    """Return the results of every check as gates, and the warnings. ``given`` is the plan as JSON, ``path``
    the search path for programs. A check that fails refuses."""
    known = {r.key: r for r in plan.repositories}
    gates: list[GateResult] = []
    warnings: list[str] = []
    for check in checks:
        try:
            findings = run(check, given, place, path)
        except _Failed as error:
            findings = [Finding(_REFUSE, str(error))]
        refused = [f for f in findings if f.level == _REFUSE]
        gates += [_refusal(check, f, known, overrides) for f in refused]
        warnings += [f"check {check.name}: {_of(f)}" for f in findings if f.level == _WARN]
        if not refused:
            gates.append(GateResult(CHECK.name, WHOLE_PLAN, GateOutcome.PASSED, f"{check.name}: passed"))
    return tuple(gates), tuple(warnings)


def unjudged(checks: Iterable[Check], gates: Sequence[GateResult]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the checks that have no result among the gates of a plan: first those that the
    plan does not call new, then those that it does."""
    of_checks = [gate for gate in gates if gate.gate == CHECK.name]
    judged = {gate.message.partition(":")[0] for gate in of_checks if gate.outcome is not GateOutcome.WARNED}
    texts = [gate.message for gate in of_checks if gate.outcome is GateOutcome.WARNED]
    without = [check for check in checks if check.name not in judged]
    new = {check.name for check in without if any(text.startswith(_new_since(check)) for text in texts)}
    names = [check.name for check in without]
    return tuple(n for n in names if n not in new), tuple(n for n in names if n in new)


def not_yet_judging(check: Check, ref: str) -> GateResult:
    """Return the result of a check that the base at ``ref`` does not have. It judges the next change."""
    text = f"{_new_since(check)}{ref}, so it is not run on this change"
    return GateResult(CHECK.name, WHOLE_PLAN, GateOutcome.WARNED, text)


def _new_since(check: Check) -> str:
    """With its command: another check of that name does not count as this one."""
    return f"{check} is new since "


def not_run(name: str) -> GateResult:
    """Return the refusal for a check that has no result in the reviewed plan."""
    text = f"{name}: did not run on this plan"
    return GateResult(CHECK.name, WHOLE_PLAN, GateOutcome.REFUSED, text)


def _refusal(
    check: Check, finding: Finding, known: Mapping[str, RepositoryPlan], overrides: GateOverrides
) -> GateResult:
    repository = known.get(finding.repository or "")
    scope = WHOLE_PLAN if repository is None else repository.key
    message = finding.message if repository is not None else _of(finding)
    return overrides.decide(
        GateResult(CHECK.name, scope, GateOutcome.REFUSED, f"{check.name}: {message}"), repository
    )


def _of(finding: Finding) -> str:
    return f"{finding.repository}: {finding.message}" if finding.repository else finding.message


# ---- one run
def run(check: Check, given: bytes, place: Place, path: str) -> list[Finding]:
    """Runs a check and returns its findings. Raises ``_Failed``."""
    command = _command(check, place, path)
    with tempfile.TemporaryFile() as stdin, own_folder("lakeplan-check-") as home:
        stdin.write(given)
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=place.folder,
                env=_environment(place, path, home),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise _Failed(f"{check.run[0]} cannot run: {why}") from None
        with process:
            try:
                out, err = _answers(process, check.time_limit_seconds)
            finally:
                _end(process)
    findings = parse_findings(out)
    if process.returncode and not any(f.level == _REFUSE for f in findings):
        why = _line(err.decode("utf-8", "replace").strip().rpartition("\n")[2])
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
        findings.append(Finding(_REFUSE, f"failed with {how}{': ' if why else ''}{why}"))
    return findings


@contextmanager
def own_folder(prefix: str) -> Iterator[str]:
    """Yield a new folder for a check to write to. The folder remains if the check made it impossible to
    remove."""
    name = tempfile.mkdtemp(prefix=prefix)
    try:
        yield name
    finally:
        with suppress(RecursionError):
            shutil.rmtree(name, ignore_errors=True)


def _command(check: Check, place: Place, path: str) -> list[str]:
    """Return the command line. Raises ``_Failed`` for a program that is missing or in the judged checkout."""
    name, *arguments = check.run
    for word in check.run:
        if os.path.isabs(word) and not place.may_use(word):
            raise _Failed(f"{word} is an absolute path into the checkout under review; make it relative")
        if os.path.normpath(word).partition(os.sep)[0] == os.pardir:
            raise _Failed(f"{word} points outside the tree")
    if "/" not in name:
        executable = shutil.which(name, path=_search_path(place, path))
        if executable is None:
            raise _Failed(f"the program {name!r} is not on PATH")
        return [executable, *arguments]
    program = os.path.join(place.folder, name)
    if not os.path.isabs(name) and not _is_below(program, place.folder):
        raise _Failed(f"{name} points outside the tree")
    if not os.access(program, os.X_OK) or not os.path.isfile(program):
        raise _Failed(f"{name} is not an executable file in the tree")
    return [program, *arguments]


def _is_below(path: str, folder: Path) -> bool:
    """Return whether a path is a folder or inside it, directly or through links."""
    for top in {os.path.abspath(folder), os.path.realpath(folder)}:
        for form in (os.path.abspath(path), os.path.realpath(path)):
            if form == top or form.startswith(top.rstrip(os.sep) + os.sep):
                return True
    return False


def _search_path(place: Place, path: str) -> str:
    entries = absolute_entries(path).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if entry and place.may_use(entry))


def _environment(place: Place, path: str, home: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {
        **kept,
        "PATH": _search_path(place, path),
        "HOME": home,
        "TMPDIR": home,
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _answers(process: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, bytes]:
    """Return the program's output and the beginning of its errors. Both are read until the program ends,
    because its children may keep the streams open. Raises ``_Failed`` if the output is too long, and after
    the time limit."""
    assert process.stdout is not None
    assert process.stderr is not None
    until = time.monotonic() + seconds
    streams: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        while True:
            ended = _has_ended(process)
            for key, _ in selector.select(0 if ended else _PAUSE):
                stream = next(s for s in streams if s is key.fileobj)
                if not _read(stream, streams[stream]):
                    selector.unregister(stream)
            if len(streams[process.stdout]) > limits.CHECK_BYTES:
                raise _Failed(f"printed more than {limits.CHECK_BYTES >> 10} KiB")
            if ended:
                return bytes(streams[process.stdout]), bytes(streams[process.stderr])
            if time.monotonic() >= until:
                raise _Failed(f"did not finish within {seconds:g} seconds")
            if not selector.get_map():
                time.sleep(_PAUSE)


def _read(stream: IO[bytes], into: bytearray) -> bool:
    """Reads what is available and drops what exceeds the limit. Returns whether more may come."""
    while True:
        try:
            data = os.read(stream.fileno(), limits.CHECK_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        into += data[: max(0, limits.CHECK_BYTES + 1 - len(into))]
        if len(into) > limits.CHECK_BYTES:
            return True


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the program has ended. It remains a zombie, so that its process group keeps its number
    until ``_end``."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the program and every process that it left in its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


# ---- what it printed
def parse_findings(data: bytes) -> list[Finding]:
    """Return the findings in a check's output, which is ``{"annotations": […]}``, the output of ``conftest
    --output json``, or empty if there are none. Raises ``_Failed`` for any other output."""
    if not data.strip():
        return []
    try:
        document = limits.parse_json(data)
        if isinstance(document, Mapping):
            findings = [_finding(item) for item in _list(document["annotations"])]
        else:
            findings = [f for item in _list(document) for f in _of_conftest(item)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _Failed('printed neither {"annotations": […]} nor JSON from conftest') from None
    if len(findings) > limits.CHECK_FINDINGS:
        raise _Failed(f"printed more than {limits.CHECK_FINDINGS:,} findings")
    return findings


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _finding(item: Any) -> Finding:
    level, message, repository = item["level"], item["message"], item.get("repository")
    if level not in (_REFUSE, _WARN) or not isinstance(message, str):
        raise ValueError("not a finding")
    if repository is not None and not isinstance(repository, str):
        raise ValueError("repository is not a string")
    return Finding(level, _line(message), None if repository is None else _line(repository))


def _of_conftest(item: Any) -> Iterable[Finding]:
    """A policy's ``metadata`` may name the repository."""
    if not isinstance(item, Mapping) or not {"successes", "warnings", "failures"} & item.keys():
        raise ValueError("not the output of conftest")
    for key, level in (("warnings", _WARN), ("failures", _REFUSE), ("exceptions", _REFUSE)):
        for result in _list(item.get(key) or []):
            repository = (result.get("metadata") or {}).get("repository")
            yield _finding({"level": level, "message": result["msg"], "repository": repository})


def _line(text: str) -> str:
    """Return untrusted text as one line, cut to ``_SHOWN`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"

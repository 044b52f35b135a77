"""Runs the steps of a Containerfile in clean root file systems, without a container engine.

    python -P tools/image_steps.py FOLDER [COMMAND ...]

``FOLDER`` gets a root file system for each stage, made by debootstrap; ``COMMAND`` runs in the last one as
its user. Needs root and debootstrap. Fails at instructions that our Containerfile does not have.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = "debian:bookworm-slim"
CHROOT = "/usr/sbin/chroot"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
BUNDLE = "/etc/host-certificates.crt"
"""Where a root has the file that these name: installing ca-certificates writes the usual one anew."""
GIVEN = ("PIP_INDEX_URL", "http_proxy", "https_proxy", "no_proxy")
"""Settings of this machine's network that a step may need."""


@dataclass
class Stage:
    """One root file system. ``environ`` is what ENV instructions set so far."""

    root: Path
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": PATH, "HOME": "/root"})
    user: str = "0"
    workdir: str = "/"

    def run(self, words: Sequence[str]) -> None:
        """Runs a command in the root as its user."""
        command = [CHROOT, f"--userspec={self.user}:{self.user}", str(self.root), "/usr/bin/env", "-C"]
        settings = [f"{name}={value}" for name, value in self.environ.items()]
        subprocess.run([*command, self.workdir, *settings, *words], env=_network(), check=True)


def _network() -> dict[str, str]:
    given = {name: os.environ[name] for name in GIVEN if name in os.environ}
    return given | {name: BUNDLE for name in CERTIFICATES if name in os.environ}


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Name and arguments of each instruction, with continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        yield name, rest.strip()


def ignored(folder: Path) -> list[str]:
    return (folder / ".containerignore").read_text().split()


def _copy(source: Path, target: Path, patterns: Sequence[str]) -> None:
    def left_out(folder: str, names: list[str]) -> set[str]:
        below = Path(folder).relative_to(source)
        return {
            name
            for name in names
            for pattern in patterns
            if fnmatch.fnmatch(str(below / name), pattern.removeprefix("**/"))
            or (pattern.startswith("**/") and fnmatch.fnmatch(name, pattern[3:]))
        }

    shutil.copytree(source, target, symlinks=True, ignore=left_out, dirs_exist_ok=True)


@contextmanager
def mounted(root: Path) -> Iterator[None]:
    """``/proc`` and ``/dev`` as in a container."""
    places = [("proc", "proc"), ("--rbind", "dev")]
    for kind, name in places:
        how = ["-t", kind, kind] if kind == "proc" else [kind, f"/{name}"]
        subprocess.run(["mount", *how, str(root / name)], check=True)
    try:
        yield
    finally:
        for _, name in reversed(places):
            subprocess.run(["umount", "--lazy", str(root / name)], check=False)


def _clean_root(folder: Path) -> None:
    """A fresh root, from a copy that is kept: debootstrap takes a minute."""
    kept = folder.parent / "base"
    if not kept.is_dir():
        subprocess.run(
            ["debootstrap", "--variant=minbase", "bookworm", str(kept)], check=True, stdout=subprocess.DEVNULL
        )
        (kept / "etc/apt/sources.list").unlink(missing_ok=True)
        for path in ("etc/ssl/certs", "etc/apt", "etc/resolv.conf", "etc/hosts"):
            if (source := Path("/", path)).is_dir():
                shutil.copytree(source, kept / path, symlinks=True, dirs_exist_ok=True)
            elif source.exists():
                shutil.copyfile(source, kept / path)
        if bundle := next((os.environ[name] for name in CERTIFICATES if name in os.environ), None):
            shutil.copyfile(bundle, kept / BUNDLE.lstrip("/"))
    subprocess.run(["cp", "-a", str(kept), str(folder)], check=True)


def build(text: str, folder: Path) -> Stage:
    """Runs every instruction; the last stage."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for name, rest in instructions(text):
        print(f"{name} {rest}", flush=True)
        if name == "FROM":
            base, *alias = rest.split()
            if base != BASE:
                raise SystemExit(f"FROM {base}: only {BASE} can be made here")
            root = folder / f"stage-{len(stages)}"
            _clean_root(root)
            stage = stages[alias[1] if alias else ""] = Stage(root)
        elif stage is not None:
            _instruction(stage, stages, name, rest)
    if stage is None:
        raise SystemExit("no FROM")
    return stage


def _instruction(stage: Stage, stages: dict[str, Stage], name: str, rest: str) -> None:
    match name:
        case "RUN":
            with mounted(stage.root):
                stage.run(["/bin/sh", "-c", rest])
        case "COPY":
            *options, source, target = rest.split()
            place = stage.root / target.lstrip("/")
            if options:
                [option] = options
                _copy(stages[option.removeprefix("--from=")].root / source.lstrip("/"), place, ())
            else:
                _copy(ROOT / source, place, ignored(ROOT))
        case "ENV":
            stage.environ |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        case "USER":
            stage.user = rest
        case "WORKDIR":
            stage.workdir = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "ENTRYPOINT" | "CMD":
            json.loads(rest)
        case _:
            raise SystemExit(f"{name}: not known here")


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    last = build((ROOT / "Containerfile").read_text(), folder)
    with mounted(last.root):
        for command in sys.argv[2:] or ["lakeplan --version", "lakeplan doctor --help"]:
            print(f"$ {command}", flush=True)
            last.run(["tini", "-s", "--", *shlex.split(command)])


if __name__ == "__main__":
    main()

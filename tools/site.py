"""The documentation as a site: ``docs/`` and the pages beside it that it links to, built by zensical.

zensical reads one folder, and the pages also link to files of the repository. So pages are copied into a
folder of their own, and links to files that are no pages become plain text. The build is strict: a link that
leads nowhere fails it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
BESIDE = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "examples/README.md",
    "examples/branches/README.md",
)
"""Pages outside ``docs/`` that it links to. They are in ``project/`` on the site."""
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)

CONFIG = """\
[project]
site_name = "lakeplan"
site_description = "See what lakeFS garbage collection will delete before it deletes anything."
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
nav = [
  {{"Start" = [{start}]}},
  {{"Guides" = [{guides}]}},
  {{"Reference" = [{reference}]}},
  {{"How it works" = [{inside}]}},
  {{"Contribute" = [{contribute}]}},
]

[project.theme]
font = false
features = ["navigation.sections", "search.highlight", "content.code.copy"]

[project.markdown_extensions.tables]
[project.markdown_extensions.toc]
permalink = true
[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.pymdownx.highlight]
"""

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "start": (
        "README.md",
        "first-look.md",
        "import.md",
        "pull-requests.md",
        "deleting-data.md",
        "on-call.md",
    ),
    "guides": (
        "concepts.md",
        "policy-tests.md",
        "explain.md",
        "report.md",
        "drift.md",
        "branch-policies.md",
        "pins.md",
        "official-collector.md",
        "operations.md",
        "metrics.md",
        "cluster.md",
        "api.md",
        "sandbox.md",
    ),
    "reference": (
        "commands.md",
        "settings.md",
        "gates.md",
        "permissions.md",
        "limits.md",
        "lakectl.md",
        "plan-objects.md",
    ),
    "inside": ("simulation.md", "sweep.md", "early-stop.md", "guarantees.md"),
}
"""What the navigation lists below its titles. All other pages are below *Contribute*."""


def pages() -> dict[Path, str]:
    """Every page of the site, by its path in the repository, with its path on the site."""
    docs = ROOT / "docs"
    found = {path: path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))}
    return found | {ROOT / name: f"project/{name}" for name in BESIDE}


def page_text(path: Path, site: Mapping[Path, str]) -> str:
    """The text of a page with its links as they are on the site. Code is left alone."""
    parts = FENCED.split(path.read_text(encoding="utf-8"))
    return "".join(part if part.startswith("```") else _links(part, path, site) for part in parts)


def _links(text: str, page: Path, site: Mapping[Path, str]) -> str:
    up = "../" * site[page].count("/")

    def replaced(match: re.Match[str]) -> str:
        label, target = match.groups()
        path, mark, heading = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        there = (page.parent / path).resolve()
        if there == ROOT / "README.md":
            there = ROOT / "docs/README.md"
        if there in site:
            return f"[{label}]({up}{site[there]}{mark}{heading})"
        if not there.exists():
            raise SystemExit(f"{page.relative_to(ROOT)} links to {target}, which does not exist")
        return label

    return LINK.sub(replaced, text)


def write_pages(folder: Path) -> None:
    """Write what zensical builds from: its configuration, pages and pictures."""
    site = pages()
    for path, name in site.items():
        target = folder / "pages" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page_text(path, site), encoding="utf-8")
    shutil.copytree(ROOT / "docs/images", folder / "pages/images")
    listed = {name for names in SECTIONS.values() for name in names}
    rest = sorted(set(site.values()) - listed)
    names = {title: ", ".join(f'"{n}"' for n in names) for title, names in SECTIONS.items()}
    contribute = ", ".join(f'"{name}"' for name in rest)
    (folder / "zensical.toml").write_text(CONFIG.format(**names, contribute=contribute), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Build the site into a folder, in place of an earlier site; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m tools.site FOLDER", file=sys.stderr)
        return 64
    target = Path(arguments[0])
    if target.exists() and not (target / "sitemap.xml").exists():
        print(f"{target} exists but is not a site. Name another folder.", file=sys.stderr)
        return 64
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_pages(folder)
        zensical = Path(sys.executable).with_name("zensical")
        built = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=folder, check=False)
        if built.returncode:
            return built.returncode
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(folder / "site", target)
    print(f"Built {target}. Open {target / 'index.html'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A seed file read into steps. The format stands in ``HELP``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import yaml

from lakeplan.sandbox.seed import steps
from lakeplan.sandbox.seed.nodes import Mapped, Problems, load, only_key, sequence

HELP = """\
repositories:
  - name: analytics  # default_branch: main, storage_namespace: <prefix><name>
    steps:  # in order, each one of these
      - upload: {branch: main, path: raw/a.csv, size: 4KB, metadata: {k: v}}
      - upload: {branch: main, path: raw/b.csv, content: "text"}
      - upload: {branch: main, path: raw/day-1/, count: 20, size: 1KB}
      - copy: {branch: main, source: raw/a.csv, destination: b.csv, ref: v1}
      - delete: {branch: main, path: raw/day-1/}
      - commit: {branch: main, message: first day, age: 40d}
      - commit: {branch: main, message: b, metadata: {k: v}, allow_empty: no}
      - branch: {name: dev, source: main, hidden: false}
      - merge: {source: dev, into: main, message: "", strategy: ""}
      - revert: {branch: main, ref: main, parent: 1}
      - cherry_pick: {branch: main, ref: dev}
      - hard_reset: {branch: main, to: main~1}
      - drop_staged: {branch: main}
      - drop_branch: {name: dev}
      - tag: {name: v1, ref: main}
      - sort_heads: {first: main, then: dev, age: 120d}
      - gc_rules: {default_retention_days: 21, branches: {main: 28}}
      - protect: {patterns: [main]}
"""


def read_seed(text: str, file: str) -> steps.Seed:
    """Raises ConfigError with every mistake and its place."""
    problems = Problems(file)
    root = Mapped(load(text, file), "", problems)
    nodes = sequence(root.take("repositories", required=True), "repositories", problems)
    root.done()
    seeds = [_repository(node, f"repositories[{i}]", problems) for i, node in enumerate(nodes)]
    _check_names(seeds, nodes, problems)
    problems.raise_any()
    return steps.Seed(tuple(seeds))


def _repository(node: yaml.Node, path: str, problems: Problems) -> steps.RepositorySeed:
    body = Mapped(node, path, problems)
    name = body.text("name")
    default_branch = body.text("default_branch", "main")
    namespace = body.optional_text("storage_namespace")
    items = sequence(body.take("steps"), body.child("steps"), problems)
    body.done()
    placed = [_step(item, f"{path}.steps[{i}]", problems) for i, item in enumerate(items)]
    return steps.RepositorySeed(name, default_branch, namespace, tuple(p for p in placed if p))


def _step(node: yaml.Node, path: str, problems: Problems) -> steps.PlacedStep | None:
    found = only_key(node, path, _READERS, problems)
    if found is None:
        return None
    name, value = found
    body = Mapped(value, f"{path}.{name}", problems)
    step = _READERS[name](body, problems)
    body.done()
    return steps.PlacedStep(step, problems.place(node))


def _check_names(seeds: list[steps.RepositorySeed], nodes: list[yaml.Node], problems: Problems) -> None:
    seen: set[str] = set()
    for seed, node in zip(seeds, nodes, strict=True):
        if seed.name and seed.name in seen:
            problems.add(node, "repositories", f"two repositories have the name {seed.name}")
        seen.add(seed.name)


def _upload(body: Mapped, problems: Problems) -> steps.Step:
    path = body.text("path")
    count = body.integer("count", 1, least=1)
    content = body.optional_text("content")
    if count > 1 and path and not path.endswith("/"):
        problems.add(body.node, body.path, "several objects need a path that ends in `/`")
    size = body.size("size", 16)
    return steps.Upload(body.text("branch"), path, size, count, content, body.words("metadata"))


def _copy(body: Mapped, problems: Problems) -> steps.Step:
    return steps.Copy(
        body.text("branch"), body.text("source"), body.text("destination"), body.optional_text("ref")
    )


def _commit(body: Mapped, problems: Problems) -> steps.Step:
    return steps.Commit(
        body.text("branch"),
        body.text("message"),
        body.age("age"),
        body.words("metadata"),
        body.flag("allow_empty"),
    )


def _merge(body: Mapped, problems: Problems) -> steps.Step:
    strategy = body.text("strategy", "")
    if strategy not in ("", "source-wins", "dest-wins"):
        problems.add(body.node, body.child("strategy"), "must be source-wins or dest-wins")
    return steps.Merge(body.text("source"), body.text("into"), body.text("message", ""), strategy)


def _gc_rules(body: Mapped, problems: Problems) -> steps.Step:
    default = body.integer("default_retention_days")
    node = body.take("branches")
    branches: dict[str, int] = {}
    if node is not None:
        inner = Mapped(node, body.child("branches"), problems)
        branches = {name: inner.integer(name) for name, _ in inner.items()}
    return steps.SetGcRules(default, branches)


def _protect(body: Mapped, problems: Problems) -> steps.Step:
    items = sequence(body.take("patterns", required=True), body.child("patterns"), problems)
    patterns = []
    for item in items:
        if isinstance(item, yaml.ScalarNode) and item.value:
            patterns.append(item.value)
        else:
            problems.add(item, body.child("patterns"), "must be a text")
    return steps.Protect(tuple(patterns))


_READERS: Mapping[str, Callable[[Mapped, Problems], steps.Step]] = {
    "upload": _upload,
    "copy": _copy,
    "delete": lambda b, _: steps.Delete(b.text("branch"), b.text("path")),
    "commit": _commit,
    "branch": lambda b, _: steps.MakeBranch(b.text("name"), b.text("source"), b.flag("hidden")),
    "drop_branch": lambda b, _: steps.DropBranch(b.text("name")),
    "merge": _merge,
    "revert": lambda b, _: steps.Revert(b.text("branch"), b.text("ref"), b.integer("parent", 1, least=1)),
    "cherry_pick": lambda b, _: steps.CherryPick(b.text("branch"), b.text("ref")),
    "hard_reset": lambda b, _: steps.HardReset(b.text("branch"), b.text("to")),
    "drop_staged": lambda b, _: steps.DropStaged(b.text("branch")),
    "tag": lambda b, _: steps.Tag(b.text("name"), b.text("ref")),
    "sort_heads": lambda b, _: steps.SortHeads(b.text("first"), b.text("then"), b.age("age")),
    "gc_rules": _gc_rules,
    "protect": _protect,
}

"""``settings.md``: every key of a tree, out of the JSON Schemas, and every variable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakeplan.tree.schemas import bundled_schema
from tools.reference.environment import environment_section
from tools.reference.markdown import GENERATED, anchor, code, table

Schema = Mapping[str, Any]

_HEAD = f"""{GENERATED}

# Settings

A tree is a folder with `lakeplan.yaml` and the files that its `include` names. `lakeplan validate` names
every key that is wrong with file, line and column. `lakeplan show --resolved REPO` prints every value
that holds for a repository, with the place it came from. `lakeplan schema tree` and `lakeplan schema
repository` print the JSON Schemas that this page is made from, for an editor.

In a path `<name>` is a name of one's own, and `[]` stands for the items of a list. A key that is absent
is not managed: it changes nothing on a server. An empty value (`~`, `null`, nothing) is an error, unless
the key says otherwise."""


@dataclass(frozen=True)
class Section:
    """A part of the page: the keys of a schema that ships, or of one definition in it.

    ``path`` stands before them; ``without`` names keys that another section tells."""

    title: str
    text: str
    schema: str
    definition: str = ""
    path: str = ""
    without: tuple[str, ...] = ()


SECTIONS = (
    Section("lakeplan.yaml", "The root of a tree.", "tree"),
    Section(
        "Repository files",
        "Files that `include` names. `repositories` and `overrides` may be in `lakeplan.yaml` too.",
        "repository",
    ),
    Section(
        "Entries",
        "Below `repositories.<name>`, in either kind of file. The name is exact, a glob (`team-a-*`), or "
        "`server/name`. Where several entries fit, maps are merged, the exact entry last; lists are merged "
        "by `branch_id` or `pattern`, by `id`, or by what a hold names. `clear` needs an exact entry.",
        "repository",
        "entry",
    ),
    Section(
        "Profiles",
        "Below `profiles.<name>` in `lakeplan.yaml`: what entries take over with `use`. Besides these "
        "two they have the blocks of [entries](#entries), with the same keys.",
        "repository",
        "profile",
        without=("gc", "branch_lifecycle", "object_lifecycle", "holds", "lifecycle", "sweep"),
    ),
    Section(
        "Overrides",
        "Items of `overrides`, in either kind of file.",
        "repository",
        "override",
        "overrides[]",
    ),
    Section(
        "GC rules files",
        "What `gc: {file: …}` names: JSON or YAML, as lakectl takes it.",
        "repository",
        "gc_file",
    ),
    Section(
        "Policy files",
        "What `branch_lifecycle: {file: …}` names: YAML or JSON, as lakectl takes it.",
        "repository",
        "policies_file",
    ),
    Section(
        "Policy tests",
        "Files below `tests/` of a tree, for `lakeplan test`: see [policy tests](policy-tests.md).",
        "policy-test",
    ),
)

_ELSEWHERE = {"entry": "Entries", "profile": "Profiles", "override": "Overrides"}
"""Definitions with a section of their own, and its title."""


@dataclass(frozen=True)
class Key:
    """One key: its path, what it may be, its default as JSON (empty: none), its meaning, and whether it must
    be there."""

    path: str
    kind: str
    default: str
    meaning: str
    required: bool


def settings_page() -> str:
    """The page as it lies in ``docs``."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts += [f"## {section.title}", section.text]
        rows = [_row(key) for key in keys_of(section)]
        parts.append(table(("key", "value", "default", "meaning"), rows))
    return "\n\n".join([*parts, environment_section()]) + "\n"


def keys_of(section: Section) -> list[Key]:
    """Every key of a section, each before those below it."""
    document = bundled_schema(section.schema)
    walk = _Walk(document.get("$defs", {}))
    schema = walk.definitions[section.definition] if section.definition else document
    told = {k: v for k, v in schema["properties"].items() if k not in section.without}
    return list(walk.keys({**schema, "properties": told}, section.path))


@dataclass(frozen=True)
class _Walk:
    """Through one schema, with the definitions that it refers to."""

    definitions: Schema

    def keys(self, schema: Schema, path: str) -> Iterator[Key]:
        for name, given in schema.get("properties", {}).items():
            here = f"{path}.{name}" if path else name
            found = self.resolved(given)
            needed = name in schema.get("required", ())
            yield Key(here, _kind(found), _default(found), str(found.get("description", "")), needed)
            yield from self._below(found, here)

    def _below(self, schema: Schema, path: str) -> Iterator[Key]:
        """The keys of a map, of each value of a map by names, or of the items of a list."""
        yield from self.keys(schema, path)
        for word, step in (("additionalProperties", ".<name>"), ("items", "[]")):
            given = schema.get(word)
            if isinstance(given, Mapping) and _name(given) not in _ELSEWHERE:
                yield from self._below(self.resolved(given), path + step)

    def resolved(self, schema: Schema) -> Schema:
        """A schema with what it refers to; its own words win."""
        name = _name(schema)
        return {**self.resolved(self.definitions[name]), **schema} if name else schema


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        *others, last = (code(str(value)) for value in schema["enum"])
        return f"{', '.join(others)} or {last}" if others else last
    for word in ("additionalProperties", "items"):
        given = schema.get(word)
        if isinstance(given, Mapping) and (title := _ELSEWHERE.get(_name(given))):
            return f"{schema['x-expected']}: see [{title.lower()}](#{anchor(title)})"
    return str(schema.get("x-expected", ""))


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    value = schema["default"]
    return value if isinstance(value, str) else json.dumps(value)


def _row(key: Key) -> tuple[str, str, str, str]:
    return code(key.path), key.kind, "required" if key.required else code(key.default), key.meaning

"""Checks a tree against its JSON Schema, and suggests the word that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

from jsonschema import validators
from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from lakeplan import limits
from lakeplan.tree.schemas import VALIDATOR, load_schema
from lakeplan.tree.yaml import (
    ListNode,
    MapNode,
    Node,
    NodePath,
    Problems,
    ScalarNode,
    is_surprise,
    to_plain,
    walk,
)
from lakeplan.values.desired import Source
from lakeplan.values.units import first_of


def edit_distance(a: str, b: str, limit: int) -> int:
    """Return the number of insertions, deletions, replacements and swaps of adjacent letters between two
    words, or ``limit + 1`` if it is more than ``limit``."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        before, last, row = row, before, [i] + [0] * len(b)
        for j, cb in enumerate(b, 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (ca != cb))
            if i > 1 and j > 1 and ca == b[j - 2] and a[i - 2] == cb:
                row[j] = min(row[j], last[j - 2] + 1)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)


def suggestion(word: str, known: Collection[str]) -> str:
    """Return a hint with the known word that was probably meant, or else with the known words."""
    close = nearest(word, known)
    return f"did you mean {close}?" if close else f"known names are {listed(known)}"


def listed(known: Collection[str]) -> str:
    """Return the first known words and the number of others."""
    return first_of(known, limits.SUGGESTION_NAMES)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the first known word with the smallest distance, if that distance is small for the word's
    length. If there are very many words, only the first ones are compared."""
    if len(word) > 100:
        return None
    limit, steps = min(4, (len(word) + 1) // 3), limits.SUGGESTION_STEPS
    scored: list[tuple[int, int, str]] = []
    word, letters = word.lower(), set(word.lower())
    for i, one in enumerate(known):
        steps -= 3
        # One edit adds or removes at most two letters.
        if abs(len(one) - len(word)) <= limit and len(letters.symmetric_difference(one.lower())) <= 2 * limit:
            steps -= len(word) * len(one)
            scored.append((edit_distance(word, one.lower(), limit), i, one))
        if steps <= 0:
            break
    best = min(scored, default=None)
    return best[2] if best and best[0] <= limit else None


RENAMED = {"acknowledge": "overrides", "lifecycle": "branch_lifecycle"}
"""The current names of keys, by their earlier names."""
FREE_TEXT = frozenset({"description", "reason", "owner"})


def check_structure(node: Node, schema: str, problems: Problems) -> set[NodePath]:
    """Add a problem for everything that a schema does not allow, and return the paths with a problem.

    ``schema`` names a schema or one definition in it: ``tree``, ``repository``, ``repository#gc_file``.
    """
    every = (
        (source, (*error.absolute_path, *extra), text)
        for error in _validator(schema).iter_errors(to_plain(node))
        for source, extra, text in _explain(error, _locate(node, error.absolute_path))
    )
    new = ((source, path, text) for source, path, text in every if not problems.has(source, path))
    problems_found = list(islice(new, limits.TREE_PROBLEMS + 1))
    for problem in problems_found:
        problems.add(*problem)
    wrong = {path for _, path, _ in problems_found}
    _check_words(node, wrong, problems)
    return wrong


def _check_words(node: Node, wrong: set[NodePath], problems: Problems) -> None:
    """Check what a schema cannot check: unquoted words that other readers read as booleans, and variables."""
    for path, child in walk(node):
        if not isinstance(child, ScalarNode) or not isinstance(child.value, str):
            continue
        if child.plain and is_surprise(child.text) and path not in wrong:
            problems.add(
                child.source,
                path,
                f"some YAML parsers interpret {child.text} as true or false; put it in quotes",
            )
        if "${" in child.value and path[:1] != ("servers",) and path[-1] not in FREE_TEXT:
            problems.add(child.source, path, "variables are supported only in the settings of servers")


def _locate(node: Node, path: Iterable[str | int]) -> Node:
    for part in path:
        match node, part:
            case MapNode(), str():
                node = node.items[part]
            case ListNode(), int():
                node = node.items[part]
            case _:
                break
    return node


# ---- words
def _explain(error: ValidationError, node: Node) -> Iterator[tuple[Source, NodePath, str]]:
    """Yield place, further path and text of the problems in a schema error."""
    schema: dict[str, Any] = error.schema if isinstance(error.schema, dict) else {}
    match error.validator:
        case "additionalProperties":
            yield from _unknown_keys(node, schema)
        case "required":
            if isinstance(node, MapNode):
                missing = [key for key in schema["required"] if key not in node.items]
                # Each missing key has its own error, which names it.
                key = next((k for k in missing if repr(k) in error.message), missing[0])
                add = "; add `apiVersion: lakeplan/v1`" if key == "apiVersion" else ""
                yield node.source, (), f"the key {key} is missing{add}"
        case "minProperties" | "minItems":
            if "x-clearable" in schema:
                yield node.source, (), _empty_block(schema["x-clearable"])
            else:
                yield node.source, (), f"this value is empty; write {_expected(schema)}, or remove the key"
        case _:
            yield node.source, (), _wrong_value(node, schema)


def _unknown_keys(node: Node, schema: dict[str, Any]) -> Iterator[tuple[Source, NodePath, str]]:
    known: Sequence[str] = list(schema.get("properties", {}))
    if not isinstance(node, MapNode):
        return
    for key in node.items:
        if RENAMED.get(key) in known:
            yield node.where(key), (key,), f"{key} is now called {RENAMED[key]}; move its values there"
        elif key not in known:
            close = nearest(key, known)
            hint = f"did you mean {close}?" if close else f"known keys are {', '.join(known)}"
            yield node.where(key), (key,), f"unknown key {_shown(key)}: {hint}"


def _wrong_value(node: Node, schema: dict[str, Any]) -> str:
    expected = _expected(schema)
    if not isinstance(node, ScalarNode):
        kind = "a map" if isinstance(node, MapNode) else "a list"
        return f"expected {expected}, but this is {kind}"
    value = node.value
    if value is None:
        if "x-clearable" in schema:
            return _empty_block(schema["x-clearable"])
        return f"this value is empty; write {expected}, or remove the key"
    types = schema.get("type", ())
    types = (types,) if isinstance(types, str) else types
    if "boolean" in types and isinstance(value, str) and is_surprise(value):
        return f"{_shown(value)} is text in YAML 1.2; write true or false"
    if isinstance(value, str):
        if "URL" in expected and not {"@", "?"}.isdisjoint(value):
            return f"expected {expected}; the value is not shown, because it may contain a secret"
        close = nearest(value, [v for v in schema.get("enum", ()) if isinstance(v, str)])
        close = f'"{value}d"' if "pattern" in schema and re.search(schema["pattern"], f"{value}d") else close
        hint = f"; did you mean {close}?" if close else ""
        return f"expected {expected}, but this is the text {_shown(value)}{hint}"
    if "string" in types and not isinstance(value, bool) and "pattern" not in schema:
        return f'expected {expected}, but this is the number {node.text}; put it in quotes, "{node.text}"'
    if types == ("string",):
        meant = next(
            (t for t in (node.text, f"{node.text}d") if re.search(schema.get("pattern", ""), t)), None
        )
        hint = f'; did you mean "{meant}"?' if meant is not None else ""
        return f"expected {expected}, but this is {node.text} without quotes{hint}"
    return f"expected {expected}, but this is {node.text}"


def _empty_block(block: str) -> str:
    return (
        f"this value is empty; to remove the {block} settings from the server, write `{block}: clear` (in an"
        f" entry with the exact name of a repository); to leave the server unchanged, remove {block}"
    )


def _expected(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return (
            "one of " + ", ".join(str(v) for v in schema["enum"])
            if len(schema["enum"]) > 1
            else str(schema["enum"][0])
        )
    return str(schema.get("x-expected") or schema.get("type", "something else"))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


# ---- schemas
def _is_integer(_: object, value: object) -> bool:
    """Return whether a value is an integer. In JSON Schema, 3.0 is an integer, but in a tree it is a
    mistake."""
    return isinstance(value, int) and not isinstance(value, bool)


def _unique(_: object, wanted: bool, value: object, schema: object) -> Iterator[ValidationError]:
    """Check ``uniqueItems`` of texts, because jsonschema compares every pair of items in a list that it
    cannot sort."""
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    if wanted and len(set(texts)) < len(texts):
        yield ValidationError("the list contains the same item twice")


@cache
def _validator(name: str) -> Any:
    document, _, definition = name.partition("#")
    # With $schema, jsonschema would not use this type checker.
    contents = {
        n: {k: v for k, v in load_schema(n).items() if k != "$schema"}
        for n in {"tree", "repository", document}
    }
    resources = [(f"{n}.v1.json", DRAFT202012.create_resource(c)) for n, c in contents.items()]
    registry: Registry[Any] = Registry().with_resources(resources)
    checker = VALIDATOR.TYPE_CHECKER.redefine("integer", _is_integer)
    kind: Any = validators.extend(VALIDATOR, {"uniqueItems": _unique}, type_checker=checker)  # type: ignore[no-untyped-call]
    reference = f"{document}.v1.json" + (f"#/$defs/{definition}" if definition else "")
    return kind({"$ref": reference}, registry=registry)

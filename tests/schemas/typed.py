"""Whether the type of a document says what its JSON Schema says: keys, which of them are required, types."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, is_typeddict

SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def differences(kind: Any, schema: Mapping[str, Any], part: Any = None, at: str = "$") -> list[str]:
    """One line for each disagreement of ``kind`` and ``part`` of the schema (all of it by default)."""
    return list(_compared(kind, schema if part is None else part, schema, at))


def _compared(kind: Any, part: Mapping[str, Any], whole: Mapping[str, Any], at: str) -> Iterator[str]:
    kinds = _kinds(kind)
    parts = list(_parts(part, whole))
    nulls = type(None) in kinds, any(each.get("type") == "null" for each in parts)
    if nulls[0] != nulls[1]:
        yield f"{at}: null is {'only in the type' if nulls[0] else 'only in the schema'}"
    kinds = [each for each in kinds if each is not type(None)]
    parts = [each for each in parts if each.get("type") != "null"]
    for one in parts:
        found = [list(_one(each, one, whole, at)) for each in kinds]
        if [] not in found:
            yield from min(found, key=len, default=[f"{at}: the type has no {one}"])
    for each in kinds:
        if not any(not list(_one(each, one, whole, at)) for one in parts) and len(kinds) > 1:
            yield f"{at}: the schema has no {each}"


def _one(kind: Any, part: Mapping[str, Any], whole: Mapping[str, Any], at: str) -> Iterator[str]:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (object, Any):
        return
    if is_typeddict(kind):
        yield from _object(kind, part, whole, at)
    elif origin is Literal:
        if sorted(map(repr, arguments)) != sorted(map(repr, _values(part))):
            yield f"{at}: {kind} and {part}"
    elif origin in (list, tuple, Sequence):
        if part.get("type") != "array":
            yield f"{at}: {kind} and {part}"
        elif "items" in part:
            yield from _compared(arguments[0], part["items"], whole, f"{at}[]")
    elif origin in (dict, Mapping) or kind in (dict, Mapping):
        yield from _mapping(arguments or (str, object), part, whole, at)
    elif SIMPLE.get(kind) != part.get("type", _type_of(part)):
        yield f"{at}: {kind} and {part}"


def _object(kind: Any, part: Mapping[str, Any], whole: Mapping[str, Any], at: str) -> Iterator[str]:
    hints = typing.get_type_hints(kind, include_extras=True)
    properties = part.get("properties", {})
    if part.get("type") == "object" and not properties:
        return  # the schema leaves it open
    if part.get("type") != "object" or hints.keys() != properties.keys():
        yield f"{at}: only one has {sorted(hints.keys() ^ properties.keys())}"
        return
    # annotations that are text hide NotRequired from the type itself
    required = {key for key in kind.__required_keys__ if get_origin(hints[key]) is not NotRequired}
    if required != set(part.get("required", ())):
        yield f"{at}: only one requires {sorted(required ^ set(part.get('required', ())))}"
    for key, hint in hints.items():
        if get_origin(hint) in (NotRequired, Required):
            hint = get_args(hint)[0]
        yield from _compared(hint, properties[key], whole, f"{at}.{key}")


def _mapping(
    arguments: Sequence[Any], part: Mapping[str, Any], whole: Mapping[str, Any], at: str
) -> Iterator[str]:
    if part.get("type") != "object":
        yield f"{at}: a mapping and {part}"
        return
    keys, value = arguments
    names = get_args(keys)
    if names and set(names) != set(part.get("properties", ())):
        yield f"{at}: only one has {sorted(set(names) ^ set(part.get('properties', ())))}"
    every = [*part.get("properties", {}).values(), *part.get("patternProperties", {}).values()]
    if isinstance(part.get("additionalProperties"), Mapping):
        every.append(part["additionalProperties"])
    for each in every:
        yield from _compared(value, each, whole, f"{at}.*")


def _kinds(kind: Any) -> list[Any]:
    """A union, or a Literal with None, apart."""
    if get_origin(kind) in (Union, types.UnionType):
        return [one for each in get_args(kind) for one in _kinds(each)]
    return [kind]


def _parts(part: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The alternatives of a schema, references followed; null apart."""
    if "$ref" in part:
        found: Any = whole
        for key in part["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        yield from _parts(found, whole)
        return
    several = part.get("anyOf") or part.get("oneOf")
    if several:
        for each in several:
            yield from _parts(each, whole)
    elif isinstance(part.get("type"), list):
        for each in part["type"]:
            yield {**part, "type": each}
    elif None in part.get("enum", ()):
        yield {**part, "enum": [value for value in part["enum"] if value is not None]}
        yield {"type": "null"}
    else:
        yield part


def _values(part: Mapping[str, Any]) -> Sequence[Any]:
    return [part["const"]] if "const" in part else part.get("enum", ())


def _type_of(part: Mapping[str, Any]) -> str | None:
    """The type of an enumeration's values."""
    names = {SIMPLE.get(type(value)) for value in _values(part)}
    return names.pop() if len(names) == 1 else None

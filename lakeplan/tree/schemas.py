"""The JSON Schemas that lakeplan ships: in the package of a wheel, and beside the package in a checkout."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError, best_match

import lakeplan
from lakeplan.errors import LakeplanError, UsageError
from lakeplan.limits import TooLarge, parse_json
from lakeplan.values.documents import format_problem
from lakeplan.values.gates import GATES
from lakeplan.values.local import read_file, why_unreadable

_PACKAGE = Path(lakeplan.__file__).resolve().parent
_REPOSITORY_DEFINITIONS = "repository.v1.json#/$defs/"


def _matches(_: object, pattern: str, value: object, schema: object) -> Iterator[ValidationError]:
    """Check ``pattern`` as JSON Schema defines it: Python's ``$`` also matches before a last line break."""
    if isinstance(value, str) and not re.search(pattern.replace("$", r"\Z"), value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


VALIDATOR: Any = validators.extend(Draft202012Validator, {"pattern": _matches})  # type: ignore[no-untyped-call]


def shipped(path: str) -> Path:
    """Return a file or folder that lakeplan ships: in the package if it is installed, and beside it in a
    checkout."""
    installed = _PACKAGE / path
    return installed if installed.exists() else _PACKAGE.parent / path


def schema_folder() -> Path:
    return shipped("schemas")


def schema_names() -> tuple[str, ...]:
    """Return the names of the schemas, such as ``tree`` for ``tree.v1.json``."""
    return tuple(sorted(path.name.split(".")[0] for path in schema_folder().glob("*.v1.json")))


@cache
def load_schema(name: str) -> dict[str, Any]:
    """Return a schema. Callers must not change it."""
    path = schema_folder() / f"{name}.v1.json"
    if name not in schema_names():
        raise UsageError(f"unknown schema {name!r}", hint=f"Use one of {', '.join(schema_names())}.")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def schema_problem(name: str, document: Any) -> str:
    """Return the most relevant problem that a schema finds in a document, with its place, or "" if there is
    none."""
    error = best_match(VALIDATOR(load_schema(name)).iter_errors(document))
    if error is None:
        return ""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    text = error.message.replace("is a required property", "is missing")
    return f"{place.lstrip('.') or 'the document'}: {text}"


def read_document(
    path: Path, schema: str, what: str, *, hint: str, error: type[LakeplanError] = UsageError
) -> Any:
    """Return a lakeplan JSON document that the command line names. Raises ``error``, with the file, if the
    document cannot be read or does not match the schema."""
    try:
        document = parse_json(read_file(path))
        kind = load_schema(schema)["properties"].get("format", {}).get("const")
        reason = (format_problem(document, kind) if kind else "") or schema_problem(schema, document)
    except (OSError, TooLarge) as unreadable:
        reason = why_unreadable(unreadable)
    except ValueError:
        reason = "it is incomplete or not valid JSON"
    if reason:
        raise error(f"cannot read {what}: {reason[:200]}", where=str(path), hint=hint)
    return document


def bundled_schema(name: str) -> dict[str, Any]:
    """Return a schema that needs no other file, with copies of definitions from the repository schema. It has
    the names of gates as examples, so that editors complete them."""
    schema = load_schema(name)
    if name != "repository" and _REPOSITORY_DEFINITIONS not in json.dumps(schema):
        return schema
    bundled: dict[str, Any] = _point_inside(schema)
    definitions = bundled.setdefault("$defs", {})
    for key, definition in load_schema("repository")["$defs"].items():
        definitions.setdefault(key, definition)
    definitions["gate"] = {**definitions["gate"], "examples": list(GATES)}
    return bundled


def _point_inside(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "#/$defs/" + child.removeprefix(_REPOSITORY_DEFINITIONS)
            if key == "$ref" and child.startswith(_REPOSITORY_DEFINITIONS)
            else _point_inside(child)
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [_point_inside(child) for child in value]
    return value

"""The properties that a refs dump's files carry beside ``type``: what they hold, and its protobuf schema.

They are part of each file's id, so they are spelled as lakeFS 1.x spells them (protobuf's JSON mapping of a
``DescriptorProto``, a space after commas between members, none after colons).
"""

from __future__ import annotations

import json
from typing import Literal

EntityName = Literal["commit", "branch", "tag"]
_PACKAGE = "io.treeverse.lakefs.graveler"
_Fields = tuple[tuple[str, str, str], ...]
_COMMIT: _Fields = (
    ("id", "OPTIONAL", "STRING"),
    ("committer", "OPTIONAL", "STRING"),
    ("message", "OPTIONAL", "STRING"),
    ("creation_date", "OPTIONAL", ".google.protobuf.Timestamp"),
    ("meta_range_id", "OPTIONAL", "STRING"),
    ("metadata", "REPEATED", f".{_PACKAGE}.CommitData.MetadataEntry"),
    ("parents", "REPEATED", "STRING"),
    ("version", "OPTIONAL", "INT32"),
    ("generation", "OPTIONAL", "INT32"),
)
_BRANCH: _Fields = (
    ("id", "OPTIONAL", "STRING"),
    ("commit_id", "OPTIONAL", "STRING"),
    ("staging_token", "OPTIONAL", "STRING"),
    ("sealed_tokens", "REPEATED", "STRING"),
    ("hidden", "OPTIONAL", "BOOL"),
)
_TAG: _Fields = (("id", "OPTIONAL", "STRING"), ("commit_id", "OPTIONAL", "STRING"))
_MAP_ENTRY: _Fields = (("key", "OPTIONAL", "STRING"), ("value", "OPTIONAL", "STRING"))
_MESSAGES: dict[EntityName, tuple[str, _Fields]] = {
    "commit": ("CommitData", _COMMIT),
    "branch": ("BranchData", _BRANCH),
    "tag": ("TagData", _TAG),
}


def dump_properties(entity: EntityName) -> dict[str, str]:
    """The user properties of a dump's ranges and metaranges, without ``type``."""
    message, fields = _MESSAGES[entity]
    definition: dict[str, object] = {"name": message, "field": _describe(fields)}
    if entity == "commit":
        nested = {"name": "MetadataEntry", "field": _describe(_MAP_ENTRY), "options": {"mapEntry": True}}
        definition["nestedType"] = [nested]
    return {
        "entity": entity,
        "schema_definition": json.dumps(definition, separators=(", ", ":")),
        "schema_name": f"{_PACKAGE}.{message}",
    }


def _describe(fields: _Fields) -> list[dict[str, object]]:
    described: list[dict[str, object]] = []
    for number, (name, label, kind) in enumerate(fields, start=1):
        field: dict[str, object] = {"name": name, "number": number, "label": f"LABEL_{label}"}
        if kind.startswith("."):
            field |= {"type": "TYPE_MESSAGE", "typeName": kind}
        else:
            field["type"] = f"TYPE_{kind}"
        first, *others = name.split("_")
        field["jsonName"] = first + "".join(map(str.capitalize, others))
        described.append(field)
    return described

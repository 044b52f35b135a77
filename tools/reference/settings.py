"""``settings.md``: every key of a tree, out of the JSON Schemas, and every variable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakeplan.cli.process import APPROVED_BY, PULL_REQUEST
from lakeplan.lakefs.credentials import ACCESS_KEY_ID, CONFIG_FILE, ENDPOINT, SECRET_ACCESS_KEY, STATE_URL
from lakeplan.tree.schemas import bundled_schema
from lakeplan.tree.servers import VARIABLE_PREFIX
from lakeplan.values.desired import SERVER_SUFFIXES
from tools.reference.markdown import GENERATED, anchor, code, table

_SERVER: Mapping[str, str] = {
    "ACCESS_KEY_ID": "The access key for a server of the tree.",
    "SECRET_ACCESS_KEY": "Its secret.",
    "ENDPOINT_URL": "Binds the two: they are sent only where the tree's `endpoint_url` equals it. Required "
    "without a terminal; at one, a person approves each new address.",
    "STORAGE_URL": "Binds an `endpoint_url` in the server's `storages` in the same way. Presigned addresses "
    "may lead here too. Several are separated by spaces.",
}

OTHERS: Mapping[str, str] = {
    STATE_URL: "Binds a state store that is not a folder: it has to equal the tree's `state.url`. Required "
    "without a terminal.",
    "LAKEPLAN_NOTIFY_<CHANNEL>_URL": "The secret URL of a channel of `notify`: [notifications]"
    "(notifications.md).",
    f"{VARIABLE_PREFIX}<X>": "What `${X}` reads in the settings of servers; nothing else is read there.",
    CONFIG_FILE: "lakectl's file, in place of `~/.lakectl.yaml`. lakectl's settings hold for a tree with one "
    "server that has no variables of its own.",
    ENDPOINT: "lakectl's endpoint, before its file's.",
    ACCESS_KEY_ID: "lakectl's access key, before its file's.",
    SECRET_ACCESS_KEY: "lakectl's secret, before its file's.",
    "GITHUB_TOKEN": "The token of a job, for `lakeplan ci` on GitHub.",
    "LAKEPLAN_TEAM_TOKEN": "A token that may read the organization's members, for `/lakeplan approve`.",
    "REVIEW_TOKEN": "A project access token with the scope api, for `lakeplan ci` on GitLab.",
    "CI": "Set on CI runners. `branches run` and `sweep run` then refuse a state in a folder, and `drift` "
    "records no HEADs in one: it would be lost with the runner.",
    PULL_REQUEST: "The number or page of the pull request, for the history of a job after its merge.",
    APPROVED_BY: "Who approved the run, for the history.",
    **dict.fromkeys(
        [f"GITHUB_{name}" for name in ("ACTIONS", "ACTOR", "REF", "REPOSITORY", "RUN_ID", "SERVER_URL")],
        "Set by GitHub Actions. The history records actor, job and pull request; notifications link the job.",
    ),
    **dict.fromkeys(
        ("GITLAB_CI", "GITLAB_USER_LOGIN", "CI_JOB_URL", "CI_PROJECT_URL", "CI_MERGE_REQUEST_IID"),
        "Set by GitLab CI. The history records user, job and merge request; notifications link the job.",
    ),
    "XDG_CACHE_HOME": "Where the user's cache directory is; `~/.cache` without it.",
    "XDG_CONFIG_HOME": "Where the addresses that a person approved are kept; `~/.config` without it.",
    "XDG_STATE_HOME": "Where the key is kept that signs what marks remember of other repositories; "
    "`~/.local/state` without it.",
    "JAVA_HOME": "The Java that Spark starts with; else `java` of the PATH.",
    "AZURE_STORAGE_CONNECTION_STRING": "Connection string of an Azure storage account, with a key or SAS.",
    "AZURE_STORAGE_KEY": "The key of an Azure account.",
    "AZURE_STORAGE_ACCOUNT": "Binds key and SAS to this account: they are sent to no other.",
    "AZURE_STORAGE_SAS_TOKEN": "A SAS, in place of a key. Requires `AZURE_STORAGE_ACCOUNT`.",
    "AZURE_TENANT_ID": "With the next two a service principal, as azure-identity reads it; the official "
    "collector takes it too.",
    "AZURE_CLIENT_ID": "The service principal's id.",
    "AZURE_CLIENT_SECRET": "Its secret.",
    "GOOGLE_APPLICATION_CREDENTIALS": "A file of application default credentials, as google-auth reads it.",
    "STORAGE_EMULATOR_HOST": "An emulator of Google Cloud Storage for `gs://` URLs. No token is sent to it.",
    "SPARK_HOME": "The Spark installation in which lakeplan looks for settings of the official collector.",
    **dict.fromkeys(
        ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
        "A folder in which lakeplan looks for settings of the official collector's Spark and Hadoop.",
    ),
}


def variables() -> Mapping[str, str]:
    """Every variable and its meaning; ``<SERVER>`` and ``<X>`` stand for names of one's own."""
    return {**{f"LAKEPLAN_<SERVER>_{suffix}": _SERVER[suffix] for suffix in SERVER_SUFFIXES}, **OTHERS}


def environment_section() -> str:
    rows = [(code(name), meaning) for name, meaning in variables().items()]
    return "\n\n".join(
        [
            "## Environment variables",
            "`LAKEPLAN_<OPTION>` sets any option: see [commands](commands.md). `<SERVER>` is the server's "
            "name in the tree, in capitals, `-` as `_`. Credentials for S3 come from boto3's own chain (its "
            "variables, files and roles), for Azure from the variables below, or from azure-identity where "
            "it is installed, for Google Cloud Storage from application default credentials.",
            table(("variable", "meaning"), rows),
        ]
    )


Schema = Mapping[str, Any]

_HEAD = f"""{GENERATED}

# Settings

A tree is a folder with `lakeplan.yaml` and the files that its `include` names. `lakeplan validate` names
every key that is wrong with file, line and column. `lakeplan show --resolved REPO` prints every value
that holds for a repository, with the place it came from. `lakeplan schema tree` and `lakeplan schema
repository` print the JSON Schemas that this page is made from, for an editor.

In a path `<name>` is a name that you choose, and `[]` stands for the items of a list. A key that is absent
is not managed: it changes nothing on a server. An empty value (`~`, `null`, nothing) is an error, unless
the key says otherwise."""


@dataclass(frozen=True)
class Section:
    """A part of the page: the keys of a schema that ships, or of one definition in it.

    ``path`` is put before them; ``without`` names keys that another section has."""

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
        without=("gc", "branch_lifecycle", "object_lifecycle", "holds", "sweep", "pins"),
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
    shown = {k: v for k, v in schema["properties"].items() if k not in section.without}
    return list(walk.keys({**schema, "properties": shown}, section.path))


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

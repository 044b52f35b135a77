"""``settings.md``: every key of a tree, out of the JSON Schemas, and every variable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakeplan.cli.process import APPROVED_BY, MERGED_AT, PULL_REQUEST
from lakeplan.lakefs.credentials import ACCESS_KEY_ID, CONFIG_FILE, ENDPOINT, SECRET_ACCESS_KEY, STATE_URL
from lakeplan.tree.schemas import bundled_schema
from lakeplan.tree.servers import VARIABLE_PREFIX
from lakeplan.values.desired import SERVER_SUFFIXES
from tools.reference.markdown import GENERATED, anchor, code, table

_SERVER: Mapping[str, str] = {
    "ACCESS_KEY_ID": "Access key for a server in the tree.",
    "SECRET_ACCESS_KEY": "Secret key for the server.",
    "ENDPOINT_URL": "Confirms the server's address: lakeplan sends the keys only if the value equals the"
    " tree's `endpoint_url`. Required if there is no terminal. At a terminal, lakeplan asks about each new"
    " address.",
    "STORAGE_URL": "Confirms an `endpoint_url` in the server's `storages`, and allows presigned addresses "
    "there. Separate several URLs with spaces.",
}

OTHERS: Mapping[str, str] = {
    STATE_URL: "Confirms a state store that is not a folder in the tree. The value must equal the tree's"
    " `state.url`. Required if there is no terminal.",
    "LAKEPLAN_NOTIFY_<CHANNEL>_URL": "Secret URL of a channel in `notify` "
    "([notifications](notifications.md)).",
    f"{VARIABLE_PREFIX}<X>": "Value of `${X}` in the settings of servers. `${…}` can read no other "
    "variables.",
    CONFIG_FILE: "lakectl's configuration file. Default: `~/.lakectl.yaml`. lakeplan uses lakectl's settings "
    "for a tree with one server, if that server has no variables of its own.",
    ENDPOINT: "lakectl's endpoint. Overrides its configuration file.",
    ACCESS_KEY_ID: "lakectl's access key. Overrides its configuration file.",
    SECRET_ACCESS_KEY: "lakectl's secret key. Overrides its configuration file.",
    "GITHUB_TOKEN": "Token of the job, for `lakeplan ci` on GitHub.",
    "LAKEPLAN_TEAM_TOKEN": "Token that can read the organization's members, for `/lakeplan approve`.",
    "REVIEW_TOKEN": "Project access token with the `api` scope, for `lakeplan ci` on GitLab.",
    "CI": "Set on CI runners. `branches run` and `sweep run` then refuse a state in a folder, and `drift` "
    "records no HEADs there, because the folder would be lost with the runner.",
    PULL_REQUEST: "Number or URL of the merged pull request, to record in the history.",
    MERGED_AT: "When the pull request was merged (ISO 8601). `apply` then refuses the plan if a pull request "
    "that was merged later, such as a revert, was applied first.",
    APPROVED_BY: "Person who approved the run, to record in the history.",
    **dict.fromkeys(
        [f"GITHUB_{name}" for name in ("ACTIONS", "ACTOR", "REF", "REPOSITORY", "RUN_ID", "SERVER_URL")],
        "Set by GitHub Actions. The history records the actor, job and pull request. Notifications link "
        "to the job.",
    ),
    **dict.fromkeys(
        ("GITLAB_CI", "GITLAB_USER_LOGIN", "CI_JOB_URL", "CI_PROJECT_URL", "CI_MERGE_REQUEST_IID"),
        "Set by GitLab CI. The history records the user, job and merge request. Notifications link to "
        "the job.",
    ),
    "XDG_CACHE_HOME": "Folder of the user's caches. Default: `~/.cache`.",
    "XDG_CONFIG_HOME": "Folder in which lakeplan stores approved addresses. Default: `~/.config`.",
    "XDG_STATE_HOME": "Folder of the key that signs the cached data about other repositories. "
    "Default: `~/.local/state`.",
    "JAVA_HOME": "Java installation for Spark. Default: `java` on `PATH`.",
    "AZURE_STORAGE_CONNECTION_STRING": "Connection string of an Azure storage account, with a key or a SAS.",
    "AZURE_STORAGE_KEY": "Key of an Azure account.",
    "AZURE_STORAGE_ACCOUNT": "Account to which the key and the SAS belong. lakeplan sends them to no "
    "other account.",
    "AZURE_STORAGE_SAS_TOKEN": "SAS, instead of a key. Requires `AZURE_STORAGE_ACCOUNT`.",
    "AZURE_TENANT_ID": "Tenant of a service principal, for azure-identity and the official collector.",
    "AZURE_CLIENT_ID": "Id of the service principal.",
    "AZURE_CLIENT_SECRET": "Secret of the service principal.",
    "GOOGLE_APPLICATION_CREDENTIALS": "File of application default credentials, as google-auth reads it.",
    "STORAGE_EMULATOR_HOST": "Emulator of Google Cloud Storage for `gs://` URLs. lakeplan sends no "
    "token to it.",
    "SPARK_HOME": "Spark installation in which lakeplan looks for settings of the official collector.",
    **dict.fromkeys(
        ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
        "Folder in which lakeplan looks for the official collector's Spark and Hadoop settings.",
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
            "`LAKEPLAN_<OPTION>` sets any option ([commands](commands.md)). `<SERVER>` is the server's name "
            "in the tree, in capitals, with `_` for `-`. For S3, lakeplan finds credentials as boto3 "
            "does (in "
            "variables, files and roles). For Azure, it uses the variables below, or azure-identity if"
            " that package is installed. For Google Cloud Storage, it uses application default"
            " credentials.",
            table(("variable", "meaning"), rows),
        ]
    )


Schema = Mapping[str, Any]

_HEAD = f"""{GENERATED}

# Settings

A tree is a folder with `lakeplan.yaml` and the files that its `include` matches. `lakeplan validate` reports
every problem with file, line and column. `lakeplan show --resolved REPO` prints every setting of a
repository, and where each one is set. `lakeplan schema tree` and `lakeplan schema repository` print JSON
Schemas for an editor.

In the following paths, `<name>` is a name that you choose, and `[]` stands for the items of a list. If a key
is absent, lakeplan does not manage that setting, and the server keeps its value. An empty value (`~`,
`null`, nothing) is an error, unless the key says otherwise."""


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
        "Files that `include` matches. `repositories` and `overrides` can also be in `lakeplan.yaml`.",
        "repository",
    ),
    Section(
        "Entries",
        "Keys under `repositories.<name>`, in either kind of file. The name is exact, a glob (`team-a-*`),"
        " or `server/name`. If several entries match a repository, lakeplan merges them, and the exact entry"
        " takes precedence. Lists are merged by `branch_id` or `pattern`, by `id`, or by what a hold"
        " protects. `clear` requires an exact entry.",
        "repository",
        "entry",
    ),
    Section(
        "Profiles",
        "Keys under `profiles.<name>` in `lakeplan.yaml`. Entries inherit a profile with `use`. Besides"
        " these two keys, a profile can contain the same blocks as [entries](#entries).",
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
        "Keys of a rules file, which an entry references with `gc: {file: …}`. The file is JSON or YAML"
        " in lakectl's format.",
        "repository",
        "gc_file",
    ),
    Section(
        "Policy files",
        "Keys of a policy file, which an entry references with `branch_lifecycle: {file: …}`. The file"
        " is YAML or JSON in lakectl's format.",
        "repository",
        "policies_file",
    ),
    Section(
        "Policy tests",
        "Files in a tree's `tests/` folder, for `lakeplan test` ([policy tests](policy-tests.md)).",
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
    """The page as it is in ``docs``."""
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

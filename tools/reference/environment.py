"""The variables that lakeplan reads, beside those that set options."""

from __future__ import annotations

from collections.abc import Mapping

from lakeplan.lakefs.credentials import ACCESS_KEY_ID, CONFIG_FILE, ENDPOINT, SECRET_ACCESS_KEY, STATE_URL
from lakeplan.tree.servers import SERVER_SUFFIXES, VARIABLE_PREFIX
from tools.reference.markdown import code, table

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
    f"{VARIABLE_PREFIX}<X>": "What `${X}` reads in the settings of servers; nothing else is read there.",
    CONFIG_FILE: "lakectl's file, in place of `~/.lakectl.yaml`. lakectl's settings hold for a tree with one "
    "server that has no variables of its own.",
    ENDPOINT: "lakectl's endpoint, before its file's.",
    ACCESS_KEY_ID: "lakectl's access key, before its file's.",
    SECRET_ACCESS_KEY: "lakectl's secret, before its file's.",
    "CI": "Set on CI runners. `lifecycle run` and `sweep run` then refuse a state in a folder, and `drift` "
    "records no HEADs in one: it would vanish with the runner.",
    "XDG_CACHE_HOME": "Where the user's cache directory is; `~/.cache` without it.",
    "XDG_CONFIG_HOME": "Where the addresses that a person approved are kept; `~/.config` without it.",
    "XDG_STATE_HOME": "Where the key is kept that signs what marks remember of other repositories; "
    "`~/.local/state` without it.",
    "JAVA_HOME": "The Java that Spark starts with; else `java` of the PATH.",
    "AZURE_STORAGE_CONNECTION_STRING": "An Azure account with its key or SAS.",
    "AZURE_STORAGE_KEY": "The key of an Azure account.",
    "AZURE_STORAGE_ACCOUNT": "Binds key and SAS to this account: they are sent to no other.",
    "AZURE_STORAGE_SAS_TOKEN": "A SAS, in place of a key. Requires `AZURE_STORAGE_ACCOUNT`.",
    "AZURE_TENANT_ID": "With the next two a service principal, as azure-identity reads it; the official "
    "collector takes it too.",
    "AZURE_CLIENT_ID": "The service principal's id.",
    "AZURE_CLIENT_SECRET": "Its secret.",
    **dict.fromkeys(
        ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
        "Where settings of the official collector's Spark and Hadoop are looked for.",
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
            "it is installed.",
            table(("variable", "meaning"), rows),
        ]
    )
